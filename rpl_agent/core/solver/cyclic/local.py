"""`Local`: a part of the model with its exits, as its own arrays; its strategies and their exact evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.model import best_rows, gather
from rpl_agent.core.native import Struct, core
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.relaxations.base import INTERVAL, POINT, CompiledSet, compiled_set, row_arrays, workspace
from rpl_agent.core.solver.graph import ModelGraph, graph_bounds, model_graph, moves, staying_rows
from rpl_agent.core.solver.problem import FIXED_AGENT, Problem

#: factorise systems with fronts up to this (see `Local.front`), and these numbers of states at once
FACTOR_FRONT, FEW_STATES = 1_000, 2_000
_RELAX_SWEEPS = 2_000
#: the most steps of an acceleration
KRYLOV_STEPS = 300
#: refinement steps on the factors of another chain, the least gain of each, and changes that may be rounding
STALE_STEPS, STALE_GAIN, REFINED = 12, 8.0, 1e-13
#: another chain's order of elimination is given up where factors have this many times its non-zeros
MORE_FILL = 2
_NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class AssembledChain:
    """(I - gamma P) x = rhs as CSR arrays, the diagonal last in each row."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    rhs: np.ndarray

    def relax(self, x: np.ndarray, sweeps: int, tolerance: float) -> int:
        """Gauss-Seidel on x (n, or more) until it changes by at most ``tolerance``; the number of sweeps."""
        return core.relax_chain(len(self.rhs), self.indptr, self.indices, self.data, self.rhs, x, sweeps, tolerance)

    def accelerate(self, x: np.ndarray, tolerance: float) -> int:
        """BiCGSTAB from x (n, or more), where plays are long and sweeps slow; the number of sweeps that cost as much.

        Two sweeps are the preconditioner. x changes only if what is missing becomes less.
        """
        n = len(self.rhs)
        matrix = scipy.sparse.csr_array((self.data, self.indices, self.indptr), shape=(n, n))

        def precondition(right: np.ndarray) -> np.ndarray:
            out = np.zeros(n)
            core.relax_chain(n, self.indptr, self.indices, self.data, np.ascontiguousarray(right), out, 2, 0.0)
            return out

        steps = 0

        def count(_: np.ndarray) -> None:
            nonlocal steps
            steps += 1

        before = float(np.abs(self.rhs - matrix @ x[:n]).max())
        operator = scipy.sparse.linalg.LinearOperator((n, n), precondition, dtype=float)
        with np.errstate(all="ignore"), one_blas_thread:
            found, _ = scipy.sparse.linalg.bicgstab(
                matrix, self.rhs, x[:n], rtol=0.0, atol=tolerance, maxiter=KRYLOV_STEPS, M=operator, callback=count
            )
            missing = float(np.abs(self.rhs - matrix @ found).max())
        if missing < before:
            x[:n] = found
        return 6 * steps


@dataclass(frozen=True, eq=False)
class Local:
    """States 0..n-1 with rows, exits n..n+m-1 without; who moves, and in which direction."""

    states: np.ndarray  # (n,) in the model, as are the next two
    exits: np.ndarray  # (m,)
    row_of: np.ndarray  # (rows,)
    state_ptr: np.ndarray
    row_ptr: np.ndarray
    successor: np.ndarray
    expression: np.ndarray
    reward: np.ndarray
    weights: np.ndarray
    cs: CompiledSet
    agent: int
    maximise: bool
    gamma: float
    #: the last chain's factors, the first chain's order of elimination, and the front; shared by all fixed players
    factors: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, problem: Problem, states: np.ndarray) -> Local:
        """The local model on some states of a problem."""
        pmdp = problem.pmdp
        state_ptr, row_ptr, successor, row_of, expression, exits = model_graph(pmdp).extract(
            states, pmdp.expression, problem.position
        )
        weights = problem.weights[row_of] if problem.agent == FIXED_AGENT else np.ones(len(row_of))
        return cls(
            states,
            exits,
            row_of,
            state_ptr,
            row_ptr,
            successor,
            expression,
            problem.reward[row_of],
            weights,
            problem.cs,
            problem.agent,
            problem.maximise,
            problem.gamma,
        )

    # ------------------------------------------------------------------ shape
    @property
    def n(self) -> int:
        return len(self.state_ptr) - 1

    @property
    def m(self) -> int:
        return len(self.exits)

    @cached_property
    def row_state(self) -> np.ndarray:
        return np.repeat(np.arange(self.n), np.diff(self.state_ptr))

    @cached_property
    def transition_row(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.row_of)), np.diff(self.row_ptr))

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.row_ptr).max(initial=1))

    @cached_property
    def rows(self) -> Struct:
        return row_arrays(self.row_ptr, self.successor, self.expression)

    @cached_property
    def graph(self) -> ModelGraph:
        return ModelGraph(self.state_ptr, self.row_ptr, self.successor, self.n + self.m)

    @property
    def front(self) -> float:
        """How many states a factorisation carries along at a time, about: the work grows with its third power.

        States lie in the order of their distance from the exits; the front is the mean distance, in this order, between
        a state and the farthest of its successors: a layer of a grid, the band of a queue.
        """
        if "front" not in self.factors:
            self.factors["front"] = self.graph.front()
        return self.factors["front"]

    def ways_out(self, exit_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(order (n,), cost (n,)): states by estimated cost to the exits, see `ModelGraph.retry_costs`."""
        p = (0.5 * (self.cs.lower + self.cs.upper))[self.expression]
        p[self.row_ptr[:-1][np.diff(self.row_ptr) == 1]] = 1.0
        return self.graph.retry_costs(p, self.reward, exit_values)

    @cached_property
    def _attainable(self) -> tuple[np.ndarray, np.ndarray]:
        return graph_bounds(self.nature_fixed, self.cs.lower, self.cs.upper, self.rows)

    def forget_bounds(self) -> None:
        """Give up what only graph algorithms use, two numbers and more per transition; it is made again on demand."""
        for name in ("_attainable", "moves", "leaving_moves", "graph"):
            self.__dict__.pop(name, None)

    @cached_property
    def _may_vanish(self) -> np.ndarray:
        """(T,) bool: transitions that need not have probability."""
        return np.asarray(graph_bounds(self.nature_fixed, self.cs.lower, self.cs.upper, self.rows)[0] == 0.0)

    @cached_property
    def _numbers(self) -> np.ndarray:
        """(T,) int32: every transition has an expression of its own."""
        return np.arange(len(self.successor), dtype=np.int32)

    @property
    def lo(self) -> np.ndarray:
        """(T,) lower bound per transition, as used by the graph."""
        return self._attainable[0]

    @property
    def hi(self) -> np.ndarray:
        return self._attainable[1]

    @cached_property
    def moves(self) -> Struct:
        """A nature that wants to hold the play."""
        return moves(self.lo, self.hi, self.cs, self.rows, self.n + self.m)

    @cached_property
    def leaving_moves(self) -> Struct:
        """A nature that does not want to hold the play."""
        return moves(None, self.hi)

    # ------------------------------------------------------------------ players
    def fix_agent(self, rows: np.ndarray) -> Local:
        """The same model with the agent fixed to rows (n,)."""
        weights = np.zeros(len(self.row_of))
        weights[rows] = 1.0
        return replace(self, weights=weights, agent=FIXED_AGENT)

    def fix_nature(self, p: np.ndarray) -> Local:
        """The same model with nature fixed to p (T,)."""
        return replace(self, cs=compiled_set(POINT, p, p), expression=self._numbers)

    @property
    def nature_fixed(self) -> bool:
        return self.cs.kind == POINT

    def central(self, without: np.ndarray) -> np.ndarray:
        """(T,) distributions with the largest support that avoids the exits marked in ``without`` (n+m,) if possible.

        Mass above the lower bounds is shared in proportion to the widths, so every successor that can get mass does.
        """
        if self.nature_fixed:
            return self.lo
        banned = without[self.successor]
        banned &= staying_rows(~banned, self.row_ptr, self.lo, self.hi)[self.transition_row]
        lo, hi = np.where(banned, 0.0, self.lo), np.where(banned, 0.0, self.hi)
        starts = self.row_ptr[:-1]
        room = np.add.reduceat(hi - lo, starts)
        # where hi > 0 there is some, however little
        missing = np.maximum(1.0 - np.add.reduceat(lo, starts), core.SPECK)
        share = np.divide(missing, room, out=np.zeros_like(room), where=room > 0)
        return lo + np.minimum(share, 1.0)[self.transition_row] * (hi - lo)

    def best_rows(self, q: np.ndarray) -> np.ndarray:
        """(n,) the agent's best row by row values q."""
        if self.agent == FIXED_AGENT:
            return _NO_ROWS
        sign = float(self.agent)
        return best_rows(sign * q, self.state_ptr, self.row_state)

    # ------------------------------------------------------------------ operators
    def bellman(self, values: np.ndarray, upward: bool, offset: float = 0.0) -> np.ndarray:
        """T values on the states, exits copied; a bound from the requested side."""
        out = values.copy()
        self._sweep(np.arange(self.n), values, out, upward, offset)
        return out

    def images(self, states: slice, values: np.ndarray, out: np.ndarray, upward: bool) -> None:
        """T values on some states, written to ``out`` (n + m,); bounds from the requested side."""
        self._sweep(np.arange(states.start, states.stop), values, out, upward, 0.0)

    def relax(self, values: np.ndarray, order: np.ndarray, sweeps: int, tolerance: float, nearest: bool = False) -> int:
        """Sweep in place along ``order`` (n,) until values move less than a relative tolerance; how often."""
        if nearest:  # elsewhere rounding down makes plays without an end, which are worth 0, look no better
            none = np.zeros(0)
            return core.value_sweeps(self._point_model(order), sweeps, tolerance, values, none, none, None)
        for k in range(sweeps):
            change = self._sweep(order, values, values, False, 0.0)
            if change <= tolerance * float(np.abs(values[: self.n]).max()):
                return k + 1
        return sweeps

    def value_sweep(self, values: np.ndarray, order: np.ndarray) -> tuple[float, np.ndarray]:
        """(change, rows (n,)): one sweep in place along ``order`` (n,), rounded to nearest; nature is fixed."""
        none, change, fixed = np.zeros(0), np.empty(2), self.agent == FIXED_AGENT
        rows = _NO_ROWS if fixed else np.empty(self.n, np.int64)
        core.value_sweep(self._point_model(order), values, none, values, none, none, None if fixed else rows, change)
        return float(change[0]), rows

    def _point_model(self, order: np.ndarray) -> Struct:
        return core.PointModel(
            states=self.n,
            count=len(order),
            order=order,
            state_ptr=self.state_ptr,
            rows=self.rows,
            reward=self.reward,
            weights=self.weights if self.agent == FIXED_AGENT else None,
            p=self.cs.lower,
            d=0,
            slope=np.zeros(0),
            gamma=self.gamma,
            sign=float(self.agent),
            tie=0.0,
        )

    def swept(self, start: np.ndarray, margin: float, sweeps: int) -> tuple[np.ndarray, int]:
        """(values, sweeps used): Gauss-Seidel for T + margin until values move by less than a tenth of the margin."""
        values, order = start.copy(), np.arange(self.n)
        for k in range(sweeps):
            if self._sweep(order, values, values, margin > 0.0, margin) <= 0.1 * abs(margin):
                return values, k + 1
        return values, sweeps

    def _sweep(self, order: np.ndarray, values: np.ndarray, out: np.ndarray, upward: bool, offset: float) -> float:
        return core.bellman(self._game, len(order), order, values, out, None, upward, offset, self._scratch)

    @cached_property
    def _game(self) -> Struct:
        return core.Game(
            agent=self.agent,
            maximise=self.maximise,
            gamma=self.gamma,
            state_ptr=self.state_ptr,
            rows=self.rows,
            reward=self.reward,
            weights=self.weights,
            set=self.cs,
        )

    @cached_property
    def _scratch(self) -> Struct:
        return workspace(self.cs, self.longest)

    def greedy(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(q (R,), p (T,)): nature's best distributions and the values of the rows under them."""
        if self.nature_fixed:
            return self.means(values, self.lo), self.lo
        q, p = np.empty(len(self.row_of)), np.empty(len(self.successor))
        is_region = self.cs.kind > INTERVAL
        core.hull_strategies(values, self.maximise, self.rows, self.weights, self.cs, self._scratch, q, p)
        if is_region:
            core.region_strategies(values, self.maximise, self.rows, self.weights, self.cs, self._scratch, q, p)
        core.row_means(self.rows, values, self.gamma, self.reward, p, q)
        if not is_region:
            core.tidy(self.rows, self.cs, values, self.maximise, p)
        else:  # distributions of a region are constrained within its hull
            p[(p <= core.TRACE) & self._may_vanish] = 0.0
        return q, p

    def least_outside(self, states: np.ndarray) -> np.ndarray:
        """(R,) a lower bound on the mass that nature must put outside ``states`` (n,)."""
        values, out = np.append(np.where(states, 0.0, 1.0), np.ones(self.m)), np.empty(len(self.row_of))
        core.row_bounds(len(out), values, False, False, self.rows, self.cs, self._scratch, None, out)
        return out

    def means(self, values: np.ndarray, p: np.ndarray) -> np.ndarray:
        """(R,) row values under distributions p."""
        q = np.empty(len(self.row_of))
        core.row_means(self.rows, values, self.gamma, self.reward, p, q)
        return q

    def chain(
        self, values: np.ndarray, rows: np.ndarray, p: np.ndarray, offset: float, accuracy: float = 1e-15
    ) -> np.ndarray | None:
        """Values of the chain of (rows or weights, p) plus ``offset`` per step; None if it is singular.

        ``accuracy`` is relative; intermediate solutions need less.
        """
        n, chain = self.n, self.assembled(values, rows, p, offset)
        if not np.isfinite(chain.rhs).all():
            return None
        out = values.copy()
        if n == 1:
            diagonal = chain.data.sum()
            if not diagonal > 0.0 or not abs(chain.rhs[0]) < min(diagonal, 1.0) * np.finfo(float).max:
                return None
            out[0] = chain.rhs[0] / diagonal
            return out
        if n > FEW_STATES and self.front > FACTOR_FRONT:
            scale = max(1.0, float(np.abs(out[:n]).max()))
            if chain.relax(out, _RELAX_SWEEPS, 1e-14 * scale) == _RELAX_SWEEPS:
                chain.accelerate(out, 1e-15 * scale)
        else:
            solved = self._solve(chain.indptr, chain.indices, chain.data, chain.rhs, values[:n], accuracy)
            if solved is None:
                return None
            out[:n] = solved
        return out if np.isfinite(out[:n]).all() else None

    def assembled(
        self, values: np.ndarray, rows: np.ndarray, p: np.ndarray, offset: float, pays: bool = True
    ) -> AssembledChain:
        """The chain of (rows or weights, p) with ``offset`` per step, beside rewards if it ``pays`` them."""
        n = self.n
        capacity = len(self.successor) + n
        if len(rows):
            capacity = int((self.row_ptr[rows + 1] - self.row_ptr[rows]).sum()) + n
        indptr, indices = np.empty(n + 1, dtype=np.int32), np.empty(capacity, dtype=np.int32)
        data, rhs = np.empty(capacity), np.empty(n)
        played = rows if len(rows) else None
        used = core.assemble(self._game, n, played, values, offset, p, indptr, capacity, indices, data, rhs)
        if not pays:
            rhs[:] = offset
        return AssembledChain(indptr, indices[:used], data[:used], rhs)

    def _solve(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        data: np.ndarray,
        rhs: np.ndarray,
        start: np.ndarray,
        accuracy: float,
    ) -> np.ndarray | None:
        """x with (I - gamma P) x = rhs, None if that is singular.

        Keeps the factors of the last chain: close to the solution, strategies and thus chains hardly change,
        and a few refinement steps on old factors are cheaper than new factors.
        """

        def missing(x: np.ndarray) -> np.ndarray:
            out = np.empty(len(rhs))
            core.chain_residual(len(rhs), indptr, indices, data, rhs, x, out)
            return out

        solve, pattern = self.factors.get("solve"), self.factors.get("pattern")
        if solve is not None and pattern is not None and all(map(np.array_equal, pattern, (indptr, indices))):
            x = _refined(solve, missing, start, accuracy)
            if x is not None:
                return x
        solve = self._factorised(indptr, indices, data)
        self.factors.update(solve=solve, pattern=(indptr, indices))
        if solve is None:
            return None
        x = solve(rhs)
        return x + solve(missing(x))

    def _factorised(
        self, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray] | None:
        """b to x with (I - gamma P) x = b, None if that is singular.

        Chains of one model share the order of the first: finding one is more than half of a factorisation.
        """
        n, known = len(indptr) - 1, self.factors.get("order")
        if known is not None:
            order, place, fill = known
            entries, indptr = gather(indptr, order)
            indices, data = place[indices[entries]], data[entries]
        # the transpose, column by column; a copy, because summing writes into some of the arrays
        matrix = scipy.sparse.csc_array((data, indices, indptr), shape=(n, n), copy=True)
        matrix.sum_duplicates()
        try:  # rows have few entries: no supernodes
            factor = scipy.sparse.linalg.splu(
                matrix,
                permc_spec="MMD_AT_PLUS_A" if known is None else "NATURAL",
                diag_pivot_thresh=0.1,
                relax=1,
                panel_size=1,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # singular: some play of the chain never ends
            return None
        if known is None:
            self.factors["order"] = (np.argsort(factor.perm_c), factor.perm_c, factor.nnz)
            return lambda b: factor.solve(b, trans="T")
        if factor.nnz > MORE_FILL * fill:  # another order suits this chain better
            del self.factors["order"]
        return lambda b: factor.solve(b[order], trans="T")[place]


def _refined(
    solve: Callable[[np.ndarray], np.ndarray],
    missing: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    accuracy: float,
) -> np.ndarray | None:
    """Iterative refinement with the factors of a similar chain, to an accuracy or rounding; None if too slow."""
    last = np.inf
    for _ in range(STALE_STEPS):
        change = solve(missing(x))
        x = x + change
        size, moved = float(np.abs(x).max()), float(np.abs(change).max())
        if moved <= accuracy * size or (moved <= REFINED * size and not moved < last / STALE_GAIN):
            return x
        if not moved < last / STALE_GAIN:
            return None
        last = moved
    return None
