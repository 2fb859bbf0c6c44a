"""`CompiledSet`: what nature may do in every row, as arrays for compiled kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rpl_agent.regions._support import PolytopeData, empty_polytope_data

POINT, INTERVAL, POLYTOPE, ELLIPSOID, BEST = 0, 1, 2, 3, 4


class CompiledSet(NamedTuple):
    """Nature's options as arrays; fields that a kind does not use are present but empty.

    Attributes
    ----------
    kind : int
        POINT, INTERVAL, POLYTOPE, ELLIPSOID or BEST (per row the better of polytope and ellipsoid).
    lower, upper : (F,) float64
        Interval hull of every expression; for POINT both are the probability.
    constant : (F,) float64
    weights : (F, r) float64
        Expressions in reduced coordinates: f = constant + weights @ x.
    polytope : PolytopeData
    center : (r,) float64
    factor : (r, r) float64
    radius : float
        The ellipsoid {center + radius * factor @ z : |z| <= 1}.
    tightness : float
        A bound from the far side (above a minimum, below a maximum) adds tightness * span of the row's values.
    mass : (F,) float64
        |constant| + |weights| max |x| over the region: the size of an expression's rounding terms.
    """

    kind: int
    lower: np.ndarray
    upper: np.ndarray
    constant: np.ndarray
    weights: np.ndarray
    polytope: PolytopeData
    center: np.ndarray
    factor: np.ndarray
    radius: float
    tightness: float
    mass: np.ndarray


def compiled_set(kind: int, lower: np.ndarray, upper: np.ndarray, **parts: Any) -> CompiledSet:
    """A CompiledSet with every unused part empty but of the right type."""
    default: dict[str, Any] = {
        "constant": np.zeros(0), "weights": np.zeros((0, 0)), "center": np.zeros(0), "factor": np.zeros((0, 0)),
        "radius": 0.0, "tightness": 0.0,
    }  # fmt: skip
    if "polytope" not in parts:
        default["polytope"] = empty_polytope_data(np.zeros(0), np.zeros(0))
    merged = default | parts
    merged.setdefault("mass", _mass(merged))
    arrays = {name: _read_only(value) for name, value in merged.items()}
    return CompiledSet(kind=int(kind), lower=_read_only(lower), upper=_read_only(upper), **arrays)


def workspace(compiled: CompiledSet, longest: int) -> np.ndarray:
    """Scratch of the kernels that bound rows of at most ``longest`` successors: two rows to sort, two vectors."""
    return np.empty((4, max(longest, compiled.weights.shape[1])))


def _mass(parts: dict) -> np.ndarray:
    """|constant| + |weights| max |x|, from the box of the polytope or the ellipsoid."""
    constant, weights, polytope = parts["constant"], parts["weights"], parts["polytope"]
    reach = polytope.reach
    if not len(reach) and len(parts["center"]):
        extent = np.sqrt(np.square(parts["factor"]).sum(axis=1))
        reach = (np.abs(parts["center"]) + parts["radius"] * extent) * (1.0 + 1e-9)
    return np.abs(constant) + np.abs(weights) @ reach if len(constant) else np.zeros(0)


def _read_only(value: Any) -> Any:
    """Arrays as contiguous read-only floats, so that the kernels are compiled for one kind of argument."""
    if not isinstance(value, np.ndarray):
        return value
    array = np.ascontiguousarray(value, dtype=np.float64).view()
    array.setflags(write=False)
    return array
