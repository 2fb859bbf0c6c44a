"""`CompiledSet`: what nature may do in every row, as arrays for compiled kernels.

Kernels take it as three arguments (`CompiledSet.arguments`): ``point``, ``interval`` and ``region``, two of which are
None. Numba drops the branches of an argument that is None before it compiles, so each kernel is compiled for the kinds
of sets that are used, and only with the code of that kind.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from rpl_agent.jit import read_only
from rpl_agent.regions.base import EllipsoidData
from rpl_agent.regions.polytope_data import PolytopeData, Walk, empty_polytope_data


class RowKind(IntEnum):
    """Kinds of sets; those above INTERVAL are regions, and BEST is the better of polytope and ellipsoid per row."""

    POINT = 0
    INTERVAL = 1
    POLYTOPE = 2
    ELLIPSOID = 3
    BEST = 4


POINT, INTERVAL, POLYTOPE, ELLIPSOID, BEST = RowKind


class IntervalRows(NamedTuple):
    """Bounds of every expression: lower, upper (F,) float64."""

    lower: np.ndarray
    upper: np.ndarray


class RegionRows(NamedTuple):
    """A region of reduced coordinates x, and the expressions f = constant + weights @ x.

    Attributes
    ----------
    lower, upper : (F,) float64
        The interval hull.
    constant : (F,) float64
    weights : (F, r) float64
    mass : (F,) float64
        |constant| + |weights| max |x| over the region: the size of an expression's rounding terms.
    tightness : float
        A bound from the far side (above a minimum, below a maximum) adds tightness * span of the row's values.
    use_polytope, use_ellipsoid : bool
    table, box_lower, box_upper, memory : of the polytope, see `PolytopeData`
    walk : Walk
        What a query needs that leaves the table.
    center : (r,) float64
    factor : (r, r) float64
    radius : float
        The ellipsoid {center + radius * factor @ z : |z| <= 1}.
    """

    lower: np.ndarray
    upper: np.ndarray
    constant: np.ndarray
    weights: np.ndarray
    mass: np.ndarray
    tightness: float
    use_polytope: bool
    use_ellipsoid: bool
    table: np.ndarray
    box_lower: np.ndarray
    box_upper: np.ndarray
    memory: np.ndarray
    walk: Walk
    center: np.ndarray
    factor: np.ndarray
    radius: float


class CompiledSet(NamedTuple):
    """Nature's options as arrays.

    Attributes
    ----------
    kind : RowKind
    lower, upper : (F,) float64
        Interval hull of every expression; for POINT both are the probability.
    region : RegionRows, optional
        For kinds above INTERVAL.
    """

    kind: RowKind
    lower: np.ndarray
    upper: np.ndarray
    region: RegionRows | None = None

    @property
    def arguments(self) -> tuple[np.ndarray | None, IntervalRows | None, RegionRows | None]:
        """(point, interval, region) for the kernels; ``point`` (F,) are probabilities."""
        point = self.lower if self.kind == POINT else None
        interval = IntervalRows(self.lower, self.upper) if self.kind == INTERVAL else None
        return point, interval, self.region

    @property
    def tightness(self) -> float:
        return 0.0 if self.region is None else self.region.tightness

    @property
    def dimension(self) -> int:
        return 0 if self.region is None else self.region.weights.shape[1]


class RowArrays(NamedTuple):
    """Rows and their transitions: row_ptr (R+1,), successor (T,), expression (T,); of a model or a part of one."""

    row_ptr: np.ndarray
    successor: np.ndarray
    expression: np.ndarray


class Scratch(NamedTuple):
    """Memory of one thread for the row kernels.

    keys, order : (longest row,) float64, int64
        A row's values, sorted, and the transitions they belong to.
    direction, other : (r,) float64
    """

    keys: np.ndarray
    order: np.ndarray
    direction: np.ndarray
    other: np.ndarray


def compiled_set(
    kind: int,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    constant: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    polytope: PolytopeData | None = None,
    ellipsoid: EllipsoidData | None = None,
    tightness: float = 0.0,
    mass: np.ndarray | None = None,
) -> CompiledSet:
    """A CompiledSet; the parts of a region that its kind does not use may be left out."""
    kind = RowKind(kind)
    lower, upper = read_only(lower), read_only(upper)
    if kind <= INTERVAL:
        return CompiledSet(kind, lower, upper)
    assert constant is not None and weights is not None
    size = weights.shape[1]
    box = empty_polytope_data(np.zeros(size), np.zeros(size)) if polytope is None else polytope
    ball = EllipsoidData(np.zeros(size), np.zeros((size, size)), 0.0) if ellipsoid is None else ellipsoid
    if mass is None:
        reach = box.reach
        if polytope is None:
            reach = (np.abs(ball.center) + ball.radius * np.sqrt(np.square(ball.factor).sum(axis=1))) * (1.0 + 1e-9)
        mass = np.abs(constant) + np.abs(weights) @ reach
    region = RegionRows(
        lower, upper, read_only(constant), read_only(weights), read_only(mass), float(tightness), kind != ELLIPSOID,
        kind != POLYTOPE, box.table, box.lower, box.upper, box.memory, Walk.of(box), read_only(ball.center),
        read_only(ball.factor), float(ball.radius),
    )  # fmt: skip
    return CompiledSet(kind, lower, upper, region)


def workspace(compiled: CompiledSet, longest: int) -> Scratch:
    """Scratch of the kernels that bound rows of at most ``longest`` successors."""
    size = compiled.dimension
    return Scratch(np.empty(longest), np.empty(longest, dtype=np.int64), np.empty(size), np.empty(size))
