"""`Observations`: what a likelihood is a function of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpl_agent.model.pmdp import ParametricMDP


class Observations(NamedTuple):
    """Observed expressions f = constant_f + weights_f·x with their counts K_f; g(x) = −Σ K_f ln f[x].

    Its fields in this order are the first arguments of every kernel, so compiled code takes ``*observations``.

    Attributes
    ----------
    constant : (n,) float64
    weights : (n, r) float64, contiguous
    counts : (n,) of one window, or (J, n) of several; real numbers, because mixtures of windows are allowed
    """

    constant: np.ndarray
    weights: np.ndarray
    counts: np.ndarray

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
        """Those of one window that were seen."""
        seen = self.counts > 0
        return Observations(self.constant[seen], np.ascontiguousarray(self.weights[seen]), self.counts[seen])

    @property
    def largest(self) -> Observations:
        """Every expression with the largest of its windows' counts: what bounds the rounding of all of them."""
        return self._replace(counts=self.counts.max(axis=0))

    def window(self, j: int | np.ndarray) -> Observations:
        """The j-th of several windows, or those that a mask (J,) keeps."""
        return self._replace(counts=self.counts[j])

    def values(self, x: np.ndarray) -> np.ndarray:
        """(n,) f[x] at one point."""
        return self.constant + self.weights @ x


def observed_expressions(pmdp: ParametricMDP, successes: np.ndarray) -> np.ndarray:
    """Ids of the expressions that were seen and say something about the parameters."""
    return np.flatnonzero((successes > 0) & ~pmdp.table.is_constant)
