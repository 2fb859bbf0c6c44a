"""The checker proves what the package claims, and nothing stronger; its own numbers are compared with others'."""

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
from scipy import special

import rpl_envs
from rpl_agent import checker
from rpl_agent.certificate import Certificate
from rpl_agent.errors import RefutedWarning, RPLWarning
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.sampling import uniform_counts
from rpl_agent.model import Objective, Policy, Sense, build
from rpl_agent.pipeline import Config, certify, true_value
from rpl_agent.proof import as_proved, prove, write_proof
from rpl_agent.proof.content import data_content, model_content
from rpl_agent.relaxations.interval import Point
from rpl_agent.schema import jsonable
from rpl_agent.solver import solve, solve_at
from rpl_agent.verify import verify, with_proof
from tests.certify.mutations import judged, sharpest
from tests.reference import proofs
from tests.small_worlds import SIZES

WORLDS = {
    "rpl/Betting-25-v0": 200, "rpl/MarsRover-10x10-v0": 300, "rpl/Glider-11x9-v0": 300, "rpl/Aircraft-20x10-v0": 1000,
    "rpl/Engagement-50-v0": 500, "rpl/ParallelBetting-5-v0": 500,
}  # fmt: skip
#: By day all of them at their small sizes.
SMALL = {f"rpl/{name}-v0": dict(size) for name, size in SIZES.items()}


def of_world(name: str, episodes: int, size: dict[str, int] | None = None, **options):
    world = rpl_envs.benchmark(name, **(size or {}))
    theta = np.asarray(world.theta)
    counts = uniform_counts(world.pmdp, world.objective, theta, episodes, world.max_episode_steps, 1)
    certificate = certify(world.pmdp, counts, world.objective, Config(**options))
    return world.pmdp, theta, counts, certificate, prove(world.pmdp, counts, certificate)


def optimum(pmdp, theta: np.ndarray, certificate: Certificate) -> tuple[float, float]:
    """The true values that the lower and the upper bound are bounds of."""
    own = true_value(pmdp, certificate.objective, certificate.policy, theta, 1e-10)
    best = solve_at(pmdp, theta, certificate.objective, precision=1e-10).middle
    return (own, best) if certificate.objective.sense is Sense.MAX else (best, own)


@pytest.fixture(scope="module")
def glider():
    return of_world("rpl/Glider-11x9-v0", 300, SMALL["rpl/Glider-11x9-v0"])


# ---------------------------------------------------------------------- numbers
def test_logarithms_are_enclosed():
    draw = random.Random(1)
    for _ in range(300):
        x = Fraction(draw.randrange(1, 2 ** draw.randrange(1, 400)), draw.randrange(1, 2 ** draw.randrange(1, 400)))
        low, high = checker.ln(x)
        assert low < high <= low + 3
        value = math.log(x.numerator) - math.log(x.denominator)
        assert abs(low / checker.ONE - value) <= 1e-12 * max(1.0, abs(value))
    one, two, six = (checker.ln(Fraction(x)) for x in (3, 2, 6))  # ln 3 + ln 2 = ln 6, to the last bits
    assert six[0] <= one[1] + two[1] and one[0] + two[0] <= six[1]
    for x in ("0", "-1", "1e-400000"):  # of the last one the error would exceed the enclosure
        with pytest.raises(checker.Refused, match="logarithm"):
            checker.ln(Fraction(x))


@pytest.mark.parametrize("n", [0, 1, 5, 255, 256, 1000, 10**6, 10**15])
def test_factorials_are_enclosed(n):
    low, high = checker.ln_factorial(n)
    assert low <= high and (high - low) / checker.ONE <= 1e-14
    assert low / checker.ONE == pytest.approx(float(special.gammaln(n + 1.0)), rel=1e-13, abs=1e-13)


def test_positive_definite_matrices():
    draw, found = random.Random(2), set()
    for _ in range(50):
        matrix = [[Fraction(draw.randrange(-9, 10)) for _ in range(3)] for _ in range(3)]
        matrix = [[matrix[i][j] + matrix[j][i] for j in range(3)] for i in range(3)]
        matrix = checker.shifted(matrix, Fraction(draw.randrange(0, 40)))
        floats, right = np.array(matrix, dtype=float), [Fraction(1), Fraction(2), Fraction(3)]
        solution = checker.solved(matrix, right)
        found.add(solution is None)
        assert (solution is not None) == bool((np.linalg.eigvalsh(floats) > 1e-9).all())
        if solution is not None:
            assert np.array(solution, dtype=float) == pytest.approx(np.linalg.solve(floats, [1.0, 2.0, 3.0]))
    assert found == {True, False}


# ---------------------------------------------------------------------- certificates pass
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", WORLDS)
def test_worlds_are_proved(name, small):
    pmdp, theta, _, certificate, proof = of_world(name, WORLDS[name], SMALL[name] if small else None)
    found = checker.check(json.loads(json.dumps(proof)))
    value = true_value(pmdp, certificate.objective, certificate.policy, theta)
    assert found["lower"] - 1e-6 <= value <= found["upper"] + 1e-6
    assert all(region["likelihood"] is not None for region in proof["regions"])


@pytest.mark.parametrize("confidence", ["clopper-pearson", "hoeffding", "l1", "ellipsoid"])
def test_what_is_not_covered_is_refused_by_name(confidence):
    *_, proof = of_world("rpl/Betting-25-v0", 50, confidence=confidence, relaxation="rectangular")
    with pytest.raises(checker.Refused, match=confidence):
        checker.check(proof)


def actions(state: str) -> dict:
    if state == "s0":
        return {"try": {"s1": "p", "lost": "(1 - p)/2", "s0": "(1 - p)/2"}, "wait": {"s0": 1}}
    return {"go": {"goal": "q", "s0": "1 - q"}} if state == "s1" else {"stay": {state: 1}}


def model(start="s0", *, arrivals: bool = False):
    """s0 tries to reach the goal, and may be lost; waiting is possible and useless."""

    def steps(state: str, action: str) -> float:
        return {"s0": 1.0, "s1": 2.0}.get(state, 0.0)

    def paid(state: str, action: str, successor: str) -> float:
        return 1.5 * (successor == "s1") + 0.1 * (state == "s1")

    return build(
        start, actions, domain={"p": (0.05, 0.95), "q": (0.05, 0.95)}, rewards={"steps": paid if arrivals else steps},
        labels={"goal": lambda s: s == "goal", "over": lambda s: s in ("goal", "lost")},
    )  # fmt: skip


OBJECTIVES = {
    "Pmax": Objective.reach("goal"),
    "Pmin": Objective.reach("goal", sense=Sense.MIN),
    "within": Objective.reach("goal", horizon=7),
    "avoiding": Objective.reach("goal", avoid="over"),
    "cost": Objective.cost("steps", target="over"),
    "total": Objective.total("steps", target="over", sense=Sense.MIN),
    "reward": Objective.reward("steps", target="over"),
    "discounted": Objective.discounted("steps", 0.9),
    "discounted min": Objective.discounted("steps", 0.9, sense=Sense.MIN),
    "steps": Objective.reward("steps", target="over", horizon=5),
    "instant": Objective.instant("steps", 4),
}


def sampled(pmdp, steps: int, seed: int = 3) -> Counts:
    """Counts of steps from states and actions in turn, at p = 0.6, q = 0.7."""
    draw, counts, mdp = np.random.default_rng(seed), Counts(pmdp), pmdp.instantiate({"p": 0.6, "q": 0.7})
    rows = [np.arange(*pmdp.row_ptr[row : row + 2]) for row in range(pmdp.num_rows)]
    drawn = [draw.choice(row, steps // len(rows), p=mdp.probability[row] / mdp.probability[row].sum()) for row in rows]
    counts.add_transitions(np.stack(drawn, axis=1).ravel())
    return counts


@pytest.mark.parametrize(
    ("shape", "confidence"), [("plain", "anytime"), ("random start", "likelihood"), ("paid on arrival", "anytime")]
)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_are_proved(name, shape, confidence):
    start = {"s0": "1/4", "s1": "3/4"} if shape == "random start" else "s0"
    pmdp, objective = model(start, arrivals=shape == "paid on arrival"), OBJECTIVES[name]
    counts = sampled(pmdp, 4000)
    for policy in (None, Policy.uniform(pmdp)):
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


def known(pmdp, objective: Objective) -> dict:
    """The proof of a model without parameters, whose certificate is its solution."""
    solution = solve(Point(pmdp.instantiate([])), objective)
    certificate = Certificate(
        solution.lower, solution.upper, 1e-3, objective, solution.policy, "likelihood", "coupled", 0
    )
    return prove(pmdp, Counts(pmdp), certificate)


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
def test_no_mutation_towards_a_stronger_claim_is_accepted(name):
    pmdp = model()
    counts = sampled(pmdp, 4000)
    certificate = certify(pmdp, counts, OBJECTIVES[name])
    proof = sharpest(json.loads(json.dumps(prove(pmdp, counts, certificate))))
    truth = dict(zip(("lower", "upper"), optimum(pmdp, np.array([0.6, 0.7]), certificate)))
    tried, accepted = judged(pmdp, counts, certificate, proof, truth, random.Random(5), 60)
    assert tried["claim"] == 2 and sum(tried.values()) > 100 and not accepted


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(4, 40))])
def test_proofs_of_random_models_pass_and_lies_do_not(seed):
    tally = proofs.round_of(seed)
    assert tally.failures == [] and sum(tally.problems.values()) == 16


def test_a_file_is_checked_by_python_alone(glider, tmp_path):
    """No package, no site: a copy of the file, the standard library, a proof."""
    proof = sharpest(glider[-1])
    alone = tmp_path / "checker.py"
    alone.write_text(Path(checker.__file__).read_text())
    write_proof(tmp_path / "proof.json.gz", proof)
    write_proof(tmp_path / "false.json", proof | {"claim": {"lower": proof["claim"]["lower"] + 1e-9, "upper": 99.0}})
    (tmp_path / "none.json").write_text("[1]")
    for name, code, text in (
        ("proof.json.gz", 0, "proved with probability"),
        ("false.json", 1, "the lower bound"),
        ("none.json", 1, "malformed"),
        ("missing.json", 2, "missing.json"),
    ):
        command = [sys.executable, "-I", "-S", str(alone), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONIOENCODING": "utf-8"})
        assert done.returncode == code and text in done.stdout, (done.stdout, done.stderr)


# ---------------------------------------------------------------------- bets and predictions, counted out
def coin() -> tuple[checker.Model, checker.Objective]:
    pmdp = build("a", lambda s: {"go": {"b": "p", "c": "1 - p"}} if s == "a" else {"stay": {s: 1}}, domain=["p"],
                 labels={"b": lambda s: s == "b"})  # fmt: skip
    content = model_content(pmdp, Objective.reach("b"), graph=False)
    return checker.Model(content), checker.Objective(checker.Model(content), jsonable(Objective.reach("b")))


def tossed(model: checker.Model, tosses: tuple[int, ...]) -> checker.Data:
    """Data of a coin with marks after the second and the fourth toss."""

    def counts(n: int) -> list[list[int]]:
        return [[t, k] for t, k in enumerate((sum(tosses[:n]), n - sum(tosses[:n]))) if k]

    marks = [
        {"total": n, "weight": 0.3, "progress": share, "successes": counts(n), "trials": [[0, n], [1, n]]}
        for n, share in ((2, 0.25), (4, 0.5))
    ]
    data = {"schedule": "split", "planned": 0, "transitions": counts(len(tosses)), "marks": marks}
    return checker.Data(model, data)


class PeekingBets(checker.Bets):
    """Payoffs that know the tosses that they are settled with."""

    p = 0.5

    def __init__(self, objective, line, data, alpha):
        self.final = data.successes, data.trials
        super().__init__(objective, line, data, alpha)

    def _aim(self, x, K, N):
        super()._aim(x, K, N)
        ahead = 1 if self.final[0][0] > self.p * self.final[1][0] else -1
        self.unit = [ahead * abs(self.unit[0]), -ahead * abs(self.unit[1])]


@pytest.mark.parametrize("p", [0.2, 0.5, 0.85])
def test_money_is_a_supermartingale(p):
    """E[M] ≤ 1 over all eight tosses, for both sides of the bets and for predictions; peeking is seen."""
    model, objective = coin()
    line, alpha, PeekingBets.p = model.coordinates, Fraction(1, 100), p
    assert line is not None
    bound = {"bets": [0.0, 0.0], "peeking": [0.0, 0.0], "likelihood": [0.0, 0.0, 0.0]}
    for tosses in itertools.product((0, 1), repeat=8):
        chance, data = p ** sum(tosses) * (1 - p) ** (8 - sum(tosses)), tossed(model, tosses)
        for name, kind in (("bets", checker.Bets), ("peeking", PeekingBets)):
            for k, (a, b) in enumerate(kind(objective, line, data, alpha).cuts[-2:]):  # of all data
                bound[name][k] += chance * math.exp(math.log(2 / alpha) - float(b - a[0] * Fraction(p)))
        for window, weight in enumerate((0.01, 0.3, 0.3)):
            level = checker.Likelihood(line, data, alpha, window)
            g = -sum(n * math.log(q) for n, q in zip(level.K, (p, 1 - p)))
            bound["likelihood"][window] += chance * math.exp(g - float(level.bound)) / float(alpha) / weight
    assert max(bound["bets"]) <= 1 + 1e-9 and min(bound["bets"]) > 0.5
    assert max(bound["likelihood"]) <= 1 + 1e-9 and min(bound["likelihood"]) > 1 - 1e-9
    assert max(bound["peeking"]) > 1.05


def test_bounds_of_an_earlier_moment_rest_on_where_the_data_began():
    pmdp = model()
    counts = sampled(pmdp, 4000)
    certificate = certify(pmdp, counts, OBJECTIVES["Pmax"])
    proof = prove(pmdp, counts, certificate, {"lower": counts_until(pmdp, 1000)})
    assert [region["data"] is None for region in proof["regions"]] == [False, True]
    checker.check(proof)
    other = data_content(sampled(pmdp, 1000, seed=8), graph=False)  # not where these data began
    with pytest.raises(checker.Refused, match="are not the beginning of the data"):
        checker.check(proof | {"regions": [proof["regions"][0] | {"data": other}, proof["regions"][1]]})


def counts_until(pmdp, steps: int) -> Counts:
    """The first steps of `sampled`."""
    counts, mdp, draw = Counts(pmdp), pmdp.instantiate({"p": 0.6, "q": 0.7}), np.random.default_rng(3)
    rows = [np.arange(*pmdp.row_ptr[row : row + 2]) for row in range(pmdp.num_rows)]
    drawn = [draw.choice(row, 4000 // len(rows), p=mdp.probability[row] / mdp.probability[row].sum()) for row in rows]
    counts.add_transitions(np.stack(drawn, axis=1).ravel()[:steps])
    return counts


def test_a_method_does_not_spend_what_another_one_may(glider):
    *_, proof = glider
    assert proof["confidence"] == "likelihood with bets" and any(isinstance(c, int) for c in cuts_of(proof))
    for method, problem in (("likelihood", "bets are part"), ("anytime", "joint likelihood"), ("graph", "joint")):
        with pytest.raises(checker.Refused, match=problem):
            checker.check(proof | {"confidence": method})


@pytest.fixture(scope="module")
def engagement():
    return of_world("rpl/Engagement-50-v0", 300)


def test_rows_are_proved_from_all_cuts_together(engagement):
    """Three successors, badly identified parameters: intervals of single expressions give ten times the gap."""
    *_, certificate, proof = engagement
    found = checker.check(json.loads(json.dumps(proof)))
    assert found["upper"] - found["lower"] <= 1.1 * certificate.gap
    assert all(proof[side]["duals"] for side in ("lower", "upper"))
    assert any(isinstance(cut, str) and cut.startswith("domain") for cut in cuts_of(proof))


def test_multipliers_that_do_not_prove_a_row_are_refused(engagement):
    proof = engagement[-1]
    row, multipliers = next((row, m) for row, m in proof["upper"]["duals"].items() if m)
    (number, m), *rest = multipliers
    changes = {
        "misses its inequality": [[[number, m / 2], *rest], rest, [[number, 2 * m], *rest]],
        "is negative or belongs to no cut": [[[number, -m], *rest], [[999, m], *rest], [[-1, m], *rest]],
        "not a finite number": [[[number, math.nan], *rest], [[number, math.inf], *rest]],
    }
    for problem, wrong in changes.items():
        for found in wrong:
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
    stated = as_proved(computed, proof)
    found = checker.check(proof)
    assert stated.proved and (stated.lower, stated.upper) == (found["lower"], found["upper"])
    assert stated.lower <= computed.lower and stated.upper >= computed.upper
    assert stated.computed == pytest.approx((computed.lower, computed.upper), rel=1e-6)
    verdict = verify(stated, pmdp, counts)
    assert with_proof(verdict, stated, pmdp, counts, path).problems == []
    for change in (
        {"lower": math.nextafter(stated.lower, 1.0)}, {"upper": math.nextafter(stated.upper, 0.0)},
        {"delta": stated.delta / 2}, {"reward_error": 1e-3}, {"policy": Policy.uniform(pmdp)},
    ):  # fmt: skip
        assert with_proof(verdict, replace(stated, **change), pmdp, counts, path).problems, change
    stated_more = replace(stated, lower=math.nextafter(stated.lower, 1.0))
    write_proof(path, sharpest(proof) | {"claim": {"lower": stated_more.lower, "upper": stated.upper}})
    problems = with_proof(verdict, stated_more, pmdp, counts, path).problems
    assert stated_more.lower <= float(found["lower proved"]) or any("refuses" in text for text in problems)
    path.unlink()
    assert with_proof(verdict, stated, pmdp, counts, path).problems == ["the proof c.proof.json is missing"]


def test_rows_sum_to_one_in_coordinates_that_depend_on_each_other():
    """Two coordinates that are both p: p and 1 − p sum to 1, x₁ and 1 − x₂ do not, and estimates are made of x."""
    rows = {"s": {"a": {"t": "p", "s": "1 - p"}}, "t": {"a": {"t": 1}}}
    pmdp = build("s", rows.__getitem__, domain=["p"], labels={"t": lambda s: s == "t"})
    content = model_content(pmdp, Objective.reach("t"), False)
    checker.Model(content)
    forms = content["coordinates"]
    first, second = (k for k, terms in enumerate(forms["terms"]) if terms[1])
    forms["x"], forms["start"], forms["domain"] = 2 * forms["x"], [0.9, 0.1], []
    forms["terms"] = [[c, w, 0] if k == first else [c, 0, w] for k, (c, w) in enumerate(forms["terms"])]
    assert second != first
    with pytest.raises(checker.Refused, match="do not sum to 1"):
        checker.Model(content)
