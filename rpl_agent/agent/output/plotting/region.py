"""A picture of a confidence region U in one or two parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.model import ParametricMDP, without_unused
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.regions.base import Region, box_minimum
from rpl_agent.core.regions.intersection import Image
from rpl_agent.core.regions.lifting import linear_chart
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.parameter_region import ParameterRegion
from rpl_agent.core.relaxations.interval import affine_program, parameter_box

#: support lines around an outline, enough to look smooth
DIRECTIONS = 180
#: name and colour of the smallest box of parameters around U
PROJECTION, BOX = "parameter-wise", "#D55E00"


def plot_region(
    region: Region,
    pmdp: ParametricMDP,
    parameters: Sequence[int] = (0, 1),
    true_theta: np.ndarray | None = None,
    path: str | Path = "region.png",
) -> Path:
    """Draw U in one or two parameters, with the domain, the true point (d,) and the smallest box around U.

    Parameters
    ----------
    region : in the reduced coordinates of ``pmdp.table``.
    parameters : one or two parameter numbers.
    path : the file to write, which is returned; its suffix determines the format.
    """
    figure = region_figure(region, pmdp, parameters, true_theta)
    figure.savefig(path, dpi=130)
    return Path(path)


def region_figure(
    region: Region, pmdp: ParametricMDP, parameters: Sequence[int], true_theta: np.ndarray | None = None
) -> Any:
    """The picture of `plot_region` as a matplotlib figure."""
    parameters = [int(p) for p in parameters][:2]
    if not parameters or not all(0 <= p < pmdp.num_parameters for p in parameters):
        names = [f"{k}: {name}" for k, name in enumerate(pmdp.table.parameters)]
        raise ModelError(f"parameters {parameters} must be one or two numbers of the model's: {listed(names)}")
    if region.is_empty:
        raise ModelError("the region is empty: there is nothing to draw")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6 if len(parameters) == 2 else 2.5), layout="constrained")
    axes = figure.subplots()
    if len(parameters) == 1:
        _draw_line(axes, region, pmdp, parameters[0], true_theta)
    else:
        _draw_plane(axes, region, pmdp, parameters, true_theta)
    axes.legend(loc="best", fontsize="small")
    axes.set_title(f"{pmdp.name}: confidence region")
    return figure


def outline(region: Region | None, pmdp: ParametricMDP, parameters: Sequence[int]) -> np.ndarray:
    """(m, 2) corners of a polygon around the projection of a region (None: the domain) to two parameters."""
    angles = np.linspace(0.0, 2.0 * np.pi, DIRECTIONS, endpoint=False) + 1e-3
    plane = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    directions = np.zeros((DIRECTIONS, pmdp.num_parameters))
    directions[:, list(parameters)] = plane
    return polygon(-plane, -parameter_support(region, pmdp, directions))


def polygon(normals: np.ndarray, support: np.ndarray) -> np.ndarray:
    """(m, 2) corners of {x : n·x ≤ b for each normal (n, 2) and b (n,)}.

    Bounds of a best-of region need not all touch it, so half-planes are clipped one by one.
    """
    reach = 2.0 * float(np.abs(support).max()) + 1.0
    corners = reach * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    for normal, bound in zip(normals, support):
        corners = clip(corners, normal, float(bound))
    return corners


def clip(corners: np.ndarray, normal: np.ndarray, bound: float) -> np.ndarray:
    """The part (m, 2) of a convex polygon (n, 2) where normal · x ≤ bound."""
    height = corners @ normal - bound
    kept = []
    for here, ahead, low, high in zip(corners, np.roll(corners, -1, axis=0), height, np.roll(height, -1)):
        if low <= 0.0:
            kept.append(here)
        if (low < 0.0 < high) or (high < 0.0 < low):
            kept.append(here + (ahead - here) * (low / (low - high)))
    return np.array(kept).reshape(-1, 2)


def parameter_support(region: Region | None, pmdp: ParametricMDP, directions: np.ndarray) -> np.ndarray:
    """Lower bounds (n,) on c·θ over the region for directions c (n, d); over the domain if None."""
    table, domain = pmdp.table, pmdp.domain
    values = LinearProgram(domain.A, domain.b, domain.lower, domain.upper).minimize(directions)
    if region is None:
        return values
    if table.reduction.is_identity:
        return np.maximum(values, region.minimize(directions))
    if table.is_affine:
        return np.maximum(values, affine_program(region, pmdp).minimize(directions))
    smaller, used = without_unused(pmdp), used_parameters(table)
    if smaller is not pmdp:  # the region's coordinates are those of the used parameters
        rest = box_minimum(np.ascontiguousarray(directions[:, ~used]), domain.lower[~used], domain.upper[~used])
        return np.maximum(values, parameter_support(region, smaller, directions[:, used]) + rest)
    if isinstance(region, ParameterRegion):
        return np.maximum(values, region.minimize(directions))
    for member in getattr(region, "members", [region]):
        inner = member.inner if isinstance(member, Image) else member
        if isinstance(member, Image) or linear_chart(table).is_identity:  # coordinates that begin with the parameters
            padded = np.zeros((len(directions), inner.dimension))
            padded[:, : directions.shape[1]] = directions
            values = np.maximum(values, inner.minimize(padded))
    return values


def _draw_plane(
    axes: Any, region: Region, pmdp: ParametricMDP, parameters: Sequence[int], true_theta: np.ndarray | None
) -> None:
    from matplotlib.patches import Polygon, Rectangle

    names = pmdp.table.parameters
    i, j = parameters
    domain, corners = outline(None, pmdp, parameters), outline(region, pmdp, parameters)
    axes.add_patch(Polygon(domain, facecolor="#EEEEEE", edgecolor="#999999", label="domain"))
    axes.add_patch(Polygon(corners, facecolor="#56B4E9", edgecolor="#0072B2", alpha=0.8, label="U"))
    lower, upper = (end[[i, j]] for end in parameter_box(region, pmdp))
    size = (upper - lower).tolist()
    axes.add_patch(Rectangle(tuple(lower), *size, fill=False, edgecolor=BOX, linestyle="--", label=PROJECTION))
    shown = [corners, lower[None], upper[None]]
    if true_theta is not None:
        axes.plot(true_theta[i], true_theta[j], "k*", markersize=12, label="truth")
        shown.append(np.array([[true_theta[i], true_theta[j]]]))
    points = np.vstack(shown)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.25 * np.maximum(high - low, 1e-6)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
    axes.set_xlabel(names[i])
    axes.set_ylabel(names[j])


def _draw_line(axes: Any, region: Region, pmdp: ParametricMDP, parameter: int, true_theta: np.ndarray | None) -> None:
    direction = np.zeros((2, pmdp.num_parameters))
    direction[:, parameter] = (1.0, -1.0)
    ends = [parameter_support(r, pmdp, direction) * (1.0, -1.0) for r in (None, region)]
    box = np.array([end[parameter] for end in parameter_box(region, pmdp)])
    bars = {"domain": (ends[0], "#999999"), "U": (ends[1], "#0072B2"), PROJECTION: (box, BOX)}
    for height, (name, (span, colour)) in enumerate(bars.items()):
        axes.plot(span, [height, height], color=colour, linewidth=6, solid_capstyle="butt", label=name)
    if true_theta is not None:
        axes.axvline(true_theta[parameter], color="black", linestyle=":", label="truth")
    axes.set_yticks([])
    axes.set_xlabel(pmdp.table.parameters[parameter])
