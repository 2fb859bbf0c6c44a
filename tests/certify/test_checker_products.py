"""Rows of functions over a box that are proved by products of cuts, and regions whose cuts are those of intervals."""

import copy
import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import improvement_worlds as worlds
from rpl_agent import Config, certify, improve
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.improvement import COMMON
from rpl_agent.guarantee.proof import prove
from rpl_agent.guarantee.proof.stated import stated
from tests.reference.river import GAIN, river_log, small_river

#: y1 ≤ 1/2; y1 ≥ −1/2; y2 ≤ 0; and y1 + y2 ≤ 1/3, in the box |y| ≤ 1
CUTS = [
    ([Fraction(1), Fraction(0)], Fraction(1, 2)),
    ([Fraction(-1), Fraction(0)], Fraction(1, 2)),
    ([Fraction(0), Fraction(1)], Fraction(0)),
    ([Fraction(1), Fraction(1)], Fraction(1, 3)),
]
WHOLE = 10**9
LINE = SimpleNamespace(den=1, terms=[[0, 1, 0], [0, 0, 1]])


def proves(polynomial: dict, products: list, t: float = 0.0) -> bool:
    """Whether Σ_k z_k polynomial_k·z is proved to be negative in the square |y_1|, |y_2| ≤ 1 and in the cuts."""
    claim, square = object.__new__(checker.Claim), [[Fraction(-1), Fraction(1)]] * 2
    claim.region, claim.rooms = SimpleNamespace(cuts=CUTS), {}
    form = {k: [int(Fraction(x) * WHOLE) for x in row] for k, row in polynomial.items()}
    return claim._under_cuts(checker.Box(LINE, square), [t, products], WHOLE, form)


@pytest.mark.parametrize(
    "polynomial, products, edge",
    [
        # magnitudes alone
        (lambda b: {0: [-2, b, 0]}, [], 2.0),
        (lambda b: {0: [-2, 0, -b]}, [], 2.0),
        (lambda b: {0: [-2, 1, 0], 1: [0, b, 0]}, [], 1.0),
        (lambda b: {0: [-2, 0, 0], 1: [0, 0.5, b]}, [], 1.5),
        # z_i z_j and z_j z_i are one term
        (lambda b: {0: [-2, b, 0], 1: [-1, 0, 0]}, [], 3.0),
        (lambda b: {0: [-2, 0, 0], 1: [0, 0, b], 2: [0, -1, 0]}, [], 3.0),
        (lambda b: {0: [-2, 0, 0], 2: [0, -1, 0], 1: [0, 0, b]}, [], 3.0),
        # −1 + b y1 with μ (½ − y1): 1 − μ/2 > |b − μ|
        (lambda b: {0: [-1, b, 0]}, [[1.0, 0]], 1.5),
        (lambda b: {0: [-1, -b, 0]}, [[0.5, 1], [0.5, 1]], 1.5),
        (lambda b: {0: [b - 2, 1, 1]}, [[1.0, 3]], 5 / 3),
        # −1 + b y1² with μ (½ − y1)(½ + y1): 1 − μ/4 > |b − μ|
        (lambda b: {0: [-1, 0, 0], 1: [0, b, 0]}, [[2.0, 0, 1]], 2.5),
        (lambda b: {0: [-1, 0, 0], 1: [0, b, 0]}, [[2.0, 1, 0]], 2.5),
        # −1 + y2/2 − b y1 y2 with (½ − y1)(−y2) = y1 y2 − y2/2: 1 > |1 − b|
        (lambda b: {0: [-1, 0, 0.5], 1: [0, 0, -b]}, [[1.0, 0, 2]], 2.0),
        (lambda b: {0: [-1, 0, 0.5], 1: [0, 0, -b]}, [[1.0, 2, 0]], 2.0),
    ],
)
def test_a_row_is_proved_up_to_its_edge(polynomial, products, edge):
    assert proves(polynomial(edge - 1e-6), products) and not proves(polynomial(edge + 1e-6), products)


def test_a_multiple_of_the_ball_counts_for_nothing():
    """1 − |y|² may be negative in a box."""
    assert not proves({0: [-1, 0, 0], 1: [0, 1.5, 0]}, [], 1.0) and not proves({0: [1, 0, 0]}, [], -5.0)
    assert proves({0: [-1, 0, 0]}, [], -5.0) and not proves({0: [0, 0, 0]}, [])


def test_what_is_proved_is_true():
    """Random polynomials and multiples, against points of the box that all cuts leave, its corner among them."""
    rng, proved = np.random.default_rng(1), 0
    y = np.vstack([rng.uniform(-1, 1, (4_000, 2)), [[-0.5, -1], [0.5, -1], [0.5, -1 / 6], [-0.5, 0], [1 / 3, 0]]])
    inside = (np.abs(y[:, 0]) <= 0.5) & (y[:, 1] <= 0) & (y.sum(axis=1) <= 1 / 3 + 1e-12)
    z = np.concatenate([np.ones((inside.sum(), 1)), y[inside]], axis=1)
    for _ in range(1_500):
        polynomial = {0: [-rng.uniform(0, 3), *rng.normal(size=2)], 1: [0.0, *0.5 * rng.normal(size=2)]}
        products = [[0.5 * rng.exponential(), int(rng.integers(4))] for _ in range(2)]
        products += [[0.5 * rng.exponential(), *map(int, rng.integers(4, size=2))] for _ in range(2)]
        if proves(polynomial, products, 1.0):
            proved += 1
            assert max(sum(z[:, k] * (z @ row) for k, row in polynomial.items())) < 0.0
    assert proved > 20


def test_multiples_that_are_refused():
    for product, said in (([-1e-10, 0], "is negative"), ([0.1, 0, 0, 0], "two cuts"), ([0.1, 4], "belongs to no cut")):
        with pytest.raises(checker.Refused, match=said):
            proves({0: [-2, 0, 0]}, [product])


def of_a_log(start=(0, 0)):
    """(model, its data, improvement) of a policy that is half as good as the best, which draws its actions."""
    pmdp, theta = small_river(start)
    used = worlds.halfway(pmdp, theta, GAIN)
    counts = river_log(pmdp, theta, used, 1_000)
    return pmdp, counts, improve(pmdp, counts, GAIN, used, delta=0.1)


@pytest.fixture(scope="module", params=[(0, 0), {(0, 0): "0.5", (2, 1): "0.5"}], ids=["one start", "a drawn start"])
def proved(request):
    """(improvement, its proof)."""
    pmdp, counts, found = of_a_log(request.param)
    return found, json.loads(json.dumps(prove(pmdp, counts, found)))


def test_the_number_is_the_proofs_number(proved):
    """Of the gain and of both values: no number is computed and not proved."""
    found, proof = proved
    shown = checker.check(proof)
    after = stated(found, proof)
    assert found.lower > 0.5 and found.method == after.method == COMMON and after.proved
    names = ("lower", "upper", "value", "baseline_value")
    assert [getattr(after, name) for name in names] == [getattr(found, name) for name in names]
    assert (shown["gain lower"], shown["gain upper"]) == (found.lower, found.upper)
    assert found.baseline.rows is None and proof["baseline upper"]["rows"]  # what is drawn is judged jointly


def test_a_proof_needs_its_products(proved):
    """Forgeries of the file: each is refused."""
    proof = proved[1]
    function = proof["gain lower"]["functions"][0]
    row = max(function["rows"], key=lambda name: len(function["rows"][name][1]))
    first = max(function["rows"][row][1], key=lambda product: product[0])

    def forged(change):
        other = copy.deepcopy(proof)
        change(other)
        return other

    def in_row(change):
        return lambda other: change(other["gain lower"]["functions"][0]["rows"][row][1])

    for change, said in (
        (lambda other: other["gain lower"]["functions"][0].pop("rows"), "misses its inequality"),
        (lambda other: other["gain lower"]["functions"][0]["rows"].pop(row), "misses its inequality"),
        (in_row(lambda products: products.clear()), "misses its inequality"),
        (in_row(lambda products: products.remove(first)), "misses its inequality"),
        (in_row(lambda products: products.__setitem__(products.index(first), [-first[0], *first[1:]])), "negative"),
        (in_row(lambda products: products.append([1.0, *first[1:]])), "misses its inequality"),
        (in_row(lambda products: products.append([1.0, 10**6])), "belongs to no cut"),
        (lambda other: other["gain lower"]["functions"][0].pop("box"), "does not fit its ball"),
        (lambda other: other["gain lower"].__setitem__("start", []), "is proved"),
        (lambda other: other["claim"].__setitem__("gain lower", other["claim"]["gain lower"] + 1e-2), "is proved"),
    ):
        with pytest.raises(checker.Refused, match=said):
            checker.check(forged(change))


def test_forged_proofs_of_narrower_cuts_are_refused(monkeypatch):
    """All parts of the file fit a checker whose cuts are too narrow: it proves too large a gain."""
    pmdp, counts, found = of_a_log()
    plain = checker.Known.cut

    def narrow(self, name):
        (a, b), f = plain(self, name), int(name.split()[1])
        width = Fraction(self.ends["high"][f] - self.ends["low"][f], checker.ONE)
        return a, b - (0 if name.startswith("domain") else width / 5)

    with monkeypatch.context() as patch:
        patch.setattr(checker.Known, "cut", narrow)
        forged = json.loads(json.dumps(prove(pmdp, counts, replace(found, lower=found.lower + 0.05))))
        assert checker.check(forged)["gain lower"] == found.lower + 0.05
    honest = json.loads(json.dumps(prove(pmdp, counts, found)))
    gain = {"gain lower": forged["gain lower"], "claim": honest["claim"] | {"gain lower": found.lower + 0.05}}
    with pytest.raises(checker.Refused, match="misses its inequality"):
        checker.check(honest | gain)


def test_cuts_without_a_likelihood(proved):
    """They are those of intervals and the domain; a point, a bet or a ball would need a likelihood."""
    proof = proved[1]
    part = proof["regions"][0]["likelihood"]
    assert part["parts"] is None and part["ball"] is None
    assert {name.split()[0] for name in part["cuts"]} <= {"low", "high", "domain"}
    size = len(proof["model"]["coordinates"]["x"])
    eye = np.eye(size).tolist()
    for change, said in (
        ({"parts": []}, "joint likelihood is part of the proof"),
        ({"cuts": [*part["cuts"], [0.1] * size]}, "no attribute 'likelihood'"),
        ({"cuts": [*part["cuts"], 0]}, "bets are part of the proof"),
        ({"ball": {"center": [0.1] * size, "factor": eye}}, "no attribute 'likelihood'"),
    ):
        other = copy.deepcopy(proof)
        other["regions"][0]["likelihood"] |= change
        with pytest.raises((checker.Refused, *checker.MALFORMED), match=said):
            checker.check(other)
    other = copy.deepcopy(proof)
    other["model"]["coordinates"] = None
    other["model"]["expressions"] = [[[1, []]]] * len(set(other["model"]["expression"]))
    with pytest.raises(checker.Refused):
        checker.check(other)


@pytest.fixture(scope="module")
def certified(shared_particles):
    """(certificate, its proof) from few plays, with slabs of bets among the cuts."""
    pmdp, theta = small_river()
    counts = uniform_counts(pmdp, GAIN, theta, 100, 10, 4)
    found = certify(pmdp, counts, GAIN, Config(delta=0.1))
    return found, json.loads(json.dumps(prove(pmdp, counts, found)))


def test_a_certificate_is_proved_by_products_with_slabs(certified):
    """Both sides; rows over a ball and cuts gave [6.332, 10.749]."""
    found, proof = certified
    shown = checker.check(proof)
    assert (shown["lower"], shown["upper"]) == (found.lower, found.upper)
    assert 6.36 < found.lower and found.upper < 10.50
    names = proof["regions"][proof["upper"]["region"]]["likelihood"]["cuts"]
    for side in ("lower", "upper"):
        slabs = {k for k, name in enumerate(names) if isinstance(name, int)}
        rows = proof[side]["rows"]
        assert any(slabs & set(cuts) for _, products in rows.values() for _, *cuts in products)
        forged = copy.deepcopy(proof)
        for _, products in forged[side]["rows"].values():
            products[:] = [product for product in products if not slabs & set(product[1:])]
        with pytest.raises(checker.Refused, match="misses its inequality"):
            checker.check(forged)


def test_files_have_few_products(certified):
    """A row needs no more of them than monomials: 1, y and those of its block with all."""
    for side in ("lower", "upper"):
        assert max(len(products) for _, products in certified[1][side]["rows"].values()) <= 4 * 9
