"""What TensorBoard shows beside the curves: the guarantee in words, the region, the policy on its world, the settings.

Pictures need matplotlib, which is imported only when it is there.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.schedule import schedule_to_dict
from rpl_agent.model import without_unused
from rpl_agent.plotting import policy_map
from rpl_agent.plotting.region import polygon
from rpl_agent.regions.base import Region

if TYPE_CHECKING:
    from rpl_agent.certificate import Certificate

#: Tangents that outline a region; an outer polygon of this many sides is round to the eye.
DIRECTIONS = 72
#: An outline every time the episodes have doubled: some twenty per run, whatever its length.
GROWTH = 2.0
#: Seconds between two pictures of them while the run goes on: drawing one takes longer than certifying.
PICTURE_SECONDS = 60.0
#: Where the outlines so far are kept, so that a resumed run goes on with them.
OUTLINES = "outlines.json"
#: What the certificate takes for granted; the docs page on guarantees has the whole of it.
ASSUMPTIONS = (
    "The model's structure is right: every transition has the probability that its polynomial gives for one and the "
    "same unknown parameter. Steps are drawn independently given state and action."
)


class TensorBoardCallback(BaseCallback):
    """Texts, pictures and settings of a run; nothing where there is no TensorBoard folder."""

    def __init__(self) -> None:
        super().__init__()
        self._outlines: list[tuple[int, np.ndarray]] = []
        self._next = 0.0
        self._drawn = time.monotonic()

    def _on_training_start(self) -> None:
        """Outlines of an earlier part of the run are kept up to where it goes on."""
        if self.agent.run_folder is None or self._outlines:
            return
        with suppress(OSError, ValueError, TypeError, IndexError):  # a picture less is not worth an error
            stored = json.loads((self.agent.run_folder / OUTLINES).read_text())
            self._outlines = [(n, np.array(c, dtype=float)) for n, c in stored if n <= self.agent.num_episodes]
            self._next = GROWTH * self._outlines[-1][0]

    def _on_certificate(self, certificate: Certificate) -> bool:
        writer = self.agent.logger.tensorboard
        if writer is not None:
            writer.text("guarantee", _guarantee_text(certificate), self.agent.num_episodes)
            self._outline()
            if time.monotonic() - self._drawn >= PICTURE_SECONDS:
                self._draw_outlines(writer)
        return True

    def _draw_outlines(self, writer: Any) -> None:
        """``region/outline``: two coordinates of the region, growing darker as it shrinks."""
        if self._outlines and find_spec("matplotlib") is not None:
            figure = draw(self._outlines, coordinate_names(self.agent.pmdp))
            writer.figure("region/outline", figure, self.agent.num_episodes)
            self._drawn = time.monotonic()

    def _outline(self) -> None:
        uncertainty, episodes = self.agent.session.planner.uncertainty, self.agent.num_episodes
        if uncertainty is None or uncertainty.region is None or uncertainty.empty or episodes < self._next:
            return
        self._next = GROWTH * episodes
        self._outlines.append((episodes, outline(uncertainty.region)))
        if self.agent.run_folder is not None:
            text = json.dumps([(n, corners.tolist()) for n, corners in self._outlines])
            with suppress(OSError):  # the disk is full: the next picture starts a new series
                (self.agent.run_folder / OUTLINES).write_text(text)

    def _on_training_end(self) -> None:
        writer, certificate, agent = self.agent.logger.tensorboard, self.agent.certificate, self.agent
        if writer is None or certificate is None:
            return
        self._draw_outlines(writer)
        estimate = None if agent.session.planner.uncertainty is None else agent.session.planner.uncertainty.estimate
        if estimate is not None and find_spec("matplotlib") is not None:
            shown = policy_map.policy_map(agent.pmdp.instantiate(estimate), certificate.policy)
            if shown is not None:
                title = f"the certified policy after {agent.num_episodes:,} episodes"
                writer.figure("policy/map", policy_map.draw(shown, title), agent.num_episodes)
        config, names = agent.session.config, ("gap", "lower", "upper")
        settings = {  # the table shows the first five by name, and then the results
            "confidence": config.confidence, "delta": config.delta, "exploration": agent.exploration,
            "model": agent.pmdp.name, "relaxation": config.relaxation, "seed": agent.session.seed,
            "weight": agent.weight, "schedule": schedule_to_dict(agent.schedule)["kind"],
        }  # fmt: skip
        metrics = [f"guarantee/{name}" for name in names if math.isfinite(getattr(certificate, name))]
        writer.hyperparameters(settings, metrics)


def _guarantee_text(certificate: Certificate) -> str:
    """The guarantee for the TEXT tab: the exact numbers, δ, and what is taken for granted."""
    return (
        f"**With probability ≥ {1 - certificate.delta:g} (δ = {certificate.delta:g}) {certificate.sentence}.**\n\n"
        f"Exact numbers (curves are smoothed and single precision): lower {certificate.lower!r}, upper "
        f"{certificate.upper!r}, gap {certificate.gap!r}.\n\n```\n{certificate}\n```\n\n{ASSUMPTIONS}"
    )


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
    return polygon(normals, -region.minimize(-directions))


def coordinate_names(pmdp: Any) -> tuple[str, ...]:
    """Parameter names where a coordinate is a parameter; x0, x1, … for combinations."""
    if not pmdp.table.is_affine:
        return without_unused(pmdp).table.parameters
    reduction = pmdp.table.reduction
    return tuple(pmdp.table.parameters) if reduction.is_identity else tuple(f"x{i}" for i in range(reduction.rank))


def draw(outlines: list[tuple[int, np.ndarray]], names: tuple[str, ...]) -> Any:
    """One figure of all outlines so far."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), dpi=90)
    axes = figure.add_axes((0.15, 0.13, 0.8, 0.77))  # a layout that fits itself draws everything twice
    for k, (episodes, corners) in enumerate(outlines):
        shade = min(0.2 + 0.8 * (k + 1) / len(outlines), 1.0)  # rounding may pass 1
        if corners.shape[1] == 1:
            axes.plot(corners[:, 0], [episodes, episodes], color="tab:blue", alpha=shade, linewidth=3)
        else:
            closed = np.vstack([corners, corners[:1]])
            axes.plot(closed[:, 0], closed[:, 1], color="tab:blue", alpha=shade)
    one = outlines[-1][1].shape[1] == 1
    axes.set_xlabel(names[0])
    axes.set_ylabel("episodes" if one else names[1])
    if one:
        axes.set_yscale("log", subs=[])  # minor ticks cost more than the rest of the picture
    axes.set_title(f"confidence region after {outlines[-1][0]:,} episodes")
    return figure
