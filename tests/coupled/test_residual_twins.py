"""residual.c function by function: against twins that are a few lines of numpy, and at the edges of its error terms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rpl_agent.core.native import UNIT_ROUNDOFF, core

STATES = 4


class World:
    """A random model whose numbers are small multiples of 1/8, so that sums of few products are exact.

    Probabilities sum to 1 in rows of two moves, whose curvature has a formula of its own, and in all if ``sums``.
    """

    def __init__(self, r: int, seed: int, bent=False, is_box=False, error: float = 0.0, sums=False) -> None:
        self.r, self.rng = r, np.random.default_rng(seed)
        rows = self.rng.integers(1, 3, STATES)
        self.state_ptr = np.concatenate([[0], np.cumsum(rows)])
        self.of_row = np.repeat(np.arange(STATES, dtype=np.int32), rows)
        widths = self.rng.integers(1, 4, len(self.of_row))
        self.row_ptr = np.concatenate([[0], np.cumsum(widths)])
        moves = int(self.row_ptr[-1])
        self.successor = self.rng.integers(0, STATES, moves).astype(np.int32)
        self.expression = self.rng.permutation(moves).astype(np.int32)
        self.p, self.slope = self.eighths(moves), self.eighths(moves, r)
        self.error = error * abs(self.eighths(moves))
        curvature = self.eighths(moves, r * (r + 1) // 2)
        for first, last in zip(self.row_ptr, self.row_ptr[1:] - 1):
            if not sums and last - first != 1:
                continue
            others, f = self.expression[first:last], self.expression[last]
            self.p[f], self.slope[f] = 1.0 - self.p[others].sum(), -self.slope[others].sum(axis=0)
            curvature[f] = -curvature[others].sum(axis=0)
        self.curvature = curvature if bent else None
        self.bend = np.array([abs(full(r, M)).sum() for M in curvature]) if bent else None
        self.is_box, self.reward = is_box, self.eighths(len(self.of_row))

    def eighths(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-8, 9, shape) / 8.0

    @property
    def chances(self) -> Any:
        names = ("r", "is_box", "row_ptr", "successor", "expression", "p", "slope", "error", "curvature", "bend")
        return core.RowChances(**{name: getattr(self, name) for name in names})

    def choice(self, kind: str) -> Any:
        rows = weights = dropped = None
        if kind == "rows":
            rows = self.state_ptr[1:] - 1
        elif kind == "weights":
            weights = abs(self.eighths(len(self.of_row)))
        elif kind == "dropped":
            dropped = np.ones(len(self.of_row), bool)
            dropped[self.state_ptr[:-1]] = False
        return core.Choice(state_ptr=self.state_ptr, rows=rows, weights=weights, dropped=dropped)

    def groups(self, agent: Any, s: int) -> list[list[tuple[int, float]]]:
        """What is played together in a state: rows and their weights."""
        if agent.rows is not None:
            return [[(int(agent.rows[s]), 1.0)]]
        rows = range(self.state_ptr[s], self.state_ptr[s + 1])
        if agent.weights is not None:
            return [[(row, float(agent.weights[row])) for row in rows if agent.weights[row]]]
        return [[(row, 1.0)] for row in rows if agent.dropped is None or not agent.dropped[row]]

    def moves(self, row: int):
        for t in range(self.row_ptr[row], self.row_ptr[row + 1]):
            yield int(self.expression[t]), int(self.successor[t])

    def expected(self, group, gamma, sign, u, g, next_u, next_g) -> tuple[float, float]:
        """(a bound of the residual of a group, 0 or less where a crude one of the curvature is; its rounding)."""
        a, size = -(1 - gamma) * u, (1 - gamma) * (abs(u) + abs(g).sum())
        linear, M = -(1 - gamma) * g, np.zeros((self.r, self.r))
        unknown = third = crude = 0.0
        terms = 0
        for row, weight in group:
            a, size = a + weight * self.reward[row], size + abs(weight * self.reward[row])
            for f, i in self.moves(row):
                p, b, D, G = gamma * weight * self.p[f], gamma * weight * self.slope[f], next_u[i] - u, next_g[i] - g
                turn, bent = abs(G).sum(), 0.0 if self.bend is None else gamma * weight * self.bend[f]
                a, linear, terms = a + p * D, linear + D * b + p * G, terms + 1
                M += (np.outer(b, G) + np.outer(G, b)) / 2
                if self.curvature is not None:
                    M += gamma * weight * D * full(self.r, self.curvature[f])
                unknown += (abs(D) + turn) * self.error[f] * weight
                third, crude = third + bent * turn, crude + abs(b).sum() * turn + abs(D) * bent
                size += (abs(D) + turn) * (abs(p) + abs(b).sum() + bent)
        norm = abs(linear).sum() if self.is_box else float(np.linalg.norm(linear))
        spare = unknown + third if self.bend is not None else 2.0 * unknown
        rounding = (2 * terms + 6 * self.r + 24) * UNIT_ROUNDOFF * size
        if sign * a + norm + crude + spare + rounding <= 0.0:
            return sign * a + norm + crude + spare, rounding
        M *= sign
        if self.is_box:
            curve = np.maximum(np.diag(M), 0.0).sum() + abs(M - np.diag(np.diag(M))).sum()
        else:
            curve = max(float(np.linalg.eigvalsh(M)[-1]), 0.0)
        return sign * a + norm + curve + spare, rounding


def full(r: int, triangle: np.ndarray) -> np.ndarray:
    M = np.zeros((r, r))
    M[np.tril_indices(r)] = triangle
    return M + np.tril(M, -1).T


WORLDS = [
    pytest.param(r, bent, is_box, id=f"{r}{' bent' * bent}{' box' * is_box}")
    for r, bent, is_box in [
        (1, False, False), (2, False, True), (2, True, False), (3, False, False), (3, True, True), (4, False, False),
        (5, True, False), (5, False, True), (6, False, False),
    ]
]  # fmt: skip


# ====================================================================== residuals
@pytest.mark.parametrize("r, bent, is_box", WORLDS)
def test_residuals_are_the_formula_of_the_file(r, bent, is_box):
    for seed in range(4):
        world = World(r, seed, bent, is_box, error=0.25 if seed % 2 else 0.0)
        u, g, gamma = world.eighths(STATES), world.eighths(STATES, r), (1.0, 0.75)[seed % 2]
        for sign in (1.0, -1.0):
            single = np.full(len(world.of_row), np.nan)
            core.row_residuals(len(single), world.of_row, world.chances, world.reward, gamma, sign, u, g, None, single)
            for row, s in enumerate(world.of_row):
                assert_near(single[row], world.expected([(row, 1.0)], gamma, sign, u[s], g[s], u, g))
            for kind in ("free", "rows", "weights", "dropped"):
                agent, out = world.choice(kind), np.full(STATES, np.nan)
                order = world.rng.permutation(STATES)
                core.residuals(
                    STATES, order, agent, world.chances, world.reward, gamma, sign, -1.0, u.copy(), g, 1, None, out
                )
                for s in range(STATES):
                    found = [world.expected(each, gamma, sign, u[s], g[s], u, g) for each in world.groups(agent, s)]
                    assert_near(out[s], max(found))


def assert_near(found: float, expected: tuple[float, float]) -> None:
    """Not below, and hardly above: of three coordinates and more the largest eigenvalue is bracketed."""
    value, rounding = expected
    assert value <= found + 1e-14 and found <= value + 1e-4 * (1.0 + abs(value)) + rounding


@pytest.mark.parametrize("r, bent, is_box", WORLDS)
def test_residuals_with_steps_to_go_are_those_of_two_functions(r, bent, is_box):
    """The function with k steps to go is behind a move, that with k + 1 before it; out of scope nothing is asked."""
    for seed in range(4):
        world, steps, gamma = World(r, seed, bent, is_box), 2, (1.0, 0.75)[seed % 2]
        u, g = world.eighths(steps + 1, STATES), world.eighths(steps + 1, STATES, r)
        decided = world.rng.random(STATES) < 0.2
        scope = world.rng.random((steps + 1, STATES)) < 0.9
        for kind in ("free", "rows", "weights"):
            agent = world.choice(kind)
            if kind == "rows":  # a rule for each step
                rules = np.array([world.state_ptr[:-1], world.state_ptr[1:] - 1])
                agent = core.Choice(state_ptr=world.state_ptr, rows=rules.ravel(), weights=None, dropped=None)
            of_step = core.StepRules(states=STATES, steps=steps, agent=agent, stride=STATES if kind == "rows" else 0)
            for sign in (1.0, -1.0):
                out = np.full((steps, STATES), np.nan)
                core.step_residuals(of_step, decided, scope, world.chances, world.reward, gamma, sign, u, g, None, out)
                for k in range(steps):
                    for s in range(STATES):
                        groups = [[(int(rules[k, s]), 1.0)]] if kind == "rows" else world.groups(agent, s)
                        behind = {i for group in groups for row, _ in group for _, i in world.moves(row)}
                        if decided[s] or not scope[k + 1, s]:
                            assert out[k, s] == 0.0
                        elif any(not decided[i] and not scope[k, i] for i in behind):
                            assert out[k, s] == math.inf
                        else:
                            now = u[k + 1, s], g[k + 1, s], u[k], g[k]
                            found = max(world.expected(group, gamma, sign, *now) for group in groups)
                            assert_near(max(out[k, s], 0.0), max(found, (0.0, found[1])))


def one_row(moves, reward=0.0, gamma=1.0, sign=1.0, u=0.0, g=0.0, r=1, bend=None, error=0.0, checked=False, **more):
    """The residual of one row from state 0 whose moves are (p, slope, D, G), in one of r coordinates."""
    n, values, turns = len(moves), np.array([u, *(u + m[2] for m in moves)]), np.zeros((len(moves) + 1, r))
    at = more.get("at", 0)
    turns[:, at] = [g, *(g + m[3] for m in moves)]
    slope = np.zeros((n, r))
    slope[:, at] = [m[1] for m in moves]
    triangle = r * (r + 1) // 2
    chances = core.RowChances(
        r=r, is_box=more.get("is_box", False), row_ptr=np.array([0, n]), successor=np.arange(1, n + 1, dtype=np.int32),
        expression=np.arange(n, dtype=np.int32), p=np.array([m[0] for m in moves]), slope=slope,
        error=np.full(n, error), bend=None if bend is None else np.full(n, bend),
        curvature=None if bend is None else np.full((n, triangle), more.get("curvature", 0.0)),
    )  # fmt: skip
    if checked:
        agent = core.Choice(state_ptr=np.array([0, 1, *[1] * n]), rows=None, weights=None, dropped=None)
        rules = core.StepRules(states=n + 1, steps=1, agent=agent, stride=0)
        scope, decided, out = np.ones((2, n + 1), bool), np.arange(n + 1) > 0, np.zeros((1, n + 1))
        both = np.array([values, values]), np.array([turns, turns])
        core.step_residuals(rules, decided, scope, chances, np.array([reward]), gamma, sign, *both, None, out)
        return float(out[0, 0])
    out = np.empty(1)
    core.row_residuals(
        1, np.zeros(1, np.int32), chances, np.array([reward]), gamma, sign, values, turns, more.get("scratch"), out
    )
    return float(out[0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("r", [1, 3, 5])
def test_the_allowance_for_rounding_is_that_of_the_analysis(r, sign):
    """Where everything else is exactly 0: (2 terms + 6 r + 24) units of the sum of all sizes."""
    units, large = (2 * 2 + 6 * r + 24) * UNIT_ROUNDOFF, 2.0**40
    assert one_row([(0.5, 0.0, large, 0.0), (0.5, 0.0, -large, 0.0)], sign=sign, r=r) == pytest.approx(
        units * large, rel=1e-9
    )
    assert one_row([(0.5, 0.0, 0.0, large), (0.5, 0.0, 0.0, -large)], sign=sign, r=r) == pytest.approx(
        units * large, rel=1e-9
    )
    pair = [(0.0, 1.0, large, 0.0), (0.0, 1.0, -large, 0.0)]  # slopes that meet changes of the value
    assert one_row(pair, sign=sign, r=r) == pytest.approx(units * 2 * large, rel=1e-9)
    paid = one_row([(1.0, 0.0, -large, 0.0)], reward=large, sign=sign, r=r)
    assert paid == pytest.approx((units - 2 * UNIT_ROUNDOFF) * 2 * large, rel=1e-9)
    left = one_row([(0.0, 0.0, 0.0, 0.0)] * 2, reward=0.5 * large, gamma=0.5, u=large, sign=sign, r=r)
    assert left == pytest.approx(units * large, rel=1e-9)  # what the discount leaves of u
    turned = one_row([(1.0, 0.0, 0.0, large)] * 2, gamma=0.5, g=2.0 * large, sign=sign, r=r)
    assert turned == pytest.approx(units * 2 * large, rel=1e-9)  # and of g
    bent = [(0.0, 0.0, large, 0.0), (0.0, 0.0, -large, 0.0)]
    crude = one_row(bent, sign=sign, r=r, bend=1.0)
    assert crude == pytest.approx((units + 4 * UNIT_ROUNDOFF) * 2 * large, rel=1e-9)  # as a crude bound of the bend


def test_sums_are_widened_by_their_own_last_bits():
    """Four units of the result: here the value is all that there is, and it is not rounded."""
    for r in (1, 3):
        units = (2 * 1 + 6 * r + 24) * UNIT_ROUNDOFF
        size = 8.0
        found = one_row([(1.0, 0.0, 8.0, 0.0)], r=r)
        assert found - 8.0 == pytest.approx(units * size + 4 * UNIT_ROUNDOFF * 8.0, abs=8 * UNIT_ROUNDOFF)
        found = one_row([(1.0, 0.0, 0.0, 8.0)], r=r)  # a norm: r + 4 units more
        more = (r + 4.0) * UNIT_ROUNDOFF * 8.0
        assert found - 8.0 == pytest.approx(units * size + 4 * UNIT_ROUNDOFF * 8.0 + more, abs=8 * UNIT_ROUNDOFF)
    for r in (2, 5):  # on the cube: 4 r² units of the curvature
        found = one_row([(0.0, 1.0, 0.0, 1.0)] * 3, r=r, is_box=True)
        units = (2 * 3 + 6 * r + 24) + 4 + 4 * r * r
        assert found - 3.0 == pytest.approx(units * UNIT_ROUNDOFF * 3.0, abs=8 * UNIT_ROUNDOFF)


def test_errors_of_probabilities_are_charged_twice_or_with_a_billionth():
    """What is not known of two moves, which changes of value and of gradient meet."""
    moves = [(0.5, 0.0, 1.0, 0.25), (0.5, 0.0, -1.0, -0.25)]
    assert one_row(moves, error=0.125) == pytest.approx(2 * 2 * 1.25 * 0.125, rel=1e-12)
    turns = [(0.5, 0.0, 0.0, 0.25), (0.5, 0.0, 0.0, -0.25)]
    assert one_row(turns, error=0.125, bend=0.5) == pytest.approx(2 * 0.25 * (0.125 + 0.5) * (1 + 1e-9), rel=1e-12)
    assert one_row(turns, error=0.125, bend=0.5, gamma=0.5) == pytest.approx(
        2 * 0.25 * (0.125 + 0.25) * (1 + 1e-9), rel=1e-12
    )


def test_slopes_of_a_pair_that_do_not_cancel_are_charged_with_a_billionth():
    """Both successors turn alike, p and −p: only the rest of the slopes is left."""
    for gamma, g in ((1.0, 0.0), (1.0, 0.25), (0.5, 0.0)):
        found = one_row([(0.5, 1.0, 0.0, 0.5), (-0.5, 0.25, 0.0, 0.5)], gamma=gamma, g=g)
        assert found == pytest.approx(gamma * 1.25 * 0.5 * (1 + 1e-9), rel=1e-12)


def test_a_proof_without_a_number_leaves_room_for_rounding():
    """The curvature and the reward cancel exactly; large values that cancel, too, may be off by their last bits."""
    large = 2.0**30
    for sign in (1.0, -1.0):
        moves = [(0.0, 1.0, 0.0, sign), (0.0, -1.0, 0.0, 0.0), (0.5, 0.0, large, 0.0), (0.5, 0.0, -large, 0.0)]
        for reward, passes in ((-1.0, False), (-1.0 - 2e-5, True)):
            assert (one_row(moves, reward=sign * reward, sign=sign, r=3, checked=True) <= 0.0) == passes
        moves[2:] = [(1.0, 0.0, 0.0, 0.5), (0.0, 0.0, 0.0, 0.0)]  # and a slope of a half
        for reward, passes in ((-1.5, False), (-1.5 - 1e-12, True)):
            assert (one_row(moves, reward=sign * reward, sign=sign, r=3, checked=True) <= 0.0) == passes


def test_tiny_products_count():
    """Products that underflow to 0 leave a residual that is not known to be 0; with nothing at all it is."""
    assert one_row([(1e-200, 0.0, 1e-200, 0.0)]) > 0.0
    assert one_row([(0.5, 0.5, 0.0, 0.0)]) == 0.0
    tiny = 1e-160  # whose squares underflow
    assert one_row([(1.0, 0.0, 0.0, tiny)], sign=1.0) >= tiny
    assert one_row([(0.5, 1.0, 0.0, tiny), (0.5, -1.0, 0.0, -tiny)]) >= 2 * tiny
    assert one_row([(0.0, tiny, 0.0, 1.0), (0.0, -tiny, 0.0, -1.0)]) >= 2 * tiny


def test_products_that_all_underflow_are_not_0():
    """A residual of exactly 0 proves an inequality, so it must be one."""
    tiny, none = 1e-200, (0.0, 0.0, 0.0, 0.0)
    for row in ([(0.0, tiny, 0.0, tiny)], [(tiny, 0.0, 0.0, tiny)], [(0.0, tiny, tiny, 0.0)]):
        for r, at in ((1, 0), (2, 0), (2, 1), (3, 2)):
            assert one_row([none, *row], r=r, at=at) > 0.0 == one_row([none], r=r, at=at)
    assert one_row([(0.0, 0.0, tiny, 0.0)], bend=tiny) > 0.0 == one_row([(0.0, 0.0, tiny, tiny)])
    least = 5e-324  # half of which is 0
    assert one_row([none], u=least, gamma=0.75) > 0.0 and one_row([none], g=least, gamma=0.75, r=2, at=1) > 0.0
    assert one_row([none], u=least) == 0.0 == one_row([none], g=least)
    weights, out = np.array([least, 0.0]), np.zeros(1)
    chances = core.RowChances(
        r=1, is_box=False, row_ptr=np.zeros(3, np.int64), successor=np.zeros(0, np.int32),
        expression=np.zeros(0, np.int32), p=np.zeros(0), slope=np.zeros(0), error=np.zeros(0), curvature=None,
        bend=None,
    )  # fmt: skip
    agent = core.Choice(state_ptr=np.array([0, 2]), rows=None, weights=weights, dropped=None)
    for reward, found in (([0.25, 0.0], True), ([0.0, 0.25], False)):
        given = np.array(reward), 1.0, 1.0, -1.0, np.zeros(1), np.zeros(1), 1, None, out
        core.residuals(1, np.zeros(1, np.int64), agent, chances, *given)
        assert (out[0] > 0.0) == found


def test_two_rows_that_are_played_together_are_no_pair():
    """Of one move each: a formula for two moves of one row is not for them."""
    chances = core.RowChances(
        r=1, is_box=False, row_ptr=np.arange(4), successor=np.array([1, 2, 1], np.int32),
        expression=np.arange(3, dtype=np.int32), p=np.zeros(3), slope=np.array([1.0, -1.0, 0.0]), error=np.zeros(3),
        curvature=None, bend=None,
    )  # fmt: skip
    agent = core.Choice(state_ptr=np.array([0, 2, 3, 3]), rows=None, weights=np.array([0.5, 0.5, 1.0]), dropped=None)
    out, given = np.zeros(3), (np.zeros(3), np.array([0.0, 1.0, -1.0]), 1, None)
    core.residuals(1, np.zeros(1, np.int64), agent, chances, np.zeros(3), 1.0, 1.0, -1.0, *given, out)
    assert out[0] == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("paid", [0.0, -4.0, -16.0])  # proofs without a number, too
@pytest.mark.parametrize("kind", ["free", "rows", "weights"])
def test_scratch_is_used_inside_its_bounds(kind, paid):
    world, r = World(5, 1, bent=True), 5
    u, g, size = world.eighths(2, STATES), world.eighths(2, STATES, r), 2 * r + 2 * r * r
    agent, reward, order = world.choice(kind), world.reward + paid, np.arange(STATES)

    def inside(threads: int, call) -> bool:
        memory = np.full((threads + 2) * size, 7.0)
        call(memory[size:-size])
        return bool((memory[:size] == 7.0).all() and (memory[-size:] == 7.0).all() and (memory != 7.0).any())

    out = np.empty(len(world.of_row))
    rows = len(out), world.of_row, world.chances, reward, 1.0, 1.0, u[0], g[0]
    assert inside(1, lambda scratch: core.row_residuals(*rows, scratch, out))
    for threads in (1, 2):
        given = agent, world.chances, reward, 1.0, 1.0, -1.0, u[0], g[0], threads
        assert inside(threads, lambda scratch, given=given: core.residuals(STATES, order, *given, scratch, out))
    rules = core.StepRules(states=STATES, steps=1, agent=agent, stride=0)
    free = np.zeros(STATES, bool), np.ones((2, STATES), bool)
    steps = rules, *free, world.chances, reward, 1.0, 1.0, u, g
    assert inside(1, lambda scratch: core.step_residuals(*steps, scratch, out))


def test_a_state_that_misses_its_inequality_is_raised_on_the_spot():
    world = World(1, 5)
    agent, g = world.choice("rows"), np.zeros((STATES, 1))
    order = np.arange(STATES)

    def passed(count: int, margin: float, u: np.ndarray, sign: float, threads: int = 1) -> np.ndarray:
        out = np.full(STATES, np.nan)
        given = agent, world.chances, world.reward, 1.0, sign, margin, u, g, threads, None, out
        core.residuals(count, order, *given)
        return out

    for sign in (1.0, -1.0):
        for margin in (0.0, 0.125):
            u = world.eighths(STATES)
            before, missed = u.copy(), passed(1, -1.0, u, sign)
            assert np.array_equal(u, before)
            raised = passed(1, margin, u, sign)
            wanted = missed[0] * (1.0 + 1e-12) + margin if missed[0] > 0.0 else 0.0
            assert raised[0] == wanted and u[0] == before[0] + sign * wanted
    still, world.reward = np.zeros(STATES), np.zeros(len(world.of_row))
    assert (passed(STATES, 0.5, still, 1.0) == 0.0).all() and not still.any()  # 0 needs no raise


def test_states_that_may_be_raised_are_taken_one_after_the_other():
    """By one thread, whatever was allowed: the scratch of a second one stays as it was."""
    world, r = World(5, 1), 5
    size, g = 2 * r + 2 * r * r, world.eighths(STATES, r)
    for margin, shared in ((-1.0, True), (0.0, False), (0.5, False)):
        scratch, out = np.full(2 * size, 7.0), np.empty(STATES)
        given = (
            world.choice("free"),
            world.chances,
            world.reward,
            1.0,
            1.0,
            margin,
            np.zeros(STATES),
            g,
            2,
            scratch,
            out,
        )
        core.residuals(STATES, np.arange(STATES), *given)
        assert (scratch[size:] != 7.0).any() == shared


def test_a_sign_is_right_with_the_last_bit():
    def first(u: float, g: list[float], sign: float = 1.0) -> int:
        held = np.array([False, True])
        return core.wrong_sign(2, held, len(g), sign, np.array([-9.0, u]), np.array([[9.0] * len(g), g]))

    assert first(0.0, [0.0]) == -1 and first(1.0, [0.5, -0.25]) == -1 and first(-1.0, [0.5], -1.0) == -1
    assert first(1.0, [0.75, -0.5]) == 1 == first(1.0, [0.5], -1.0) == first(-1e-300, [0.0])
    half = 2.0**-53  # 1 + half is 1 as a float: the sum of sizes is above u = 1
    assert first(1.0, [1.0, half, half]) == 1 and first(1.0 + 2.0**-40, [1.0, half, half]) == -1


# ====================================================================== what is proposed
@pytest.mark.parametrize("kind, sense", [("free", 1.0), ("free", -1.0), ("rows", 0.0), ("weights", 0.0)])
def test_expansions_backward_are_values_and_gradients(kind, sense):
    world, gamma, r, order = World(2, 8), 1.0, 2, [2, 0, 3]
    for row, s in enumerate(world.of_row):  # successors come first
        earlier = [1, *order[: order.index(s)]] if s in order else [1]
        moves = slice(world.row_ptr[row], world.row_ptr[row + 1])
        world.successor[moves] = world.rng.choice(earlier, moves.stop - moves.start)
    agent = world.choice(kind)
    v, g, best = world.eighths(STATES), world.eighths(STATES, r), np.full(STATES, -1)
    twin_v, twin_g = v.copy(), g.copy()
    core.expand_backward(3, np.array(order), agent, world.chances, world.reward, sense, v, g, best)
    for s in order:
        group = [pair for each in world.groups(agent, s) for pair in each]
        if sense:
            row = max((row for row, _ in group), key=lambda row: sense * worth(world, row, gamma, twin_v))
            group = [(row, 1.0)]
            assert best[s] == row
        twin_v[s], twin_g[s] = expanded(world, group, gamma, twin_v, twin_g)
    np.testing.assert_allclose(v, twin_v, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(g, twin_g, rtol=1e-13, atol=1e-13)


def worth(world: World, row: int, gamma: float, v: np.ndarray) -> float:
    return world.reward[row] + gamma * sum(world.p[f] * v[i] for f, i in world.moves(row))


def expanded(world: World, group, gamma, v, g) -> tuple[float, np.ndarray]:
    value, gradient = 0.0, np.zeros(world.r)
    for row, weight in group:
        value += weight * worth(world, row, gamma, v)
        for f, i in world.moves(row):
            gradient = gradient + gamma * weight * (v[i] * world.slope[f] + world.p[f] * g[i])
    return value, gradient


def test_expansions_by_steps_are_values_and_gradients_of_what_is_played():
    world, steps, gamma, r = World(2, 9), 3, 0.5, 2
    rules = np.array([world.state_ptr[:-1], world.state_ptr[1:] - 1, world.state_ptr[:-1]])
    agent = core.Choice(state_ptr=world.state_ptr, rows=rules.ravel(), weights=None, dropped=None)
    of_step = core.StepRules(states=STATES, steps=steps, agent=agent, stride=STATES)
    decided = np.array([False, True, False, False])
    v, g = np.full((steps + 2, STATES), 7.0), np.full((steps + 2, STATES, r), 7.0)
    v[0], g[0] = world.eighths(STATES), world.eighths(STATES, r)
    core.expand_steps(of_step, decided, world.chances, world.reward, gamma, v, g)
    for k in range(steps):
        for s in range(STATES):
            value, gradient = expanded(world, [(int(rules[k, s]), 1.0)], gamma, v[k], g[k])
            if decided[s]:
                value, gradient = v[k, s], 0.0 * gradient
            assert v[k + 1, s] == pytest.approx(value, rel=1e-13) and np.allclose(g[k + 1, s], gradient, 1e-13, 1e-15)
    assert (v[-1] == 7.0).all() and (g[-1] == 7.0).all()


def test_greedy_rules_are_the_best_at_the_centre():
    world, steps, gamma = World(1, 10), 3, 0.5
    decided = np.array([False, False, True, False])
    for sense in (1.0, -1.0):
        v, rows = np.full((steps + 2, STATES), 7.0), np.full((steps + 1, STATES), -1)
        v[0] = world.eighths(STATES)
        core.greedy_steps(STATES, steps, world.state_ptr, decided, world.chances, world.reward, gamma, sense, v, rows)
        for k in range(steps):
            for s in range(STATES):
                candidates = range(world.state_ptr[s], world.state_ptr[s + 1])
                best = max(candidates, key=lambda row: sense * worth(world, row, gamma, v[k]))
                assert rows[k, s] == best
                assert v[k + 1, s] == (v[k, s] if decided[s] else worth(world, best, gamma, v[k]))
        assert (v[-1] == 7.0).all() and (rows[-1] == -1).all()
    even = np.zeros(len(world.of_row))  # of equal rows it is the first
    core.greedy_steps(STATES, 1, world.state_ptr, decided, world.chances, even, 1.0, 1.0, np.zeros((2, STATES)), rows)
    assert np.array_equal(rows[0], world.state_ptr[:-1]) and (np.diff(world.state_ptr) > 1).any()


def test_visits_are_counted_until_a_play_stops():
    world, steps = World(1, 11), 3
    world.p = abs(world.p)
    rules = np.array([world.state_ptr[:-1], world.state_ptr[1:] - 1, world.state_ptr[:-1]])
    stopped = np.array([False, False, False, True])
    mass, visits = np.zeros((2, STATES)), np.zeros(len(world.of_row))
    mass[0] = abs(world.eighths(STATES)) + 1.0
    now, wanted = mass[0].copy(), np.zeros(len(world.of_row))
    core.visit_steps(STATES, steps, stopped, world.chances, rules, mass, visits)
    for k in reversed(range(steps)):
        after = np.zeros(STATES)
        for s in np.flatnonzero(~stopped):
            wanted[rules[k, s]] += now[s]
            for f, i in world.moves(int(rules[k, s])):
                after[i] += now[s] * world.p[f]
        now = after
    assert np.array_equal(visits, wanted)
    order, rows = np.array([2, 3, 1, 0]), rules[0]
    mass, visits = np.array([1.0, 0.0, 0.5, 2.0]), np.zeros(len(world.of_row))
    twin, wanted = mass.copy(), np.zeros(len(world.of_row))
    core.visit_forward(STATES, order, stopped, world.chances, rows, mass, visits)
    for s in order[::-1].tolist():
        if not stopped[s]:
            wanted[rows[s]] += twin[s]
            m = twin[s]
            for f, i in world.moves(int(rows[s])):
                twin[i] += m * world.p[f]
    assert np.array_equal(visits, wanted) and np.array_equal(mass, twin)


@pytest.mark.parametrize("kind", ["rows", "weights", "free", "dropped"])
def test_what_is_reached_is_what_is_played(kind):
    for seed in range(8):
        world, steps = World(1, seed), 2
        agent, decided = world.choice(kind), world.rng.random(STATES) < 0.3
        played = [
            {i for group in world.groups(agent, s) for row, _ in group for _, i in world.moves(row)} for s in range(4)
        ]
        order, seen = world.rng.permutation(STATES), world.rng.random(STATES) < 0.4
        wanted = {int(s) for s in np.flatnonzero(seen)}
        core.reach_forward(STATES, order, agent, world.chances, seen)
        for s in order[::-1].tolist():
            wanted |= played[s] if s in wanted else set()
        assert set(np.flatnonzero(seen).tolist()) == wanted
        rules = core.StepRules(states=STATES, steps=steps, agent=agent, stride=0)
        marked = world.rng.random((steps + 1, STATES)) < 0.3
        twin = marked.copy()
        for k in reversed(range(steps)):
            for s in np.flatnonzero(twin[k + 1] & ~decided):
                twin[k, list(played[s])] = True
            twin[k] &= ~decided
        for beyond in (True, False):  # which is not read
            reached = marked.copy()
            core.reach_steps(rules, np.append(decided, beyond), world.chances, reached)
            assert np.array_equal(reached, twin)


@pytest.mark.parametrize("error", [0.0, 0.01, 0.05])
def test_functions_that_are_raised_satisfy_their_inequalities(error):
    for seed in range(6):
        world, steps, gamma = World(2, seed, bent=True, error=error, sums=True), 3, 0.75
        world.slope = world.slope / 32
        agent = world.choice("rows" if seed % 2 else "free")
        rules = core.StepRules(states=STATES, steps=steps, agent=agent, stride=0)
        v, g = world.eighths(steps + 1, STATES), world.eighths(steps + 1, STATES, 2) / 8
        scope, decided = np.ones(v.shape, bool), np.zeros(STATES, bool)
        scope[2, 1] = False
        for sign in (1.0, -1.0):
            slack, u = np.full((steps + 2, STATES), 7.0), np.full((steps + 2, STATES), 7.0)
            core.raise_steps(rules, scope, world.chances, world.reward, gamma, sign, 1e-14, v, g, slack, u, None)
            assert (slack[-1] == 7.0).all() and (u[-1] == 7.0).all()
            slack, u = slack[:-1], u[:-1]
            assert np.array_equal(u, v + sign * slack) and not slack[0].any() and slack[2, 1] == 0.0
            out, scoped = np.empty((steps, STATES)), np.ones(v.shape, bool)
            core.step_residuals(rules, decided, scoped, world.chances, world.reward, gamma, sign, u, g, None, out)
            out[1, 1] = 0.0  # outside the scope
            assert (out <= 0.0).all() and (slack >= 0.0).all()


def test_negative_parts_make_matrices_semidefinite():
    rng = np.random.default_rng(3)
    for n in (1, 2, 3, 5):
        matrices = rng.normal(size=(3, n * (n + 1) // 2))
        out, memory = np.full(4, 7.0), np.full(3 * matrices.shape[1], 7.0)
        core.negative_parts(3, n, matrices, memory[matrices.shape[1] : -matrices.shape[1]], out)
        assert out[3] == 7.0
        for M, k in zip(matrices, out):
            least = -min(float(np.linalg.eigvalsh(full(n, M))[0]), 0.0)
            assert least - 1e-14 <= k <= least + 1e-4
