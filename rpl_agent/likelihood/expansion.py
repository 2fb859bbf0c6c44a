"""Taylor expansions of the windows' negative log-likelihoods g_j at one point, with bounds on the remainder.

With e_f = b_f·(x' − x), b_f the gradient of ln f at x, g(x') = g(x) − Σ K_f ln(1 + e_f). `mixture` bounds g
at particles with it; `level_set` uses it to guess the boundary of C.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent._core import Struct, core
from rpl_agent.likelihood.chart import ParameterChart
from rpl_agent.likelihood.fit import Fit, inverse_factor
from rpl_agent.likelihood.observations import Observations

#: Expand up to this rank (there are rank³ coefficients). Particles count up to this squared distance from
#: the centre in units of the information, and expansions are used if they bound the likelihood of all of these.
EXPANDED_RANK = 6
EXPANDED = 20.0


@dataclass(frozen=True)
class LikelihoodExpansion:
    """Taylor coefficients at x of g_j for J windows, with bounds on the remainder.

    Attributes
    ----------
    value (J,), linear (J, r), quadratic (J, r, r), cubic (J, r, r, r) : as `expand_likelihoods` writes them
    metric (r, r), ratio : (x'−x)'metric(x'−x) · ratio ≥ (f[x']/f[x] − 1)² for every expression f
    near (k, k) : the metric at the centre in the chart's coordinates z
    error : bound on the rounding error of every g_j at x
    drift : (r,) bound on the rounding error of the expansion per unit of |x' − x|
    """

    x: np.ndarray
    value: np.ndarray
    linear: np.ndarray
    quadratic: np.ndarray
    cubic: np.ndarray
    metric: np.ndarray
    near: np.ndarray
    ratio: float
    error: float
    drift: np.ndarray

    @cached_property
    def struct(self) -> Struct:
        """The struct passed to C."""
        windows, r = self.linear.shape
        fields = {name: value for name, value in vars(self).items() if name != "error"}
        return core.LikelihoodExpansion(windows=windows, r=r, reach=self.reach, **fields)

    @property
    def reach(self) -> float:
        """Largest (x'−x)'metric(x'−x) at which a particle counts; the metric sums the information of all windows."""
        return EXPANDED * len(self.value)

    @property
    def spread(self) -> float:
        """Bound on |f[x']/f[x] − 1| within reach: how far the likelihood is from a Gaussian."""
        return float(np.sqrt(self.ratio * self.reach))


def expand(observed: Observations, chart: ParameterChart, center: Fit) -> LikelihoodExpansion | None:
    """Expansions of all windows at the centre; None if they would cost more than they save."""
    (n, r), x = observed.weights.shape, center.x
    if r > EXPANDED_RANK:
        return None
    windows = len(observed.counts)
    value, linear, size = np.empty(windows), np.empty((windows, r)), np.empty(r)
    quadratic, cubic = np.empty((windows, r, r)), np.empty((windows, r, r, r))
    core.expand_likelihoods(observed.struct, x, np.empty(r + windows), value, linear, quadratic, cubic, size)
    metric = quadratic.sum(axis=0)
    # Directions in which no expression varies: any positive number will do.
    metric.flat[:: r + 1] += 1e-9 * np.trace(metric) / r
    factor = _root(metric)
    ratio = np.inf if factor is None else 1.01 * core.largest_ratio(observed.struct, x, factor)
    error = rounding(observed.largest, x)
    drift = 4.0 * np.finfo(float).eps * (n + 16.0) * size
    jacobian = chart.jacobian(center.z)
    near = metric if jacobian is None else np.ascontiguousarray(jacobian.T @ metric @ jacobian)
    return LikelihoodExpansion(x, value, linear, quadratic, cubic, metric, near, ratio, error, drift)


def _root(metric: np.ndarray) -> np.ndarray | None:
    """L with |L b|² ≥ 0.995 b' metric⁻¹ b; None if rounding prevents it."""
    try:
        factor = inverse_factor(metric)
    except np.linalg.LinAlgError:
        return None
    return factor if core.factor_defect(len(metric), metric, factor, np.empty(2 * len(metric))) < 4e-3 else None


def rounding(observed: Observations, x: np.ndarray) -> float:
    """Bound on the floating-point error of g near x (nats), with room to spare.

    Relative error of f: its summands' rounding over f. Of the sum of n terms: n units of Σ K|ln f|.
    """
    return (8.0 + len(observed.counts)) * np.finfo(float).eps * core.rounding_size(observed.struct, x) + 1e-9
