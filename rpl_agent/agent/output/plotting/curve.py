"""A picture of a certified curve: boxes of policies, and where no policy can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

#: margin around what is drawn, as a share of its size
MARGIN = 0.12


def plot_curve(curve: Any, path: str | Path) -> None:
    """Write the picture of an `ObjectiveCurve` to a file."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon, Rectangle

    signs = curve.signs
    corners = np.array([[p.lower, p.upper] for p in curve.points])  # (n, 2, 2): end, objective
    shown = corners.reshape(-1, 2)[np.isfinite(corners.reshape(-1, 2)).all(axis=1)]
    low, high = shown.min(axis=0), shown.max(axis=0)
    room = MARGIN * np.maximum(high - low, 1e-9)
    low, high = low - room, high + room
    figure = Figure(figsize=(6.4, 4.8), dpi=120, layout="constrained")
    axes: Any = figure.add_subplot()
    allowed = _clipped([(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])], curve, signs)
    axes.set_facecolor("0.88")
    axes.add_patch(Polygon(allowed, closed=True, facecolor="white", edgecolor="#1c7ed6", linewidth=1.0))
    for point in curve.points:
        if np.isfinite([point.lower, point.upper]).all():
            size = np.subtract(point.upper, point.lower)
            axes.add_patch(
                Rectangle(point.lower, *size, facecolor="#d9480f", alpha=0.35, linewidth=0.6, edgecolor="#d9480f")
            )
    estimates = np.array([p.estimate for p in curve.points])
    axes.plot(estimates[:, 0], estimates[:, 1], ".", color="#862e09", markersize=4, label="policies, at the estimate")
    axes.add_patch(Rectangle((np.nan, np.nan), 0, 0, facecolor="#d9480f", alpha=0.35, label="their certified values"))
    axes.add_patch(Rectangle((np.nan, np.nan), 0, 0, facecolor="0.88", label="no policy is here"))
    first, second = (objective.describe() for objective in curve.objectives)
    axes.set(xlabel=first, ylabel=second, xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_title(f"{curve.model}, δ = {curve.delta:g}, {curve.samples:,} transitions", fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(path)


def _clipped(polygon: list[tuple[float, float]], curve: Any, signs: np.ndarray) -> list[tuple[float, float]]:
    """The part of a convex polygon in which every half plane of the curve holds."""
    for plane in curve.half_planes:
        normal = signs * np.array(plane.weights)
        kept: list[tuple[float, float]] = []
        for one, other in zip(polygon, polygon[1:] + polygon[:1]):
            a, b = plane.most - normal @ one, plane.most - normal @ other
            if a >= 0.0:
                kept.append(one)
            if (a < 0.0) != (b < 0.0):
                share = a / (a - b)
                kept.append((one[0] + share * (other[0] - one[0]), one[1] + share * (other[1] - one[1])))
        polygon = kept
        if not polygon:
            return [(np.nan, np.nan)]
    return polygon
