"""Rewards r(s, a, s') with a discount or a horizon: against exact rationals, Gymnasium's tables, real episodes."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

import rpl_envs
from rpl_agent import Objective, RPLAgent, Sense, build, check_model
from rpl_agent.agent.evaluation import monte_carlo, optimal_value
from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch
from rpl_agent.agent.sampling.stream import open_source
from rpl_agent.agent.schedule import EveryN, Limits
from rpl_agent.agent.world.attach import attach
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Policy, paying
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify
from rpl_envs.benchmark import Benchmark
from rpl_envs.rendering.scene import StateRenderer
from rpl_envs.vector_env import PMDPVectorEnv

pytestmark = pytest.mark.short_runs

P = Fraction(3, 8)


class RandomTable:
    """A small MDP with rewards r(s, a, s') of both signs; probabilities are p/2, 1/2 − p/2 and 1/2 at p = 3/8."""

    def __init__(self, seed: int, random_start: bool, with_target: bool):
        rng = np.random.default_rng(seed)
        self.states, self.actions = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        self.rows = {}
        for s, a in product(range(self.states), range(self.actions)):
            ends = rng.choice(self.states, size=min(3, self.states), replace=False).tolist()
            shares = ["p/2", "1/2 - p/2", "1/2"] if len(ends) == 3 else ["p/2", "1 - p/2"]
            values = [P / 2, Fraction(1, 2) - P / 2, Fraction(1, 2)] if len(ends) == 3 else [P / 2, 1 - P / 2]
            self.rows[s, a] = [
                (end, share, value, Fraction(int(rng.integers(-8, 9)), 4))
                for end, share, value in zip(ends, shares, values, strict=True)
            ]
        self.target = self.states - 1 if with_target else None
        self.start = {0: Fraction(1, 4), 1: Fraction(3, 4)} if random_start else {0: Fraction(1)}

    def model(self):
        def reward(s, a, after):
            return float(next(r for end, _, _, r in self.rows[s, int(a)] if end == after))

        start = {s: str(w) for s, w in self.start.items()} if len(self.start) > 1 else 0
        return build(
            start, lambda s: {a: {end: share for end, share, _, _ in self.rows[s, a]} for a in range(self.actions)},
            domain=["p"], rewards={"r": reward}, labels={"t": lambda s: s == self.target},
        )  # fmt: skip

    def backup(self, values, s, a, gamma):
        return sum(v * (r + gamma * values[end]) for end, _, v, r in self.rows[s, a])

    def sweep(self, values, gamma, best):
        return [
            Fraction(0) if s == self.target else best(self.backup(values, s, a, gamma) for a in range(self.actions))
            for s in range(self.states)
        ]

    def within(self, steps, gamma, best):
        values = [Fraction(0)] * self.states
        for _ in range(steps):
            values = self.sweep(values, gamma, best)
        return sum(w * values[s] for s, w in self.start.items())

    def discounted(self, gamma, best):
        """The best of all stationary policies, each by Gauss elimination in rationals."""
        found = []
        for choice in product(range(self.actions), repeat=self.states):
            found.append(sum(w * self.evaluate(choice, gamma)[s] for s, w in self.start.items()))
        return best(found)

    def evaluate(self, choice, gamma):
        n = self.states
        system = []
        for s in range(n):
            line = [Fraction(int(s == j)) for j in range(n)] + [Fraction(0)]
            if s != self.target:
                for end, _, v, r in self.rows[s, choice[s]]:
                    line[end] -= gamma * v if end != self.target else 0
                    line[n] += v * r
            system.append(line)
        for k in range(n):
            pivot = next(i for i in range(k, n) if system[i][k])
            system[k], system[pivot] = system[pivot], system[k]
            system[k] = [x / system[k][k] for x in system[k]]
            for i in range(n):
                if i != k and system[i][k]:
                    system[i] = [x - system[i][k] * y for x, y in zip(system[i], system[k], strict=True)]
        return [line[n] for line in system]


CASES = [
    pytest.param(seed, start, target, marks=[pytest.mark.nightly] if seed > 2 else [])
    for seed, start, target in product(range(6), (False, True), (False, True))
]


@pytest.mark.parametrize(("seed", "random_start", "with_target"), CASES)
def test_values_are_those_of_exact_rationals(seed, random_start, with_target):
    table = RandomTable(seed, random_start, with_target)
    pmdp, truth = table.model(), np.array([float(P)])
    target = "t" if with_target else None
    for sense, best in ((Sense.MAX, max), (Sense.MIN, min)):
        for gamma in (Fraction(19, 20), Fraction(1, 2)):
            objective = Objective.discounted("r", float(gamma), target=target, sense=sense)
            exact = table.discounted(Fraction(float(gamma)), best)
            assert optimal_value(pmdp, objective, truth) == pytest.approx(float(exact), abs=2e-6 * (1 + abs(exact)))
        for steps in (0, 1, 2, 7):
            objective = Objective.reward("r", target=target, sense=sense, horizon=steps)
            exact = table.within(steps, Fraction(1), best)
            assert optimal_value(pmdp, objective, truth) == pytest.approx(float(exact), abs=1e-9)


@pytest.mark.parametrize("random_start", [False, True])
def test_brackets_hold_exactly_and_pass_their_check(random_start, sized):
    """Not approximately: the exact rational lies in the bracket, the root of the discount notwithstanding."""
    from rpl_agent.core.model import Nature
    from rpl_agent.core.relaxations.interval import Point
    from rpl_agent.core.solver import solve

    for seed in range(sized(2, 5)):
        table = RandomTable(seed, random_start, False)
        pmdp = table.model()
        for gamma in (0.3, 0.95, 0.999, 1 - 2**-20):
            exact = table.discounted(Fraction(gamma), max)
            solution = solve(
                Point(pmdp.instantiate([float(P)])), Objective.discounted("r", gamma), Nature.COOPERATIVE,
                precision=1e-9,
            )  # fmt: skip
            assert Fraction(solution.lower) <= exact <= Fraction(solution.upper)
            assert solution.upper - solution.lower < 1e-4 * (1 + abs(float(exact))) and not solution.check()


def test_the_root_of_a_discount_never_becomes_one():
    pmdp = RandomTable(0, False, False).model()
    task = Objective.discounted("r", 1 - 2**-53).resolve(pmdp)
    assert task.objective.discount < 1.0 and task.rounding > 0.0


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("random_start", [False, True])
def test_episodes_are_worth_what_was_asked_for(random_start, compiled, sized):
    """Mean values of episodes by the uniform policy, compiled and stepped, against the model's."""
    table, truth = RandomTable(3, random_start, True), np.array([float(P)])
    pmdp = table.model()
    policy = Policy.uniform(pmdp)
    for objective in (
        Objective.discounted("r", 0.5), Objective.reward("r", horizon=3), Objective.reach("t", horizon=2),
        Objective.discounted("r", 0.5, target="t", sense=Sense.MIN), Objective.reach("t", sense=Sense.MIN),
    ):  # fmt: skip
        steps = 400 if objective.discount == 1.0 and objective.horizon is None else 25
        env = rpl_envs.make_own(pmdp, objective, truth.tolist(), max_episode_steps=steps)
        world, done = attach(env, compiled=compiled), SampledBatch()
        assert world.compiled == compiled
        episodes = sized(4_000, 10_000) if compiled else sized(50, 200)
        source = open_source(world, Experience(pmdp), np.random.default_rng(1), 5)
        source.collect(Request(policy, Limits(), episodes, episodes), done)
        values = np.array(done.values)
        exact = true_value(pmdp, objective, policy, truth)
        assert values.mean() == pytest.approx(exact, abs=5 * values.std() / episodes**0.5 + 1e-6), objective
        if objective.discount == 1.0:
            assert not any(done.undecided)


def test_a_play_may_begin_at_the_target():
    """Half of the plays do, and have reached it without a step."""
    pmdp = build(
        {"goal": "1/2", "away": "1/2"}, lambda s: {"go": {"goal": "p", "lost": "1-p"} if s == "away" else {s: 1}},
        domain=["p"], labels={"goal": lambda s: s == "goal"},
    )  # fmt: skip
    env = rpl_envs.make_own(pmdp, Objective.reach("goal"), [0.5], max_episode_steps=9)
    agent = RPLAgent(env, seed=0).learn(budget=20)
    found = agent.evaluate(env, 400, seed=1)
    assert found.lower <= 0.75 <= found.upper and found.contradiction is None


@pytest.mark.parametrize("goal_stays", [True, False])
@pytest.mark.parametrize("kind", ["compiled", "stepped", "NextStep", "SameStep", "Disabled"])
def test_a_play_that_begins_at_its_end_is_one_of_no_step(kind, goal_stays):
    """Half of the plays: compiled, stepped and in lanes. Their rate of p is that of the others."""
    rows = {"away": {"goal": "p", "lost": "1-p"}, "goal": {"goal": 1} if goal_stays else {"away": "p", "lost": "1-p"}}
    pmdp = build(
        {"goal": "1/2", "away": "1/2"}, lambda s: {"go": rows.get(s, {s: 1})}, domain=["p"],
        labels={"goal": lambda s: s == "goal"},
    )  # fmt: skip
    objective, episodes = Objective.reach("goal"), 400
    env = rpl_envs.make_own(pmdp, objective, [0.25], max_episode_steps=9)
    if kind not in ("compiled", "stepped"):
        source = Benchmark(pmdp, objective, (0.25,), 9, StateRenderer())
        env = PMDPVectorEnv(3, source, autoreset_mode=kind)
    world, done, experience = attach(env, compiled=kind == "compiled"), SampledBatch(), Experience(pmdp)
    source = open_source(world, experience, np.random.default_rng(1), 5)
    source.collect(Request(Policy.uniform(pmdp), Limits(), episodes, episodes), done)
    returns, lengths, values = (np.array(column) for column in (done.returns, done.lengths, done.values))
    assert set(lengths.tolist()) == {0, 1} and (values[lengths == 0] == 1).all() and (returns == values).all()
    assert abs((lengths == 0).mean() - 0.5) < 0.1 and abs(values[lengths == 1].mean() - 0.25) < 0.1
    away = experience.rows[pmdp.row_state == pmdp.state_index("away")]
    assert away.sum() == done.steps == lengths.sum()


def test_stepping_an_environment_that_begins_at_its_end():
    """The first step stays there, pays the arrival and ends: Stable-Baselines3 and a loop of one's own need no more."""
    pmdp = build(
        {"goal": "1/2", "away": "1/2"}, lambda s: {"go": {"goal": "p", "lost": "1-p"} if s == "away" else {s: 1}},
        domain=["p"], labels={"goal": lambda s: s == "goal"},
    )  # fmt: skip
    env = rpl_envs.make_own(pmdp, Objective.reach("goal"), [0.25], max_episode_steps=9)
    returns = []
    for seed in range(400):
        start, _ = env.reset(seed=seed)
        after, reward, terminated, truncated, _ = env.step(0)
        assert terminated and not truncated
        assert start == pmdp.state_index("away") or (after == start and reward == 1.0)
        returns.append(reward)
        with pytest.raises(ResetNeeded):
            env.step(0)
    assert abs(np.mean(returns) - 0.625) < 0.1
    assert check_model(env, episodes=50).problems == []


# ---------------------------------------------------------------------- Gymnasium's table of FrozenLake
GAMMA, STEPS = 0.95, 100


def lake_model(env):
    """FrozenLake from its table: the reward is paid on entering the goal; one unknown success rate."""
    table = env.unwrapped.P
    ends = {s for rows in table.values() for ways in rows.values() for _, s, _, over in ways if over}

    def merged(state, action, value):
        row = {}
        for k, (_, successor, *_) in enumerate(table[state][action]):
            row[successor] = row.get(successor, "0") + " + " + value(k)
        return row

    def actions(state):
        if state in ends:
            return {a: {state: 1} for a in range(4)}
        return {a: merged(state, a, lambda k: "p" if k == 1 else "(1-p)/2") for a in range(4)}

    def reward(state, action, successor):
        return max((r for _, s, r, _ in table[state][int(action)] if s == successor), default=0.0)

    return build(0, actions, domain=["p"], rewards={"gain": reward}, labels={"end": lambda s: s in ends}, name="lake")


def by_value_iteration(table, gamma, steps):
    values = np.zeros(len(table))
    for _ in range(steps):
        values = np.array([
            max(sum(p * (r + gamma * values[s] * (not over)) for p, s, r, over in ways) for ways in rows.values())
            for rows in table.values()
        ])  # fmt: skip
    return values[0]


OBJECTIVES = {
    "discount": (Objective.discounted("gain", GAMMA), lambda table: by_value_iteration(table, GAMMA, 500)),
    "horizon": (Objective.reward("gain", target=None, horizon=STEPS), lambda table: by_value_iteration(table, 1, 100)),
}


@pytest.mark.parametrize("plays", [80, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_frozen_lake_pays_on_entering_the_goal(kind, plays):
    env = gym.make("FrozenLake-v1")
    objective, reference = OBJECTIVES[kind]
    pmdp, best, theta = lake_model(env), reference(env.unwrapped.P), np.array([1 / 3])
    assert pmdp.has_payments and optimal_value(pmdp, objective, theta) == pytest.approx(best, abs=1e-6)
    agent = RPLAgent(pmdp=pmdp, objective=objective, seed=0, schedule=EveryN(50)).learn(
        env, budget=100, log_interval=1000
    )
    certificate = agent.certificate
    value = true_value(pmdp, objective, certificate.policy, theta)
    assert certificate.checked and not certificate.refuted
    assert certificate.lower - 1e-6 <= value <= best + 1e-6 and best <= certificate.upper + 1e-6
    sampled = monte_carlo(agent, gym.make("FrozenLake-v1").unwrapped if kind == "discount" else env, plays, seed=4)
    assert sampled.values.mean() == pytest.approx(value, abs=5 * sampled.value_error + 1e-6)
    verdict = verify(certificate, pmdp, agent.counts)
    assert verdict.problems == []


def test_the_horizon_of_the_environment_and_its_natural_loop(tmp_path):
    """TimeLimit as the horizon: `as_policy` plays what is certified, and a checkpoint goes on with it."""
    env = gym.make("FrozenLake-v1", max_episode_steps=30)
    pmdp = lake_model(env)
    agent = RPLAgent(pmdp=pmdp, objective=Objective.reward("gain", target=None, horizon=99), horizon="env", seed=0)
    agent.learn(env, budget=200, log_interval=1000)
    assert agent.objective.horizon == 30 and agent.certificate.truncation is None
    best = by_value_iteration(env.unwrapped.P, 1, 30)
    value = true_value(pmdp, agent.objective, agent.certificate.policy, np.array([1 / 3]))
    assert agent.certificate.lower <= value <= best + 1e-9 <= agent.certificate.upper + 1e-6
    policy, returns = agent.as_policy(), []
    for episode in range(150):
        observation, _ = env.reset(seed=episode)
        policy.reset()
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(int(policy(observation)))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    assert np.mean(returns) == pytest.approx(value, abs=5 * np.std(returns) / np.sqrt(len(returns)))
    lower, upper = agent.value_bounds()
    assert 0.1 < lower[pmdp.state_index(0)] <= value and best <= upper[pmdp.state_index(0)] < 0.95
    assert np.isnan(lower[pmdp.is_silent]).all()
    later = agent.value_bounds(29)[1]
    assert later[pmdp.state_index(14)] <= 1.0 and later[pmdp.state_index(0)] == pytest.approx(0.0, abs=1e-9)
    assert [line["name"] for line in agent.policy_table()] == [repr(s) for s in map(pmdp.state_value, range(16))]
    agent.save(tmp_path / "agent.zip")
    same = RPLAgent.load(tmp_path / "agent.zip", gym.make("FrozenLake-v1", max_episode_steps=30), pmdp=pmdp)
    assert (same.certificate.lower, same.certificate.upper) == (agent.certificate.lower, agent.certificate.upper)
    same.learn(budget=20, log_interval=1000)
    assert same.num_episodes == 220 and same.certificate.lower <= best + 1e-9 <= same.certificate.upper + 1e-6


# ---------------------------------------------------------------------- values in the environment's own time
def arrival_world(start=0):
    """`go` pays 2 on arriving at 1 (with p) and 1 else, forever; a random start puts half of all plays there."""

    def actions(s):
        return {"go": {1: "p", 0: "1-p"}}

    return build(start, actions, domain=["p"], rewards={"r": lambda s, a, t: 2.0 if t == 1 else 1.0})


@pytest.mark.parametrize("start", [0, {0: "1/2", 1: "1/2"}])
def test_bounds_of_states_and_actions_are_in_the_environment_s_time(start):
    pmdp, objective = arrival_world(start), Objective.discounted("r", 0.9)
    env = rpl_envs.make_own(pmdp, objective, {"p": 0.25}, max_episode_steps=20)
    agent = RPLAgent(seed=0, schedule=EveryN(50)).learn(env, budget=300, log_interval=1000)
    exact = 1.25 / 0.1  # the same in every state
    lower, upper = agent.value_bounds()
    seen = [pmdp.state_index(0), pmdp.state_index(1)]
    assert (lower[seen] <= exact).all() and (exact <= upper[seen]).all() and (upper - lower)[seen].max() < 1.0
    low, high = agent.q_bounds()
    assert (low[seen] <= exact).all() and (exact <= high[seen]).all() and (high - low)[seen].max() < 1.0
    limited = Objective.reward("r", target=None, horizon=4)
    agent = RPLAgent(seed=0, objective=limited, pmdp=pmdp, schedule=EveryN(50))
    agent.learn(env, budget=300, log_interval=1000)
    for step in range(5):
        lower, upper = agent.value_bounds(step)
        left = 1.25 * (4 - step)
        assert (lower[seen] <= left + 1e-9).all() and (left <= upper[seen] + 1e-9).all()
        assert (upper - lower)[seen].max() < 0.5
    low, high = agent.q_bounds(3)
    assert (low[seen] <= 1.25).all() and (1.25 <= high[seen]).all() and (high - low)[seen].max() < 0.3


def test_all_paths_and_baselines_count_the_same():
    from rpl_agent.studies.baselines import QLearning

    def actions(s):
        return {"safe": {1: 1}, "bet": {1: "p", 2: "1-p"}} if s == 0 else {"safe": {s: 1}, "bet": {s: 1}}

    def reward(s, a, t):
        return 0.0 if s else 2.0 if a == "safe" else 8.0 if t == 1 else -4.0

    pmdp = build(0, actions, domain=["p"], rewards={"r": reward}, labels={"end": lambda s: s > 0})
    objective = Objective.discounted("r", 0.5, target="end")
    env = rpl_envs.make_own(pmdp, objective, {"p": 0.75}, max_episode_steps=3)
    exact = true_value(pmdp, objective, Policy.uniform(pmdp), np.array([0.75]))
    assert exact == pytest.approx((2 + 0.75 * 8 - 0.25 * 4) / 2)
    for compiled in (True, False):
        agent = RPLAgent(seed=0, compiled=compiled)
        agent.set_env(env)
        found = monte_carlo(agent, env, 1500, policy=Policy.uniform(pmdp))
        assert found.values.mean() == pytest.approx(exact, abs=5 * found.value_error) and found.lengths.max() == 1
        learner = QLearning(seed=0, compiled=compiled).learn(env, budget=1000)
        assert pmdp.action_names[learner.policy.action(pmdp, pmdp.state_index(0))] == "bet"
        assert learner.num_timesteps == 1000


def test_logs_of_seen_states_and_of_ways_that_only_rewards_tell_apart():
    pmdp = arrival_world()
    counts = Counts(pmdp)
    counts.add_many([0, 0, 1], [0, 0, 0], [1, 0, 1])
    assert counts.total == 3 and counts.successes.sum() == 3
    double = build(0, lambda s: {"go": {paying(0, r=1): "p", 0: "1-p"}}, domain=["p"], rewards={"r": lambda s, a: 0.0})
    from rpl_agent import DataError

    with pytest.raises(DataError, match="several ways that only the reward distinguishes"):
        Counts(double).add(0, 0, 0)


def test_offline_certificates_of_discounted_rewards_hold():
    pmdp, objective = arrival_world(), Objective.discounted("r", 0.9)
    rng = np.random.default_rng(0)
    for seed in range(5):
        counts = Counts(pmdp)
        arrived = (rng.random(400) < 0.25).astype(int)
        counts.add_many(np.append(0, arrived[:-1]), np.zeros(400, dtype=int), arrived)
        for relaxation in ("tied", "rectangular", "coupled"):
            certificate = certify(pmdp, counts, objective, Config("likelihood", relaxation, 1e-3))
            assert certificate.lower <= 12.5 <= certificate.upper < certificate.lower + 5.0, (seed, relaxation)
