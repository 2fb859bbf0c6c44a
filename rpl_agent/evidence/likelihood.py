"""The joint likelihood region: valid at every time, under any adaptive sampling, without a union bound over Λ.

Data enter only through K_f, the number of observed transitions labelled f. For a window of steps (s, t],

    g(v) = −Σ_f K_f ln f[v],     Q = ∫ e^{−g} dW,     M_t(v) = Q / e^{−g(v)},

where W is a (sub-)probability on the domain that depends only on data up to s. Under the truth u every
one-step likelihood ratio has conditional mean at most 1 whatever the sampling policy does, hence M_t(u)
is a non-negative supermartingale that starts at 1 (before s it *is* 1). A fixed average Σ_j w_j M_j(u) over
windows with different starts s_j, w_j decided no later than s_j and Σ w_j ≤ 1, is one as well, and by
Ville's inequality

    P(∃ t : Σ_j w_j M_{j,t}(u) ≥ 1/α) ≤ α.

So C = {v : ln Σ_j w_j Q_j e^{g_j(v)} ≤ ln 1/α} contains u at all times together with probability ≥ 1 − α.
Averaging costs less than splitting α over the windows: α_j = α w_j gives the intersection of
{w_j M_j < 1/α}, which contains C. Leaving windows out, or a lower bound for a Q_j, makes C larger: sound.

docs/guarantees.md has the theorem with its proof. Modules: `likelihood_map` (points), `likelihood_expansion`
(the likelihood around them), `likelihood_mixture` (bounds on ln Q), `likelihood_set` (C and its outer approximations).
"""

from __future__ import annotations

import weakref

import numpy as np

from rpl_agent.evidence.counts import Counts, Mark
from rpl_agent.evidence.likelihood_expansion import expand
from rpl_agent.evidence.likelihood_map import Chart, Fit, domain_chart, fit
from rpl_agent.evidence.likelihood_mixture import Gaussian, Uniform, bounding_box, log_mixture
from rpl_agent.evidence.likelihood_set import LevelSet, recentred
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.remember import per_model
from rpl_agent.model.unused import used_parameters, without_unused

#: Inflation of the prior covariance: costs 0.008 nats per dimension on average and damps bad luck by a sixth; the
#: average over windows damps it further.
KAPPA = 1.2
#: Share of δ for the anytime interval polytope that the region is intersected with: it matters for small data only.
INTERVAL_SHARE = 0.03
#: Above this rank the region is left to the intervals: cuts and ellipsoids are dense there.
MAX_RANK = 64
#: Up to so many parameters the domain's vertices are enumerated to project it.
MAX_PROJECTED = 8
#: Windows that start before this fraction of the data pay too much for their vague prior to matter.
EARLIEST, LATEST = 1e-3, 0.9


def supports(pmdp: ParametricMDP) -> bool:
    """Whether the region is built for this model (decided by the model alone, never by data)."""
    return 0 < pmdp.table.reduction.rank <= MAX_RANK and chart_of(pmdp).has_interior


def split_fraction(pmdp: ParametricMDP) -> float:
    """The share of planned data after which to call `Counts.mark` (offline, one window).

    Asymptotically the squared width is proportional to (2 ln 1/δ + d ln 1/s + d) / (1 − s), the window's
    regret over the information that is left: 6 % in one dimension, 14 % in four. What the domain itself
    tells about the parameters moves the measured optimum of the benchmarks down a little.
    """
    return min(0.06 + 0.01 * _mixture_dimension(pmdp), 0.2)


def _mixture_dimension(pmdp: ParametricMDP) -> int:
    return pmdp.table.reduction.rank if pmdp.table.is_affine else int(used_parameters(pmdp.table).sum())


def chart_of(pmdp: ParametricMDP) -> Chart:
    """The coordinates in which the mixtures live, cached with the model.

    Affine models whose parameters are not all identifiable: the reduced coordinates x, over the exact
    projection of the domain where that is cheap (one coordinate, or few parameters).
    """
    return per_model(pmdp, "likelihood chart", _chart_of)


def _chart_of(pmdp: ParametricMDP) -> Chart:
    pmdp = without_unused(pmdp)
    reduction, domain = pmdp.table.reduction, pmdp.domain
    if not pmdp.table.is_affine or reduction.is_identity:
        return domain_chart(pmdp)
    matrix = np.asarray(reduction.matrix)
    if reduction.rank == 1:
        A, b = domain.constraints()
        ends = []
        gradient = matrix[0] @ reduction.exponents
        from scipy.optimize import linprog  # half a second of import that most models do not need

        for sign in (1.0, -1.0):
            result = linprog(sign * gradient, A_ub=A, b_ub=b, bounds=[(None, None)] * len(gradient), method="highs")
            ends.append(float(gradient @ result.x))
        vertices = np.array(ends)[:, None]
    elif domain.dimension <= MAX_PROJECTED:
        from scipy.spatial import HalfspaceIntersection

        A, b = domain.constraints()
        corners = HalfspaceIntersection(np.hstack([A, -b[:, None]]), domain.center()).intersections
        vertices = reduction.coordinates(corners)
    else:
        return domain_chart(pmdp)
    return _hull_chart(vertices)


def _hull_chart(vertices: np.ndarray) -> Chart:
    """Chart of the convex hull of points x (n, r), a hair inside so that every point of it is a parameter."""
    if vertices.shape[1] == 1:
        A, b = np.array([[1.0], [-1.0]]), np.array([vertices.max(), -vertices.min()])
    else:
        from scipy.spatial import ConvexHull

        equations = ConvexHull(vertices).equations
        A, b = equations[:, :-1], -equations[:, -1]
    return Chart(A, b - 1e-9 * (1.0 + np.abs(b)), vertices.mean(axis=0))


def likelihood_set(
    pmdp: ParametricMDP, counts: Counts, alpha: float, chart: Chart, start: np.ndarray | None = None
) -> LevelSet | None:
    """C at level α from everything in ``counts``; None while no window has data.

    ``start`` warm-starts the Newton iterations of the current data; the priors, which must depend on
    nothing but the data before their mark, always start from the domain's centre.
    """
    windows = _windows(counts)
    if not windows:
        return None
    kept = np.flatnonzero((counts.successes > 0) & ~pmdp.table.is_constant)
    if not len(kept):
        return None
    constant = pmdp.table.constant[kept]
    weights = np.ascontiguousarray(_dense(pmdp.table.reduction.weights[kept]))
    total = counts.successes[kept].astype(float)
    overall = fit(constant, weights, total, chart, start)
    matrix = np.array([total if mark is None else total - mark.successes[kept] for mark, _ in windows])
    expansion = expand(constant, weights, matrix, chart, overall)
    offsets = np.array([
        np.log(weight)
        + log_mixture(
            per_model(chart, "uniform prior", _uniform) if mark is None else window_prior(pmdp, mark, chart),
            constant, weights, matrix[j], chart, overall, expansion, j,
        )
        for j, (mark, weight) in enumerate(windows)
    ])  # fmt: skip
    useful = np.isfinite(offsets)
    if not useful.any():
        return None
    level = -np.log(alpha)
    target = LevelSet(constant, weights, matrix, offsets, level, chart, overall, kept, expansion)
    return target if useful.all() and target.center_value < level else recentred(target, useful)


def _windows(counts: Counts) -> list[tuple[Mark | None, float]]:
    """Windows worth their computation, as (start, weight); the choice may depend on anything."""
    marks = [m for m in counts.marks if m.total < counts.total]
    useful = [m for m in marks if EARLIEST <= m.total / counts.total <= LATEST] or marks[:1]
    windows: list[tuple[Mark | None, float]] = [(m, m.weight) for m in useful]
    if counts.total > 0 and (not marks or counts.total * EARLIEST < 16):
        windows.insert(0, (None, counts.origin_weight))
    return windows


_priors: weakref.WeakKeyDictionary[Mark, Fit] = weakref.WeakKeyDictionary()


def window_prior(pmdp: ParametricMDP, mark: Mark, chart: Chart) -> Gaussian:
    """W of the window that starts at ``mark``: a function of the data before it and of nothing else."""
    found = _priors.get(mark)
    if found is None:
        kept = np.flatnonzero((mark.successes > 0) & ~pmdp.table.is_constant)
        weights = np.ascontiguousarray(_dense(pmdp.table.reduction.weights[kept]))
        found = fit(pmdp.table.constant[kept], weights, mark.successes[kept].astype(float), chart)
        _priors[mark] = found
    return Gaussian(found.z, found.precision / KAPPA)


def _uniform(chart: Chart) -> Uniform:
    """Uniform prior with an upper bound on the domain's volume: its box, or its hull where that is cheap."""
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


def _dense(matrix) -> np.ndarray:
    return np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix, dtype=float)
