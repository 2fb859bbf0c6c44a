"""Facts about a model that the evidence layer needs again and again: a cache, and bounds on coordinates."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from rpl_agent.model.pmdp import ParametricMDP

T = TypeVar("T")
Model = TypeVar("Model")
_cache: dict[int, tuple[weakref.ref, dict]] = {}


def per_model(model: Model, name: str, make: Callable[[Model], T]) -> T:
    """make(model), computed once for as long as the model, or the table of expressions, lives (both are frozen)."""
    key = id(model)
    entry = _cache.get(key)
    if entry is None or entry[0]() is not model:
        entry = (weakref.ref(model, lambda _: _cache.pop(key, None)), {})
        _cache[key] = entry
    if name not in entry[1]:
        entry[1][name] = make(model)
    return entry[1][name]


def coordinate_box(pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), each (r,): interval arithmetic over the parameters' bounds, rounded outward."""
    reduction, domain = pmdp.table.reduction, pmdp.domain
    exponents = reduction.exponents
    low, high = np.ones(len(exponents)), np.ones(len(exponents))
    for j in range(exponents.shape[1]):
        power = exponents[:, j]
        a, b = domain.lower[j] ** power, domain.upper[j] ** power
        # an even power of an interval around 0 begins at 0
        crosses = (domain.lower[j] < 0 < domain.upper[j]) & (power > 0) & (power % 2 == 0)
        a, b = np.where(crosses, 0.0, np.minimum(a, b)), np.maximum(a, b)
        products = np.stack([low * a, low * b, high * a, high * b])
        low, high = products.min(axis=0), products.max(axis=0)
    matrix = reduction.matrix
    middle, radius = matrix @ ((low + high) / 2), abs(matrix) @ ((high - low) / 2)
    margin = 1e-12 * (1.0 + abs(middle) + radius)
    return middle - radius - margin, middle + radius + margin
