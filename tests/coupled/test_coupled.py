"""Bounds for one common parameter: against exact rationals, tampered with, and never worse than rectangular."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from rpl_agent.core.coupled import AffineProof, Frame, Side, coupled_bounds, frame_of
from rpl_agent.core.coupled.affine import chances_of, chances_of_rows, choice_of, excess, row_excess
from rpl_agent.core.coupled.bounds import find_bound
from rpl_agent.core.coupled.expansion import StepExpansion, expansion_of, greedy_rules, value_at
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.regions.intersection import Ellipsoid
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve_at, solve_both
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_envs.toy.blackjack import blackjack_model
from rpl_envs.toy_text import frozen_lake
from tests.reference.coupled import box_points, exact_rows, exact_value, objectives, random_model, reached_by

CENTER = np.array([0.5, 0.5])


def region_around(pmdp, width: float, kind: str = "intervals"):
    """A region that holds every θ with |θ − CENTER| ≤ width."""
    table = pmdp.table
    grid = np.array([[CENTER[0] + (i - 1) * width, CENTER[1] + (j - 1) * width] for i, j in np.ndindex(3, 3)])
    if kind == "ellipsoid":
        x = table.reduction.coordinates(grid)
        center = x.mean(axis=0)
        metric = np.diag(1.0 / np.maximum(np.abs(x - center).max(axis=0), 1e-3) ** 2)
        reach = max(float(d @ metric @ d) for d in x - center)
        return Ellipsoid(center, metric, reach * 1.2)
    values = table.at(grid)  # monotone in every parameter, so extreme at corners
    constant = table.is_constant
    slack = np.where(constant, 0.0, 1e-9)
    return build_region(pmdp, np.clip(values.min(axis=0) - slack, 0, 1), np.clip(values.max(axis=0) + slack, 0, 1))


def cases(seeds: int):
    for seed in range(seeds):
        for polynomial in (False, True):
            yield seed, polynomial, seed % 3 != 0, ("intervals", "ellipsoid")[seed % 2]


def prepared(seed, polynomial, loops, kind, width):
    pmdp = random_model(seed, polynomial, loops)
    region = region_around(pmdp, width, kind)
    return pmdp, region, Rectangular(pmdp, region)


@pytest.mark.parametrize("seeds", [2, pytest.param(12, marks=pytest.mark.nightly)])  # 2: all kinds, loops or not
@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.describe())
def test_exact_values_lie_inside(objective, seeds):
    """For many θ of the region: the policy's value, and the optimum, at rational points."""
    proved, tried = 0, 0
    for seed, polynomial, loops, kind in cases(seeds):
        width = (0.02, 0.06)[seed % 2]
        pmdp, region, relaxation = prepared(seed, polynomial, loops, kind, width)
        rng = np.random.default_rng(seed)
        start = Policy.deterministic(pmdp.state_ptr[:-1] + rng.integers(0, np.diff(pmdp.state_ptr)))
        maximising = objective.sense is Sense.MAX
        for policy in (None, start):
            tried += 2
            found = coupled_bounds(relaxation, region, objective, policy, start)
            if found is None:
                continue
            proved += int(np.isfinite(found.lower)) + int(np.isfinite(found.upper))
            for theta in box_points(CENTER, Fraction(width), seed, 2 if seeds == 2 else 6):
                own = exact_value(pmdp, objective, theta, found.policy)
                best = own if policy is not None else exact_value(pmdp, objective, theta, None)
                low, high = (own, best) if maximising else (best, own)
                assert found.lower == -np.inf or Fraction(found.lower) <= low, (seed, polynomial, policy)
                assert found.upper == np.inf or high <= Fraction(found.upper), (seed, polynomial, policy)
    assert proved >= 0.6 * tried, "so few bounds that the test says little"


@pytest.mark.parametrize("sense", Sense)
def test_residuals_bound_the_exact_ones(sense):
    """The compiled bound of every row against rationals at points of the ball."""
    for seed in range(10):
        pmdp, region, relaxation = prepared(seed, True, True, "intervals", 0.05)
        objective = Objective.reward("cost", target="end", sense=sense)
        problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
        frame = frame_of(region, pmdp.table.reduction.weights)
        rng = np.random.default_rng(seed)
        r = frame.dimension
        u, g = rng.normal(size=pmdp.num_states), 0.1 * rng.normal(size=(pmdp.num_states, r))
        for side in Side:
            bound = excess(problem, None, chances_of(problem, frame), side, (u, g))
            for theta in box_points(CENTER, Fraction(1, 20), seed, 3):
                x = _coordinates(pmdp, theta)
                y = _ball(frame, x)
                rows = exact_rows(pmdp, theta)
                value = [Fraction(float(u[s])) + _dot(g[s], y) for s in range(pmdp.num_states)]
                for row, chances in enumerate(rows):
                    s = int(pmdp.row_state[row])
                    residual = Fraction(float(problem.reward[row])) - value[s]
                    residual += sum(p * value[i] for i, p in chances.items())
                    assert int(side.value) * residual <= Fraction(float(bound[s])) + Fraction(1, 10**12)


@pytest.mark.parametrize("power", [-300, -500, -520, -540, -600, -900])
def test_residuals_scale_with_their_functions(power):
    """Squares of numbers below 1e-162 are 0: slopes and curvature were then left out."""
    scale = 2.0**power
    for seed in range(5):
        pmdp, region, relaxation = prepared(seed, True, True, "intervals", 0.05)
        problem = Problem.of(relaxation, Objective.reach("end"), Nature.ADVERSARIAL, None)
        frame = frame_of(region, pmdp.table.reduction.weights)
        rng = np.random.default_rng(seed)
        u, g = rng.normal(size=pmdp.num_states), rng.normal(size=(pmdp.num_states, frame.dimension))
        for side in Side:
            whole, small = (
                excess(problem, None, chances_of(problem, frame), side, (s * u, s * g)) for s in (1.0, scale)
            )
            assert (small / scale >= whole - 1e-12).all()


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("r", range(1, 7))
def test_the_curvature_of_two_successors_is_exact(r, curved):
    """p + b·y and 1 − p − b·y: the largest eigenvalue of sym b d' has a closed form, against numpy's.

    ``curved``: other expressions of the model are not affine.
    """
    bend = curvature = None
    if curved:
        bend, curvature = np.array([0.0, 0.0, 0.0, 1.0]), np.zeros((4, r * (r + 1) // 2))
        curvature[3] = 1.0 / r
    rng = np.random.default_rng(r)
    for _ in range(50):
        b, u, g = 0.1 * rng.normal(size=r), rng.normal(size=3), rng.normal(size=(3, r))
        chances = core.RowChances(
            r=r, is_box=False, row_ptr=np.array([0, 2, 3, 4]), successor=np.array([1, 2, 1, 2], np.int32),
            expression=np.array([0, 1, 2, 2], np.int32), p=np.array([0.3, 0.7, 1.0, 0.1]), error=np.zeros(4),
            slope=np.array([b, -b, 0.0 * b, b]), curvature=curvature, bend=bend,
        )  # fmt: skip
        agent = core.Choice(state_ptr=np.arange(4), rows=None, weights=None, dropped=None)
        for sign in (1.0, -1.0):
            out = np.zeros(3)
            args = np.zeros(3), 1.0, sign, -1.0, u, g, 1, np.empty(2 * r + 2 * r * r), out
            core.residuals(1, np.zeros(1, np.int64), agent, chances, *args)
            slope = (u[1] - u[2]) * b + 0.3 * (g[1] - g[0]) + 0.7 * (g[2] - g[0])
            form = sign * (np.outer(b, g[1] - g[2]) + np.outer(g[1] - g[2], b)) / 2
            curve = max(float(np.linalg.eigvalsh(form)[-1]), 0.0)
            wanted = sign * (0.3 * u[1] + 0.7 * u[2] - u[0]) + np.linalg.norm(slope) + curve
            crude = wanted - curve + np.abs(b).sum() * sum(np.abs(g[i] - g[0]).sum() for i in (1, 2))
            if crude > 1e-9:  # below, a cruder bound is enough
                assert wanted - 1e-13 <= out[0] <= wanted + 1e-12


def _bent(r: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    """A symmetric matrix (r, r)."""
    Q, _ = np.linalg.qr(rng.normal(size=(r, r)))
    spectrum = {
        "any": rng.normal(size=r), "rank one": np.eye(r)[0] * rng.normal(), "pairs": np.repeat([1.0, -1.0], r)[::2][:r],
        "ball": np.ones(r), "flat": np.r_[np.ones(r - 1), -1e-9], "wide": 10.0 ** -np.arange(0.0, 2.0 * r, 2.0),
    }[kind]  # fmt: skip
    return (Q * spectrum) @ Q.T


@pytest.mark.parametrize("kind", ["any", "rank one", "pairs", "ball", "flat", "wide"])
@pytest.mark.parametrize("r", range(1, 8))
def test_the_curvature_of_rows_is_that_of_the_largest_eigenvalue(r, kind):
    """Probabilities p ± y'My and values 1 and 0: residuals are bounded by numpy's eigenvalue, and hardly above it."""
    rng, (rows, columns) = np.random.default_rng(r), np.tril_indices(r)
    agent, scratch = (
        core.Choice(state_ptr=np.arange(4), rows=None, weights=None, dropped=None),
        np.empty(2 * r + 2 * r * r),
    )
    for _ in range(20):
        M = 0.01 * _bent(r, kind, rng)
        M = (M + M.T) / 2
        chances = core.RowChances(
            r=r, is_box=False, row_ptr=np.array([0, 2, 3, 4]), successor=np.array([1, 2, 1, 2], np.int32),
            expression=np.array([0, 1, 2, 2], np.int32), p=np.array([0.3, 0.7, 1.0]), slope=np.zeros((3, r)),
            error=np.zeros(3), bend=np.full(3, np.linalg.norm(M)),
            curvature=np.array([m[rows, columns] for m in (M, -M, 0 * M)]),
        )  # fmt: skip
        for sign in (1.0, -1.0):
            u, g, out = np.array([0.3, 1.0, 0.0]), np.zeros((3, r)), np.zeros(3)
            core.residuals(
                1, np.zeros(1, np.int64), agent, chances, np.zeros(3), 1.0, sign, -1.0, u, g, 1, scratch, out
            )
            largest = max(float(np.linalg.eigvalsh(sign * M)[-1]), 0.0)
            # of more dimensions the eigenvalue is bracketed only; towards a multiple zero Laguerre's steps are shorter
            near = 2e-2 if r > 6 else 2e-6 if kind == "any" else 4e-3
            assert largest - 1e-15 <= out[0] <= largest + near * np.linalg.norm(M) + 1e-13
            # the check of horizons asks for no number: raised by that much the function passes, by less it does not
            rules = core.StepRules(states=3, steps=1, agent=agent, stride=0)
            for raised, passes in ((out[0] * (1 + 1e-9) + 1e-11, True), (largest * (1 - 1e-6) - 1e-12, False)):
                upper, missed = np.vstack([u, u + sign * raised * np.eye(3)[0]]), np.empty((1, 3))
                gradient = np.zeros((2, 3, r))
                scope = np.zeros(3, bool), np.ones((2, 3), bool)
                core.step_residuals(rules, *scope, chances, np.zeros(3), 1.0, sign, upper, gradient, scratch, missed)
                assert (missed[0, 0] <= 0.0) == passes


@pytest.mark.parametrize("seed", range(20))
def test_the_residual_of_a_state_is_that_of_its_worst_row(seed):
    """Rows that cannot be the worst are looked at less closely."""
    pmdp, region, relaxation = prepared(seed, seed % 2 == 0, True, "intervals", 0.05)
    problem = Problem.of(relaxation, Objective.reach("end"), Nature.ADVERSARIAL, None)
    frame, rng = frame_of(region, pmdp.table.reduction.weights), np.random.default_rng(seed)
    chances = chances_of(problem, frame)
    here = rng.normal(size=pmdp.num_states), 0.3 * rng.normal(size=(pmdp.num_states, frame.dimension))
    for side in Side:
        worst = np.maximum.reduceat(row_excess(problem, chances, side, here), pmdp.state_ptr[:-1])
        np.testing.assert_allclose(excess(problem, None, chances, side, here), worst, rtol=1e-14, atol=0.0)


def test_residuals_do_not_depend_on_threads():
    pmdp, region, relaxation = prepared(3, True, True, "intervals", 0.05)
    problem = Problem.of(relaxation, Objective.reach("end"), Nature.ADVERSARIAL, None)
    frame = frame_of(region, pmdp.table.reduction.weights)
    chances, r, rng = chances_of(problem, frame), frame.dimension, np.random.default_rng(3)
    u, g = rng.normal(size=pmdp.num_states), rng.normal(size=(pmdp.num_states, r))
    order, found = np.arange(pmdp.num_states), []
    for threads in (1, 2, 3, 2 * pmdp.num_states):
        out = np.zeros(pmdp.num_states)
        space = threads, np.empty(threads * (2 * r + 2 * r * r)), out
        core.residuals(
            len(order), order, choice_of(problem, None), chances, problem.reward, 1.0, 1.0, -1.0, u, g, *space
        )
        found.append(out)
    assert all(np.array_equal(found[0], one) for one in found) and found[0].any()


def test_rows_that_are_dropped_are_not_played():
    """Residuals are the worst of the rows that are left, and nothing is reached by the others."""
    pmdp, region, relaxation = prepared(3, True, False, "intervals", 0.05)
    problem = Problem.of(relaxation, Objective.reach("end"), Nature.ADVERSARIAL, None)
    frame = frame_of(region, pmdp.table.reduction.weights)
    chances, rng = chances_of(problem, frame), np.random.default_rng(4)
    here = rng.normal(size=pmdp.num_states), rng.normal(size=(pmdp.num_states, frame.dimension))
    dropped = rng.random(pmdp.num_rows) < 0.5
    dropped[pmdp.state_ptr[:-1]] = False
    assert dropped.any()
    each = row_excess(problem, chances, Side.UPPER, here)
    left = replace(problem, dropped=dropped)
    worst = np.maximum.reduceat(np.where(dropped, -np.inf, each), pmdp.state_ptr[:-1])
    np.testing.assert_allclose(excess(left, None, chances, Side.UPPER, here), worst, rtol=1e-14, atol=0.0)
    assert (excess(problem, None, chances, Side.UPPER, here) > worst + 1e-6).any()
    rows, some = np.flatnonzero(~dropped)[::-1], np.empty(int((~dropped).sum()))
    core.row_residuals(
        len(rows),
        pmdp.row_state[rows],
        chances_of_rows(chances, rows),
        problem.reward[rows],
        1.0,
        1.0,
        *here,
        None,
        some,
    )
    assert np.array_equal(some, each[rows])
    order, seen, expected = problem.order, np.zeros(pmdp.num_states, bool), {pmdp.initial_state}
    seen[pmdp.initial_state] = True
    core.reach_forward(len(order), order, choice_of(left, None), chances, seen)
    for s in order[::-1].tolist():
        kept = [r for r in range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]) if s in expected and not dropped[r]]
        expected |= {int(t) for r in kept for t in pmdp.successor[pmdp.row_ptr[r] : pmdp.row_ptr[r + 1]]}
    assert set(np.flatnonzero(seen).tolist()) == expected


def test_a_residual_that_overflows_proves_nothing():
    """u(1) − u(0) is −∞ as a float and its probability 1e-300: the true residual of state 0 is 5e307."""
    chances = core.RowChances(
        r=1, is_box=False, row_ptr=np.array([0, 2, 3, 4]), successor=np.array([1, 2, 1, 2], np.int32),
        expression=np.array([0, 1, 1, 1], np.int32), p=np.array([1e-300, 1.0]), slope=np.zeros((2, 1)),
        error=np.zeros(2), curvature=None, bend=None,
    )  # fmt: skip
    agent = core.Choice(state_ptr=np.arange(4), rows=None, weights=None, dropped=None)
    u, g, out = np.array([1e308, -1.7e308, 1.5e308]), np.zeros((3, 1)), np.zeros(3)
    core.residuals(3, np.arange(3), agent, chances, np.zeros(3), 1.0, 1.0, -1.0, u, g, 1, np.empty(4), out)
    assert not out[0] <= 0.0


def _coordinates(pmdp, theta):
    matrix = pmdp.table.reduction.matrix
    monomials = []
    for exponents in pmdp.table.reduction.exponents:
        term = Fraction(1)
        for t, power in zip(theta, exponents.tolist()):
            term *= t**power
        monomials.append(term)
    return [sum(Fraction(float(m)) * v for m, v in zip(row, monomials)) for row in matrix]


def _ball(frame: Frame, x):
    """y with x = center + radius · factor y, to 1e-12."""
    offset = np.array([float(v - Fraction(float(c))) for v, c in zip(x, frame.center)])
    y = np.linalg.solve(frame.factor * frame.radius, offset)
    assert np.linalg.norm(y) <= 1.0 + 1e-12
    return [Fraction(float(v)) for v in y]


def _dot(a, b):
    return sum(Fraction(float(v)) * w for v, w in zip(a, b))


TAMPERED = {
    "slack gone": lambda b, s: replace(b, slack=np.zeros_like(b.slack)),
    "slack halved in one state": lambda b, s: replace(b, slack=_changed(b.slack, s, lambda v: v / 2)),
    "value moved": lambda b, s: replace(b, values=_changed(b.values, s, lambda v: v - b.side.value * 1e-3)),
    "all values moved": lambda b, s: replace(b, values=b.values - b.side.value * 1e-3 * (b.values > 0)),
    "gradient turned": lambda b, s: replace(b, gradient=-b.gradient),
    "gradient gone": lambda b, s: replace(b, gradient=np.zeros_like(b.gradient)),
    "gradient of one state": lambda b, s: replace(b, gradient=_changed(b.gradient, s, lambda v: v * 0.0)),
    "frame shrunk": lambda b, s: replace(b, frame=replace(b.frame, radius=b.frame.radius / 2)),
    "frame moved": lambda b, s: replace(b, frame=replace(b.frame, center=b.frame.center + 0.01)),
    "not a number": lambda b, s: replace(b, values=_changed(b.values, s, lambda v: np.nan)),
    "negative slack": lambda b, s: replace(b, slack=_changed(b.slack, s, lambda v: -1e-3)),
    "no scope": lambda b, s: replace(b, scope=np.zeros_like(b.scope)),
    "scope too small": lambda b, s: replace(b, scope=_changed(b.scope, s, lambda v: False)),
}


def _changed(array, state, change):
    array = array.copy()
    array[state] = change(array[state])
    return array


@cache
def proved_bounds():
    """[(seed, proof, bound)]: true bounds of many models, objectives and sides."""
    found = []
    for seed in range(6):
        for objective in objectives(horizon=False):
            pmdp, region, relaxation = prepared(seed, seed % 2 == 0, True, "intervals", 0.05)
            problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
            start = Policy.deterministic(pmdp.state_ptr[:-1])
            expansion = expansion_of(problem, frame_of(region, pmdp.table.reduction.weights), None, start)
            if expansion is None:
                continue
            proof = AffineProof(problem, region)
            for side in Side:
                own = side is (Side.LOWER if objective.sense is Sense.MAX else Side.UPPER)
                bound = find_bound(problem, expansion, side, not own)
                if bound is not None and not proof.issues(bound):
                    found.append((seed, proof, bound))
    return found


@pytest.mark.parametrize("name", TAMPERED)
def test_nothing_false_passes(name):
    """A bound with changed numbers is refused, or it is still true."""
    refused = 0
    for seed, proof, bound in proved_bounds():
        problem, pmdp = proof.problem, proof.problem.pmdp
        wrong = TAMPERED[name](bound, pmdp.initial_state)
        if proof.issues(wrong):
            refused += 1
            continue
        claim = wrong.at(proof.region, pmdp.initial_state)
        for theta in box_points(CENTER, Fraction(1, 20), seed, 2):
            value = exact_value(pmdp, problem.objective, theta, wrong.policy)
            assert Fraction(claim) >= value if bound.side is Side.UPPER else Fraction(claim) <= value
    assert refused > 0


@pytest.mark.parametrize("policy", ["rules", "uniform"])
def test_the_bound_of_a_policy_needs_only_what_it_reaches(policy):
    """With a horizon: numbers elsewhere do not matter, and nothing that is reached can be left out."""
    left_out = 0
    for seed, objective in product(range(4), objectives()[-2:]):
        pmdp, region, relaxation = prepared(seed, seed % 2 == 0, True, "intervals", 0.05)
        problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
        frame, proof = frame_of(region, pmdp.table.reduction.weights), AffineProof(problem, region)
        rules = greedy_rules(problem, frame) if policy == "rules" else Policy.uniform(pmdp)
        bound = StepExpansion.of(problem, frame, rules).bound(Side.own(objective.sense), False)
        assert not proof.issues(bound)
        assert np.array_equal(bound.scope, reached_by(pmdp, problem.task.decided, rules, len(bound.scope) - 1))
        elsewhere = ~bound.scope & ~problem.task.decided
        elsewhere[0] = False
        left_out += elsewhere.sum()
        assert not proof.issues(replace(bound, values=np.where(elsewhere, 77.0, bound.values)))
        for k, state in np.argwhere(bound.scope).tolist():
            scope = bound.scope.copy()
            scope[k, state] = False
            assert any("scope" in issue for issue in proof.issues(replace(bound, scope=scope)))
    assert left_out > 0


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.describe())
def test_the_value_at_a_point_is_that_of_a_certified_bracket(objective):
    pmdp, _, relaxation = prepared(1, True, True, "intervals", 0.05)
    problem, theta = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None), CENTER
    for policy in (Policy.uniform(pmdp), solve_at(pmdp, theta, objective).policy):
        found = value_at(problem, policy, pmdp.table.accurate(theta))
        assert found == pytest.approx(solve_at(pmdp, theta, objective, policy=policy, precision=1e-9).middle, abs=1e-8)


def test_plays_that_never_end_need_a_proof():
    """A loop that satisfies its inequality with any value is no bound; a cost that may never end has no upper one."""
    from rpl_agent.core.model import Domain, build

    def actions(state):
        if state == "goal":
            return {"stay": {"goal": 1}}
        if state == "loop":
            return {"stay": {"loop": 1}}
        return {"go": {"loop": "p", "goal": "1-p"}, "wait": {"start": 1}}

    pmdp = build(
        "start", actions, domain=Domain.box({"p": (0.2, 0.8)}), labels={"goal": lambda s: s == "goal"},
        rewards={"cost": lambda s, a: 1.0},
    )  # fmt: skip
    region = build_region(pmdp, *(np.where(pmdp.table.is_constant, pmdp.table.constant, v) for v in (0.3, 0.7)))
    relaxation = Rectangular(pmdp, region)
    objective = Objective.reach("goal")
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    go = Policy.deterministic(pmdp.state_ptr[:-1])
    frame = frame_of(region, pmdp.table.reduction.weights)
    bound = find_bound(problem, expansion_of(problem, frame, go, go), Side.LOWER, every_policy=False)
    proof = AffineProof(problem, region)
    assert proof.issues(bound) == []
    loop = next(s for s in range(pmdp.num_states) if not problem.task.decided[s] and np.diff(pmdp.state_ptr)[s] == 1)
    lying = replace(bound, values=_changed(bound.values, loop, lambda v: 0.9), slack=np.zeros_like(bound.slack))
    assert any("plays can stay" in issue for issue in proof.issues(lying))
    cost = Objective.cost("cost", target="goal")
    assert coupled_bounds(relaxation, region, cost, go, go) is None


def test_frames_enclose_their_regions():
    for seed in range(8):
        for kind in ("intervals", "ellipsoid"):
            pmdp, region, _ = prepared(seed, seed % 2 == 1, True, kind, 0.05)
            frame = frame_of(region, pmdp.table.reduction.weights)
            assert frame.encloses(region)
            assert not replace(frame, radius=frame.radius * 0.7).encloses(region)
            for theta in box_points(CENTER, Fraction(1, 20), seed):
                _ball(frame, _coordinates(pmdp, theta))


@pytest.mark.parametrize("name", [
    "Aircraft", "Glider", "ParallelBetting",
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("Betting", "Engagement", "MarsRover")),
])  # fmt: skip
def test_never_worse_than_rectangular(name):
    from rpl_envs import benchmark

    sizes = {
        "Aircraft": {"X": 6, "Y": 4}, "Glider": {"w": 5, "h": 4}, "Betting": {"n": 6}, "ParallelBetting": {"n": 3},
        "Engagement": {"L": 12}, "MarsRover": {"X": 6, "Y": 5, "tries": 2},
    }  # fmt: skip
    world = benchmark(name, **sizes[name])
    better = 0
    for episodes in (100, 20_000):
        counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), episodes, 200, episodes)
        for confidence in ("likelihood", "anytime"):
            wide = certify(world.pmdp, counts, world.objective, Config(confidence, "rectangular"))
            config = Config(confidence, "coupled", bets=False)  # the same set
            tight = certify(world.pmdp, counts, world.objective, config)
            assert wide.lower <= tight.lower <= tight.upper <= wide.upper
            better += tight.gap < 0.95 * wide.gap
            exact = certify(world.pmdp, counts, world.objective, config, policy=tight.policy)
            assert exact.lower >= (tight.lower if world.objective.sense is Sense.MAX else 0.0) - 1e-6
    assert better or name not in ("Aircraft", "Glider")


def test_solutions_agree_on_a_single_parameter():
    """With one parameter that pulls one way, rectangular is exact to first order and coupled agrees with it."""
    _, region, relaxation = prepared(0, False, False, "intervals", 1e-4)
    objective = Objective.reach("goal")
    robust, optimistic = solve_both(relaxation, objective)
    found = coupled_bounds(relaxation, region, objective, None, robust.policy)
    assert found is not None
    assert found.lower >= robust.lower - 1e-6 and found.upper <= optimistic.upper + 1e-6


def walk(n=6):
    """A random walk whose drift is p on one side and 1 − p on the other."""
    from rpl_agent.core.model import Domain, build

    def actions(place):
        if abs(place) == n:
            return {"stay": {place: 1}}
        right, left = ("p", "1-p") if place >= 0 else ("1-p", "p")
        return {"walk": {place + 1: right, place - 1: left}}

    return build(0, actions, domain=Domain.box({"p": (0.2, 0.8)}), labels={"goal": lambda s: s == n})


@pytest.mark.parametrize("width", [0.01, 0.04])
def test_pieces_are_sound_and_sharper_where_the_whole_is_too_large(width):
    pmdp, objective = walk(), Objective.reach("goal")
    lower, upper = (np.where(pmdp.table.is_constant, pmdp.table.constant, 0.5 + s * width) for s in (-1, 1))
    region = build_region(pmdp, lower, upper)
    relaxation = Rectangular(pmdp, region)
    robust, optimistic = solve_both(relaxation, objective)
    known = (robust.lower, optimistic.upper)
    gaps = []
    for pieces in (1, 40):
        found = coupled_bounds(relaxation, region, objective, None, robust.policy, known, pieces)
        low, high = max(found.lower, known[0]), min(found.upper, known[1])
        for k in range(-8, 9):
            value = exact_value(pmdp, objective, [Fraction(1, 2) + Fraction(width) * k / 8], robust.policy)
            assert Fraction(low) <= value <= Fraction(high)
        gaps.append(high - low)
    assert gaps[1] <= gaps[0]
    assert gaps[1] < 0.35 * (known[1] - known[0])


def test_curved_probabilities_with_a_horizon_are_coupled():
    """Degree 11: a function raised once missed its inequality by a share of the remainder: nothing was proved."""
    pmdp, _ = blackjack_model()
    objective, theta = Objective.reward("return", target=None, horizon=20), np.array([4 / 13])
    counts = uniform_counts(pmdp, objective, theta, 2000, 50, 1)
    wide, tight = (certify(pmdp, counts, objective, Config("likelihood", r)) for r in ("rectangular", "coupled"))
    assert tight.gap < 0.35 * wide.gap  # both from intervals: bets are for polynomials of few coordinates
    assert tight.lower <= solve_at(pmdp, theta, objective, precision=1e-9).middle <= tight.upper


def test_the_first_wrong_sign_is_that_of_the_formula():
    """`wrong_sign` finds what numpy finds, on both sides, for any number of parameters."""
    rng = np.random.default_rng(5)
    for r in (0, 1, 3, 7):
        for sign in (-1.0, 1.0):
            u, g, held = sign * rng.uniform(0.0, 40.0, 50), rng.uniform(-2.0, 2.0, (50, r)), rng.random(50) < 0.5
            u[rng.random(50) < 0.1] *= -1.0
            size = np.abs(g).sum(axis=1) * (1.0 + (r + 4.0) * UNIT_ROUNDOFF)
            bad = np.flatnonzero(held & (sign * u - size < 0.0))
            assert core.wrong_sign(50, held, r, sign, u, g) == (bad[0] if len(bad) else -1)
            assert core.wrong_sign(50, np.zeros(50, bool), r, sign, u, g) == -1


def test_last_bits_of_equal_values_do_not_decide_whether_a_bound_is_found():
    """FrozenLake has six states of one value; a row that only passes between them cannot pay for its own rounding."""
    lake = frozen_lake()
    table = lake.pmdp.table
    p = np.where(table.is_constant, 0.0, 0.004)
    at = table.at(np.full(lake.pmdp.num_parameters, 1 / 3))
    region = build_region(lake.pmdp, np.clip(at - p, 0, 1), np.clip(at + p, 0, 1))
    relaxation = Rectangular(lake.pmdp, region)
    problem = Problem.of(relaxation, lake.objective, Nature.ADVERSARIAL, None)
    start = solve_both(relaxation, lake.objective)[0].policy
    expansion = expansion_of(problem, frame_of(region, lake.pmdp.table.reduction.weights), None, start)
    draw = np.random.default_rng(1)
    for _ in range(8):
        way = draw.choice([-np.inf, np.inf], expansion.values.shape)
        moved = np.where(problem.task.decided, expansion.values, np.nextafter(expansion.values, way))
        bound = find_bound(problem, replace(expansion, values=moved), Side.UPPER, every_policy=True)
        assert bound is not None and not AffineProof(problem, region).issues(bound)
