"""Claims that compare, in the checker: optimal policies, gains over a baseline, limits; just inside and outside."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.improvement_worlds import TRUTH, cliff_grid, logged, softened
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Limit, Objective, Policy, Sense, Unreached, build
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import improve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import belongs, prove, stated
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify, with_proof
from rpl_envs.benchmark import benchmark
from tests.certify.proved import content
from tests.small_worlds import SIZES

pytestmark = pytest.mark.usefixtures("shared_particles")

GAIN = Objective.discounted("gain", 0.99, target="end")
STEPS, FALLEN = "minimise steps until done", "probability of fallen <= 0.05"


def refused(proof: dict[str, Any], sentence: str) -> None:
    with pytest.raises(checker.Refused, match=sentence):
        checker.check(proof)


def changed(proof: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return copy.deepcopy(proof) | parts


# ---------------------------------------------------------------------- optimal
def chain(rewards: dict[str, float], later: float = 1.0, sense: Sense = Sense.MAX, unreached: str = "accumulate"):
    """(model, proof) of a known model: 0 pays by its action and leads to 1, which pays ``later``; "wait" stays."""

    def actions(state: int) -> dict[str, dict[int, int]]:
        moves = {name: {0 if name == "wait" else 1: 1} for name in rewards}
        return moves if state == 0 else {"go": {2: 1}} if state == 1 else {"stay": {2: 1}}

    def paid(state: int, action: str) -> float:
        return rewards[action] if state == 0 else later if state == 1 else 0.0

    pmdp = build(0, actions, domain=[], labels={"end": lambda s: s == 2}, rewards={"gain": paid})
    objective = replace(Objective.total("gain", target="end"), sense=sense, unreached=Unreached(unreached))
    policy = Policy.deterministic(pmdp.state_ptr[:-1])
    value = float(next(iter(rewards.values()))) + later
    certificate = Certificate(value, value, 1e-3, objective, policy, "likelihood", "coupled", 0)
    return pmdp, prove(pmdp, Counts(pmdp), certificate)


def optimal(proof: dict[str, Any], first: float, later: float, fates: list[list[int]] | None = None) -> dict[str, Any]:
    """The claim that the first action is the best, by values of the states that are exact."""
    values = {"values": [[first + later], [later], [0.0]]}
    part = {"functions": [values, copy.deepcopy(values)], "start": [], "region": 0}
    part["fates"] = fates or [[0, 0], [1, 0], [2, 0]]
    return changed(proof, regret=part, claim=proof["claim"] | {"regret": 0.0, "optimal": True})


@pytest.mark.parametrize(("other", "holds"), [(0.5, True), (2.0, True), (math.nextafter(2.0, 3.0), False)])
def test_a_row_is_beaten_if_it_is_not_better(other, holds):
    """A better row is not beaten, and its value violates the inequality of the best."""
    _, proof = chain({"a": 2.0, "b": other})
    found = optimal(proof, 2.0, 1.0)
    if not holds:
        refused(found, "misses its inequality")
        found["regret"]["functions"][0]["values"][0] = [4.0]  # a bound of every policy that is far above
        refused(found, "neither beaten nor a tie")
        return
    assert checker.check(found)["optimal"] and "no policy is better" in checker.sentence(found, checker.check(found))
    refused(changed(found, claim=found["claim"] | {"regret": -1e-9}), "the regret -1e-09 is claimed")
    del found["regret"]["fates"]
    refused(found, "claimed to be optimal: that is not proved")


def test_rows_that_are_equal_are_ties():
    """The bound of every policy is too high to beat anything: what is left must do exactly the same."""
    for other, holds in ((2.0, True), (math.nextafter(2.0, 1.0), False)):
        _, proof = chain({"a": 2.0, "b": other})
        found = optimal(proof, 2.0, 1.0)
        found["regret"]["functions"][0]["values"] = [[11.0], [8.0], [0.0]]
        if holds:
            assert checker.check(found)["optimal"]
        else:
            refused(found, "neither beaten nor a tie")


@pytest.mark.parametrize(("sense", "unreached", "holds"), [
    (Sense.MAX, "accumulate", True), (Sense.MIN, "infinite", True), (Sense.MIN, "accumulate", False),
])  # fmt: skip
def test_waiting_is_a_tie_that_must_not_be_played_forever(sense, unreached, holds):
    """To wait costs nothing: who minimises what is collected waits forever, unless the end has to be reached."""
    _, proof = chain({"a": 2.0, "wait": 0.0}, sense=sense, unreached=unreached)
    found = optimal(proof, 2.0, 1.0)
    found["regret"]["functions"][0]["values"] = [[3.5], [1.5], [0.0]]
    found["regret"]["functions"][1]["values"] = [[3.0], [1.0], [0.0]]
    if holds:
        assert checker.check(found)["optimal"]
        return
    found["regret"]["functions"][1]["values"] = [[0.0], [0.0], [0.0]]
    found["claim"] |= {"lower": None}
    found["lower"] = None
    refused(found, "ties may be played forever")


def test_classes_are_worth_the_same():
    _, proof = chain({"a": 0.0, "b": 0.0}, later=0.0)
    for fates, holds in (
        ([[0, 0], [0, 0], [0, 0]], False),  # the end leads nowhere, which is not what the others do
        ([[0, 2], [0, 1], [0, 0]], True),  # a delay of the end
        ([[0, 1], [0, 1], [0, 0]], False),  # delays that do not become shorter
        ([[0, 1], [1, 0], [2, 0]], False),  # a delay that leads to another class
        ([[0, 0], [1, 0], [2, 0]], True),
    ):
        found = optimal(proof, 0.0, 0.0, fates)
        if holds:
            assert checker.check(found)["optimal"], fates
        else:
            refused(found, "is not worth the same as its class")
    for fates in ([[0, 0], [1, 0]], [[0, 0], [1, 0], [2, 0.5]]):
        refused(optimal(proof, 0.0, 0.0, fates), "optimality is covered for one row per state")


def test_the_policy_plays_a_row_of_each_state():
    """A row of another state would lend its worth to a state whose bound is 0, and which nobody looks at."""
    _, proof = chain({"a": 0.0, "b": 1.0}, later=0.0)
    found = optimal(proof, 0.0, 0.0)
    found["regret"]["functions"][0]["values"][0] = [1.0]
    found["lower"], found["claim"]["lower"] = None, None
    refused(found, "'b' is neither beaten nor a tie")
    found["policy"]["rules"] = [[2, 2, 3]]
    refused(found, "the policy plays nothing in state 0")
    found["policy"] = {"rules": None, "weights": [1.0, 1.0, 1.0, 1.0]}
    refused(found, "optimality is covered for one row per state")


def test_a_horizon_or_an_error_of_rewards_leaves_nothing_optimal():
    _, proof = chain({"a": 2.0, "b": 1.0})
    found = optimal(proof, 2.0, 1.0)
    refused(found | {"reward_error": 1e-12, "claim": {"optimal": True}}, "leaves no policy optimal")
    assert checker.check(found | {"claim": {"optimal": False}})["optimal"] is False


@pytest.mark.parametrize(("name", "episodes", "size"), [
    ("Glider-11x9", 1000, SIZES["Glider-11x9"]), ("MarsRover-10x10", 100_000, SIZES["MarsRover-10x10"]),
    pytest.param("Glider-11x9", 1000, {}, marks=pytest.mark.nightly),
    pytest.param("MarsRover-10x10", 10_000, {}, marks=pytest.mark.nightly),
])  # fmt: skip
def test_worlds_are_proved_optimal(name, episodes, size):
    """Glider without ties, MarsRover with hundreds of them; another policy is not."""
    world = benchmark(name, **size)
    theta = np.array(world.theta)
    counts = uniform_counts(world.pmdp, world.objective, theta, episodes, world.max_episode_steps + 1, 5)
    certificate = certify(world.pmdp, counts, world.objective)
    proof = json.loads(json.dumps(prove(world.pmdp, counts, certificate)))
    assert checker.check(proof)["optimal"] and proof["claim"]["regret"] == 0.0
    ties = world.pmdp.num_states - len({fate for fate, _ in proof["regret"]["fates"]})
    assert name.startswith("Glider") or ties > 900
    found = stated(certificate, proof)
    assert found.optimal and found.regret == 0.0 and belongs(proof, world.pmdp, counts, found, {}) == []
    assert belongs(proof, world.pmdp, counts, replace(found, optimal=False), {}) == [
        "the bounds are not the proved numbers"
    ]
    if name.startswith("MarsRover"):
        return
    own, rows_of = proof["policy"]["rules"][0], checker.Model(proof["model"]).rows_of
    lies = 0
    for s, rows in [(s, rows) for s, rows in enumerate(rows_of) if len(rows) > 1][:8]:
        worse = changed(proof, policy={"rules": [[*own]], "weights": None})
        worse["policy"]["rules"][0][s] = next(row for row in rows if row != own[s])
        try:
            checker.check(worse)
        except checker.Refused:
            lies += 1
            continue
        policy = Policy.deterministic(np.array(worse["policy"]["rules"][0]))
        value, best = (true_value(world.pmdp, world.objective, p, theta, 1e-12) for p in (policy, certificate.policy))
        assert value == pytest.approx(best, abs=1e-9)  # another optimal policy
    assert lies > 0


# ---------------------------------------------------------------------- gains
@pytest.fixture(scope="module")
def gain():
    pmdp = cliff_grid()
    theta = np.array([TRUTH[name] for name in pmdp.table.parameters])
    baseline = softened(pmdp, solve_at(pmdp, theta, GAIN).policy, 0.2)
    counts = logged(pmdp, theta, GAIN, baseline, 200, 0)
    found = improve(pmdp, counts, GAIN, baseline)
    return pmdp, theta, counts, found, json.loads(json.dumps(prove(pmdp, counts, found)))


def test_gains_are_proved_at_a_common_parameter(gain):
    pmdp, theta, counts, found, proof = gain
    checked = checker.check(proof)
    one, other = (true_value(pmdp, GAIN, p, theta) for p in (found.policy, found.baseline))
    assert 7.0 < checked["gain lower"] <= one - other <= checked["gain upper"] <= 10.0
    assert (
        checked["lower"] <= one <= checked["upper"] and checked["baseline lower"] <= other <= checked["baseline upper"]
    )
    apart = checker.check(changed(proof, **{"gain lower": None, "gain upper": None, "claim": {}}))
    assert apart["gain lower proved"] == apart["lower proved"] - apart["baseline upper proved"]
    assert apart["gain lower proved"] < 0.8 * checked["gain lower"]
    assert apart["gain upper proved"] == apart["upper proved"] - apart["baseline lower proved"]
    kept = stated(found, proof)
    assert kept.proved and belongs(proof, pmdp, counts, kept, {}) == []
    assert belongs(proof, pmdp, counts, replace(kept, baseline=kept.policy), {}) == [
        "the proof is about another baseline"
    ]
    assert any("baseline: " in line for line in checker.question(proof, checked))
    assert f"than the baseline by at least {checked['gain lower']}, by at most" in checker.sentence(proof, checked)
    assert "than the baseline by at least unknown, by at most unknown" in checker.sentence(proof, apart)


def assert_no_stronger_passes(proof: dict[str, Any], names: list[str]) -> None:
    """Each of these bounds may be claimed one part in 10^9 below what is proved, and not above."""
    checked, inside = checker.check(proof), {}
    for name in names:
        known, way = float(checked[f"{name} proved"]), 1 if name.endswith("lower") else -1
        inside[name] = known - way * 1e-9 * abs(known)
        outside = known + way * 1e-9 * abs(known)
        refused(changed(proof, claim={name: outside}), f"the {name} bound .* is claimed")
    found = checker.check(changed(proof, claim=inside))
    assert {name: found[name] for name in names} == inside


def test_no_stronger_gain_passes(gain):
    assert_no_stronger_passes(gain[-1], ["gain lower", "gain upper", "baseline lower", "baseline upper"])


def first_piece(proof: dict[str, Any]) -> dict[str, Any]:
    """Of the proof of the least gain: one with functions."""
    todo = [proof["gain lower"]]
    while "functions" not in todo[-1]:
        todo[-1:] = todo[-1].get("pieces", [])
    return todo[-1]


def test_gains_of_other_questions_are_refused(gain):
    proof = gain[-1]
    refused(changed(proof, evaluated=False), "evaluated must be true or false")
    refused(changed(proof, reward_error=1e-12), "an error of rewards, and limits or a baseline")
    swapped = changed(proof)
    first_piece(swapped)["functions"] = first_piece(swapped)["functions"][::-1] + [None]
    with pytest.raises((checker.Refused, ValueError)):
        checker.check(swapped)
    timed = changed(proof)
    timed["baseline"] = {"rules": [timed["model"]["state_ptr"][:-1]] * 2, "weights": None}
    refused(timed, "the policy changes with time")
    lone = changed(proof)
    lone["lower"], lone["claim"] = None, {}
    first_piece(lone)["functions"][1] = None
    refused(lone, "the lower bound is used, and there is none on this value")
    loose = changed(proof)
    first_piece(loose)["start"] = [[k, -m] for k, m in first_piece(loose)["start"]] or [[0, -1.0]]
    refused(loose, "a multiplier is negative")


# ---------------------------------------------------------------------- limits
@pytest.fixture(scope="module")
def limited():
    pmdp = cliff_grid()
    theta = np.array([TRUTH[name] for name in pmdp.table.parameters])
    counts = uniform_counts(pmdp, Objective.parse(STEPS), theta, 2000, 1000, 0)
    found = certify(pmdp, counts, STEPS, subject_to=[FALLEN])
    return pmdp, theta, counts, found, json.loads(json.dumps(prove(pmdp, counts, found)))


def test_limits_are_proved_and_verified(limited, tmp_path):
    from rpl_agent.guarantee.proof import proof_path, write_proof

    pmdp, theta, counts, certificate, proof = limited
    checked, found = checker.check(proof), stated(certificate, proof)
    falls = true_value(pmdp, Limit.parse(FALLEN).objective, found.policy, theta)
    assert checked["limit 0 lower"] <= falls <= checked["limit 0 upper"] <= 0.05 and checked["limit 0 best"] >= 0.0
    assert checked["lower"] < 13.706 < checked["upper"] < 14.3 and checked["lower"] > 13.0  # the optimum within them
    assert found.proved and found.keeps_limits and found.regret == checked["regret"] >= found.upper - found.lower
    write_proof(proof_path(tmp_path / "c.json"), proof)
    recomputed = verify(found, pmdp, counts)
    verdict = with_proof(recomputed, found, pmdp, counts, proof_path(tmp_path / "c.json"))
    assert verdict.problems == [] and verdict.proved is not None and "no policy that keeps the limits" in verdict.proved
    assert any(line.startswith("limit 0: ") and "0.05" in line for line in verdict.question)
    (claim,) = found.limits
    for lie in (replace(claim, upper=claim.upper - 1e-9), replace(claim, price=0.0), replace(claim, kept=None)):
        problems = with_proof(
            recomputed, replace(found, limits=(lie,)), pmdp, counts, proof_path(tmp_path / "c.json")
        ).problems
        assert bool(problems) is (lie.upper != claim.upper)


def test_no_stronger_limit_passes(limited):
    assert_no_stronger_passes(limited[-1], ["lower", "limit 0 lower", "limit 0 upper"])


def test_weights_of_limits_have_signs_and_places(limited):
    proof = limited[-1]
    weight = proof["lower"]["weights"][0]
    assert weight > 0.0
    none, less, other = changed(proof, claim={}), changed(proof, claim={}), changed(proof, claim={})
    none["lower"]["weights"], less["lower"]["weights"] = [-weight], [weight * (1 - 1e-6)]
    refused(none, "the weight of a limit has a wrong sign")
    less["lower"]["values"] = [[0.0] for _ in less["lower"]["values"]]
    free = float(checker.check(less)["lower proved"])
    assert free == 0.0  # a sum of 0 minus what the limit allows is less
    other["upper"]["weights"] = [weight]
    refused(other, "weights of limits in a bound of one value")
    looser = changed(proof)
    looser["objective"]["limits"][0]["threshold"] = 0.06  # with which the same function proves less
    refused(looser, "the lower bound .* is claimed")
    with_regret = changed(proof, regret={"functions": [None, None], "start": [], "region": 0})
    refused(with_regret, "the regret among policies that keep limits is the gap")


def test_sums_that_need_a_memory_or_an_end_are_refused():
    pmdp = cliff_grid()
    content = prove(pmdp, Counts(pmdp), certify(pmdp, Counts(pmdp), GAIN))["model"]
    content["labels"] |= {name: np.flatnonzero(pmdp.labels[name]).tolist() for name in ("done", "fallen", "goal")}
    content["labels"]["start"] = [content["initial"]]
    reward = pmdp.rewards["steps"]
    content["rewards"]["steps"] = {
        "state": [[s, float(x)] for s, x in enumerate(reward.state) if x],
        "row": [[r, float(x)] for r, x in enumerate(reward.row) if x],
    }
    model = checker.Model(content)

    def asked(kind: str, sense: str, **more: Any) -> checker.Objective:
        return checker.Objective(model, {"kind": kind, "sense": sense} | more)

    cost = asked("reward", "min", reward_name="steps", target="done")
    fallen, start = (asked("reach", "min", target=name) for name in ("fallen", "start"))
    one = Fraction(1)
    total = checker.Sum(model, [(one, cost), (3 * one, fallen)])
    assert (
        set(total.decided.values()) == {0, 3} and max(total.reward) == 1 and total.is_positive and not total.is_signed
    )
    turned = checker.Sum(model, [(one, cost), (-3 * one, fallen)])
    assert min(turned.decided.values()) == -3 and not turned.is_positive and not turned.is_signed
    for parts, sentence in (
        ([(one, cost), (one, asked("reach", "min", target="fallen", horizon=3))], "limits with a horizon"),
        ([(one, cost), (one, asked("reward", "min", reward_name="steps", discount=0.5))], "other discounts"),
        ([(one, fallen), (-one, cost)], "a sum that infinite costs make better"),
        ([(one, cost), (one, start)], "objectives end in different states"),
    ):
        with pytest.raises(checker.Refused, match=sentence):
            checker.Sum(model, parts)


# ---------------------------------------------------------------------- sums, number by number
ONE, HALF = "1/1", "1/2"
#: 0 → 1 or the goal 2; 1 → the bad 3 or the trap 4; 2 leads on to 1, 5 leads to 2.
ROWS = [[{1: HALF, 2: HALF}], [{3: HALF, 4: HALF}], [{1: ONE}], [{3: ONE}], [{4: ONE}], [{2: ONE}]]
LABELS = {"goal": [2], "bad": [3], "over": [2, 3, 4], "ends": [2, 3, 4, 5]}


def objective_of(kind: str, sense: str, paid: tuple[float, float] = (1.0, 2.0), **asked: Any) -> checker.Objective:
    model = checker.Model(content(ROWS, dict(enumerate(paid)), labels=LABELS))
    return checker.Objective(model, {"kind": kind, "sense": sense, "reward_name": "r"} | asked)


def sum_of(*parts: tuple[Any, checker.Objective]) -> checker.Sum:
    return checker.Sum(checker.Model(content(ROWS, labels=LABELS)), [(Fraction(w), part) for w, part in parts])


def test_a_sum_is_over_where_nothing_is_left_to_gain():
    cost, bad = objective_of("reward", "min", target="over"), objective_of("reach", "min", target="bad", avoid="goal")
    total = sum_of((1, cost), (3, bad))
    assert total.decided == {2: 0, 3: 3, 4: 0, 5: 0}  # from 5, plays are over in 2, before anything is paid
    assert total.reward == [1, 2, 0, 0, 0, 0]
    assert not (total.maximising or total.is_reach or total.must_reach or total.is_signed) and total.is_positive
    assert sum_of((1, cost)).decided == dict.fromkeys((2, 3, 4, 5), 0)
    most = sum_of((2, objective_of("reach", "max", target="bad", avoid="goal")), (1, bad))
    assert most.maximising and most.decided[3] == 3 and set(most.reward) == {0}
    over = objective_of("reach", "min", target="ends")
    with pytest.raises(checker.Refused, match="objectives end in different states"):
        sum_of((1, bad), (1, objective_of("reach", "min", target="goal")))
    assert sum_of((1, cost), (1, over)).decided == {2: 1, 3: 1, 4: 1, 5: 1}


@pytest.mark.parametrize(
    ("weights", "sense", "good"),
    [((1, 1), "min", True), ((1, "1/2"), "min", True), ((1, "-1/2"), "min", False), ((1, 0), "max", False),
     ((1, "-1/2"), "max", True), ((1, "1/2"), "max", False), ((1, -2), "max", True)],
)  # fmt: skip
def test_infinite_costs_make_no_sum_better(weights, sense, good):
    """Where plays may miss their target, the sum is what they collect: less than infinity."""
    bad = objective_of("reach", sense, target="bad", avoid="goal")
    parts = list(zip(weights, (bad, objective_of("reward", "min", target="over"))))
    if good:
        sum_of(*parts)
        return
    with pytest.raises(checker.Refused, match="a sum that infinite costs make better"):
        sum_of(*parts)


@pytest.mark.parametrize(
    ("paid", "weight", "discount", "signed", "positive"),
    [
        ((0.5, 0.5), "1/2", 1, False, True),
        ((0.5, 0.5), "-1/2", 1, False, False),  # what is decided is negative, what is paid is not
        ((-0.5, 0.5), "1/2", 1, True, False),
        ((-0.5, 2.0), 1, 1, True, False),
        ((-0.5, -0.5), 1, 0.5, False, False),
        ((0.5, 0.5), 1, 0.5, False, False),
    ],
)
def test_signs_of_sums(paid, weight, discount, signed, positive):
    more = {"discount": discount, "target": "over", "unreached": "accumulate"}
    bad = objective_of("reach", "min", target="bad", avoid="goal", discount=discount)
    total = sum_of((1, objective_of("reward", "min", paid, **more)), (weight, bad))
    assert (total.is_signed, total.is_positive) == (signed, positive)


def test_states_that_are_reached():
    after = [[1], [2, 0], [], [0]]
    for start, expected in (([], set()), ([0], {0, 1, 2}), ([2, 2], {2}), ([3], {0, 1, 2, 3})):
        assert checker.reached(list(start), after) == expected


@pytest.mark.parametrize("bets", [True, False])
def test_a_small_model_is_proved_as_tight_as_it_is_certified(bets):
    """Intervals of expressions by all cuts: without them the proved gap was 1.18 and 1.06 times the certified one."""

    def rows(s):
        return {"a": {1: "p", 0: "1-p"}, "b": {1: "q", 2: "1-q"}} if s == 0 else {"stay": {3: 1}}

    pmdp = build(0, rows, domain=["p", "q"], rewards={"r": lambda s, a: 1.0 * (s == 1)})
    objective = Objective.discounted("r", 0.9)
    counts = uniform_counts(pmdp, objective, np.array([0.4, 0.5]), 500, 50, 1)
    certificate = certify(pmdp, counts, objective, Config(bets=bets))
    found = checker.check(json.loads(json.dumps(prove(pmdp, counts, certificate))))
    assert found["upper"] - found["lower"] <= certificate.gap * (1.0 + 1e-6)
