"""Pictures of the confidence region for TensorBoard; matplotlib is imported here and only when it is there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.regions.base import Region

if TYPE_CHECKING:
    from rpl_agent.certificate import Certificate

#: Tangents that outline a region; an outer polygon of this many sides is round to the eye.
DIRECTIONS = 72
#: A picture every time the episodes have doubled: some twenty per run, whatever its length.
GROWTH = 2.0


class RegionFigures(BaseCallback):
    """Logs ``region/outline``: two coordinates of the region, growing darker as it shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self._outlines: list[tuple[int, np.ndarray]] = []
        self._next = 0.0

    def _on_certificate(self, certificate: Certificate) -> bool:
        board, learned = self.agent.logger.tensorboard, self.agent.planner.learned
        due = self.agent.num_episodes >= self._next
        if board is None or learned is None or learned.region is None or learned.empty or not due:
            return True
        if find_spec("matplotlib") is None:
            return True
        self._next = GROWTH * self.agent.num_episodes
        self._outlines.append((self.agent.num_episodes, outline(learned.region)))
        board.figure("region/outline", draw(self._outlines, coordinate_names(self.agent.pmdp)), self.agent.num_episodes)
        return True


def outline(region: Region, first: int = 0, second: int = 1) -> np.ndarray:
    """(n, 2) corners of an outer polygon of the region's shadow; (2, 1) an interval when there is one coordinate.

    Every support bound of the region is a half-plane that contains its shadow.
    """
    if region.dimension == 1:
        low, high = region.box()
        return np.array([low, high]).reshape(2, 1)
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    directions = np.zeros((DIRECTIONS, region.dimension))
    directions[:, first], directions[:, second] = normals[:, 0], normals[:, 1]
    support = -region.minimize(-directions)
    reach = 2.0 * float(np.abs(support).max()) + 1.0
    corners = reach * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    for normal, bound in zip(normals, support):  # bounds of a best-of region need not all touch it: clip one by one
        corners = clip(corners, normal, float(bound))
    return corners


def clip(corners: np.ndarray, normal: np.ndarray, bound: float) -> np.ndarray:
    """The part (m, 2) of a convex polygon (n, 2) where normal · x ≤ bound."""
    if not len(corners):
        return corners
    height = corners @ normal - bound
    kept = []
    for here, ahead, low, high in zip(corners, np.roll(corners, -1, axis=0), height, np.roll(height, -1)):
        if low <= 0.0:
            kept.append(here)
        if (low < 0.0 < high) or (high < 0.0 < low):
            kept.append(here + (ahead - here) * (low / (low - high)))
    return np.array(kept).reshape(-1, 2)


def coordinate_names(pmdp: Any) -> tuple[str, ...]:
    """Parameter names where a coordinate is a parameter; x0, x1, … for combinations."""
    reduction = pmdp.table.reduction
    return tuple(pmdp.table.parameters) if reduction.is_identity else tuple(f"x{i}" for i in range(reduction.rank))


def draw(outlines: list[tuple[int, np.ndarray]], names: tuple[str, ...]) -> Any:
    """One figure of all outlines so far."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), dpi=90, layout="constrained")
    axes = figure.add_subplot()
    for k, (episodes, corners) in enumerate(outlines):
        shade = min(0.2 + 0.8 * (k + 1) / len(outlines), 1.0)  # rounding may pass 1
        if corners.shape[1] == 1:
            axes.plot(corners[:, 0], [episodes, episodes], color="tab:blue", alpha=shade, linewidth=3)
        else:
            closed = np.vstack([corners, corners[:1]])
            axes.plot(closed[:, 0], closed[:, 1], color="tab:blue", alpha=shade)
    if outlines[-1][1].shape[1] == 1:
        axes.set_xlabel(names[0])
        axes.set_ylabel("episodes")
        axes.set_yscale("log")
    else:
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
    axes.set_title(f"confidence region after {outlines[-1][0]:,} episodes")
    return figure
