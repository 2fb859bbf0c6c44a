"""Both aircraft, the way they came, and the zone that must not be entered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import BLUE, FAINT, GREEN, GRID, INK, RED, WHITE, Canvas, Color, Point
from rpl_envs.rendering.scene import columns, window

SKY: Color = (232, 242, 250)


class AircraftRenderer:
    """A side view: columns to the right, height upwards; ours flies to the right."""

    def __init__(self, X: int, Y: int, length: int, height: int):
        self.X, self.Y, self.length, self.height = X, Y, length, height
        self.cell = max(4, min(30, 640 // (X + 1)))

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        cell, left, top = self.cell, 34, 34
        width, height = cell * (self.X + 1), cell * (self.Y + 1)
        canvas = Canvas(max(width, 420) + left + 16, height + top + 52)
        v = columns(pmdp, states)

        def at(x: float, y: float) -> Point:
            return left + (x + 0.5) * cell, top + height - (y + 0.5) * cell

        canvas.rect(left, top, left + width, top + height, SKY)
        canvas.rect(left + self.X * cell, top, left + width, top + height, GREEN, 0.25)
        every = 1 if cell >= 8 else 10
        for x in range(0, self.X + 2, every):
            canvas.rect(left + x * cell, top, left + x * cell + 1, top + height, WHITE)
        for y in range(0, self.Y + 2, every):
            canvas.rect(left, top + height - y * cell, left + width, top + height - y * cell + 1, WHITE)
        ax, ay = int(v["ax"][-1]), int(v["ay"][-1])
        low, high = max(ay - self.height, 0), min(ay + self.height, self.Y)
        first, last = max(ax - self.length, 0), min(ax + self.length, self.X)
        zone = (
            left + first * cell,
            top + height - (high + 1) * cell,
            left + (last + 1) * cell,
            top + height - low * cell,
        )
        canvas.rect(*zone, RED, 0.16)
        canvas.frame(*zone, RED, 1.3)
        for names, color in ((("ax", "ay"), RED), (("x", "y"), BLUE)):
            trail = [at(x, y) for x, y in zip(v[names[0]].tolist(), v[names[1]].tolist())]
            canvas.path(trail, color, max(1.5, cell / 9), 0.45)
            for point in trail[:-1]:
                canvas.disc(point, max(1.5, cell / 9), color, 0.6)
        size = max(6.0, 0.42 * cell)
        self._plane(canvas, at(ax, ay), size, RED, -1)
        self._plane(canvas, at(int(v["x"][-1]), int(v["y"][-1])), size, BLUE, 1)
        canvas.text((left, 12), f"Aircraft {self.X}x{self.Y}", size=10)
        verdict, color = self._verdict(pmdp, states)
        canvas.text((canvas.width - 16, 12), verdict, color, 10, "right")
        for y in sorted({0, self.Y // 2, self.Y}):
            canvas.text((left - 7, at(0, y)[1] - 4), str(y), FAINT, 8, "right")
        for x in sorted({0, self.X // 2, self.X}):
            canvas.text((at(x, 0)[0], top + height + 7), str(x), FAINT, 8, "center")
        legend = top + height + 26
        canvas.disc((left + 5, legend + 5), 5, BLUE)
        canvas.text((left + 16, legend), "we", INK, 9)
        canvas.disc((left + 61, legend + 5), 5, RED)
        canvas.text((left + 72, legend), "other", INK, 9)
        canvas.rect(left + 136, legend - 1, left + 150, legend + 11, RED, 0.16)
        canvas.frame(left + 136, legend - 1, left + 150, legend + 11, RED)
        canvas.text((left + 158, legend), "collision zone", INK, 9)
        canvas.rect(left + 296, legend - 1, left + 310, legend + 11, GREEN, 0.25)
        canvas.frame(left + 296, legend - 1, left + 310, legend + 11, GRID)
        canvas.text((left + 318, legend), "passed", INK, 9)
        return canvas.array()

    @staticmethod
    def _plane(canvas: Canvas, center: Point, size: float, color: Color, direction: int) -> None:
        x, y = center
        d = direction * size
        canvas.disc(center, size * 1.12, WHITE, 0.85)
        canvas.polygon([(x + d, y), (x - 0.75 * d, y - 0.28 * size), (x - 0.75 * d, y + 0.28 * size)], color)  # body
        canvas.polygon([(x + 0.3 * d, y), (x - 0.45 * d, y - 0.85 * size), (x - 0.15 * d, y)], color)  # wings
        canvas.polygon([(x + 0.3 * d, y), (x - 0.45 * d, y + 0.85 * size), (x - 0.15 * d, y)], color)
        canvas.polygon([(x - 0.5 * d, y), (x - 0.95 * d, y - 0.45 * size), (x - 0.75 * d, y)], color)  # tail

    @staticmethod
    def _verdict(pmdp: ParametricMDP, states: Sequence[int]) -> tuple[str, Color]:
        if any(pmdp.labels["collision"][s] for s in states):
            return "COLLISION", RED
        if pmdp.labels["arrived"][states[-1]]:
            return "PASSED", GREEN
        return f"step {len(states) - 1}", FAINT

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        x, y, ax, ay = (int(pmdp.variables[v][states[-1]]) for v in ("x", "y", "ax", "ay"))
        first, last = window((x + ax) // 2 if self.X > 70 else x, 0, self.X, 71)
        lines = []
        for row in range(self.Y, -1, -1):
            cells = [
                "#" if abs(c - ax) <= self.length and abs(row - ay) <= self.height else "."
                for c in range(first, last + 1)
            ]
            for column, height, sign in ((ax, ay, "<"), (x, y, ">")):
                if row == height and first <= column <= last:
                    cells[column - first] = "X" if (x, y) == (ax, ay) else sign
            lines.append("".join(cells))
        status = f"we > ({x}, {y})   other < ({ax}, {ay})   # collision zone   {self._verdict(pmdp, states)[0]}"
        return "\n".join([*lines, status])
