"""Gymnasium's own tabular worlds, unmodified: certificates against exact values and against real episodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import DataError, ModelError, RPLAgent, build
from rpl_agent.agent import EveryN
from rpl_agent.agent.evaluation import monte_carlo, optimal_value
from rpl_agent.agent.world.plays import model_rewards
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import Objective, Sense
from rpl_agent.guarantee.shown import true_value
from rpl_envs.toy import bind
from rpl_envs.toy.table import bind_table
from tests.agent_worlds import CorridorEnv

pytestmark = pytest.mark.short_runs

#: id, keywords, true parameters, episodes
WORLDS: dict[str, tuple[str, dict[str, Any], list[float], int]] = {
    "lake": ("FrozenLake-v1", {}, [1 / 3], 100),
    "lake of one's own": ("FrozenLake-v1", {"desc": ["SFS", "FHF", "FFG"], "success_rate": 0.7}, [0.7], 100),
    "firm lake": ("FrozenLake-v1", {"is_slippery": False}, [1.0], 60),
    "cliff": ("CliffWalking-v1", {}, [1.0], 40),
    "slippery cliff": ("CliffWalkingSlippery-v1", {}, [1 / 3], 30),
    "taxi": ("Taxi-v4", {}, [1.0], 40),
    "rainy taxi": ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}, [0.8, 0.3], 30),
    "blackjack": ("Blackjack-v1", {}, [4 / 13], 300),
    "natural blackjack": ("Blackjack-v1", {"sab": False, "natural": True}, [4 / 13], 100),
}
#: Monte Carlo episodes, and as many as show smaller errors
PLAYS = [80, pytest.param(10_000, marks=pytest.mark.nightly)]
WRAPPERS = {
    "bare": lambda env: env.unwrapped,
    "made": lambda env: env,
    "wrapped": lambda env: gym.wrappers.TimeLimit(gym.wrappers.RecordEpisodeStatistics(env), 60),
}


def made(name: str, wrapper: str = "made") -> gym.Env:
    id, keywords, _, _ = WORLDS[name]
    env = gym.make(id, **keywords)
    return WRAPPERS[wrapper](env)


def battery() -> Iterator[Any]:
    """Every world with 80 Monte Carlo episodes (400 where one in 140 fails), half of them wrapped; all pairs with
    10,000 are for the night, and so are the rains, whose kernel and counts have tests by day."""
    for i, name in enumerate(WORLDS):
        plays = 400 if name == "lake of one's own" else 80
        marks = [pytest.mark.nightly] if name == "rainy taxi" else []
        yield pytest.param(name, ("made", "wrapped")[i % 2], plays, marks=marks)
        for wrapper in ("made", "wrapped"):
            yield pytest.param(name, wrapper, 10_000, marks=pytest.mark.nightly)


@pytest.mark.parametrize("name, wrapper, plays", battery())
def test_certificates_hold_in_the_unmodified_worlds(name, wrapper, plays):
    _, _, truth, episodes = WORLDS[name]
    theta = np.array(truth)
    schedule = EveryN(50 if "blackjack" not in name else 100)
    agent = RPLAgent(seed=3, schedule=schedule).learn(made(name, wrapper), budget=episodes, log_interval=10_000)
    certificate, pmdp, objective = agent.certificate, agent.pmdp, agent.objective
    value, best = true_value(pmdp, objective, certificate.policy, theta), optimal_value(pmdp, objective, theta)
    assert not certificate.refuted and agent.num_episodes == episodes
    slack = 1e-4 * (1 + abs(best))
    assert certificate.lower - slack <= min(value, best) and max(value, best) <= certificate.upper + slack
    sampled = monte_carlo(agent, made(name, wrapper), plays, seed=4)
    assert sampled.cut == 0 and certificate.truncation is None  # the limit is part of the question
    assert sampled.values.mean() == pytest.approx(value, abs=5 * sampled.value_error + slack)
    assert agent.objective.horizon == (20 if "blackjack" in name and wrapper == "made" else agent.world.limit)
    if agent.objective.sense is Sense.MAX:  # in the environment's own units
        assert sampled.returns.tolist() == pytest.approx(sampled.values.tolist())


def within(table: Any, steps: int) -> np.ndarray:
    """(S,) the best total reward within so many steps, by value iteration on a table P."""
    paid, goes = np.zeros((len(table), len(table[0]))), np.zeros((len(table), len(table[0]), len(table)))
    for state, rows in table.items():
        for action, ways in rows.items():
            for p, successor, reward, over in ways:
                paid[state, action] += p * reward
                goes[state, action, successor] += p * (not over)
    values = np.zeros(len(table))
    for _ in range(steps):
        values = (paid + goes @ values).max(axis=1)
    return values


@pytest.mark.parametrize("plays", PLAYS)
def test_the_large_lake_with_its_time_limit(plays):
    """Without the limit it is crossed for sure; within 200 steps it is not, and that is what is certified."""
    env = gym.make("FrozenLake8x8-v1")
    agent = RPLAgent(seed=3, schedule=EveryN(100)).learn(env, budget=100, log_interval=10_000)
    certificate, best = agent.certificate, within(env.unwrapped.P, 200)[0]
    value = true_value(agent.pmdp, agent.objective, certificate.policy, np.array([1 / 3]))
    assert agent.objective.horizon == 200 and certificate.truncation is None and not certificate.refuted
    assert optimal_value(agent.pmdp, agent.objective, np.array([1 / 3])) == pytest.approx(best, abs=1e-9)
    assert certificate.lower <= value <= best + 1e-9 <= certificate.upper + 1e-9 and certificate.upper < 1.0
    sampled = monte_carlo(agent, gym.make("FrozenLake8x8-v1"), plays, seed=4)
    assert sampled.cut == 0 and sampled.values.mean() == pytest.approx(value, abs=5 * sampled.value_error)
    assert sampled.returns.mean() == pytest.approx(sampled.values.mean())


#: how an observation wrapper shows the states of a world, and back to the model's own
SHOWN = {
    "lake": (lambda o: np.array(divmod(o, 4)), lambda o: tuple(o.tolist())),
    "cliff": (lambda o: np.array([o % 12, o // 12]), lambda o: (int(o[1]), int(o[0]))),
    "taxi": (lambda o: np.eye(500)[o], lambda o: taxi_state(int(np.argmax(o)))),
}


def taxi_state(code: int) -> tuple[int, ...]:
    return code // 100, code // 20 % 5, code // 4 % 5, code % 4, 0


@pytest.mark.parametrize("plays", PLAYS)
@pytest.mark.parametrize("name", SHOWN)
def test_an_observation_wrapper_and_its_mapping(name, plays):
    show, back = SHOWN[name]
    binding, theta = bind(made(name)), np.array(WORLDS[name][2])

    def wrapped(env: gym.Env) -> gym.Env:
        shape = np.shape(show(0))
        env = gym.wrappers.TransformObservation(env, show, gym.spaces.Box(0, 100, shape))
        return gym.wrappers.RecordEpisodeStatistics(env)

    agent = RPLAgent(
        pmdp=binding.pmdp, objective=binding.objective, observation_to_state=back, seed=3, schedule=EveryN(50),
        check_rewards=None if name != "taxi" else False,  # Taxi pays a bonus that the cost leaves out
    )  # fmt: skip
    with pytest.raises(ModelError, match="TransformObservation changes what is observed"):
        RPLAgent().set_env(wrapped(made(name)))
    agent.learn(wrapped(made(name)), budget=30, log_interval=10_000)
    certificate = agent.certificate
    value = true_value(agent.pmdp, agent.objective, certificate.policy, theta)
    best = optimal_value(agent.pmdp, agent.objective, theta)
    slack = 1e-4 * (1 + abs(best))
    assert certificate.lower - slack <= min(value, best) and max(value, best) <= certificate.upper + slack
    sampled = monte_carlo(agent, wrapped(made(name, "bare")), plays, seed=4)
    assert sampled.values.mean() == pytest.approx(value, abs=5 * sampled.value_error + slack)


@pytest.mark.parametrize("name", ["lake", "slippery cliff", "rainy taxi"])
def test_models_are_the_true_kernels(name):
    """Row by row against the table that the agent does not read."""
    env = made(name)
    binding = bind(env)
    pmdp, table = binding.pmdp, env.unwrapped.P
    probability = pmdp.instantiate(WORLDS[name][2]).probability
    for s in range(pmdp.num_states):
        if pmdp.is_silent[s] or objective_decided(binding)[s]:
            continue
        value = pmdp.state_value(s)
        if name == "rainy taxi":
            row, column, passenger, destination, moved = value
            if passenger == 4 and not moved:
                continue  # the passenger's change of mind is no part of P (see test_toy_text.py)
            code = ((row * 5 + column) * 5 + passenger) * 4 + destination
        else:
            code = value[0] * (12 if "cliff" in name else 4) + value[1]
        for r in range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]):
            expected: dict[tuple[int, float], float] = {}
            for p, successor, reward, _ in table[code][int(pmdp.action[r])]:
                expected[int(successor), float(reward)] = expected.get((int(successor), float(reward)), 0.0) + p
            found: dict[tuple[int, float], float] = {}
            paid = binding.paid if binding.paid is not None else model_rewards(pmdp, binding.objective)
            for t in range(pmdp.row_ptr[r], pmdp.row_ptr[r + 1]):
                after = pmdp.state_value(int(pmdp.visible_successor[t]))
                if name == "rainy taxi":
                    number = ((after[0] * 5 + after[1]) * 5 + after[2]) * 4 + after[3]
                else:
                    number = after[0] * (12 if "cliff" in name else 4) + after[1]
                key = (number, float(paid[t]))
                found[key] = found.get(key, 0.0) + probability[t]
            assert {k: v for k, v in found.items() if v > 0} == pytest.approx({k: v for k, v in expected.items() if v})


def objective_decided(binding):
    return binding.objective.resolve(binding.pmdp).decided


def test_blackjack_deals_as_gymnasium_does():
    binding = bind(gym.make("Blackjack-v1"))
    pmdp = binding.pmdp
    probability = pmdp.instantiate([4 / 13]).probability
    row = int(pmdp.state_ptr[pmdp.initial_state])
    env = gym.make("Blackjack-v1").unwrapped
    seen: dict[Any, int] = {}
    env.reset(seed=0)
    for _ in range(5_000):
        hand = binding.first(env.reset()[0])
        seen[hand] = seen.get(hand, 0) + 1
    assert set(seen) <= {pmdp.state_value(int(s)) for s in pmdp.successor[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]]}
    naturals = sum(
        probability[t]
        for t in range(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
        if pmdp.state_value(int(pmdp.successor[t]))[3]
    )
    assert naturals == pytest.approx(2 * (1 / 13) * (4 / 13))
    for state in ((20, 10, 0, 0), (12, 5, 0, 0)):
        t = pmdp.find_transition(row, pmdp.state_index(state))
        chance = float(probability[t])
        assert seen[state] / 5_000 == pytest.approx(chance, abs=5 * np.sqrt(chance / 5_000))


# ---------------------------------------------------------------------- tables
class Tabular(gym.Env):
    """A stranger's environment with a table P: two rooms, a prize, costs on the way."""

    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)

    def __init__(self):
        self.P = {
            0: {0: [(0.6, 1, -1.0, False), (0.4, 0, -2.0, False)], 1: [(0.3, 2, -5.0, True), (0.7, 0, -1.0, False)]},
            1: {0: [(0.5, 2, -1.0, True), (0.5, 0, -1.0, False)], 1: [(1.0, 0, -3.0, False)]},
            2: {0: [(1.0, 2, 0.0, True)], 1: [(1.0, 2, 0.0, True)]},
        }
        self.initial_state_distrib = np.array([1.0, 0.0, 0.0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        ways = self.P[self.s][int(action)]
        _, self.s, reward, over = ways[int(self.np_random.choice(len(ways), p=[w[0] for w in ways]))]
        return self.s, reward, over, False, {}


def test_a_table_gives_the_graph_and_no_number():
    agent = RPLAgent(seed=0, schedule=EveryN(150)).learn(Tabular(), budget=300, log_interval=1000)
    pmdp = agent.pmdp
    assert (agent.config.confidence, agent.config.relaxation) == ("likelihood", "coupled")
    lake = gym.make("FrozenLake-v1").unwrapped  # more rows of one's own than fit one region
    many = bind_table(lake)
    assert many.method == ("likelihood", "rectangular") and many.pmdp.num_parameters > 80
    assert pmdp.num_parameters == 3 and pmdp.table.is_constant.sum() == 1  # the constant is 1: no number of P
    theta = {"p_0_0_0": 0.6, "p_0_1_0": 0.3, "p_1_0_0": 0.5}
    point = np.array([theta[name] for name in pmdp.table.parameters])
    best = optimal_value(pmdp, agent.objective, point)
    assert agent.certificate.lower <= best <= agent.certificate.upper
    value = true_value(pmdp, agent.objective, agent.certificate.policy, point)
    sampled = monte_carlo(agent, Tabular(), 1000)
    assert sampled.values.mean() == pytest.approx(value, abs=5 * sampled.value_error)
    changed = Tabular()
    for rows in changed.P.values():
        for action, ways in rows.items():
            rows[action] = [(float("nan"), *rest) for _, *rest in ways]
    assert bind(changed).pmdp.content_hash == pmdp.content_hash


def test_wrong_tables_are_named():
    mixed = Tabular()
    mixed.P[0][0][0] = (0.6, 1, 1.0, False)
    with pytest.raises(ModelError, match="gains and costs"):
        RPLAgent().set_env(mixed)
    endless = Tabular()
    for rows in endless.P.values():
        for action, ways in rows.items():
            rows[action] = [(*way[:3], False) for way in ways]
    with pytest.raises(ModelError, match="never ends"):
        RPLAgent().set_env(endless)


def test_anything_else_says_what_a_structure_is():
    with pytest.raises(ModelError, match=r"(?s)structure .* says which states .*continuous"):
        RPLAgent().set_env(gym.make("CartPole-v1"))
    with pytest.raises(ModelError, match="A structure says"):
        RPLAgent().set_env(CorridorEnv(own_model=False))
    with pytest.raises(ModelError, match="TransformObservation changes what is observed"):
        RPLAgent().set_env(gym.wrappers.TransformObservation(made("lake"), lambda o: 15 - o, None))


# ---------------------------------------------------------------------- renaming
class Renamed(gym.Env):
    """A random world whose observations are called by somebody else."""

    def __init__(self, kernel: np.ndarray, names: list[Any], space: gym.Space):
        self.kernel, self.names = kernel, names
        self.observation_space, self.action_space = space, gym.spaces.Discrete(kernel.shape[1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.names[0], {}

    def step(self, action):
        cumulative = np.cumsum(self.kernel[self.state, action])
        self.state = int(np.searchsorted(cumulative, self.np_random.random() * cumulative[-1], side="right"))
        return self.names[self.state], -1.0, self.state == len(self.names) - 1, False, {}


def random_world(rng: np.random.Generator, states: int, actions: int):
    """(kernel at the truth, model over names): in every row two or three successors, with two shared parameters."""
    rows, kernel = {}, np.zeros((states, actions, states))
    p, q = 0.4, 0.7
    for s in range(states - 1):
        for a in range(actions):
            first, second = rng.choice(states, size=2, replace=False)
            name, value = [("p", p), ("q", q)][rng.integers(2)]
            rows[s, a] = {int(first): f"0.5*{name}", int(second): f"0.5 - 0.5*{name}"}
            kernel[s, a, first] += 0.5 * value
            kernel[s, a, second] += 0.5 - 0.5 * value
            rows[s, a][states - 1] = f"({rows[s, a].get(states - 1, 0)}) + 0.5"
            kernel[s, a, states - 1] += 0.5

    def model(names: list[Any]):
        number = {name: s for s, name in enumerate(names)}

        def described(name):
            s = number[name]
            if s == states - 1:
                return {a: {name: 1} for a in range(actions)}
            return {a: {names[t]: expression for t, expression in rows[s, a].items()} for a in range(actions)}

        return build(
            names[0], described, domain=["p", "q"], labels={"end": lambda n: number[n] == states - 1},
            rewards={"cost": lambda n, a: float(number[n] != states - 1)},
        )  # fmt: skip

    return kernel, model


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.nightly) for k in range(2, 8))])
def test_renaming_observations_changes_no_certificate_or_is_refused(seed):
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(4, 8)), int(rng.integers(1, 4))
    kernel, model = random_world(rng, states, actions)
    objective = Objective.cost("cost", target="end")

    def certificate(pmdp, env, **settings):
        agent = RPLAgent(pmdp=pmdp, objective=objective, relaxation="expression", seed=seed, **settings)
        agent.learn(env, budget=40, log_interval=1000)
        return agent.certificate

    plain = list(range(states))
    discrete = gym.spaces.Discrete(10 * states)
    reference = certificate(model(plain), Renamed(kernel, plain, discrete), schedule=EveryN(1000))
    shuffled = [int(n) for n in rng.permutation(10 * states)[:states]]
    texts = [f"room {n}" for n in shuffled]
    pairs = [(n % 7, n) for n in shuffled]
    spaces = {0: discrete, 1: gym.spaces.Text(20), 2: gym.spaces.MultiDiscrete([7, 10 * states])}
    for kind, names in enumerate((shuffled, texts, pairs)):
        shown = [np.array(n) for n in names] if kind == 2 else names
        env = Renamed(kernel, shown, spaces[kind])
        renamed = certificate(model(names), env, schedule=EveryN(1000))  # model and environment agree on names
        assert (renamed.lower, renamed.upper) == pytest.approx((reference.lower, reference.upper), rel=1e-4)
        if kind:  # names that the model does not have: refused when attached
            with pytest.raises(ModelError, match="observation space"):
                certificate(model(plain), Renamed(kernel, shown, spaces[kind]))
        back = {str(n): s for s, n in enumerate(shown)}
        mapped = certificate(
            model(plain), Renamed(kernel, shown, spaces[kind]), schedule=EveryN(1000),
            observation_to_state=lambda o, back=back: back[str(o)],
        )  # fmt: skip
        assert (mapped.lower, mapped.upper) == pytest.approx((reference.lower, reference.upper), rel=1e-9)
    # Numbers that the model has too, but for other states: no space tells. What is seen contradicts the graph, or the
    # counts refute the model, or the exchange makes no difference to what is certified.
    for _ in range(3):
        permuted = [int(n) for n in rng.permutation(states)]
        env = Renamed(kernel, permuted, gym.spaces.Discrete(states))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)
            try:
                found = certificate(model(plain), env, schedule=EveryN(1000))
            except DataError:
                assert permuted != plain
                continue
        pmdp = model(plain)
        exact = optimal_value(pmdp, objective, np.array([0.4, 0.7]))
        assert found.refuted or found.lower - 1e-4 <= exact <= found.upper + 1e-4


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.nightly) for k in (2, 3))])
def test_renumbering_actions_changes_no_certificate_or_is_refused(seed):
    """The environment numbers its actions in another order: by name nothing changes, by order nothing is silent."""
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(4, 7)), 3
    kernel, model = random_world(rng, states, actions)
    objective, names = Objective.cost("cost", target="end"), list(range(states))
    order = [int(a) for a in rng.permutation(actions)]
    called = [f"way {a}" for a in range(actions)]
    pmdp = replace(model(names), action_names=tuple(called), own_actions=None)

    def certificate(env):
        agent = RPLAgent(
            pmdp=pmdp, objective=objective, relaxation="expression", seed=seed, schedule=EveryN(1000)
        )  # fmt: skip
        return agent.learn(env, budget=40, log_interval=1000).certificate

    reference = certificate(Renamed(kernel, names, gym.spaces.Discrete(states)))
    turned = Renamed(kernel[:, order], names, gym.spaces.Discrete(states))
    turned.action_names = [called[a] for a in order]
    renumbered = certificate(turned)
    assert (renumbered.lower, renumbered.upper) == (reference.lower, reference.upper)
    with pytest.raises(ModelError, match="cannot match actions of"):
        del turned.action_names
        RPLAgent(pmdp=replace(pmdp, actions_ordered=False), objective=objective).set_env(turned)
