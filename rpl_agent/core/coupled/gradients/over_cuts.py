"""`over_cuts`: affine bounds whose rows hold over a ball and cuts at once (`coupled.gradients.cuts`).

With the gradient of the best policy at the centre, a row of another action is compared at its own worst point of the
ball, and every row pays its own curvature there. Gradients and multipliers of all rows are chosen together, to make

    F = W(s0) + max {g(s0)·y : |y| ≤ 1, cuts}

small: W is the best value at the centre if a row earns, beside its reward, what its multipliers leave of

    max {q(y) + Σ m c(y) + Σ μ c(y) c'(y) : |y| ≤ 1},    c ≥ 0 the rooms of cuts, q = l·y + y'My.

F is convex in gradients and multipliers. Here maxima over rows are smooth and those over the ball have a barrier, and
L-BFGS goes downhill from the policy's gradient. Any result is allowed: values are raised until every inequality holds,
and `AffineProof` checks them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from rpl_agent.core.coupled.affine import AffineBound, Side, chances_of
from rpl_agent.core.coupled.expansion import StepExpansion, ValueExpansion
from rpl_agent.core.coupled.gradients.cuts import CutRows, cut_rooms
from rpl_agent.core.coupled.gradients.highest import Quadratics
from rpl_agent.core.coupled.gradients.inequalities import Inequalities
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.solver.problem import Problem

#: Most states (times steps), and numbers of all gradients and multipliers: an evaluation solves systems of all states.
STATES, NUMBERS = 200, 60_000
#: Cuts are left out if a tighter one has nearly the same direction; cuts of nearly opposite ones have a product.
PARALLEL = 0.9
#: Up to this many coordinates products are of any cuts, beyond it of those that a row's expressions touch.
SMALL = 8
#: Smoothing of maxima over rows; the weight of the barrier in each round, both in units of what a row may pay, and the
#: steps downhill in it. A round ends when one of them gains less than this share of the unit.
SMOOTH, BARRIERS, SETTLED = 0.02, ((1e-2, 70), (3e-3, 70), (1e-3, 100), (3e-4, 60)), 1e-7
#: Multipliers to start with, and the scale of products, in units of what a row may pay: they converge faster.
SINGLE, DOUBLE, SCALED = 1e-4, 1e-2, 3.0
#: Steps of Newton's method for the values in an evaluation, and their change, in these units, that ends them.
SOLVED, CLOSE = 6, 0.1
#: The barrier where values are raised.
SHARP = 1e-9
#: Most rounds of the best policy, and of values that are raised.
ROUNDS = 60
#: What every row keeps, beyond rounding, in units of the largest value.
MARGIN = 1e-11


def can_search(problem: Problem, expansion: ValueExpansion | StepExpansion) -> bool:
    """Whether gradients and multipliers are looked for: a ball, affine expressions, not too large."""
    fits = isinstance(expansion.frame, Frame) and problem.dropped is None and expansion.policy.rows is not None
    return fits and expansion.values.size <= STATES and chances_of(problem, expansion.frame).curvature is None


@np.errstate(all="ignore")  # what is not finite is not used
def over_cuts(
    problem: Problem,
    expansion: ValueExpansion | StepExpansion,
    side: Side,
    every_policy: bool,
    A: np.ndarray,
    b: np.ndarray,
) -> AffineBound | None:
    """A bound on the policy, or on every one, still to be checked; None if none was found.

    A, b : (n, r) and (n,), the region has A x ≤ b
    """
    assert isinstance(expansion.frame, Frame)
    slope = side.value * expansion.gradient[..., problem.pmdp.initial_state, :].reshape(-1, len(A.T))[-1]
    chosen = _chosen(expansion.frame, A, b)
    inequalities = Inequalities.of(problem, expansion, side, None if every_policy else expansion.policy)
    size = len(inequalities.rows) * len(chosen) + inequalities.nodes * len(slope)
    if not slope.any() or not len(chosen) or size > NUMBERS:
        return None
    search = _Search(inequalities, cut_rooms(expansion.frame, A[chosen], b[chosen]), float(np.linalg.norm(slope)))
    try:
        x = search.start()
        for barrier, steps in BARRIERS:
            x = search.downhill(x, barrier, steps)
            values = search.raised(x)
    except np.linalg.LinAlgError:  # a policy whose plays never end
        return None
    if values is None or not (np.isfinite(x).all() and np.isfinite(values).all()):
        return None
    return search.bound(problem, expansion, x, values, chosen, every_policy)


def _chosen(frame: Frame, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cuts that reach into the ball, the tightest one of each direction."""
    rooms = cut_rooms(frame, A, b)
    length = np.linalg.norm(rooms[:, 1:], axis=1)
    room = np.divide(rooms[:, 0], length, out=np.full(len(b), np.inf), where=length > 0.0)
    found: list[int] = []
    normals = np.divide(rooms[:, 1:], length[:, None], out=np.zeros_like(A), where=length[:, None] > 0.0)
    for k in np.argsort(room, kind="stable").tolist():
        if not room[k] < 1.0:
            break
        if not found or (normals[found] @ normals[k]).max() < PARALLEL:
            found.append(k)
    return np.array(found, dtype=int)


class _Best(NamedTuple):
    value: float  # at the initial node
    visits: np.ndarray  # (R,)
    system: np.ndarray  # (N, N) I − γP


class _Search:
    """F and its gradient, as functions of x = (h of all nodes, m of all rows and of the start, μ of all products).

    g = (I − γP)⁻¹h, P the best policy's: a change of h bends the rows of one node, one of g those of all before it.

    Only the coordinates `touched` by a row's expressions bend it: M = (A B; B' 0), those first. Products are of cuts
    that touch no other coordinates.
    """

    def __init__(self, given: Inequalities, rooms: np.ndarray, size: float) -> None:
        self.given, self.rooms = given, rooms
        rows, (cuts, width) = len(given.rows), rooms.shape
        self.r, self.shape, self.unit = width - 1, (rows + 1, cuts), size
        self.change = -given.ahead
        self.change[np.arange(rows), given.own] += 1.0
        self.first = np.flatnonzero(np.diff(given.own, prepend=-1))
        self.values, self.worth = given.values, given.values  # of the last policy, and of the step before
        best = self._best(given.reward, given.ahead)
        #: what a row may pay, and the scale of multipliers
        self.scale = size / max(float(best.visits.sum()), 1.0)
        self.system, self.spread = best.system, np.linalg.inv(best.system)
        self.is_lagging = True  # values are those of the round before
        self.lengths = np.maximum(np.linalg.norm(rooms[:, 1:], axis=1), 1e-300)
        self._touch()
        self._pair()

    def _touch(self) -> None:
        given, rows = self.given, len(self.given.rows)
        touches = np.zeros((rows, self.r), dtype=bool)
        np.logical_or.at(touches, given.move_row, given.slope != 0.0)
        touches |= self.r <= SMALL
        most = max(int(touches.sum(axis=1).max(initial=0)), 1)
        #: (R, o) coordinates, r where there are fewer; and the slopes of moves in them
        self.touched = np.sort(np.where(touches, np.arange(self.r), self.r), axis=1)[:, :most]
        padded = np.concatenate([given.slope, np.zeros((len(given.slope), 1))], axis=1)
        self.pull = np.take_along_axis(padded, self.touched[given.move_row], axis=1)
        self.touches = np.concatenate([touches, np.zeros((rows, 1), dtype=bool)], axis=1)
        shape = (rows, len(given.move_row))
        self.sum_rows = scipy.sparse.csr_array((np.ones(shape[1]), (given.move_row, np.arange(shape[1]))), shape=shape)
        shape = (given.nodes, len(given.move_row))
        self.sum_nodes = scipy.sparse.csr_array(
            (np.ones(shape[1]), (given.move_node, np.arange(shape[1]))), shape=shape
        )

    def _pair(self) -> None:
        """(row, cut, cut) of all products, and their forms in the touched coordinates."""
        normals = self.rooms[:, 1:] / self.lengths[:, None]
        used = self.rooms[:, 1:] != 0.0
        one, other = np.nonzero(np.triu(normals @ normals.T < -PARALLEL))
        inside = ~((used[one] | used[other]) @ ~self.touches[:, :-1].T)  # (pairs, R)
        pair, row = np.nonzero(inside)
        self.pair_row, self.pairs = row, np.stack([one[pair], other[pair]], axis=1)
        padded = np.concatenate([self.rooms[:, 1:], np.zeros((len(self.rooms), 1))], axis=1)
        n, k = (np.take_along_axis(padded[cut], self.touched[row], axis=1) for cut in self.pairs.T)
        self.pair_form = (n[:, :, None] * k[:, None, :] + k[:, :, None] * n[:, None, :]) / 2
        ends = self.rooms[self.pairs, 0]
        self.pair_linear = ends[:, :1] * self.rooms[self.pairs[:, 1]] + ends[:, 1:] * self.rooms[self.pairs[:, 0]]
        self.pair_linear[:, 0] = ends.prod(axis=1)
        size = self.lengths[self.pairs].prod(axis=1)
        self.pair_scale = SCALED * self.scale / size
        shape = (len(self.given.rows), len(row))
        self.sum_pairs = scipy.sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape=shape)

    # ------------------------------------------------------------------ x
    def start(self) -> np.ndarray:
        single, double = np.full(self.shape, SINGLE), np.full(len(self.pairs), DOUBLE)
        return np.concatenate([(self.system @ self.given.gradient).ravel() / self.scale, single.ravel(), double])

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(g (N, r), m (R + 1, K), μ (Q,))."""
        cut = self.given.nodes * self.r
        g, single = self.spread @ x[:cut].reshape(-1, self.r), x[cut : cut + self.shape[0] * self.shape[1]]
        double = x[cut + single.size :]
        return g * self.scale, single.reshape(self.shape) * self.scale / self.lengths, double * self.pair_scale

    def downhill(self, x: np.ndarray, barrier: float, steps: int) -> np.ndarray:
        free = self.given.nodes * self.r
        found = scipy.optimize.minimize(
            lambda x: tuple(part / self.unit for part in self.evaluated(x, barrier)),
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] * free + [(0.0, None)] * (len(x) - free),
            options={
                "maxiter": steps,
                "maxcor": 20,
                "ftol": SETTLED / (1.0 + float(np.abs(self.given.values).max()) / self.unit),
            },
        )
        return np.asarray(found.x)

    # ------------------------------------------------------------------ F
    def polynomials(self, g: np.ndarray, single: np.ndarray, double: np.ndarray) -> tuple[np.ndarray, Quadratics]:
        """(constant and slope (R, r + 1), forms) of q + Σ m c + Σ μ c c' without values of nodes."""
        given = self.given
        linear = given.still - given.sign * (self.change @ g)
        turn = self.pull[:, :, None] * (given.sign * g[given.move_node])[:, None, :]
        turn = (self.sum_rows @ turn.reshape(len(turn), -1)).reshape(len(given.rows), -1, self.r)
        level = single[:-1] @ self.rooms + self.sum_pairs @ (double[:, None] * self.pair_linear)
        level[:, 1:] += linear
        B = np.where(self.touches[:, None, :-1], 0.0, turn / 2)
        padded = np.concatenate([turn, np.zeros((*turn.shape[:2], 1))], axis=2)
        A = np.take_along_axis(padded, np.broadcast_to(self.touched[:, None, :], (*turn.shape[:2], turn.shape[1])), 2)
        products = (self.sum_pairs @ (double[:, None] * self.pair_form.reshape(len(double), -1))).reshape(A.shape)
        return level, Quadratics((A + A.transpose(0, 2, 1)) / 2 + products, B, self.touched)

    def _linear(self, level: np.ndarray) -> np.ndarray:
        """(R, r) slopes of rows with the values `worth`."""
        given = self.given
        return np.asarray(level[:, 1:] + self.sum_rows @ (given.slope * self.worth[given.move_node][:, None]))

    def evaluated(self, x: np.ndarray, barrier: float) -> tuple[float, np.ndarray]:
        """(F, its derivatives), smooth."""
        given, (g, single, double) = self.given, self.parts(x)
        level, forms = self.polynomials(g, single, double)
        for _ in range(SOLVED):
            top = forms.highest(self._linear(level), barrier * self.scale)
            value, visits, _ = self._earned(level[:, 0] + top.smooth, top.y, SMOOTH * self.scale)
            if self.is_lagging:
                break
            moved, self.worth = float(np.abs(self.values - self.worth).max()), self.values
            if moved <= CLOSE * self.scale:
                break
        reach = given.sign * g[given.initial] + single[-1] @ self.rooms[:, 1:]
        length = np.sqrt(reach @ reach + (SMOOTH * self.unit) ** 2)
        value += length + float(single[-1] @ self.rooms[:, 0])
        own, bent = (visits[:, None, None] * part for part in forms.bent(top))  # (R, o, o), (R, o, r)
        y = visits[:, None] * top.y
        forces = np.einsum("to,tor->tr", self.pull, bent[given.move_row])
        slope = given.sign * (self.sum_nodes @ forces - self.change.T @ y)
        slope[given.initial] += given.sign * reach / length
        weighed = np.concatenate([visits[:, None], y], axis=1) @ self.rooms.T
        start = self.rooms[:, 0] + self.rooms[:, 1:] @ (reach / length)
        pressed = (visits[self.pair_row] * self.pair_linear[:, 0]) + (y[self.pair_row] * self.pair_linear[:, 1:]).sum(1)
        pressed += np.einsum("qab,qab->q", own[self.pair_row], self.pair_form)
        slopes = [
            (self.spread.T @ slope).ravel() * self.scale,
            (np.vstack([weighed, start]) * (self.scale / self.lengths)).ravel(),
            pressed * self.pair_scale,
        ]
        return value, np.concatenate(slopes)

    def _earned(self, more: np.ndarray, y: np.ndarray, smooth: float = 0.0) -> _Best:
        """The best value if rows earn this much more at the values `worth`, and their worst points are y (R, r).

        What a row earns depends on the values: one step of Newton's method, with γ p at the worst point.
        """
        given = self.given
        if self.is_lagging:
            return self._best(given.reward + more, given.ahead, smooth)
        force = (given.slope * y[given.move_row]).sum(axis=1)
        place = given.move_row * given.nodes + given.move_node
        pushed = np.bincount(place, force, given.ahead.size).reshape(given.ahead.shape)
        return self._best(given.reward + more - pushed @ self.worth, given.ahead + pushed, smooth)

    def _best(self, reward: np.ndarray, ahead: np.ndarray, smooth: float = 0.0) -> _Best:
        """The best value if rows earn this: by (soft) policy iteration, from the last values."""
        given, values = self.given, self.values
        eye = np.eye(given.nodes)
        for _ in range(ROUNDS):
            q = reward + ahead @ values
            top = np.maximum.reduceat(q, self.first)
            if smooth > 0.0:
                share = np.exp((q - top[given.own]) / smooth)
                total = np.add.reduceat(share, self.first)
                share, top = share / total[given.own], top + smooth * np.log(total)
            else:
                share = (q == top[given.own]).astype(float)
                share /= np.add.reduceat(share, self.first)[given.own]
            system = eye - np.add.reduceat(share[:, None] * ahead, self.first, axis=0)
            step = np.linalg.solve(system, top - values)
            values = values + step
            if np.abs(step).max() <= max(0.01 * smooth, 1e-13 * np.abs(values).max()):
                break
        self.values = values
        visits = np.linalg.solve(system.T, eye[given.initial])
        return _Best(float(values[given.initial]), share * visits[given.own], system)

    # ------------------------------------------------------------------ the bound
    def raised(self, x: np.ndarray) -> np.ndarray | None:
        """(N,) values with which every inequality holds; None if none were found.

        With multipliers far from the best ones there may be none, so the values of rounds before lag until there are.
        """
        given, before, self.is_lagging = self.given, self.worth, False
        level, forms = self.polynomials(*self.parts(x))
        margin = MARGIN * (1.0 + float(np.abs(given.values).max()))
        for _ in range(ROUNDS):
            top = forms.highest(self._linear(level), SHARP * self.scale)
            self.level = top.level
            self._earned(level[:, 0] + top.most + margin, top.y)
            moved, self.worth = float(np.abs(self.values - self.worth).max()), self.values
            if moved <= 0.1 * margin:
                return self.values
        self.values, self.worth, self.is_lagging = given.values, before, True
        return None

    def bound(
        self,
        problem: Problem,
        expansion: ValueExpansion | StepExpansion,
        x: np.ndarray,
        values: np.ndarray,
        chosen: np.ndarray,
        every_policy: bool,
    ) -> AffineBound:
        """The values and gradients of all nodes, with the multipliers of their rows."""
        given, (g, single, double) = self.given, self.parts(x)
        layers, rows = 1 + int(given.step.max()), problem.pmdp.num_rows
        index = given.step * rows + given.rows
        level, singles = np.zeros(layers * rows), np.zeros((layers * rows, len(chosen)))
        level[index], singles[index] = self.level, single[:-1]
        used = np.flatnonzero(double > 0.0)
        cut_rows = CutRows(chosen, level, singles, index[self.pair_row[used]], self.pairs[used], double[used])
        u, gradient = expansion.values.copy(), expansion.gradient.copy()
        step, state = given.place.T
        places = (state,) if isinstance(expansion, ValueExpansion) else (step + 1, state)
        u[places], gradient[places] = given.sign * values, g
        scope = np.broadcast_to(~problem.task.decided, u.shape).copy()
        policy = None if every_policy else expansion.policy
        return AffineBound(Side(given.sign), policy, expansion.frame, u, gradient, np.zeros_like(u), scope, cut_rows)
