"""Noise in the user's own words: `build_noise` makes the tied model that one would write by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import Counts, Domain, ModelError, RPLAgent, build, build_noise
from rpl_agent.core.model.building import validation
from rpl_agent.guarantee.likelihood.estimate import edge

GOAL = 4


def move(position, action, label):
    step = {"asked": 1 if action else -1, "other": -1 if action else 1, "none": 0, None: 0}[label]
    return min(max(position + step, 0), GOAL)


def walk(**options):
    return build_noise(
        0,
        lambda position: [0, 1] if position < GOAL else [0],
        noise={"slip": ["asked", "other", "none"]},
        key=lambda position, action: "slip" if position < GOAL else None,
        effect=move,
        labels={"there": lambda position: position == GOAL},
        **options,
    )


def test_it_is_the_model_that_one_would_write_by_hand():
    def rows(position):
        if position == GOAL:
            return {0: {GOAL: 1}}
        found = {}
        for action in (0, 1):
            row = {}
            for label, chance in (("asked", "a"), ("other", "o"), ("none", "1-a-o")):
                after = move(position, action, label)
                row[after] = f"{row[after]} + {chance}" if after in row else chance
            found[action] = row
        return found

    ours = walk()
    theirs = build(0, rows, domain=Domain.with_simplex(["a", "o"]), labels={"there": lambda position: position == GOAL})
    assert ours.table.parameters == ("slip_asked", "slip_other")
    for theta in ([0.7, 0.1], [0.2, 0.5], [0.0, 1.0]):
        a, b = ours.instantiate(np.array(theta)), theirs.instantiate(np.array(theta))
        assert np.array_equal(a.pmdp.successor, b.pmdp.successor)
        assert np.allclose(a.probability, b.probability, atol=1e-15)
    assert not ours.domain.contains(np.array([0.7, 0.4]))


def test_labels_that_lead_to_one_state_share_their_sum():
    model = walk()
    at_wall = model.instantiate(np.array([0.6, 0.3]))  # position 0, action 0: asked and none stay
    row = slice(model.row_ptr[0], model.row_ptr[1])
    assert sorted(at_wall.probability[row].tolist()) == pytest.approx([0.3, 0.7])


class Walk(gym.Env):
    def __init__(self):
        self.observation_space, self.action_space = gym.spaces.Discrete(GOAL + 1), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.at, {}

    def step(self, action):
        label = str(self.np_random.choice(["asked", "other", "none"], p=[0.7, 0.2, 0.1]))
        self.at = move(self.at, action, label)
        return self.at, 0.0, self.at == GOAL, False, {}


def test_an_agent_learns_with_it():
    env = gym.wrappers.TimeLimit(Walk(), 60)
    agent = RPLAgent(pmdp=walk(), objective="maximise probability of there within 12 steps", delta=0.1, seed=0)
    certificate = agent.learn(env, budget=60).certificate
    assert 0.0 < certificate.lower <= certificate.upper <= 1.0 and certificate.gap < 0.5


def test_labels_that_differ_in_a_sign_have_names_of_their_own():
    noise = {"wind": ["+1", "-1", "0"]}
    model = build_noise(0, lambda s: ["go"], noise=noise, effect=lambda s, a, wind: (s + int(wind)) % 5)
    assert model.table.parameters == ("wind__1", "wind__1_2")


def own_keys(states):
    """A ring in which every state has noise of its own, and two of its labels stay."""
    return build_noise(
        0,
        lambda state: ["go"],
        noise={state: ["on", "stay", "rest", "back"] for state in range(states)},
        key=lambda state, action: state,
        effect=lambda state, action, label: (state + {"on": 1, "back": -1}.get(label, 0)) % states,
    )


def test_keys_of_their_own_are_checked_one_by_one(monkeypatch):
    """Linear programs over the parameters of all keys took minutes for 400 rows."""
    programs = []
    solve = validation.minimiser
    monkeypatch.setattr(validation, "minimiser", lambda c, A, b: programs.append(len(c)) or solve(c, A, b))
    assert own_keys(24).num_parameters == 72 and not programs
    monkeypatch.setattr(validation, "MANY_BASES", 0)
    assert own_keys(24).num_parameters == 72 and set(programs) == {3}


def test_labels_that_no_row_tells_apart_are_no_obstacle():
    """With many parameters each is a coordinate, seen or not: what expressions allow is then no bounded set."""
    model = own_keys(24)
    counts = Counts(model)
    for after, times in ((1, 70), (0, 20), (23, 10)):
        counts.add(0, 0, model.state_index(after), times)
    assert edge(model, counts) is None


@pytest.mark.parametrize(
    "noise, text",
    [
        ({}, "noise is empty"),
        (["x", "y"], "must map keys to their labels"),
        ({"a": 3}, "two or more different labels"),
        ({"a": ["x"]}, "two or more different labels"),
        ({"a": ["x", "x"]}, "two or more different labels"),
        ({"a": ["x", "y"], "b": ["x", "y"]}, "2 keys: pass key"),
    ],
)
def test_improper_noise_is_one_clear_error(noise, text):
    with pytest.raises(ModelError, match=text):
        build_noise(0, lambda s: [0], noise=noise, effect=lambda s, a, label: s)


def test_a_key_that_is_not_listed_is_named():
    with pytest.raises(ModelError, match=r"key\(0, 0\) is 'rain', which noise does not list"):
        build_noise(0, lambda s: [0], noise={"a": [1, 2]}, key=lambda s, a: "rain", effect=lambda s, a, label: s)
