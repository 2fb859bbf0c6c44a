"""FrozenLake and Taxi: the model from the map is the law of the original environment, and the agent never peeks."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from rpl_agent import RPLAgent
from rpl_agent.agent import EveryN
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Nature
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.shown import true_value
from rpl_envs.toy_text import frozen_lake, frozen_lake_model, taxi, taxi_model

pytestmark = pytest.mark.short_runs


def row_of(pmdp, probability: np.ndarray, state: int, action: int, code) -> dict[int, float]:
    row = pmdp.find_row(state, action)
    ids = range(int(pmdp.row_ptr[row]), int(pmdp.row_ptr[row + 1]))
    return {code(int(pmdp.successor[t])): float(probability[t]) for t in ids if probability[t] > 0}


def merged(entries) -> dict[int, float]:
    total: dict[int, float] = {}
    for p, successor, *_ in entries:
        if p > 0:
            total[successor] = total.get(successor, 0.0) + p
    return total


@pytest.mark.parametrize(("name", "rate"), [("4x4", 1 / 3), ("4x4", 0.8), ("8x8", 0.6)])
def test_frozen_lake_model_is_the_true_kernel(name, rate):
    env = frozen_lake(map_name=name, success_rate=rate)
    pmdp, width = env.pmdp, int(name[0])
    probability = pmdp.instantiate([rate]).probability
    truth = env.unwrapped.P  # the test may look, the agent may not

    def code(s: int) -> int:
        return int(pmdp.variables["row"][s]) * width + int(pmdp.variables["column"][s])

    for s in range(pmdp.num_states):
        for a in range(4):
            expected = merged(truth[code(s)][a])
            assert row_of(pmdp, probability, s, a, code) == pytest.approx(expected)


def test_frozen_lake_has_its_known_optimum():
    env = frozen_lake(success_rate=1 / 3)
    best = solve(Point(env.pmdp.instantiate([1 / 3])), env.objective, Nature.COOPERATIVE)
    assert best.lower == pytest.approx(14 / 17, abs=1e-6)
    assert env.pmdp.num_expressions == 4


@pytest.mark.parametrize("rainy", [True, False])
def test_taxi_model_is_the_true_kernel_but_for_the_passenger_s_mind(rainy):
    env = gym.make("Taxi-v4", is_rainy=rainy, rainy_probability=0.8, fickle_passenger=not rainy, fickle_probability=0.3)
    world = taxi(env)
    pmdp = world.pmdp
    assert pmdp.table.parameters == (("rainy_probability",) if rainy else ("fickle_probability",))
    probability = pmdp.instantiate([0.8] if rainy else [0.3]).probability
    columns = np.column_stack([np.asarray(c) for c in pmdp.variables.values()])

    def code(s: int) -> int:
        row, column, passenger, destination, _ = columns[s].tolist()
        return ((row * 5 + column) * 5 + passenger) * 4 + destination

    checked = 0
    for s in range(pmdp.num_states):
        _, _, passenger, destination, moved = columns[s].tolist()
        if pmdp.is_silent[s] or passenger == destination:
            continue
        for a in range(6):
            expected = merged(env.unwrapped.P[code(s)][a])
            found = row_of(pmdp, probability, s, a, code)
            if not rainy and passenger == 4 and not moved:
                # the change of destination is no part of P: merge it away
                kept: dict[int, float] = {}
                for successor, p in found.items():
                    kept[successor - successor % 4 + destination] = (
                        kept.get(successor - successor % 4 + destination, 0.0) + p
                    )
                found = kept
            assert found == pytest.approx(expected)
            checked += 1
    assert checked > 2000


def test_taxi_steps_are_transitions_with_the_model_s_costs(sized):
    env = taxi(rainy_probability=0.7, fickle_probability=0.5)
    pmdp, rng = env.pmdp, np.random.default_rng(1)
    cost = pmdp.row_reward("cost")
    changed = moves = 0
    for episode in range(sized(40, 60)):
        state, info = env.reset(seed=episode)
        assert not pmdp.is_silent[state]
        for _ in range(201):
            action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            before = {k: int(v[state]) for k, v in pmdp.variables.items()}
            successor, reward, terminated, truncated, info = env.step(action)
            assert set(info) == {"action_mask"}, "the original info holds the true probability"
            row = pmdp.find_row(state, action)
            assert pmdp.find_transition(row, successor) >= 0
            assert reward == pytest.approx(-cost[row])
            after = {k: int(v[successor]) for k, v in pmdp.variables.items()}
            if before["passenger"] == 4 and not before["moved"] and after["moved"]:
                moves += 1
                changed += after["destination"] != before["destination"]
            assert terminated == bool(pmdp.labels["delivered"][successor])
            state = successor
            if terminated or truncated:
                break
    assert moves > 10
    assert 0 < changed < moves


def test_counts_of_the_original_fickle_taxi_agree_with_the_model(sized):
    """The change of mind, decided in secret at the reset, has the model's law at the first move."""
    env = taxi(rainy_probability=0.9, fickle_probability=0.4)
    pmdp, objective = env.pmdp, env.objective
    best = solve(Point(pmdp.instantiate([0.9, 0.4])), objective, Nature.COOPERATIVE).policy
    counts, costs = Counts(pmdp), []
    for episode in range(episodes := sized(200, 400)):
        state, _ = env.reset(seed=episode)
        cost = 0.0
        for _ in range(201):
            action = best.action(pmdp, state)
            successor, reward, terminated, truncated, _ = env.step(action)
            counts.add(state, action, successor)
            state, cost = successor, cost - reward
            if terminated or truncated:
                break
        costs.append(cost)
    mind = {f: str(pmdp.table.polynomial(f)) for f in range(pmdp.num_expressions)}
    changes = sum(int(counts.successes[f]) for f, text in mind.items() if "fickle" in text)
    assert changes >= episodes
    first = np.array([t for t in range(pmdp.num_transitions) if "fickle" in mind[pmdp.expression[t]]])
    source = pmdp.row_state[pmdp.transition_row[first]]
    stays = pmdp.variables["destination"][source] == pmdp.variables["destination"][pmdp.successor[first]]
    seen = counts.transitions[first]
    assert seen[~stays].sum() / seen.sum() == pytest.approx(0.4, abs=0.08)
    value = true_value(pmdp, objective, best, np.array([0.9, 0.4]))
    assert np.mean(costs) == pytest.approx(value, abs=4 * np.std(costs) / episodes**0.5)


def test_a_dry_taxi_has_rain_that_happens_not_to_fall():
    dry = taxi(gym.make("Taxi-v4")).pmdp
    assert dry.table.parameters == ("rainy_probability",) and dry.instantiate([1.0]).probability.max() == 1.0
    pmdp, _ = taxi_model([line.tobytes().decode() for line in TaxiEnv().desc], rainy=True, fickle=False)
    assert pmdp.num_states == 405, "400 states of play, 4 deliveries, and the start"
    assert pmdp.variables["moved"].max() == 0
    assert pmdp.has_random_start


def test_maps_are_checked():
    for desc, reason in [
        (["SF", "F"], "equally long"),
        (["FF", "FG"], "no start"),
        (["SX", "FG"], "letters"),
    ]:
        with pytest.raises(ModelError, match=reason):
            frozen_lake_model(desc)


class Guarded(FrozenLakeEnv):
    """FrozenLake whose table of true probabilities only Gymnasium's own module may read."""

    reads = 0

    @property
    def P(self):
        caller = sys._getframe(1).f_code.co_filename
        assert caller.endswith("frozen_lake.py"), f"{caller} read the true kernel"
        Guarded.reads += 1
        return self._table

    @P.setter
    def P(self, value):
        self._table = value

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, _Poisoned(info)


class _Poisoned(dict):
    def __getitem__(self, key):
        raise AssertionError(f"info[{key!r}] was read")

    def get(self, key, default=None):
        raise AssertionError(f"info.get({key!r}) was read")


def test_the_agent_learns_the_original_world_without_looking():
    env = frozen_lake(gym.wrappers.TimeLimit(Guarded(success_rate=0.9), 100))
    agent = RPLAgent(relaxation="expression", precision=1e-3, schedule=EveryN(50), seed=2)
    agent.learn(env, budget=100)
    assert Guarded.reads > 100
    certificate = agent.certificate
    value = true_value(env.pmdp, env.objective, certificate.policy, np.array([0.9]))
    best = solve(Point(env.pmdp.instantiate([0.9])), env.objective, Nature.COOPERATIVE)
    assert certificate.lower - 1e-9 <= value <= certificate.upper + 1e-9
    assert value >= best.upper - certificate.gap - 1e-9
    assert certificate.gap < 0.2


def test_the_agent_also_steps_the_bare_environment():
    """Without any wrapper of ours: the model from the map, and how an observation names a state."""
    env = gym.make("FrozenLake-v1", desc=["SF", "FG"], success_rate=0.6)
    pmdp, objective = frozen_lake_model(["SF", "FG"])
    agent = RPLAgent(
        pmdp=pmdp,
        objective=objective,
        observation_to_state=lambda o: divmod(int(o), 2),
        relaxation="expression",
        seed=0,
    )
    agent.learn(env, budget=50)
    assert agent.certificate.lower == pytest.approx(1.0, abs=1e-5)
