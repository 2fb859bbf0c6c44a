"""The capital over the steps, one curve per game."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import BLUE, FAINT, GRID, INK, ORANGE, WHITE, Canvas, Point
from rpl_envs.rendering.scene import columns

COLORS = (BLUE, ORANGE)
START = 10


class BettingRenderer:
    """Steps to the right, money upwards; the scale grows with the money."""

    def __init__(self, n: int, games: Sequence[str]):
        self.n, self.games = n, tuple(games)

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        left, top, width, height = 52, 44, 520, 250
        canvas = Canvas(left + width + 78, top + height + 48)
        v = columns(pmdp, states)
        steps = np.minimum(v["step"], self.n)
        most = max(20, *(int(v[g].max()) for g in self.games))
        tick = next(t for t in (5, 10, 20, 50, 100, 200, 500, 1000) if most / t <= 5)
        scale = tick * int(np.ceil(most * 1.08 / tick))

        def at(step: float, money: float) -> Point:
            return left + width * step / self.n, top + height * (1 - money / scale)

        canvas.rect(left, top, left + width, top + height, WHITE)
        for money in range(0, scale + 1, tick):
            canvas.rect(left, at(0, money)[1], left + width, at(0, money)[1] + 1, GRID)
            canvas.text((left - 8, at(0, money)[1] - 4), str(money), FAINT, 8, "right")
        for step in range(0, self.n + 1, max(1, round(self.n / 6))):
            canvas.rect(at(step, 0)[0], top, at(step, 0)[0] + 1, top + height, GRID)
            canvas.text((at(step, 0)[0], top + height + 8), str(step), FAINT, 8, "center")
        canvas.dashed(at(0, START), at(self.n, START), FAINT)
        canvas.text((at(self.n, 0)[0] + 8, at(0, START)[1] - 4), "start", FAINT, 8)
        offset = 2.0 if len(self.games) > 1 else 0.0  # equal curves must not hide each other
        for k, game in enumerate(self.games):
            shift = offset * (2 * k - 1)
            points = [(x, y + shift) for x, y in (at(s, m) for s, m in zip(steps.tolist(), v[game].tolist()))]
            if len(self.games) == 1:
                ground = [(points[-1][0], top + height), (points[0][0], top + height)]
                canvas.polygon([*points, *ground], COLORS[k], 0.12)
            canvas.path(points, COLORS[k], 2.4)
            for point in points[:-1]:
                canvas.disc(point, 2.6, COLORS[k])
            canvas.disc(points[-1], 6.5, WHITE)
            canvas.disc(points[-1], 5.5, COLORS[k])
        canvas.frame(left, top, left + width, top + height, FAINT)
        title = "Parallel Betting" if len(self.games) > 1 else "Betting"
        canvas.text((left, 14), f"{title} {self.n}", size=10)
        x: float = left + width
        for k in reversed(range(len(self.games))):
            label = f"{'game ' + str(k + 1) + ': ' if len(self.games) > 1 else 'money '}{int(v[self.games[k]][-1])}"
            x -= canvas.text((x, 14), label, COLORS[k], 10, "right") + 16
        done = int(v["step"][-1]) > self.n
        status = "DONE" if done else f"step {int(v['step'][-1])} of {self.n}"
        canvas.text((left + width / 2, top + height + 26), status, INK, 9, "center")
        return canvas.array()

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        v = columns(pmdp, states)
        lines = [f"step {min(int(v['step'][-1]), self.n)} of {self.n}" + ("  DONE" if v["step"][-1] > self.n else "")]
        blocks = "▁▂▃▄▅▆▇█"
        for game in self.games:
            history = v[game][-60:]
            most = max(2 * START, int(v[game].max()))
            curve = "".join(blocks[min(7, int(8 * m / (most + 1)))] for m in history.tolist())
            lines.append(f"{game:>6} {int(v[game][-1]):>5} {curve}")
        return "\n".join(lines)
