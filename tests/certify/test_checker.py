"""The checker proves what the package claims, and nothing stronger."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from rpl_agent.core.errors import RefutedWarning, RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, Policy, Sense, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import belongs, pieces, prove, stated, write_proof
from rpl_agent.guarantee.proof.content import data_content
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify, with_proof
from tests.certify.mutations import judged, sharpest
from tests.certify.proved import OBJECTIVES, SMALL, known, model, of_world, optimum, sampled
from tests.reference import proofs
from tests.reference.fuzz import Dice, Tally

pytestmark = pytest.mark.usefixtures("shared_particles")

WORLDS = {
    "rpl/Betting-25-v0": 200, "rpl/MarsRover-10x10-v0": 300, "rpl/Glider-11x9-v0": 300, "rpl/Aircraft-20x10-v0": 1000,
    "rpl/Engagement-50-v0": 500, "rpl/ParallelBetting-5-v0": 500,
}  # fmt: skip


@pytest.fixture(scope="module")
def glider():
    return of_world("rpl/Glider-11x9-v0", 300, SMALL["rpl/Glider-11x9-v0"])


# ---------------------------------------------------------------------- certificates pass
@pytest.mark.parametrize(("name", "small"), [  # by day three of the six
    *((name, True) for name in ("rpl/ParallelBetting-5-v0", "rpl/Engagement-50-v0", "rpl/Aircraft-20x10-v0")),
    *(pytest.param(name, small, marks=pytest.mark.nightly) for name in WORLDS for small in (True, False)),
])  # fmt: skip
def test_worlds_are_proved(name, small):
    pmdp, theta, _, certificate, proof = of_world(name, WORLDS[name], SMALL[name] if small else None)
    found = checker.check(json.loads(json.dumps(proof)))
    value = true_value(pmdp, certificate.objective, certificate.policy, theta)
    assert found["lower"] - 1e-6 <= value <= found["upper"] + 1e-6
    weaker = (found["upper"] - found["lower"]) / certificate.gap - 1.0  # one number, but for rows of three by the ball
    assert 0.0 <= weaker <= 2e-3 and (weaker == 0.0 or "Engagement" in name)
    assert all(region["likelihood"] is not None for region in proof["regions"])


@pytest.mark.parametrize("confidence", ["clopper-pearson", "hoeffding", "l1", "ellipsoid"])
def test_what_is_not_covered_is_refused_by_name(confidence):
    *_, proof = of_world("rpl/Betting-25-v0", 50, confidence=confidence, relaxation="rectangular")
    with pytest.raises(checker.Refused, match=confidence):
        checker.check(proof)


@pytest.mark.parametrize(
    ("shape", "confidence"), [("plain", "anytime"), ("random start", "likelihood"), ("paid on arrival", "anytime")]
)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_are_proved(name, shape, confidence, sized, monkeypatch):
    monkeypatch.setattr(pieces, "PIECES", sized(4, pieces.PIECES))
    start = {"s0": "1/4", "s1": "3/4"} if shape == "random start" else "s0"
    pmdp, objective = model(start, arrivals=shape == "paid on arrival"), OBJECTIVES[name]
    counts = sampled(pmdp, 4000)
    for policy in (None, Policy.uniform(pmdp))[: 2 if shape == "plain" else sized(1, 2)]:
        certificate = certify(pmdp, counts, objective, Config(confidence), policy=policy)
        proof = prove(pmdp, counts, certificate)
        found = checker.check(json.loads(json.dumps(proof)))
        value = true_value(pmdp, objective, certificate.policy, np.array([0.6, 0.7]))
        low, high = (
            math.copysign(math.inf, s) if x is None else x for x, s in ((found["lower"], -1), (found["upper"], 1))
        )
        assert low <= value + 1e-6 and value - 1e-6 <= high
        if math.isfinite(certificate.gap):  # few data: a ball is wider than the set that it encloses
            assert high - low <= 2.5 * certificate.gap + 1e-6


def test_a_known_model_needs_no_data():
    pmdp = build("a", lambda s: {"go": {"b": 0.3, "a": 0.7}} if s == "a" else {"stay": {s: 1}}, domain=[],
                 labels={"b": lambda s: s == "b"})  # fmt: skip
    found = checker.check(known(pmdp, Objective.reach("b")))
    assert 1.0 - 1e-6 <= found["lower"] <= found["upper"] <= 1.0


def test_costs_of_infinity_do_not_spoil_lower_bounds():
    """An action that leads to a dead end is no reason to claim 0: what is infinite may be bounded by any number."""
    rows = {0: {"go": {1: 1}, "risk": {1: 0.5, 2: 0.5}}, 1: {"stay": {1: 1}}, 2: {"stay": {2: 1}}}
    pmdp = build(0, lambda s: rows[s], domain=[], labels={"goal": lambda s: s == 1}, rewards={"cost": lambda s, a: 0.5})
    found = checker.check(known(pmdp, Objective.cost("cost", target="goal")))
    assert found["lower"] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("kind", ["cost", "total"])
def test_costs_of_infinity_that_may_end_do_not_spoil_lower_bounds(kind):
    """The risk costs infinity although its play may end: one large number for all such states proves nothing."""
    rows = {0: {"go": {1: 1}, "risk": {2: 1}}, 1: {"stay": {1: 1}}, 2: {"on": {2: 0.25, 1: 0.25, 3: 0.25, 4: 0.25}},
            3: {"stay": {3: 1}}, 4: {"back": {2: 1}}}  # fmt: skip
    pmdp = build(0, lambda s: rows[s], domain=[], labels={"goal": lambda s: s == 1},
                 rewards={"cost": lambda s, a: float(s in (0, 3))})  # fmt: skip
    objective = Objective.cost("cost", target="goal")
    objective = objective if kind == "cost" else Objective.total("cost", target="goal", sense=Sense.MIN)
    assert checker.check(known(pmdp, objective))["lower"] == pytest.approx(1.0, abs=1e-6)


def test_a_refuted_model_is_proved_from_its_graph():
    pmdp = model()
    counts = Counts(pmdp)
    transitions = np.zeros(pmdp.num_transitions, dtype=np.int64)
    seen = {"lost": 1500, "s0": 300, "s1": 1000, "goal": 900}  # lost and s0 are equally likely in the model
    for t, row in enumerate(pmdp.transition_row):
        transitions[t] = seen[pmdp.state_value(int(pmdp.successor[t]))] * (np.diff(pmdp.row_ptr)[row] > 1)
    counts.add_batch(transitions)
    with pytest.warns(RefutedWarning):
        certificate = certify(pmdp, counts, Objective.reach("goal"))
    proof = prove(pmdp, counts, certificate)
    assert proof["confidence"] == "graph" and proof["claim"]["lower"] > certificate.lower - 0.02
    checker.check(proof)


def test_plays_without_cycles_end_whatever_the_parameters_are():
    """A row that pays nothing and was never seen: neither successor is known to be possible, but one of them comes."""
    rows = {"a": {"b": "p", "c": "1 - p"}, "b": {"end": 1}, "c": {"end": 1}}
    pmdp = build("a", lambda s: {"go": rows.get(s, {s: 1})}, domain=["p"], labels={"end": lambda s: s == "end"},
                 rewards={"cost": lambda s, a: {"b": 1.0, "c": 3.0}.get(s, 0.0)})  # fmt: skip
    counts = Counts(pmdp)
    proof = prove(pmdp, counts, certify(pmdp, counts, Objective.cost("cost", target="end")))
    found = checker.check(proof)
    assert found["lower"] == pytest.approx(1.0) and found["upper"] == pytest.approx(3.0)


# ---------------------------------------------------------------------- and nothing stronger
def test_plays_that_never_end_prove_nothing():
    """L ≤ r + P L holds for L = 0.9 on a loop that is worth 0; U ≥ r + P U for U = 0 on one that costs infinity."""
    loop = build("a", lambda s: {"stay": {s: 1}}, domain=[], labels={"b": lambda s: s == "b"},
                 rewards={"cost": lambda s, a: 0.0})  # fmt: skip
    with pytest.warns(RPLWarning, match="holds in no state"):
        proof, cost = known(loop, Objective.reach("b")), known(loop, Objective.cost("cost", target="b"))
    assert checker.check(proof)["lower"] == 0.0
    values = {"region": 0, "values": [[0.9]]}
    with pytest.raises(checker.Refused, match="plays may stay forever"):
        checker.check(proof | {"lower": values, "claim": {"lower": 0.9, "upper": 1.0}})
    with pytest.raises(checker.Refused, match="plays may stay forever"):
        checker.check(cost | {"upper": values | {"values": [[0.0]]}, "claim": {"lower": 0.0, "upper": 0.0}})


@pytest.mark.parametrize(("success", "interval"), [(10, [1, 1]), (0, [0, 0]), (10, [0.99, 1]), (5, [0.45, 0.55])])
def test_intervals_that_the_data_do_not_give_are_refused(success, interval):
    pmdp = build("a", lambda s: {"go": {"b": "p", "c": "1 - p"}} if s == "a" else {"stay": {s: 1}}, domain=["p"],
                 labels={"b": lambda s: s == "b"})  # fmt: skip
    counts = Counts(pmdp)
    for k in range(10):
        counts.add(0, 0, 1 if k < success else 2)
    proof = prove(pmdp, counts, certify(pmdp, counts, Objective.reach("b"), Config("anytime")))
    checker.check(proof)
    (event,) = proof["regions"][0]["ends"]
    p, q = (interval, [1 - interval[1], 1 - interval[0]])
    low, high = p if proof["regions"][0]["ends"][event][1] * 10 >= success else q
    proof["regions"][0]["ends"][event] = [low, high]
    with pytest.raises(checker.Refused, match="expression"):
        checker.check(proof)


@pytest.mark.parametrize("name", ["Pmax", "cost", "discounted", "within"])
def test_no_mutation_towards_a_stronger_claim_is_accepted(name, monkeypatch, sized):
    most = sized(2, 8)  # every piece has fields of its own
    monkeypatch.setattr(pieces, "PIECES", most)
    pmdp = model()
    counts = sampled(pmdp, 4000)
    certificate = certify(pmdp, counts, OBJECTIVES[name], pieces=most)
    proof = sharpest(json.loads(json.dumps(prove(pmdp, counts, certificate))))
    truth = dict(zip(("lower", "upper"), optimum(pmdp, np.array([0.6, 0.7]), certificate)))
    tried, accepted = judged(pmdp, counts, certificate, proof, truth, random.Random(5), 1)
    assert tried["claim"] == 3 and sum(tried.values()) > 100 and not accepted


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(4, 40))])
def test_proofs_of_random_models_pass_and_lies_do_not(seed):
    tally = proofs.round_of(seed)
    # one more if its plays end, and of some seeds one or two of blocks
    assert tally.failures == [] and sum(tally.problems.values()) in range(16, 20)


def test_what_proofs_do_not_cover_by_name_is_no_failure_of_the_fuzz():
    case = next(case for _, case in proofs.cases(44131) if "refused" in case.proof)
    for reason, failures in ((case.proof["refused"], 0), ("something else", 1)):
        tally = Tally()
        proofs.judge(tally, Dice(1), "polynomials", replace(case, proof=case.proof | {"refused": reason}))
        assert len(tally.failures) == failures


def test_proofs_of_random_blocks_pass_and_lies_do_not():
    """More unknowns than one joint set has: bets and a ball across blocks, against exact values."""
    tally = Tally()
    for seed in range(6):
        for name, case in proofs.block_cases(seed):
            proofs.judge(tally, Dice(~seed), name, case)
    assert tally.failures == [] and tally.problems["certificates"] >= 6 and tally.lies >= 20


def test_a_likeliest_point_on_the_edge_is_no_obstacle(monkeypatch):
    """Found by the fuzz: at the likeliest point expressions are 0, in floats also before it is reached."""
    monkeypatch.setattr(pieces, "PIECES", 1)
    question = next(itertools.islice(proofs.questions(81), 2, None))
    case = proofs.certified(question)
    assert "polynomials" in question.name and case is not None and "refused" not in case.proof


def test_a_file_is_checked_by_python_alone(glider, tmp_path):
    """No package, no site: a copy of the file, the standard library, a proof."""
    proof = sharpest(glider[-1])
    alone = tmp_path / "checker.py"
    alone.write_text(Path(checker.__file__).read_text())
    write_proof(tmp_path / "proof.json.gz", proof)
    write_proof(tmp_path / "false.json", proof | {"claim": {"lower": proof["claim"]["lower"] + 1e-9, "upper": 99.0}})
    for name, code, text in (
        ("proof.json.gz", 0, "proved with probability"),
        ("false.json", 1, "the lower bound"),  # test_checker_words.py has what is no proof
    ):
        command = [sys.executable, "-I", "-S", str(alone), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONIOENCODING": "utf-8"})
        assert done.returncode == code and text in done.stdout, (done.stdout, done.stderr)


def test_bounds_of_an_earlier_moment_rest_on_where_the_data_began():
    pmdp = model()
    counts = sampled(pmdp, 4000)
    certificate = certify(pmdp, counts, OBJECTIVES["Pmax"])
    proof = prove(pmdp, counts, certificate, {"lower": sampled(pmdp, 4000, first=1000)})
    assert [region["data"] is None for region in proof["regions"]] == [False, True]
    checker.check(proof)
    other = data_content(sampled(pmdp, 1000, seed=8), graph=False)  # not where these data began
    with pytest.raises(checker.Refused, match="are not the beginning of the data"):
        checker.check(proof | {"regions": [proof["regions"][0] | {"data": other}, proof["regions"][1]]})


def test_a_method_does_not_spend_what_another_one_may(glider):
    *_, proof = glider
    assert proof["confidence"] == "likelihood with bets" and any(isinstance(c, int) for c in cuts_of(proof))
    for method, problem in (("likelihood", "bets are part"), ("anytime", "joint likelihood"), ("graph", "excluded")):
        with pytest.raises(checker.Refused, match=problem):
            checker.check(proof | {"confidence": method})


@pytest.fixture(scope="module", params=[(8, 40), pytest.param((50, 300), marks=pytest.mark.nightly)])
def engagement(request):
    length, episodes = request.param
    return of_world("rpl/Engagement-50-v0", episodes, {"L": length})


def test_rows_are_proved_from_all_cuts_together(engagement):
    """Three successors, badly identified parameters: intervals of single expressions give at least 5 times the gap."""
    *_, certificate, proof = engagement
    found = checker.check(json.loads(json.dumps(proof)))
    assert found["upper"] - found["lower"] <= 1.1 * certificate.gap
    assert all(proof[side]["duals"] for side in ("lower", "upper"))
    assert any(isinstance(cut, str) and cut.startswith("domain") for cut in cuts_of(proof))


def test_rows_of_discounted_values_are_proved_from_all_cuts_together():
    """Multipliers were divided by the denominator of the discount once too often; the gap was 1.07 times as wide."""
    pmdp = model()
    counts = sampled(pmdp, 200, 1)
    certificate = certify(pmdp, counts, OBJECTIVES["discounted min"])
    proof = prove(pmdp, counts, certificate)
    found = checker.check(json.loads(json.dumps(proof)))
    assert proof["lower"]["duals"] and (found["lower"], found["upper"]) == (certificate.lower, certificate.upper)


def test_multipliers_that_do_not_prove_a_row_are_refused(engagement):
    proof = engagement[-1]
    row, multipliers = next((row, m) for row, m in proof["upper"]["duals"].items() if m)
    (number, m), *rest = multipliers
    changes = {
        "misses its inequality": [[[number, m / 2], *rest], rest, [[number, 2 * m], *rest]],
        "is negative or belongs to no cut": [[[number, -m], *rest], [[999, m], *rest], [[-1, m], *rest]],
        "not a finite number": [[[number, math.nan], *rest], [[number, math.inf], *rest]],
    }
    for problem, found in ((problem, found) for problem, wrong in changes.items() for found in wrong):
        side = proof["upper"] | {"duals": proof["upper"]["duals"] | {row: found}}
        with pytest.raises(checker.Refused, match=problem):
            checker.check(proof | {"upper": side})


def cuts_of(proof: dict) -> list:
    return [cut for region in proof["regions"] for cut in region["likelihood"]["cuts"]]


def test_rewards_that_miss_the_model_widen_what_is_proved():
    pmdp = model()
    counts = sampled(pmdp, 4000)
    for name, error in (("cost", 0.01), ("discounted", 0.01), ("steps", 0.01)):
        certificate = certify(pmdp, counts, OBJECTIVES[name])
        lower, upper = certificate.objective.with_reward_error(certificate.lower, certificate.upper, error)
        proof = prove(pmdp, counts, certificate)
        wider = prove(pmdp, counts, replace(certificate, lower=lower, upper=upper, reward_error=error))
        for side, way in (("lower", -1), ("upper", 1)):
            exact, off = (checker.check(p)[f"{side} proved"] for p in (proof, wider))
            amount = {"cost": error * exact, "discounted": error / Fraction(1, 10), "steps": 5 * error}[name]
            assert float(off - exact) == pytest.approx(way * float(amount), rel=1e-9)
        with pytest.raises(checker.Refused, match="is claimed, but"):
            checker.check(sharpest(proof) | {"reward_error": error})


def test_an_error_of_rewards_above_one_proves_nothing():
    """−5 · (1 − 2) = 5 would be a lower bound of costs that may be anything, and 0 is none of costs below 0."""
    pmdp = model()
    counts = sampled(pmdp, 400)
    proof = prove(pmdp, counts, certify(pmdp, counts, OBJECTIVES["cost"])) | {"reward_error": 2.0}
    proof["lower"] = proof["lower"] | {"values": [[-5.0] for _ in proof["lower"]["values"]], "duals": {}}
    proof["claim"] = {"lower": None, "upper": None}
    with pytest.raises(checker.Refused, match="the error of rewards 2"):
        checker.check(proof)
    assert checker.check(proof | {"reward_error": 1.0})["lower proved"] == 0


def test_the_number_on_the_certificate_is_what_is_proved(tmp_path):
    """Both bounds of a stored certificate, to the last bit; a claim that is one bit stronger is refused."""
    pmdp, path = model(), tmp_path / "c.proof.json"
    counts = sampled(pmdp, 4000)
    computed = certify(pmdp, counts, OBJECTIVES["Pmax"])
    proof = prove(pmdp, counts, computed)
    write_proof(path, proof)
    certificate = stated(computed, proof)
    found = checker.check(proof)
    assert certificate.proved and (certificate.lower, certificate.upper) == (found["lower"], found["upper"])
    assert (certificate.lower, certificate.upper) == (computed.lower, computed.upper)
    verdict = verify(certificate, pmdp, counts)
    assert with_proof(verdict, certificate, pmdp, counts, path).problems == []
    for change in (
        {"lower": math.nextafter(certificate.lower, 1.0)}, {"upper": math.nextafter(certificate.upper, 0.0)},
        {"delta": certificate.delta / 2}, {"reward_error": 1e-3}, {"policy": Policy.uniform(pmdp)},
    ):  # fmt: skip
        assert with_proof(verdict, replace(certificate, **change), pmdp, counts, path).problems, change
    stronger = replace(certificate, lower=math.nextafter(certificate.lower, 1.0))
    write_proof(path, sharpest(proof) | {"claim": {"lower": stronger.lower, "upper": certificate.upper}})
    problems = with_proof(verdict, stronger, pmdp, counts, path).problems
    assert stronger.lower <= float(found["lower proved"]) or any("refuses" in text for text in problems)
    path.unlink()
    assert with_proof(verdict, certificate, pmdp, counts, path).problems == ["the proof c.proof.json is missing"]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_regret_is_proved_and_no_smaller_one(name, given, sized, monkeypatch):
    """By functions of one region; of the policy found, and of a given one, whose bounds say nothing about the best."""
    monkeypatch.setattr(pieces, "PIECES", sized(4, pieces.PIECES))
    pmdp = model()
    counts = sampled(pmdp, 2000)
    policy = Policy.deterministic(pmdp.state_ptr[:-1]) if given else None
    certificate = certify(pmdp, counts, OBJECTIVES[name], policy=policy)
    proof = json.loads(json.dumps(prove(pmdp, counts, certificate)))
    found, claim = checker.check(proof), proof["claim"]
    if math.isinf(certificate.regret):  # rewards may be collected forever
        assert name == "reward" and claim["regret"] is None
        return
    assert claim["regret"] is not None and claim["regret"] >= certificate.regret
    better = "no policy is better" if found["optimal"] else f"no policy is better by more than {claim['regret']}"
    assert better in checker.sentence(proof, found) and certificate.optimal is found["optimal"]
    stored = stated(certificate, proof)
    assert stored.regret == claim["regret"] and belongs(proof, pmdp, counts, stored, {}) == []
    if found["regret proved"] > 0:
        lie = proof | {"claim": claim | {"regret": float(found["regret proved"]) * (1 - 1e-9)}}
        with pytest.raises(checker.Refused, match=r"the regret .* is claimed"):
            checker.check(lie)
    if given:  # its own bounds are no bounds on the best policy
        with pytest.raises(checker.Refused, match="'nothing' is proved"):
            checker.check(proof | {"regret": None})
        part = {"region": proof["regret"]["region"], "functions": [None, None], "start": []}
        with pytest.raises(checker.Refused, match="bound is used, and there is none on this value"):
            checker.check(proof | {"regret": part})
