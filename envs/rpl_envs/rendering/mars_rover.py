"""The grid with its zones and jamming, the rover, and how long it has been silent."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    WHITE,
    Canvas,
    Color,
    Point,
)
from rpl_envs.rendering.scene import columns, window

SOIL: Color = (238, 214, 190)
ZONE_EDGES = (4, 8)  # the last cell of the first and of the second zone


class MarsRoverRenderer:
    """x upwards (action up), y to the right (action right). Gauges on the right."""

    def __init__(
        self, X: int, Y: int, budget: int, tries: int, jammed: Mapping[str, Sequence[tuple[int, int, int, int]]]
    ):
        self.X, self.Y, self.budget, self.tries, self.jammed = X, Y, budget, tries, jammed
        self.cell = max(3, min(36, 420 // max(X, Y)))

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        cell, left, top = self.cell, 40, 36
        width, height = cell * self.Y, cell * self.X
        canvas = Canvas(left + width + 190, max(top + height + 34, 340))
        v = columns(pmdp, states)

        def at(x: float, y: float) -> Point:
            return left + (y - 0.5) * cell, top + height - (x - 0.5) * cell

        def area(x0: float, x1: float, y0: float, y1: float) -> tuple[float, float, float, float]:
            return left + (y0 - 1) * cell, top + height - x1 * cell, left + y1 * cell, top + height - (x0 - 1) * cell

        canvas.rect(left, top, left + width, top + height, SOIL)
        for i, (x0, x1) in enumerate(self._bands(self.X)):
            for j, (y0, y1) in enumerate(self._bands(self.Y)):
                if (i + j) % 2:  # a chequerboard of the nine zones
                    canvas.rect(*area(x0, x1, y0, y1), (214, 178, 146), 0.55)
        if cell >= 8:
            for x in range(self.X + 1):
                canvas.rect(left, top + x * cell, left + width, top + x * cell + 1, WHITE, 0.6)
            for y in range(self.Y + 1):
                canvas.rect(left + y * cell, top, left + y * cell + 1, top + height, WHITE, 0.6)
        for channel, color, slope in (("sendL", ORANGE, 1), ("sendH", PURPLE, -1)):
            for x0, x1, y0, y1 in self.jammed[channel]:
                box = area(x0, min(x1, self.X), y0, min(y1, self.Y))
                if x0 <= self.X and y0 <= self.Y:
                    canvas.hatch(*box, color, 9, slope, 0.6)
                    canvas.frame(*box, color, 1.3)
        goal = at(self.X, self.Y)
        size = max(8.0, 0.36 * cell)
        canvas.rect(*area(self.X, self.X, self.Y, self.Y), GREEN, 0.45)
        canvas.line((goal[0] - 0.4 * size, goal[1] + size), (goal[0] - 0.4 * size, goal[1] - size), INK, 2)
        pole, tip = goal[0] - 0.4 * size, (goal[0] + 0.9 * size, goal[1] - 0.55 * size)
        canvas.polygon([(pole, goal[1] - size), tip, (pole, goal[1] - 0.1 * size)], GREEN)
        trail = [at(x, y) for x, y in zip(v["x"].tolist(), v["y"].tolist())]
        canvas.path(trail, INK, max(1.5, cell / 12), 0.55)
        self._rover(canvas, trail[-1], size, bool(v["h"][-1]))
        canvas.frame(left, top, left + width, top + height, FAINT)
        for x in sorted({1, self.X}):
            canvas.text((left - 8, at(x, 1)[1] - 4), str(x), FAINT, 8, "right")
        for y in sorted({1, self.Y}):
            canvas.text((at(1, y)[0], top + height + 8), str(y), FAINT, 8, "center")
        canvas.text((left - 8, at((self.X + 1) / 2, 1)[1] - 4), "x", FAINT, 8, "right")
        canvas.text((at(1, (self.Y + 1) / 2)[0], top + height + 8), "y", FAINT, 8, "center")
        canvas.text((left, 12), f"Mars Rover {self.X}x{self.Y}", size=10)
        verdict, color = self._verdict(pmdp, states)
        canvas.text((left + width, 12), verdict, color, 10, "right")
        self._gauges(canvas, left + width + 24, top, v)
        return canvas.array()

    @staticmethod
    def _bands(size: int) -> list[tuple[int, int]]:
        edges = [0, *(e for e in ZONE_EDGES if e < size), size]
        return [(a + 1, b) for a, b in itertools.pairwise(edges)]

    @staticmethod
    def _rover(canvas: Canvas, center: Point, size: float, sent: bool) -> None:
        x, y = center
        canvas.disc(center, size * 1.25, WHITE, 0.85)
        canvas.rect(x - 0.8 * size, y - 0.3 * size, x + 0.8 * size, y + 0.35 * size, BLUE)
        for wheel in (-0.6, 0.0, 0.6):
            canvas.disc((x + wheel * size, y + 0.55 * size), 0.27 * size, INK)
        canvas.line((x + 0.35 * size, y - 0.3 * size), (x + 0.35 * size, y - 0.85 * size), INK, max(1.0, size / 7))
        canvas.disc((x + 0.35 * size, y - 0.9 * size), 0.22 * size, GREEN if sent else RED)

    def _gauges(self, canvas: Canvas, left: float, top: float, v: dict[str, np.ndarray]) -> None:
        silent, tries, sent = int(v["u"][-1]), int(v["t"][-1]), bool(v["h"][-1])
        canvas.text((left, top), "unreported moves", INK, 8.5)
        for k in range(self.budget):
            x = left + 24 * k
            canvas.rect(x, top + 18, x + 20, top + 38, (228, 232, 235))
            if k < silent:
                canvas.rect(x, top + 18, x + 20, top + 38, RED if silent >= self.budget - 1 else ORANGE)
        canvas.text((left, top + 46), f"{silent} of {self.budget}", FAINT, 8)
        canvas.text((left, top + 78), "tries", INK, 8.5)
        step = 144 / self.tries
        for k in range(self.tries):
            canvas.rect(
                left + step * k,
                top + 96,
                left + step * (k + 1) - 3,
                top + 108,
                PURPLE if k < tries else (228, 232, 235),
            )
        canvas.text((left, top + 116), f"{tries} of {self.tries}", FAINT, 8)
        canvas.disc((left + 6, top + 154), 6, GREEN if sent else RED)
        canvas.text((left + 20, top + 150), "report sent" if sent else "nothing sent", INK, 8.5)
        for k, (label, color, slope) in enumerate((("L jammed", ORANGE, 1), ("H jammed", PURPLE, -1))):
            y = top + 196 + 26 * k
            canvas.rect(left, y, left + 26, y + 16, SOIL)
            canvas.hatch(left, y, left + 26, y + 16, color, 9, slope, 0.6)
            canvas.frame(left, y, left + 26, y + 16, color, 1.3)
            canvas.text((left + 36, y + 4), label, INK, 8.5)
        y = top + 252
        canvas.rect(left, y, left + 13, y + 16, SOIL)
        canvas.rect(left + 13, y, left + 26, y + 16, (214, 178, 146), 0.55)
        canvas.text((left + 36, y + 4), "channel zones", INK, 8.5)

    def _verdict(self, pmdp: ParametricMDP, states: Sequence[int]) -> tuple[str, Color]:
        if pmdp.labels["goal"][states[-1]]:
            return "ARRIVED", GREEN
        if pmdp.labels["silent"][states[-1]]:
            return "LOST CONTACT", RED
        return f"step {len(states) - 1}", FAINT

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        v = {name: int(values[states[-1]]) for name, values in pmdp.variables.items()}
        low, high = window(v["x"], 1, self.X, 21)
        first, last = window(v["y"], 1, self.Y, 61)
        lines = []
        for x in range(high, low - 1, -1):
            cells = []
            for y in range(first, last + 1):
                low_channel, high_channel = self._is_jammed("sendL", x, y), self._is_jammed("sendH", x, y)
                sign = "b" if low_channel and high_channel else "l" if low_channel else "h" if high_channel else "."
                cells.append("R" if (x, y) == (v["x"], v["y"]) else "G" if (x, y) == (self.X, self.Y) else sign)
            lines.append("".join(cells))
        gauge = "!" * v["u"] + "-" * (self.budget - v["u"])
        sent = "sent" if v["h"] else "not sent"
        status = f"R ({v['x']}, {v['y']})   unreported [{gauge}]   tries {v['t']}/{self.tries}   {sent}"
        return "\n".join([*lines, f"{status}   {self._verdict(pmdp, states)[0]}", "l, h, b: channel L, H, both jammed"])

    def _is_jammed(self, channel: str, x: int, y: int) -> bool:
        return any(x0 <= x <= x1 and y0 <= y <= y1 for x0, x1, y0, y1 in self.jammed[channel])
