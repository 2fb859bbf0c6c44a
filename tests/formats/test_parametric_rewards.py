"""Rewards that contain parameters: numbers at a point, two ends where the parameters are unknown."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent import RPLAgent
from rpl_agent.cli import main
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature
from rpl_agent.core.model.algebra.ranges import range_on_box
from rpl_agent.core.relaxations.interval import Intervals, untied
from rpl_agent.core.relaxations.umdp import UncertainMDP
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.export import write_uncertain
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import RELAXATIONS, Config
from rpl_agent.guarantee.shown import true_value
from rpl_agent.studies.baselines import QLearning

pytestmark = pytest.mark.short_runs

#: c stands in rewards only: no data say anything about it
TEXT = """mdp
const double p; // range p 0.1 0.9
const double q; // range q 0.2 0.8
const double c; // range c 1 3
module m
  x : [0..3];
  [a] x=0 -> p:(x'=1) + 1-p:(x'=2);
  [b] x=0 -> q:(x'=2) + 1-q:(x'=1);
  [g] x=1 | x=2 -> (x'=3);
  [e] x=3 -> true;
endmodule
rewards "r"
  x=0 : 2*p+1;
  x=1 : c*q;
  [a] true : 3*p*q - p + 2;
  x=2 : 1.5;
  [g] x=2 : q*q/2;
endrewards
"""
PROPERTIES = ("Rmin=? [F x=3]", "Rmax=? [F x=3]", "Rmin=? [C<=2]", "Rmax=? [I=1]", "Rmax=? [C<=1]")
THETA = {"p": 0.4, "q": 0.5, "c": 2.0}


def loaded(text: str = TEXT) -> prism.PrismModel:
    return prism.loads(text)


def question(model: prism.PrismModel, text: str):
    return model.objective(text)


def values(p: Fraction, q: Fraction, c: Fraction) -> dict[str, Fraction]:
    """The properties' values by hand."""
    first, second = c * q, Fraction(3, 2) + q * q / 2
    begin, extra = 2 * p + 1, 3 * p * q - p + 2
    plays = [begin + extra + p * first + (1 - p) * second, begin + q * second + (1 - q) * first]
    instant = [p * first + (1 - p) * Fraction(3, 2), q * Fraction(3, 2) + (1 - q) * first]
    return {
        PROPERTIES[0]: min(plays), PROPERTIES[1]: max(plays), PROPERTIES[2]: min(plays), PROPERTIES[3]: max(instant),
        PROPERTIES[4]: max(begin + extra, begin),
    }  # fmt: skip


def test_a_point_has_numbers():
    model = loaded()
    exact = values(Fraction(2, 5), Fraction(1, 2), Fraction(2))
    for text in PROPERTIES:
        (found,) = prism.answer(model, text, model.theta(THETA), precision=1e-9)
        assert found.lower - 1e-12 <= exact[text] <= found.upper + 1e-12 and not found.problems
        pmdp, objective = question(model, text)
        assert solve_at(pmdp, model.theta(THETA), objective, precision=1e-9).middle == pytest.approx(float(exact[text]))


@pytest.mark.parametrize("text", PROPERTIES)
def test_both_natures_hold_every_point_of_a_box(text):
    model = loaded()
    pmdp, objective = question(model, text)
    ends = {"p": (0.3, 0.5), "q": (0.4, 0.6), "c": (1.0, 3.0)}
    corners = [model.theta(dict(zip(ends, point))) for point in product(*ends.values())]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    relaxation = Intervals(pmdp, *range_on_box(pmdp.table, low, high))
    robust, optimistic = (solve(relaxation, objective, n) for n in (Nature.ADVERSARIAL, Nature.COOPERATIVE))
    assert not robust.check() and not optimistic.check()
    maximal = objective.sense.value == "max"
    below, above = (robust.lower, optimistic.upper) if maximal else (optimistic.lower, robust.upper)
    grid = [np.linspace(a, b, 5) for a, b in ends.values()]
    found = [values(*map(Fraction, point))[text] for point in product(*grid)]
    assert below <= min(found) and max(found) <= above
    assert above - below < 4 * float(max(found) - min(found)) + 0.1


def test_every_certificate_holds():
    model, exact = loaded(), values(Fraction(2, 5), Fraction(1, 2), Fraction(2))
    theta = model.theta(THETA)
    for text, relaxation, seed in product(PROPERTIES[:4], RELAXATIONS, (1, 2)):
        pmdp, objective = question(model, text)
        confidence = "likelihood" if seed == 1 else "anytime"
        counts = uniform_counts(pmdp, objective, theta, 400, 20, seed)
        certificate = certify(pmdp, counts, objective, Config(confidence, relaxation, 0.01))
        own = true_value(pmdp, objective, certificate.policy, theta, 1e-9)
        worst, best = (own, float(exact[text])) if objective.sense.value == "max" else (float(exact[text]), own)
        assert certificate.lower <= worst + 1e-9 and best <= certificate.upper + 1e-9, (text, relaxation, confidence)
        assert certificate.checked


def test_more_data_give_narrower_rewards():
    model = loaded(TEXT.replace("c*q", "q"))
    pmdp, objective = question(model, PROPERTIES[0])
    gaps = [
        certify(pmdp, uniform_counts(pmdp, objective, model.theta(THETA), n, 20, 3), objective).gap
        for n in (100, 20000)
    ]
    assert gaps[1] < 0.25 * gaps[0]


def test_without_the_model_a_reward_lies_anywhere_on_the_domain():
    pmdp, objective = question(loaded(), PROPERTIES[4])
    free = untied(pmdp, np.zeros(pmdp.num_transitions), np.ones(pmdp.num_transitions))
    assert solve(free, objective, Nature.COOPERATIVE).upper >= 2 * 0.9 + 1 + 3 * 0.9 * 0.8 - 0.9 + 2
    assert solve(free, objective, Nature.ADVERSARIAL).lower <= 1.2 + 2 + 3 * 0.1 * 0.2 - 0.1


def test_negative_rewards_need_a_certain_end():
    model = loaded(TEXT.replace("2*p+1", "2*p-1"))
    for text in PROPERTIES[:2]:
        pmdp, objective = question(model, text)
        found = certify(pmdp, uniform_counts(pmdp, objective, model.theta(THETA), 200, 20, 1), objective)
        theta, best = model.theta(THETA), solve_at(pmdp, model.theta(THETA), objective).middle
        own = true_value(pmdp, objective, found.policy, theta)
        assert found.lower <= min(own, best) + 1e-9 and max(own, best) - 1e-9 <= found.upper < found.lower + 10.0
    again = TEXT.replace("[e] x=3", "[w] x=1 -> true;\n  [e] x=3").replace("c*q", "1").replace("2*p+1", "-2")
    with pytest.raises(prism.PrismError, match="needs a certain end, but a play that misses"):
        loaded(again.replace("3*p*q - p + 2", "1").replace("q*q/2", "0")).objective("Rmax=? [F x=3]")
    pmdp, objective = question(model, "Rmax=? [C<=1]")
    counts = uniform_counts(pmdp, objective, model.theta(THETA), 200, 20, 1)
    assert certify(pmdp, counts, objective).lower <= 2 * 0.4 - 1 + 3 * 0.4 * 0.5 - 0.4 + 2


@pytest.mark.parametrize("paid", ["c-1", "3*p-0.3", "p*q-0.1*q"])
def test_a_reward_that_may_be_nothing_is_not_negative(paid):
    model = loaded(TEXT.replace("2*p+1", paid))
    pmdp, objective = question(model, "Rmax=? [F x=3]")
    assert pmdp.rewards["r"].state.min() >= 0.0
    assert solve_at(pmdp, model.theta(THETA), objective).upper > 0.0


class Generous(gym.Wrapper):
    """Pays something else than the model can pay."""

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + 5.0, *rest


@pytest.mark.parametrize("text", [PROPERTIES[0], PROPERTIES[1]])
def test_the_agent_learns_online(text):
    model = loaded()
    pmdp, objective = question(model, text)
    theta = model.theta(THETA)
    exact = float(values(Fraction(2, 5), Fraction(1, 2), Fraction(2))[text])
    env = rpl_envs.make_own(pmdp, objective, theta.tolist(), max_episode_steps=20)
    env.reset(seed=1)
    row = pmdp.find_row(pmdp.initial_state, pmdp.action_names.index("b"))
    reward = env.step(int(pmdp.action[row]))[1]
    assert abs(reward) == pytest.approx(2 * 0.4 + 1)  # what the true parameters say
    for compiled in (True, False):
        agent = RPLAgent(seed=2, compiled=compiled).learn(env, 60)
        assert agent.certificate is not None
        assert agent.certificate.lower - 1e-9 <= exact <= agent.certificate.upper + 1e-9
    with pytest.raises(DataError, match=r"contradicts the model, which pays -?[\d.]+ to -?[\d.]+"):
        RPLAgent(seed=2).learn(Generous(env), 10)


def test_what_needs_numbers_refuses(tmp_path):
    model = loaded()
    pmdp, objective = question(model, PROPERTIES[0])
    env = rpl_envs.make_own(pmdp, objective, model.theta(THETA).tolist(), max_episode_steps=20)
    with pytest.raises(ModelError, match="baselines plan with known rewards"):
        QLearning().learn(env, 10)
    bounds = np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)
    with pytest.raises(ModelError, match="'r' depends on the parameters"):
        write_uncertain(tmp_path / "m.drn", pmdp, *bounds)
    with pytest.raises(ModelError, match="'r' depends on the parameters"):
        UncertainMDP.from_intervals(pmdp, *bounds)


def test_models_differ_where_their_rewards_do():
    first, second = (loaded(text).pmdp for text in (TEXT, TEXT.replace("3*p*q - p", "3*p*q - q")))
    assert first.content_hash != second.content_hash == loaded(TEXT.replace("3*p*q - p", "3*p*q - q")).pmdp.content_hash


def test_a_chain_takes_the_mean_over_its_commands():
    chain = TEXT.replace("mdp", "dtmc", 1)
    model = loaded(chain)
    (found,) = prism.answer(model, "R=? [C<=1]", model.theta(THETA))
    assert found.lower == pytest.approx(1.8 + (3 * 0.4 * 0.5 - 0.4 + 2) / 2)
    pmdp, objective = question(model, "R=? [F x=3]")
    counts = uniform_counts(pmdp, objective, model.theta(THETA), 300, 20, 1)
    certificate = certify(pmdp, counts, objective)
    truth = solve_at(pmdp, model.theta(THETA), objective).middle
    assert certificate.lower <= truth <= certificate.upper


def test_the_command_line_certifies(tmp_path, capsys):
    file = tmp_path / "paid.prism"
    file.write_text(TEXT)
    truth = [item for name, value in THETA.items() for item in ("--theta", f"{name}={value}")]
    common = [str(file), "--property", PROPERTIES[0], *truth, "--json"]
    assert main(["solve", *common]) == 0
    value = json.loads(capsys.readouterr().out)["value"]
    assert main(["certify", *common, "--episodes", "500"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] <= value <= found["upper"] and found["checked"]
