"""The ladder with its zones, the customer on it, and the way they came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import (
    BLUE,
    FAINT,
    GREEN,
    GRID,
    INK,
    ORANGE,
    PURPLE,
    RED,
    WHITE,
    YELLOW,
    Canvas,
    Color,
    Point,
)
from rpl_envs.rendering.scene import columns, window

NAMES = ("none", "light", "medium", "aggressive")
ACTION_COLORS: tuple[Color, ...] = (FAINT, BLUE, ORANGE, RED)
RUNGS = 15  # rungs of the ladder that are drawn


class EngagementRenderer:
    """Left: the ladder around the customer. Right: the level over the steps."""

    def __init__(self, L: int):
        self.L = L

    def zone(self, level: int) -> tuple[str, Color]:
        if level <= 0:
            return "churn", RED
        if level >= self.L:
            return "purchase", GREEN
        if level <= 3:
            return "cold", BLUE
        return ("hot", ORANGE) if level >= self.L - 2 else ("warm", YELLOW)

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        canvas = Canvas(640, 400)
        v = columns(pmdp, states)
        level = int(v["e"][-1])
        canvas.text((24, 14), f"Engagement {self.L}", size=10)
        status, color = self._status(v)
        canvas.text((616, 14), status, color, 10, "right")
        self._ladder(canvas, level)
        self._history(canvas, v["e"])
        pending, last = int(v["pending"][-1]), int(v["last"][-1])
        for k, (label, action) in enumerate((("chosen", pending), ("last", last))):
            x = 226 + 168 * k
            width = canvas.text((x, 374), label, FAINT, 8)
            canvas.text((x + width + 8, 374), NAMES[action], ACTION_COLORS[action], 8)
        canvas.text((534, 374), "cool", FAINT, 8)
        for k in range(2):
            canvas.rect(572 + 14 * k, 373, 583 + 14 * k, 384, PURPLE if k < int(v["cool"][-1]) else GRID)
        return canvas.array()

    def _ladder(self, canvas: Canvas, level: int) -> None:
        left, right, bottom, pitch = 62, 150, 372, 22
        low, high = window(level, 0, self.L, RUNGS)
        for rung in range(low, high + 1):
            y = bottom - (rung - low) * pitch
            name, color = self.zone(rung)
            canvas.rect(left - 12, y - pitch / 2, right + 12, y + pitch / 2, color, 0.22)
            canvas.line((left, y), (right, y), INK, 3)
            canvas.text((left - 20, y - 4), str(rung), INK if rung == level else FAINT, 8, "right")
            if rung in (0, self.L):
                canvas.text(((left + right) / 2, y - 13 if rung == 0 else y + 6), name, color, 7, "center")
        top = bottom - (high - low) * pitch - pitch / 2
        for x in (left, right):
            canvas.line((x, bottom + pitch / 2 - 2), (x, top + 2), INK, 4)
        y = bottom - (level - low) * pitch
        middle = (left + right) / 2
        for color, extra in ((WHITE, 3.0), (PURPLE, 0.0)):  # a person standing on the rung, with a halo
            canvas.disc((middle, y - 29), 6 + extra / 2, color)
            canvas.line((middle, y - 22), (middle, y - 11), color, 5 + extra)
            for side in (-1, 1):
                canvas.line((middle, y - 20), (middle + 9 * side, y - 14), color, 3 + extra)
                canvas.line((middle, y - 11), (middle + 6 * side, y - 3), color, 3.5 + extra)

    def _history(self, canvas: Canvas, levels: np.ndarray) -> None:
        left, right, top, bottom = 226, 600, 52, 344
        steps = max(len(levels) - 1, 30)
        most = min(self.L, max(RUNGS, int(1.5 * levels.max())))  # the levels of interest; all of them once it climbs

        def at(step: float, level: float) -> Point:
            return left + (right - left) * step / steps, bottom - (bottom - top) * (level + 0.5) / (most + 1)

        for level in range(most + 1):
            canvas.rect(left, at(0, level + 0.5)[1], right, at(0, level - 0.5)[1], self.zone(level)[1], 0.22)
        for level in sorted({0, 2, most // 2, most}):
            name, color = self.zone(level)
            canvas.text((right - 8, at(0, level)[1] - 4), name, FAINT if name == "warm" else color, 8, "right")
            canvas.text((left - 8, at(0, level)[1] - 4), str(level), FAINT, 8, "right")
        for step in (0, steps // 2, steps):
            canvas.text((at(step, 0)[0], bottom + 8), str(step), FAINT, 8, "center")
        points = [at(k, e) for k, e in enumerate(levels.tolist())]
        canvas.path(points, PURPLE, 2.2)
        canvas.disc(points[-1], 5.5, WHITE)
        canvas.disc(points[-1], 4.5, PURPLE)
        canvas.frame(left, top, right, bottom, GRID)

    def _status(self, v: dict[str, np.ndarray]) -> tuple[str, Color]:
        level = int(v["e"][-1])
        if level in (0, self.L):
            name, color = self.zone(level)
            return name.upper(), color
        return f"level {level} ({self.zone(level)[0]}), step {len(v['e']) - 1}", FAINT

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        v = columns(pmdp, states)
        level = int(v["e"][-1])
        low, high = window(level, 0, self.L, 61)
        marks = {"churn": "X", "cold": "c", "warm": "w", "hot": "h", "purchase": "$"}
        ladder = "".join("@" if rung == level else marks[self.zone(rung)[0]] for rung in range(low, high + 1))
        chosen, last, cool = NAMES[int(v["pending"][-1])], NAMES[int(v["last"][-1])], int(v["cool"][-1])
        return f"{low} {ladder} {high}\n{self._status(v)[0]}   chosen {chosen}   last {last}   cool {cool}"
