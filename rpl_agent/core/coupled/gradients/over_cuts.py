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
from rpl_agent.core.coupled.gradients.highest import Highest, Quadratics
from rpl_agent.core.coupled.gradients.inequalities import Inequalities
from rpl_agent.core.coupled.gradients.pairs import PARALLEL, CutPairs, Touched, summing
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.solver.problem import Problem

#: Most states (times steps), and numbers of all gradients and multipliers: an evaluation solves systems of all states.
STATES, NUMBERS = 200, 60_000
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
    if not slope.any() or not len(chosen):
        return None
    inequalities = Inequalities.of(problem, expansion, side, None if every_policy else expansion.policy)
    if len(inequalities.rows) * len(chosen) + inequalities.nodes * len(slope) > NUMBERS:
        return None
    try:
        search = _Search(inequalities, cut_rooms(expansion.frame, A[chosen], b[chosen]), float(np.linalg.norm(slope)))
        x = search.start()
        for barrier, steps in BARRIERS:
            x = search.downhill(x, barrier, steps)
            raised = search.raised(x)
    except np.linalg.LinAlgError:  # plays that go round in several states forever
        return None
    if raised is None or not (np.isfinite(x).all() and np.isfinite(raised.values).all()):
        return None
    return search.bound(problem, expansion, x, raised, chosen, every_policy)


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


class _Raised(NamedTuple):
    """With which every inequality holds."""

    values: np.ndarray  # (N,)
    level: np.ndarray  # (R,) t of `Highest`


class _Search:
    """F and its gradient, as functions of x = (h of all nodes, m of all rows and of the start, μ of all products).

    g = (I − γP)⁻¹h, P the best policy's: a change of h bends the rows of one node, one of g those of all before it.

    Only the coordinates `touched` by a row's expressions bend it: M = (A B; B' 0), those first. Products are of cuts
    that touch no other coordinates.

    rooms : (K, 1 + r) of the cuts
    unit : the size of the bound that is looked for
    """

    def __init__(self, given: Inequalities, rooms: np.ndarray, unit: float) -> None:
        self.given, self.rooms, self.unit = given, rooms, unit
        rows, (cuts, width) = len(given.rows), rooms.shape
        self.r, self.shape = width - 1, (rows + 1, cuts)
        #: (R, N) what the value of a node adds to its row, less what it adds to rows that lead to it
        self.change = -given.ahead
        self.change[np.arange(rows), given.own] += 1.0
        self.first = np.flatnonzero(np.diff(given.own, prepend=-1))
        self.values, self.worth = given.values, given.values  # of the last policy, and of the step before
        best = self._best(given.reward, given.ahead)
        #: what a row may pay, and the scale of multipliers
        self.scale = unit / max(float(best.visits.sum()), 1.0)
        self.system, self.spread = best.system, np.linalg.inv(best.system)
        self.is_lagging = True  # values are those of the round before
        self.lengths = np.maximum(np.linalg.norm(rooms[:, 1:], axis=1), 1e-300)
        self.touched = Touched.of(given, self.r, self.r <= SMALL)
        self.pull = self.touched.part(given.slope, given.move_row)  # (T, o)
        self.pairs = CutPairs.of(rooms, self.lengths, self.touched)
        self.pair_scale = SCALED * self.scale / self.pairs.size
        self.sum_rows, self.sum_nodes = summing(given.move_row, rows), summing(given.move_node, given.nodes)
        self.sum_pairs = summing(self.pairs.row, rows)

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
        given, index = self.given, self.touched.index
        level = single[:-1] @ self.rooms + self.sum_pairs @ (double[:, None] * self.pairs.linear)
        level[:, 1:] += given.still - given.sign * (self.change @ g)
        # a move adds (slope·y)(g·y), of which `turn` has the rows of the touched coordinates
        turn = self.pull[:, :, None] * (given.sign * g[given.move_node])[:, None, :]
        turn = (self.sum_rows @ turn.reshape(len(turn), -1)).reshape(len(given.rows), -1, self.r)
        beside = np.where(self.touched.inside[:, None], 0.0, turn / 2)
        padded = np.concatenate([turn, np.zeros((*turn.shape[:2], 1))], axis=2)
        own = np.take_along_axis(padded, np.broadcast_to(index[:, None, :], (*turn.shape[:2], turn.shape[1])), 2)
        products = (self.sum_pairs @ (double[:, None] * self.pairs.form.reshape(len(double), -1))).reshape(own.shape)
        return level, Quadratics((own + own.transpose(0, 2, 1)) / 2 + products, beside, index)

    def _linear(self, level: np.ndarray) -> np.ndarray:
        """(R, r) slopes of rows with the values `worth`."""
        given = self.given
        return np.asarray(level[:, 1:] + self.sum_rows @ (given.slope * self.worth[given.move_node][:, None]))

    def evaluated(self, x: np.ndarray, barrier: float) -> tuple[float, np.ndarray]:
        """(F, its derivatives), smooth."""
        given, (g, single, double) = self.given, self.parts(x)
        level, forms = self.polynomials(g, single, double)
        top, best = self._settled(level, forms, barrier)
        reach = given.sign * g[given.initial] + single[-1] @ self.rooms[:, 1:]
        length = np.sqrt(reach @ reach + (SMOOTH * self.unit) ** 2)
        value = best.value + (length + float(single[-1] @ self.rooms[:, 0]))
        return value, self._derivatives(best.visits, forms, top, reach / length)

    def _settled(self, level: np.ndarray, forms: Quadratics, barrier: float) -> tuple[Highest, _Best]:
        """The worst points of rows and the best policy there, each for the values of the other."""
        for _ in range(SOLVED):
            top = forms.highest(self._linear(level), barrier * self.scale)
            best = self._earned(level[:, 0] + top.smooth, top.y, SMOOTH * self.scale)
            if self.is_lagging:
                break
            moved, self.worth = float(np.abs(self.values - self.worth).max()), self.values
            if moved <= CLOSE * self.scale:
                break
        return top, best

    def _derivatives(self, visits: np.ndarray, forms: Quadratics, top: Highest, toward: np.ndarray) -> np.ndarray:
        """Of F by x: of rows at their worst points, times visits; ``toward`` (r,) is the worst point of the start."""
        given, pairs = self.given, self.pairs
        own, bent = (visits[:, None, None] * part for part in forms.bent(top))  # (R, o, o), (R, o, r)
        y = visits[:, None] * top.y
        forces = np.einsum("to,tor->tr", self.pull, bent[given.move_row])
        by_gradient = given.sign * (self.sum_nodes @ forces - self.change.T @ y)
        by_gradient[given.initial] += given.sign * toward
        by_single = np.vstack(
            [
                np.concatenate([visits[:, None], y], axis=1) @ self.rooms.T,
                self.rooms[:, 0] + self.rooms[:, 1:] @ toward,
            ]
        )
        by_double = (visits[pairs.row] * pairs.linear[:, 0]) + (y[pairs.row] * pairs.linear[:, 1:]).sum(1)
        by_double += np.einsum("qab,qab->q", own[pairs.row], pairs.form)
        slopes = [
            (self.spread.T @ by_gradient).ravel() * self.scale,
            (by_single * (self.scale / self.lengths)).ravel(),
            by_double * self.pair_scale,
        ]
        return np.concatenate(slopes)

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
    def raised(self, x: np.ndarray) -> _Raised | None:
        """None if nothing was found.

        With multipliers far from the best ones there may be none, so the values of rounds before lag until there are.
        """
        given, before, self.is_lagging = self.given, self.worth, False
        level, forms = self.polynomials(*self.parts(x))
        margin = MARGIN * (1.0 + float(np.abs(given.values).max()))
        for _ in range(ROUNDS):
            top = forms.highest(self._linear(level), SHARP * self.scale)
            self._earned(level[:, 0] + top.most + margin, top.y)
            moved, self.worth = float(np.abs(self.values - self.worth).max()), self.values
            if moved <= 0.1 * margin:
                return _Raised(self.values, top.level)
        self.values, self.worth, self.is_lagging = given.values, before, True
        return None

    def bound(
        self,
        problem: Problem,
        expansion: ValueExpansion | StepExpansion,
        x: np.ndarray,
        raised: _Raised,
        chosen: np.ndarray,
        every_policy: bool,
    ) -> AffineBound:
        """The values and gradients of all nodes, with the multipliers of their rows."""
        given, (g, single, double) = self.given, self.parts(x)
        layers, rows = 1 + int(given.step.max()), problem.pmdp.num_rows
        index = given.step * rows + given.rows
        level, singles = np.zeros(layers * rows), np.zeros((layers * rows, len(chosen)))
        level[index], singles[index] = raised.level, single[:-1]
        used = np.flatnonzero(double > 0.0)
        products = index[self.pairs.row[used]], self.pairs.cuts[used], double[used]
        cut_rows = CutRows(chosen, level, singles, *products)
        u, gradient = expansion.values.copy(), expansion.gradient.copy()
        step, state = given.place.T
        places = (state,) if isinstance(expansion, ValueExpansion) else (step + 1, state)
        u[places], gradient[places] = given.sign * raised.values, g
        policy = None if every_policy else expansion.policy
        scope = np.broadcast_to(~problem.task.decided, u.shape).copy()
        if policy is not None and isinstance(expansion, ValueExpansion):
            scope = expansion.reached  # inequalities were only looked for there
        return AffineBound(Side(given.sign), policy, expansion.frame, u, gradient, np.zeros_like(u), scope, cut_rows)
