"""`RPLAgent(env, noise=…, key=…, effect=…)`: a model in the user's words, and how the data contradict it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import DataError, ModelError, RPLAgent

pytestmark = pytest.mark.short_runs


class Street(gym.Env):
    """Walk to place 4 against the wind, which blows back; it is stronger in the second half if ``uneven``."""

    observation_space = gym.spaces.Discrete(5)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, uneven: bool = False, starts: int = 1, pays: float = 1.0):
        self.uneven, self.starts, self.pays = uneven, starts, pays

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.starts))
        return self.place, {}

    def step(self, action):
        chance = 0.9 if self.uneven and self.place >= 2 else 0.2
        gust = self.np_random.random() < chance
        self.place = min(max(self.place + (1 if action else 0) - int(gust), 0), 4)
        over = self.place == 4
        return self.place, self.pays * over, over, False, {}


def effect(place, action, wind):
    after = min(max(place + action - (wind == "gust"), 0), 4)
    return None if after == 4 else after


def agent_of(street: Street, **options) -> RPLAgent:
    words = {"noise": {"wind": ["calm", "gust"]}, "effect": effect, "rewards": lambda s, a, after: float(after is None)}
    given = {**words, "discount": 0.9, "delta": 0.1, "seed": 0, **options}
    return RPLAgent(gym.wrappers.TimeLimit(street, 60), **given)


def truth() -> float:
    v = np.zeros(5)
    for _ in range(2_000):
        forward = [0.8 * (1.0 if s == 3 else 0.9 * v[s + 1]) + 0.2 * 0.9 * v[s] for s in range(4)]
        v[:4] = forward
    return float(v[0])


def test_shared_noise_is_one_unknown_and_buys_data():
    told = agent_of(Street()).learn(budget=150)
    assert told.certificate.lower <= truth() <= told.certificate.upper
    assert told.pmdp.num_parameters == 1 and "as stated" in str(told.certificate)
    nothing = RPLAgent(gym.wrappers.TimeLimit(Street(), 60), returns=(0, 1), discount=0.9, delta=0.1, seed=0).learn(150)
    assert told.certificate.gap < nothing.certificate.gap / 5


def test_keys_divide_the_noise():
    agent = agent_of(
        Street(uneven=True),
        noise={"near": ["calm", "gust"], "far": ["calm", "gust"]},
        key=lambda place, action: "far" if place >= 2 else "near",
    ).learn(budget=200)
    assert agent.pmdp.num_parameters == 2 and not agent.certificate.refuted


def test_noise_that_is_not_shared_refutes_the_model():
    agent = agent_of(Street(uneven=True)).learn(budget=400)
    assert agent.certificate.refuted and "refuted" in str(agent.certificate).lower()


def test_a_successor_or_a_reward_that_was_not_stated_is_an_error_that_names_the_step():
    with pytest.raises(DataError, match="episode"):
        agent_of(Street(), effect=lambda s, a, wind: effect(s, a, "calm" if s == 2 else wind)).learn(budget=200)
    with pytest.raises(DataError, match="reward"):
        agent_of(Street(pays=0.5)).learn(budget=200)


def lake_agent(**options) -> RPLAgent:
    """FrozenLake with every pair its own key: only the graph is known. Goal and holes are ends that pay differently."""
    env = gym.make("FrozenLake-v1")
    table = env.unwrapped.P
    words = {
        "noise": {f"{s}, {a}": range(3) for s in range(16) for a in range(4)},
        "key": lambda s, a: f"{s}, {a}",
        "effect": lambda s, a, slip: table[s][a][slip][1],
        "rewards": lambda s, a, after: float(after == 15),
        "end": lambda s: s in (5, 7, 11, 12, 15),
    }
    return RPLAgent(env, **{**words, "discount": 0.99, "delta": 0.1, "seed": 0, **options})


def test_ends_that_pay_differently_are_states(tmp_path, all_looks):
    agent = lake_agent().learn(budget=120)
    assert agent.certificate.lower <= 0.542026 <= agent.certificate.upper < 0.9
    agent.save(tmp_path / "a")
    again = RPLAgent.load(tmp_path / "a", gym.make("FrozenLake-v1")).learn(budget=5)
    assert again.num_episodes == 125


def walks_on(state, action, slip):
    """As if hole 5 were ice."""
    return 6 if state == 5 else gym.make("FrozenLake-v1").unwrapped.P[state][action][slip][1]


def test_an_end_that_was_not_stated_is_an_error_that_names_the_step():
    with pytest.raises(DataError, match="terminated in state"):
        lake_agent(end=lambda s: s in (7, 11, 12, 15), effect=walks_on).learn(budget=50)


def test_random_starts_are_one_more_unknown():
    agent = agent_of(Street(starts=3)).learn(budget=100)
    assert agent.pmdp.num_parameters == 3 and "one of the 3 states seen in 64 resets" in str(agent.certificate)


def test_a_saved_agent_needs_no_words(tmp_path):
    agent = agent_of(Street()).learn(budget=50)
    agent.save(tmp_path / "a")
    again = RPLAgent.load(tmp_path / "a", gym.wrappers.TimeLimit(Street(), 60)).learn(budget=50)
    assert again.num_episodes == 100


@pytest.mark.parametrize(
    "changed, text",
    [
        ({"effect": None}, "need effect="),
        ({"noise": None}, "needs noise="),
        ({"rewards": (0, 1)}, "needs rewards=..., a function"),
        ({"noise": {"start": [0, 1]}}, "is taken by the start"),
        ({"noise": {"a": [0, 1], "b": [0, 1]}}, "pass key="),
        ({"returns": (0, 1)}, "effect needs a model"),
        ({"end": 4}, "end=... is a function of the state"),
        ({"end": lambda s: s == 4}, r"effect\(3, 1, 'calm'\) is None, but end="),
        ({"successors": lambda s, a: [s]}, "successors is for environments without a model"),
    ],
)
def test_mistakes_are_told(changed, text):
    with pytest.raises(ModelError, match=text):
        agent_of(Street(), **changed)
