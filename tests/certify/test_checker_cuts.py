"""Rows of functions over a ball that are proved with multiples of cuts and of products of two cuts."""

import copy
import json
from contextlib import suppress
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from rpl_agent import Config
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove
from tests.reference.block_models import DISCOUNTED, block_model

pytestmark = pytest.mark.usefixtures("shared_particles")

#: x = (1/4, 1/2) + (y1/2 + y2/4, 2 y2)
BALL = SimpleNamespace(
    center=[Fraction(1, 4), Fraction(1, 2)],
    factor=[[Fraction(1, 2), Fraction(1, 4)], [Fraction(0), Fraction(2)]],
)
#: y1 ≤ 1/2; y1 ≥ −1/2; y2 ≤ 0; and y1 + y2 ≤ 1/3
CUTS = [
    ([Fraction(2), Fraction(-1, 4)], Fraction(7, 8)),
    ([Fraction(-2), Fraction(1, 4)], Fraction(1, 8)),
    ([Fraction(0), Fraction(1, 2)], Fraction(1, 4)),
    ([Fraction(2), Fraction(1, 4)], Fraction(1, 2) + Fraction(1, 8) + Fraction(1, 3)),
]
WHOLE = 10**9


def a_claim() -> checker.Claim:
    claim = object.__new__(checker.Claim)
    claim.region, claim.rooms = SimpleNamespace(cuts=CUTS), {}
    return claim


def proves(polynomial: dict, t: float, products: list) -> bool:
    """Whether Σ_k z_k polynomial_k·z is proved to be negative."""
    form = {k: [int(Fraction(x) * WHOLE) for x in row] for k, row in polynomial.items()}
    return a_claim()._under_cuts(BALL, [t, products], WHOLE, form)


def test_rooms_are_rounded_up():
    claim = a_claim()
    for i, (c0, c1, c2) in enumerate([(0.5, -1, 0), (0.5, 1, 0), (0, 0, -1), (1 / 3, -1, -1)]):
        room = claim.room(BALL, i)
        assert [x / checker.ONE for x in room] == pytest.approx([c0, c1, c2], abs=1e-30)
    third = -(-checker.ONE // 3)
    assert claim.room(BALL, 3) == [third + 2, -checker.ONE, -checker.ONE] == claim.rooms[3]
    claim.region.cuts = [([Fraction(2, 3), Fraction(0)], Fraction(1))]
    claim.rooms.clear()
    room, exact = claim.room(BALL, 0), [Fraction(5, 6), Fraction(-1, 3), Fraction(-1, 6)]
    assert room == [-(-checker.ONE * 5 // 6) + 2, -checker.ONE // 3, -checker.ONE // 6]
    for y in ([1, 1], [1, -1], [-1, 1], [-1, -1]):
        assert sum(Fraction(a, checker.ONE) * b for a, b in zip(room, [1, *y])) >= sum(
            a * b for a, b in zip(exact, [1, *y])
        )
    claim.rooms[0] = "known"
    assert claim.room(BALL, 0) == "known"


@pytest.mark.parametrize(
    "polynomial, t, products, edge",
    [
        # −2 + 2 b y1: t (2 − t) > b²
        (lambda b: {0: [-2, 2 * b, 0]}, 1.0, [], 1.0),
        (lambda b: {0: [-2, 2 * b, 0], 1: [0, 0, 0]}, 1.0, [], 1.0),
        (lambda b: {0: [-2, 0, 2 * b], 1: [0, 0, 0]}, 1.0, [], 1.0),
        (lambda b: {0: [-2, 2 * b, 0]}, 0.5, [], 0.75**0.5),
        # −2 + b y1²: b < t; and b y1 y2: b² < 4 t²
        (lambda b: {0: [-2, 0, 0], 1: [0, b, 0]}, 1.0, [], 1.0),
        (lambda b: {0: [-2, 0, 0], 1: [0, 0, b]}, 1.5, [], 3.0),
        (lambda b: {0: [-2, 0, 0], 1: [0, 0, b], 2: [0, 0, 0]}, 1.5, [], 3.0),
        (lambda b: {0: [-2, 0, 0], 1: [0, 0, b / 2], 2: [0, b / 2, 0]}, 1.5, [], 3.0),
        (lambda b: {0: [-2, b, 0], 1: [b, 0, 0]}, 1.0, [], 1.0),
        # −1 + b y1 with μ (½ − y1): 1 − t − μ/2 > (b − μ)² / 4 t
        (lambda b: {0: [-1, b, 0]}, 0.125, [[1.5, 0]], 1.5 + 0.0625**0.5),
        (lambda b: {0: [-1, b, 0]}, 0.125, [[0.75, 0], [0.75, 0]], 1.5 + 0.0625**0.5),
        (lambda b: {0: [-1, -b, 0]}, 0.125, [[1.5, 1]], 1.5 + 0.0625**0.5),
        (lambda b: {0: [-1, b, b]}, 0.5, [[1.0, 3]], 1.0 + (0.5 - 1 / 3) ** 0.5),
        # −1 + b y1² with μ (½ − y1)(½ + y1): 1 − t − μ/4 > 0 and b < t + μ
        (lambda b: {0: [-1, 0, 0], 1: [0, b, 0]}, 0.25, [[2.5, 0, 1]], 2.75),
        (lambda b: {0: [-1, 0, 0]} | ({1: [0, b, 0]} if b else {}), 0.25, [[2.5, 1, 0]], 2.75),
        (lambda b: {0: [b - 1.5, 0, 0], 1: [0, 1, 0]}, 0.25, [[2.0, 0, 1]], 0.75),
        # −1 + y2/2 − b y1 y2 with (½ − y1)(−y2) = y1 y2 − y2/2: ½ > 0 and (1 − b)² < 4 t²
        (lambda b: {0: [-1, 0, 0.5], 1: [0, 0, -b]}, 0.5, [[1.0, 0, 2]], 2.0),
    ],
)
def test_a_row_is_proved_up_to_its_edge(polynomial, t, products, edge):
    assert proves(polynomial(edge - 1e-6), t, products) and not proves(polynomial(edge + 1e-6), t, products)


def test_what_is_proved_is_true():
    """Random polynomials and multiples, against the points of the ball that all cuts leave."""
    rng, proved = np.random.default_rng(1), 0
    y = rng.uniform(-1, 1, (4_000, 2))
    inside = (np.linalg.norm(y, axis=1) <= 1) & (np.abs(y[:, 0]) <= 0.5) & (y[:, 1] <= 0) & (y.sum(axis=1) <= 1 / 3)
    z = np.concatenate([np.ones((inside.sum(), 1)), y[inside]], axis=1)
    for _ in range(600):
        polynomial = {0: [-rng.uniform(0, 2), *rng.normal(size=2)], 1: [0.0, *0.5 * rng.normal(size=2)]}
        products = [[0.5 * rng.exponential(), int(rng.integers(4))] for _ in range(2)]
        products += [[0.5 * rng.exponential(), *map(int, rng.integers(4, size=2))] for _ in range(2)]
        if proves(polynomial, 0.5 * rng.exponential() + 0.01, products):
            proved += 1
            assert max(sum(z[:, k] * (z @ row) for k, row in polynomial.items())) < 0.0
    assert proved > 20


@pytest.mark.parametrize("here, is_proved", [(-12, True), (32, True), (-13, False), (33, False)])
def test_the_form_of_a_row(here, is_proved):
    """−40 + l y1 + 10 y1², l = 10 − here, in whole numbers: 500 > l² for t = 15. 0 says that multiples prove it."""
    claim, ball = a_claim(), SimpleNamespace(den=1, p=[1], s=[[1, 0]], **vars(BALL))
    claim.objective, claim.den = SimpleNamespace(discount=Fraction(1)), 1
    claim.successors = lambda row, after: [(0, 0, [10, 0])]
    claim.rows = {"5 3": [15.0, []]}
    found = claim._quadratic(ball, [(3, Fraction(1))], Fraction(-40), [here, 0], 5)
    assert (found == 0) == is_proved
    for name in ("4 3", "5 2"):
        claim.rows = {name: [15.0, []]}
        assert claim._quadratic(ball, [(3, Fraction(1))], Fraction(-40), [here, 0], 5) != 0


def test_multiples_that_are_refused():
    fine = {0: [-2, 0, 0]}
    for t, products, said in (
        (0.0, [], "without a multiple of the ball"),
        (-1.0, [], "without a multiple of the ball"),
        (1e-10, [], "without a multiple of the ball"),  # rounded down to 0
        (1.0, [[-1e-10, 0]], "is negative"),
        (1.0, [[0.1, 0, 0, 0]], "more than two cuts"),
        (1.0, [[0.1, 4]], "belongs to no cut"),
        (1.0, [[0.1, 0, 4]], "belongs to no cut"),
        (1.0, [[0.1, -1]], "belongs to no cut"),
    ):
        with pytest.raises(checker.Refused, match=said):
            proves(fine, t, products)
    assert proves(fine, 1.0, [[0.0, 0], [0.0, 0, 0]]) and proves(fine, 1.0, [[0.1, 0]]) and proves(fine, 1.5e-9, [])


@pytest.fixture(scope="module")
def proved():
    """(certificate, its proof) of a small model in blocks."""
    pmdp, theta = block_model(5, 9, states=6)
    counts = uniform_counts(pmdp, DISCOUNTED, theta, 300, 50, 300)
    certificate = certify(pmdp, counts, DISCOUNTED, Config())
    return certificate, json.loads(json.dumps(prove(pmdp, counts, certificate)))


def test_certificates_and_proofs_have_such_rows(proved):
    certificate, proof = proved
    found = checker.check(proof)
    assert proof["lower"]["rows"] and proof["upper"]["rows"]
    assert found["upper proved"] - found["lower proved"] < 1.02 * certificate.gap


def test_a_proof_needs_its_multiples(proved):
    """Forgeries of the file: each is refused, or nothing was gained by it."""
    proof = proved[1]

    def forged(change):
        other = copy.deepcopy(proof)
        change(other["upper"])
        return other

    def is_needed(name: str) -> bool:
        with suppress(checker.Refused):
            return not checker.check(forged(lambda part: part["rows"][name].__setitem__(1, [])))
        return True

    row = next(name for name in proof["upper"]["rows"] if is_needed(name))

    for change, said in (
        (lambda part: part.pop("rows"), "misses its inequality"),
        (lambda part: part["rows"].pop(row), "misses its inequality"),
        (lambda part: part["rows"][row].__setitem__(1, []), "misses its inequality"),
        (lambda part: part["rows"][row].__setitem__(0, 0.0), "without a multiple"),
        (lambda part: part["rows"][row][1][0].__setitem__(0, -1e-3), "negative"),
        (lambda part: part["rows"][row][1][0].__setitem__(0, 1e3), "misses its inequality"),
        (lambda part: part["rows"][row][1][0].__setitem__(1, 10**6), "belongs to no cut"),
        (lambda part: part["rows"][row][1].append([0.0] + [0] * 9), "more than 20,000,000 multiplications"),
        (lambda part: part.__setitem__("box", True), "misses its inequality"),
    ):
        other = forged(change)
        with pytest.raises(checker.Refused, match=said):
            checker.check(other)
    for state in range(6):
        lower = forged(lambda part, s=state: part["values"][s].__setitem__(0, part["values"][s][0] - 0.01))
        with pytest.raises(checker.Refused, match="misses its inequality"):
            checker.check(lower)


def test_products_may_need_so_much_work(proved, monkeypatch):
    proof, size = proved[1], 10
    works = [
        sum(
            size if len(product) == 2 else size**2
            for _, products in proof[side]["rows"].values()
            for product in products
        )
        for side in ("lower", "upper")
    ]
    limit = checker.MOST_WORK
    monkeypatch.setattr(checker, "MOST_WORK", max(works))
    transitions = sum(1 for _ in proof["model"]["successor"])
    assert transitions < max(works) < limit
    checker.check(proof)
    monkeypatch.setattr(checker, "MOST_WORK", max(works) - 1)
    with pytest.raises(checker.Refused, match="products of cuts need more than"):
        checker.check(proof)
