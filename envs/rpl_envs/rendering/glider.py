"""The currents as arrows, the goal, and the glider's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import FAINT, GREEN, INK, RED, WHITE, YELLOW, Canvas, Color, Point
from rpl_envs.rendering.scene import columns, window

CALM: Color = (222, 239, 247)
STRONG: Color = (52, 126, 172)
#: Eight directions for a terminal, counter-clockwise from east.
ARROWS = "→↗↑↖←↙↓↘"
Current = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class GliderRenderer:
    """x to the right, y (north) upwards. Darker water has stronger currents."""

    def __init__(self, w: int, h: int, goal: tuple[int, int], radius: int, current: Current):
        self.w, self.h, self.goal, self.radius = w, h, goal, radius
        self.cell = max(8, min(44, 560 // w))
        y, x = np.mgrid[0:h, 0:w]
        self.u, self.v = current(x, y)  # (h, w)
        self.strength = np.hypot(self.u, self.v)

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        cell, left, top = self.cell, 38, 36
        width, height = cell * self.w, cell * self.h
        canvas = Canvas(left + width + 20, top + height + 56)
        values = columns(pmdp, states)

        def at(x: float, y: float) -> Point:
            return left + (x + 0.5) * cell, top + height - (y + 0.5) * cell

        share = (self.strength / self.strength.max())[::-1]
        water = np.array(CALM) + share[..., None] * (np.array(STRONG) - np.array(CALM)).astype(float)
        canvas.cells(left, top, water, cell)
        x0, x1 = max(self.goal[0] - self.radius + 1, 0), min(self.goal[0] + self.radius - 1, self.w - 1)
        y0, y1 = max(self.goal[1] - self.radius + 1, 0), min(self.goal[1] + self.radius - 1, self.h - 1)
        box = (left + x0 * cell, top + height - (y1 + 1) * cell, left + (x1 + 1) * cell, top + height - y0 * cell)
        canvas.rect(*box, GREEN, 0.6)
        canvas.frame(*box, GREEN, 2)
        every = max(1, round(26 / cell))
        reach = 0.46 * cell * every / self.strength.max()
        for y in range(every // 2, self.h, every):
            for x in range(every // 2, self.w, every):
                cx, cy = at(x, y)
                dx, dy = self.u[y, x] * reach, -self.v[y, x] * reach
                canvas.arrow((cx - dx, cy - dy), (cx + dx, cy + dy), WHITE, 1.6, 6)
        trail = [at(x, y) for x, y in zip(values["x"].tolist(), values["y"].tolist())]
        canvas.path(trail, YELLOW, max(2.0, cell / 12), 0.9)
        self._glider(canvas, trail, max(5.0, 0.3 * cell))
        canvas.frame(left, top, left + width, top + height, FAINT)
        canvas.text((left, 12), f"Glider {self.w}x{self.h}", size=10)
        verdict, color = self._verdict(pmdp, states)
        canvas.text((left + width, 12), verdict, color, 10, "right")
        for tick in sorted({0, self.w - 1}):
            canvas.text((at(tick, 0)[0], top + height + 8), str(tick), FAINT, 8, "center")
        for tick in sorted({0, self.h - 1}):
            canvas.text((left - 8, at(0, tick)[1] - 4), str(tick), FAINT, 8, "right")
        legend = top + height + 32
        canvas.disc((left + 6, legend + 5), 6, RED)
        canvas.text((left + 20, legend), "glider", INK, 9)
        canvas.rect(left + 96, legend - 1, left + 110, legend + 11, GREEN, 0.7)
        canvas.text((left + 120, legend), "goal", INK, 9)
        canvas.rect(left + 176, legend - 2, left + 206, legend + 12, STRONG)
        canvas.arrow((left + 180, legend + 5), (left + 203, legend + 5), WHITE, 1.6, 6)
        canvas.text((left + 216, legend), "current", INK, 9)
        return canvas.array()

    @staticmethod
    def _glider(canvas: Canvas, trail: Sequence[Point], size: float) -> None:
        """A dart that points where the last step went."""
        x, y = trail[-1]
        back = trail[-2] if len(trail) > 1 and trail[-2] != trail[-1] else (x - 1, y)
        length = np.hypot(x - back[0], y - back[1])
        ux, uy = (x - back[0]) / length, (y - back[1]) / length
        tail = (x - 0.8 * size * ux, y - 0.8 * size * uy)
        wing = (0.7 * size * uy, -0.7 * size * ux)
        nose = (x + size * ux, y + size * uy)
        canvas.disc((x, y), size * 1.25, WHITE, 0.9)
        canvas.polygon([nose, (tail[0] - wing[0], tail[1] - wing[1]), (tail[0] + wing[0], tail[1] + wing[1])], RED)

    @staticmethod
    def _verdict(pmdp: ParametricMDP, states: Sequence[int]) -> tuple[str, Color]:
        if pmdp.labels["goal"][states[-1]]:
            return f"ARRIVED after {len(states) - 1}", GREEN
        return f"step {len(states) - 1}", FAINT

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        x, y = (int(pmdp.variables[v][states[-1]]) for v in ("x", "y"))
        first, last = window(x, 0, self.w - 1, 61)
        low, high = window(y, 0, self.h - 1, 21)
        turns = np.rint(np.arctan2(self.v, self.u) / (np.pi / 4)).astype(int) % 8
        lines = []
        for row in range(high, low - 1, -1):
            cells = []
            for column in range(first, last + 1):
                in_goal = abs(column - self.goal[0]) < self.radius and abs(row - self.goal[1]) < self.radius
                calm = self.strength[row, column] < 0.05 * self.strength.max()
                sign = "·" if calm else ARROWS[turns[row, column]]
                cells.append("@" if (column, row) == (x, y) else "G" if in_goal else sign)
            lines.append(" ".join(cells))
        verdict = self._verdict(pmdp, states)[0]
        return "\n".join([*lines, f"@ glider ({x}, {y})   G goal   arrows: currents   {verdict}"])
