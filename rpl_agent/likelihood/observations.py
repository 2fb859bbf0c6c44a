"""`Observations`: the argument of every likelihood function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpl_agent._core import Struct, core
from rpl_agent.model.pmdp import ParametricMDP


@dataclass(frozen=True, eq=False)
class Observations:
    """Observed expressions f = constant_f + weights_f·x with their counts K_f; g(x) = −Σ K_f ln f[x].

    Attributes
    ----------
    constant : (n,) float64
    weights : (n, r) float64, contiguous
    counts : (n,) of one window, or (J, n) of several; real numbers, because mixtures of windows are allowed
    """

    constant: np.ndarray
    weights: np.ndarray
    counts: np.ndarray

    @cached_property
    def struct(self) -> Struct:
        """The struct passed to C."""
        n, r = self.weights.shape
        windows = 1 if self.counts.ndim == 1 else len(self.counts)
        return core.Observations(
            n=n, r=r, windows=windows, constant=self.constant, weights=self.weights, counts=self.counts
        )

    @classmethod
    def of(cls, pmdp: ParametricMDP, expressions: np.ndarray, counts: np.ndarray) -> Observations:
        """The ``expressions`` (n,) of a model in its reduced coordinates, with ``counts`` (n,) or (J, n)."""
        weights = pmdp.table.reduction.weights[expressions]
        dense = np.asarray(weights.todense() if hasattr(weights, "todense") else weights, dtype=float)
        return cls(
            pmdp.table.constant[expressions], np.ascontiguousarray(dense), np.ascontiguousarray(counts, dtype=float)
        )

    @property
    def used(self) -> Observations:
        """The expressions of one window that were observed."""
        seen = self.counts > 0
        return Observations(self.constant[seen], np.ascontiguousarray(self.weights[seen]), self.counts[seen])

    @property
    def largest(self) -> Observations:
        """Every expression with its largest count over the windows, which bounds the rounding error of all of them."""
        return self.counted(self.counts.max(axis=0))

    def counted(self, counts: np.ndarray) -> Observations:
        """The same expressions with other counts, (n,) or (J, n)."""
        return replace(self, counts=np.ascontiguousarray(counts, dtype=float))

    def window(self, j: int | np.ndarray) -> Observations:
        """The j-th of several windows, or those that a mask (J,) keeps."""
        return self.counted(self.counts[j])

    def values(self, x: np.ndarray) -> np.ndarray:
        """(n,) f[x] at one point."""
        return self.constant + self.weights @ x


def observed_expressions(pmdp: ParametricMDP, successes: np.ndarray) -> np.ndarray:
    """Ids of the observed expressions that carry information about the parameters."""
    return np.flatnonzero((successes > 0) & ~pmdp.table.is_constant)
