"""Draw the answer to a region question in one or two parameters: the values, or where a comparison holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.coupled.boxes import BoxBounds
from rpl_agent.core.coupled.region import EVERYWHERE, Partition, RegionSolution
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain
from rpl_agent.core.printed import FEW, ceil_text, floor_text

#: points of a curve, and of each side of a map
CURVE, GRID = 81, 25
#: colours where the comparison fails, is undecided, and holds: distinguishable without red and green
COLOURS = {-1: "#D55E00", 0: "#DDDDDD", 1: "#56B4E9"}
NAMES = {-1: "fails", 0: "not decided", 1: "holds"}


@dataclass(frozen=True)
class ValuePicture:
    """The content of a picture."""

    solution: RegionSolution
    complement: bool = False  # whether the property's value is 1 minus that of the solution
    question: tuple[str, float] | None = None  # a comparison of the property's value, such as ("<=", 0.3)
    answer: str | None = None  # where it holds
    parts: Partition | None = None  # where it holds, box by box; None if the answer is the same everywhere

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds on the property's value."""
        low, high = self.solution.lower, self.solution.upper
        return (1.0 - high, 1.0 - low) if self.complement else (low, high)


def shown_parameters(region: Domain) -> np.ndarray:
    """(1,) or (2,) the parameters that vary in a region; an error if none or more than two do."""
    free = np.flatnonzero(region.upper > region.lower)
    if not 1 <= len(free) <= 2:
        raise ModelError(
            f"a picture needs one or two parameters that vary, not {len(free)}: fix others by --param NAME=VALUE"
        )
    return free


def plot_values(picture: ValuePicture, path: str | Path) -> Path:
    """Draw the property's value over the region, and where its comparison holds.

    Returns the path of the file; its suffix determines the format.
    """
    free = shown_parameters(picture.solution.region)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4 if len(free) == 1 else 5.5), layout="constrained")
    axes = figure.subplots()
    if len(free) == 1:
        _draw_curve(axes, picture, int(free[0]))
    else:
        _draw_map(figure, axes, picture, free)
    axes.set_title(_title(picture), fontsize="medium")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize="small")
    figure.savefig(path, dpi=130)
    return Path(path)


def _title(picture: ValuePicture) -> str:
    name = ("1 − " if picture.complement else "") + picture.solution.objective.describe()
    text = f"{name}: {floor_text(picture.ends[0], FEW)} to {ceil_text(picture.ends[1], FEW)}"
    if picture.question is None:
        return text
    return f"{text}\n{picture.question[0]} {picture.question[1]:.6g}: {picture.answer}"


def _values(picture: ValuePicture, points: np.ndarray) -> np.ndarray:
    """(n,) the property's value at points (n, d), NaN outside the region."""
    solution = picture.solution
    bounds = BoxBounds(solution.pmdp, solution.objective, solution.region)
    found = np.array([bounds.value(p) if solution.region.contains(p) else np.nan for p in points])
    return 1.0 - found if picture.complement else found


def _draw_curve(axes: Any, picture: ValuePicture, j: int) -> None:
    region = picture.solution.region
    points = np.tile(region.lower, (CURVE, 1))
    points[:, j] = np.linspace(region.lower[j], region.upper[j], CURVE)
    axes.plot(points[:, j], _values(picture, points), color="black", label="value")
    axes.axhspan(*picture.ends, color="#F0E442", alpha=0.25, label="bounds")
    if picture.question is not None:
        axes.axhline(picture.question[1], color="#CC79A7", linestyle="--", label="threshold")
        for lower, upper, holds in _boxes(picture):
            axes.axvspan(lower[j], upper[j], color=COLOURS[holds], alpha=0.3, linewidth=0)
    axes.set_xlabel(region.parameters[j])


def _draw_map(figure: Any, axes: Any, picture: ValuePicture, free: np.ndarray) -> None:
    from matplotlib.patches import Rectangle

    region, (i, j) = picture.solution.region, free.tolist()
    x, y = (np.linspace(region.lower[k], region.upper[k], GRID) for k in (i, j))
    points = np.tile(region.lower, (GRID * GRID, 1))
    points[:, i], points[:, j] = np.tile(x, GRID), np.repeat(y, GRID)
    heights = _values(picture, points).reshape(GRID, GRID)
    if picture.question is None:
        figure.colorbar(axes.contourf(x, y, np.ma.masked_invalid(heights), levels=16), ax=axes, label="value")
    else:
        names = dict(NAMES)  # each once in the legend
        for lower, upper, holds in _boxes(picture):
            size = (upper[i] - lower[i], upper[j] - lower[j])
            patch = Rectangle((lower[i], lower[j]), *size, facecolor=COLOURS[holds], edgecolor="white", linewidth=0.2)
            patch.set_label(names.pop(holds, ""))
            axes.add_patch(patch)
        level = picture.question[1]
        if np.nanmin(heights) < level < np.nanmax(heights):
            axes.contour(x, y, np.ma.masked_invalid(heights), levels=[level], colors="black", linewidths=1)
    least, most = picture.solution.least, picture.solution.most
    if picture.complement:
        least, most = most, least
    for name, point, marker in (("least", least, "v"), ("largest", most, "^")):
        axes.plot(point.theta[i], point.theta[j], marker, color="black", label=f"{name} value met", clip_on=False)
    axes.set_xlim(region.lower[i], region.upper[i])
    axes.set_ylim(region.lower[j], region.upper[j])
    axes.set_xlabel(region.parameters[i])
    axes.set_ylabel(region.parameters[j])


def _boxes(picture: ValuePicture) -> list[tuple[np.ndarray, np.ndarray, int]]:
    if picture.parts is not None:
        return list(zip(picture.parts.lower, picture.parts.upper, picture.parts.holds.tolist()))
    region = picture.solution.region
    return [(region.lower, region.upper, 1 if picture.answer == EVERYWHERE else -1)]
