"""Ties that data suggest: found where rows are alike, not where they differ, and never applied."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import ModelError, RPLAgent
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.ties import _log_e_value, label_of, propose_ties
from tests.agent.test_noise_words import Street


def line(chances: list[float], visits: int = 400, seed: int = 0) -> OpenData:
    """Places on a line: one action, one step right with the chance of the place, else it stays."""
    rng, data = np.random.default_rng(seed), OpenData(1)
    for place in range(len(chances) + 1):
        data.state(place)
    for place, chance in enumerate(chances):
        for right in rng.random(visits) < chance:
            data.add(place, 0.0, place + 1 if right else place)
    return data


def test_rows_that_are_alike_are_found_and_others_left_out():
    (tie,) = propose_ties(line([0.3, 0.3, 0.9, 0.3, 0.3]))
    assert tie.states == (0, 1, 3, 4) and tie.labels == (0, 1) and tie.log_e_value < 0
    assert tie.shares[1] == pytest.approx(0.3, abs=0.05) and tie.visits == 1_600
    assert "seems to draw from one distribution" in tie.text


def test_rows_that_differ_or_are_few_are_not_proposed():
    assert propose_ties(line([0.1, 0.3, 0.5, 0.7, 0.9])) == []
    assert propose_ties(line([0.3, 0.3])) == []
    assert propose_ties(line([0.3] * 5, visits=10)) == []
    assert propose_ties(line([1.0] * 5)) == []  # nothing is drawn


def test_the_e_value_against_a_true_tie_has_a_mean_of_at_most_one():
    rng = np.random.default_rng(1)
    found = [np.exp(_log_e_value(rng.multinomial(30, [0.2, 0.3, 0.5], size=4).astype(float))) for _ in range(2_000)]
    assert np.mean(found) < 1.0
    assert _log_e_value(np.array([[30.0, 0.0], [0.0, 30.0], [30.0, 0.0]])) > 20


def test_labels_are_displacements_where_states_are_numbers():
    assert label_of(3, 5) == 2 and label_of((1, 2), (1, 1)) == (0, -1)
    assert label_of("a", "b") == "b" and label_of((1, "x"), (2, "x")) == (2, "x") and label_of(True, False) is False


def test_ends_are_a_label():
    data = line([0.3] * 4)
    for place in range(4):
        for _ in range(50):
            data.add(place, 1.0, END)
    (tie,) = propose_ties(data)
    assert set(tie.labels) == {0, 1, "end"}


def test_an_agent_proposes_with_a_forecast_and_ties_nothing():
    agent = RPLAgent(gym.wrappers.TimeLimit(Street(), 60), returns=(0, 1), discount=0.9, delta=0.1, seed=0).learn(400)
    before = agent.certificate
    ties = agent.proposed_ties()
    assert ties and all(tie.gap <= before.gap for tie in ties) and ties[-1].gap < before.gap
    assert agent.certificate is before
    with pytest.raises(ModelError, match="ties are proposed without a model"):
        RPLAgent("rpl/Betting-25-v0", seed=0).proposed_ties()
