"""`Relaxation`: nature's choices, accessed by the solver through one method; `CompiledSet`: the same for the core
(the struct `row_set` of core.h).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rpl_agent.core.model import ParametricMDP, Sense, cached_fact, in_parts
from rpl_agent.core.native import Struct, core, read_only, threads
from rpl_agent.core.regions.base import EllipsoidData
from rpl_agent.core.regions.polytope_data import PolytopeData

#: kind, lower and upper (F,): the interval hull; for POINT both are the probability. For regions also n, constant,
#: weights, mass, tightness, polytope, center, factor, radius, memory
CompiledSet: TypeAlias = Struct


class RowKind(IntEnum):
    """Kinds of sets; those above INTERVAL are regions.

    BEST takes the best bound in every row of a polytope, the interval hull and, if there is one, an ellipsoid; CURVED
    is a region of parameters.
    """

    POINT = core.POINT
    INTERVAL = core.INTERVAL
    POLYTOPE = core.POLYTOPE
    ELLIPSOID = core.ELLIPSOID
    BEST = core.BEST
    CURVED = core.CURVED


POINT, INTERVAL, POLYTOPE, ELLIPSOID, BEST, CURVED = RowKind


class RowForms(NamedTuple):
    """Expressions f = constant + weights @ x of a region's coordinates; mass: |constant| + |weights| max |x|."""

    constant: np.ndarray  # (F,)
    weights: np.ndarray  # (F, r)
    mass: np.ndarray | None = None  # (F,)


def compiled_set(
    kind: int,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    forms: RowForms | None = None,
    polytope: PolytopeData | None = None,
    ellipsoid: EllipsoidData | None = None,
    tightness: float = 0.0,
    rows: int = 1,
    bend: Struct | None = None,
) -> CompiledSet:
    """A CompiledSet; parts that the kind does not use may be omitted.

    lower, upper : (F,)
    forms : for a region
    tightness : a bound from the inner side (above a minimum, below a maximum) adds tightness * span of the row's values
    bend : for a CURVED set
    rows : number of rows that each store where their last walk over a polytope ended
    """
    kind = RowKind(kind)
    lower, upper = read_only(lower), read_only(upper)
    size = 0
    parts: dict[str, np.ndarray | None] = dict.fromkeys(("constant", "weights", "mass", "center", "factor", "memory"))
    if kind > INTERVAL:
        assert forms is not None
        constant, weights, mass = forms
        size = weights.shape[1]
        if mass is None:
            mass = np.abs(constant) + np.abs(weights) @ _reach(polytope, ellipsoid)
        parts = {"constant": read_only(constant), "weights": read_only(weights), "mass": read_only(mass)}
        parts["center"] = None if ellipsoid is None else read_only(ellipsoid.center)
        parts["factor"] = None if ellipsoid is None else read_only(ellipsoid.factor)
        parts["memory"] = np.full(rows, -1, np.int32)
    return core.RowSet(
        kind=kind,
        lower=lower,
        upper=upper,
        n=size,
        tightness=float(tightness),
        length=rows,
        radius=0.0 if ellipsoid is None else float(ellipsoid.radius),
        polytope=polytope,
        bend=bend,
        **parts,
    )


def _reach(polytope: PolytopeData | None, ball: EllipsoidData | None) -> np.ndarray:
    """(r,) max |x| over a region."""
    if polytope is not None:
        return polytope.reach
    assert ball is not None
    return (np.abs(ball.center) + ball.radius * np.sqrt(np.square(ball.factor).sum(axis=1))) * (1.0 + 1e-9)


def row_arrays(row_ptr: np.ndarray, successor: np.ndarray, expression: np.ndarray) -> Struct:
    """Rows and their transitions: row_ptr (R+1,) int64, successor (T,) and expression (T,) int32."""
    return core.RowArrays(count=len(row_ptr) - 1, row_ptr=row_ptr, successor=successor, expression=expression)


@cached_fact
def model_rows(pmdp: ParametricMDP) -> Struct:
    """The rows of a model."""
    return row_arrays(pmdp.row_ptr, pmdp.successor, pmdp.expression)


def row_sums(pmdp: ParametricMDP, values: np.ndarray) -> np.ndarray:
    """(R,) sums over the successors of each row of numbers (F,) of their expressions."""
    out = np.empty(pmdp.num_rows)
    core.sum_rows(model_rows(pmdp), np.ascontiguousarray(values, np.float64), out)
    return out


@cached_fact
def longest_row(pmdp: ParametricMDP) -> int:
    """The largest number of successors of a row."""
    return max((int(part.max()) for part in in_parts(pmdp.row_ptr, lengths=True)), default=1)


@cached_fact
def longest_chain(pmdp: ParametricMDP) -> int:
    """The largest number of transitions in the rows of a deterministic policy."""
    return int(np.maximum.reduceat(np.diff(pmdp.row_ptr), pmdp.state_ptr[:-1]).sum()) if pmdp.num_rows else 0


def workspace(compiled: CompiledSet, longest: int, rows: int = 0) -> Struct:
    """Scratch space for passes over ``rows`` rows of at most ``longest`` successors, in as many threads as pay.

    Rows of regions keep state from walk to walk: one thread, so that results do not depend on their number.
    """
    size = compiled.n
    helpers = 1 if compiled.kind > INTERVAL else useful_threads(rows)
    if compiled.bend is not None:
        size += size * (size + 1) // 2 + compiled.bend.corners
    return core.Scratch(threads=helpers, longest=longest, n=size, memory=np.empty(helpers * (4 * longest + 3 * size)))


#: number of rows that is worth a thread
WORTH_A_THREAD = 100_000


def useful_threads(rows: int) -> int:
    """As many threads as pay for a pass over so many rows."""
    return max(1, min(threads(), rows // WORTH_A_THREAD))


@runtime_checkable
class Relaxation(Protocol):
    """An (s, a)-rectangular uncertainty set over a model.

    A relaxation may have ``tightness`` (default 1e-9): its bounds are within tightness * (max v - min v) of the
    exact extremum, which the solver uses for the bound from the inner side.
    """

    pmdp: ParametricMDP
    name: str

    def expectation(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Per row, a guaranteed outward bound on the extremum of sum_i p_i values[successor_i].

        Parameters
        ----------
        values : (S,)
        extremum : direction of nature. MIN: out <= true minimum; MAX: out >= true maximum.
        out : (R,) or (k,) float64
        rows : (k,) int64
        """

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(lower (F,), upper (F,)): the interval hull of every expression."""

    def compiled(self) -> CompiledSet | None:
        """Arrays for the solver's compiled sweeps, or None (the solver then calls `expectation`)."""


class CompiledRelaxation:
    """A relaxation defined by a `CompiledSet`."""

    def __init__(self, pmdp: ParametricMDP, compiled: CompiledSet, name: str) -> None:
        self.pmdp = pmdp
        self.name = name
        self._set = compiled

    def expectation(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        self.directed_expectation(values, extremum, extremum is Sense.MAX, out, rows)

    def directed_expectation(
        self, values: np.ndarray, extremum: Sense, upward: bool, out: np.ndarray, rows: np.ndarray | None = None
    ) -> None:
        """Like `expectation`, with the side of the bound chosen: <= the extremum, or (upward) >= it."""
        model, space = model_rows(self.pmdp), workspace(self._set, longest_row(self.pmdp), len(out))
        values = np.ascontiguousarray(values, dtype=np.float64)
        core.row_bounds(len(out), values, extremum is Sense.MAX, upward, model, self._set, space, rows, out)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self._set.lower, self._set.upper

    def compiled(self) -> CompiledSet | None:
        return self._set


def rows_feasible(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> bool:
    """Whether every row has a distribution within its intervals (tied counts can contradict each other)."""
    least, most = row_sums(pmdp, lower), row_sums(pmdp, upper)
    return bool((lower <= upper).all() and (least <= 1.0 + 1e-12).all() and (most >= 1.0 - 1e-12).all())
