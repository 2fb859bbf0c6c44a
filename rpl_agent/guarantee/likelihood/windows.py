"""The windows of the data, their priors, and the level set of their mixture.

The prior of a window is a function of the data before the window and of nothing else; the choice of windows
worth computing may depend on anything (see the package docstring).
"""

from __future__ import annotations

import weakref

import numpy as np

from rpl_agent.core.evidence.counts import Counts, Mark
from rpl_agent.core.model import ParametricMDP, cached_fact, cached_on
from rpl_agent.guarantee.likelihood.chart import Fit, ParameterChart, fit, parameter_chart
from rpl_agent.guarantee.likelihood.level_set import LevelSet, recentred
from rpl_agent.guarantee.likelihood.mixture import Gaussian, Uniform, bounding_box, expand, log_mixture

#: Inflation of the prior covariance: costs 0.008 nats per dimension on average and damps bad luck by a sixth;
#: averaging over windows damps it further.
KAPPA = 1.2
#: Above this rank only intervals are used: cuts and ellipsoids would be dense.
MAX_RANK = 64
#: Windows that start before this fraction of the data have too vague a prior to matter.
EARLIEST, LATEST = 1e-3, 0.9


def supports(pmdp: ParametricMDP) -> bool:
    """Whether the region is built for this model (decided by the model alone, never by data)."""
    if pmdp.table.is_affine and not 0 < pmdp.table.reduction.rank <= MAX_RANK:
        return False
    return parameter_chart(pmdp).has_interior


def likelihood_set(
    counts: Counts, alpha: float, chart: ParameterChart, start: np.ndarray | None = None
) -> LevelSet | None:
    """C at level α from all of ``counts``; None while no window has data.

    ``start`` warm-starts the Newton iterations of the current data; the priors, which must depend on
    nothing but the data before their mark, always start from the domain's centre.
    """
    windows = _windows(counts)
    if not windows:
        return None
    seen = chart.form_counts(counts.successes)
    kept = chart.observed(seen)
    if not len(kept):
        return None
    before = [np.zeros(len(kept)) if mark is None else chart.form_counts(mark.successes)[kept] for mark, _ in windows]
    overall = fit(chart.observations(kept, seen[kept]), chart, start)
    observed = chart.observations(kept, seen[kept] - np.array(before))
    expansion = expand(observed, chart, overall)
    offsets = np.array(
        [
            np.log(weight)
            + log_mixture(
                uniform_prior(chart) if mark is None else window_prior(mark, chart),
                observed.window(j),
                chart,
                overall,
                expansion,
                j,
            )
            for j, (mark, weight) in enumerate(windows)
        ]
    )
    useful = np.isfinite(offsets)
    if not useful.any():
        return None
    level = -np.log(alpha)
    target = LevelSet(observed, offsets, level, chart, overall, kept, expansion)
    return target if useful.all() and target.center_value < level else recentred(target, useful)


def _windows(counts: Counts) -> list[tuple[Mark | None, float]]:
    """Windows worth computing, as (start, weight); the choice may depend on anything."""
    marks = [m for m in counts.marks if m.total < counts.total and m.weight > 0.0]
    useful = [m for m in marks if EARLIEST <= m.total / counts.total <= LATEST] or marks[:1]
    windows: list[tuple[Mark | None, float]] = [(m, m.weight) for m in useful]
    if counts.total > 0 and (not marks or counts.total * EARLIEST < 16):
        windows.insert(0, (None, counts.origin_weight))
    return windows


def window_prior(mark: Mark, chart: ParameterChart) -> Gaussian:
    """W of the window that starts at ``mark``: a function of the data before it and of nothing else."""
    priors: weakref.WeakKeyDictionary[Mark, Fit] = cached_on(chart, "priors", lambda _: weakref.WeakKeyDictionary())
    found = priors.get(mark)
    if found is None:
        found = priors[mark] = fit(chart.seen(mark.successes), chart)
    return Gaussian(found.z, found.precision / KAPPA)


@cached_fact
def uniform_prior(chart: ParameterChart) -> Uniform:
    """Uniform prior with an upper bound on the domain's volume: that of its box, or of its hull where cheap."""
    low, high = bounding_box(chart)
    log_volume = float(np.log(high - low).sum())
    if 2 <= chart.dimension <= 5 and len(chart.b) <= 200:
        from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

        try:
            halves = HalfspaceIntersection(np.hstack([chart.A, -chart.b[:, None]]), chart.start)
            log_volume = min(log_volume, float(np.log(ConvexHull(halves.intersections).volume)) + 1e-6)
        except (QhullError, ValueError):
            pass  # the box bounds the volume
    return Uniform(log_volume)
