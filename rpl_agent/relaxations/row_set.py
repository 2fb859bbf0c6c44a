"""`CompiledSet`: what nature may do in every row, as the core takes it (the struct `row_set` of core.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np

from rpl_agent._core import Struct, core, read_only
from rpl_agent.model import ParametricMDP, cached_on
from rpl_agent.regions.base import EllipsoidData
from rpl_agent.regions.polytope_data import PolytopeData

#: kind, lower and upper (F,): the interval hull; for POINT both are the probability. Of regions also n, constant,
#: weights, mass, tightness, polytope, center, factor, radius, memory
CompiledSet: TypeAlias = Struct


class RowKind(IntEnum):
    """Kinds of sets; those above INTERVAL are regions, BEST is the better of polytope and ellipsoid per row, CURVED a
    region of parameters.
    """

    POINT = core.POINT
    INTERVAL = core.INTERVAL
    POLYTOPE = core.POLYTOPE
    ELLIPSOID = core.ELLIPSOID
    BEST = core.BEST
    CURVED = core.CURVED


POINT, INTERVAL, POLYTOPE, ELLIPSOID, BEST, CURVED = RowKind


class RowForms(NamedTuple):
    """Expressions f = constant + weights @ x of a region's coordinates; mass: sizes |constant| + |weights| max |x|."""

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
    """A CompiledSet; the parts of a region that its kind does not use may be left out.

    Parameters
    ----------
    lower, upper : (F,) float64
    forms : RowForms
        Of a region.
    tightness : float
        A bound from the far side (above a minimum, below a maximum) adds tightness * span of the row's values.
    bend : Struct
        Of a CURVED set.
    rows : int
        Rows that each remember where their last walk over a polytope ended.
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
        kind=kind, lower=lower, upper=upper, n=size, tightness=float(tightness), length=rows,
        radius=0.0 if ellipsoid is None else float(ellipsoid.radius),
        polytope=polytope, bend=bend, **parts,
    )  # fmt: skip


def _reach(polytope: PolytopeData | None, ball: EllipsoidData | None) -> np.ndarray:
    """(r,) max |x| over a region."""
    if polytope is not None:
        return polytope.reach
    assert ball is not None
    return (np.abs(ball.center) + ball.radius * np.sqrt(np.square(ball.factor).sum(axis=1))) * (1.0 + 1e-9)


def row_arrays(row_ptr: np.ndarray, successor: np.ndarray, expression: np.ndarray) -> Struct:
    """Rows and their transitions: row_ptr (R+1,) int64, successor (T,) and expression (T,) int32."""
    return core.RowArrays(count=len(row_ptr) - 1, row_ptr=row_ptr, successor=successor, expression=expression)


def model_rows(pmdp: ParametricMDP) -> Struct:
    """The rows of a model."""
    return cached_on(pmdp, "rows", lambda _: row_arrays(pmdp.row_ptr, pmdp.successor, pmdp.expression))


def longest_row(pmdp: ParametricMDP) -> int:
    """The largest number of successors."""
    return cached_on(pmdp, "longest row", lambda _: int(np.diff(pmdp.row_ptr).max(initial=1)))


def workspace(compiled: CompiledSet, longest: int) -> Struct:
    """Memory of one thread for rows of at most ``longest`` successors."""
    size = compiled.n
    if compiled.bend is not None:
        size += size * (size + 1) // 2 + compiled.bend.corners
    return core.Scratch(threads=1, longest=longest, n=size, memory=np.empty(4 * longest + 3 * size))
