"""One board for every world: a plane with areas, arrows and tokens that move on it, and gauges below.

A world describes its board; nothing here knows a world. `Board` shows cells and where the tokens are, `CurveBoard` what
they are worth over the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import BLUE, FAINT, GRID, INK, ORANGE, RED, WHITE, Canvas, Color, Point
from rpl_envs.rendering.scene import columns, window

#: Pixels: the corner of the plane, a line of the legend, the side of a gauge's squares.
LEFT, TOP, LINE, SQUARE = 46, 36, 24, 16
#: Eight directions for a terminal, counter-clockwise from east, and eight heights of a curve.
ARROWS, BLOCKS = "→↗↑↖←↙↓↘", "▁▂▃▄▅▆▇█"
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Area:
    """Cells from the first to the last column and row."""

    x: tuple[float, float]
    y: tuple[float, float]
    color: Color
    alpha: float = 0.25
    name: str = ""  # in the legend
    sign: str = "."  # on a terminal
    stripes: int = 0  # their slope, 1 or −1, in place of the plain colour


@dataclass(frozen=True)
class Token:
    """What moves: the variables of its column and row."""

    name: str
    x: str  # of a curve: unused, it is the number of steps
    y: str
    color: Color
    sign: str = "@"
    heading: tuple[int, int] = (1, 0)  # before it has moved


@dataclass(frozen=True)
class Gauge:
    """A variable from 0 to ``most``, or with names for its values."""

    name: str
    variable: str
    most: int = 1
    color: Color = ORANGE
    names: tuple[str, ...] = ()
    is_alarm: bool = False  # red where it is nearly full

    def text(self, value: int) -> str:
        return self.names[value] if self.names else f"[{'!' * value}{'-' * (self.most - value)}]"


@dataclass(frozen=True)
class Board:
    """Cells from ``first`` to ``last``, x to the right and y upwards."""

    title: str
    first: tuple[int, int]
    last: tuple[int, int]
    tokens: Sequence[Token]
    areas: Callable[[Values], Sequence[Area]] = lambda _: ()
    gauges: Sequence[Gauge] = ()
    verdicts: Mapping[str, tuple[str, Color]] = field(default_factory=dict)  # by label
    ground: Color = WHITE
    shades: np.ndarray | None = None  # (rows, columns, 3) colours of cells, the first row below
    arrows: tuple[str, np.ndarray, np.ndarray] | None = None  # (name, u, v), each (rows, columns)
    most_steps: int | None = None

    # ------------------------------------------------------------------ geometry
    @property
    def _cell(self) -> int:
        return max(3, min(40, 640 // (self.last[0] - self.first[0] + 1), 420 // (self.last[1] - self.first[1] + 1)))

    def _size(self) -> tuple[int, int]:
        """Pixels of the plane."""
        return tuple((b - a + 1) * self._cell for a, b in zip(self.first, self.last))  # type: ignore[return-value]

    def _corners(self, v: Values) -> tuple[Point, Point]:
        """The plane's lower left and upper right corner, in cells."""
        return (self.first[0] - 0.5, self.first[1] - 0.5), (self.last[0] + 0.5, self.last[1] + 0.5)

    def _trail(self, token: Token, v: Values) -> list[Point]:
        return list(zip(v[token.x].tolist(), v[token.y].tolist()))

    # ------------------------------------------------------------------ the picture
    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        """(height, width, 3) uint8."""
        v = columns(pmdp, states)
        (width, height), (low, high) = self._size(), self._corners(v)
        across = max(LEFT + width + 26, 420)
        names = self._legend(v)
        per_line = (across - LEFT) // 128
        lines = math.ceil(len(names) / per_line)
        canvas = Canvas(across, TOP + height + 34 + LINE * (lines + len(self.gauges)))

        def at(x: float, y: float) -> Point:
            right, up = (x - low[0]) / (high[0] - low[0]), (y - low[1]) / (high[1] - low[1])
            return LEFT + width * min(max(right, 0.0), 1.0), TOP + height * (1.0 - min(max(up, 0.0), 1.0))

        self._draw_ground(canvas, at, low, high)
        for area in self.areas(v):
            corners = (*at(area.x[0] - 0.5, area.y[1] + 0.5), *at(area.x[1] + 0.5, area.y[0] - 0.5))
            _fill(canvas, area, corners)
        self._draw_arrows(canvas, at)
        for k, token in enumerate(self.tokens):
            self._draw_token(canvas, [at(*place) for place in self._trail(token, v)], token, k)
        canvas.frame(LEFT, TOP, LEFT + width, TOP + height, FAINT)
        canvas.text((LEFT, 12), self.title, size=10)
        verdict, color = self._verdict(pmdp, states)
        canvas.text((LEFT + width, 12), verdict, color, 10, "right")
        y = TOP + height + 34.0
        for k, (name, mark) in enumerate(names):
            _draw_mark(canvas, (LEFT + 128 * (k % per_line), y + LINE * (k // per_line)), name, mark)
        for k, gauge in enumerate(self.gauges):
            _draw_gauge(canvas, (LEFT, y + LINE * (lines + k)), gauge, int(v[gauge.variable][-1]))
        return canvas.array()

    def _draw_ground(self, canvas: Canvas, at: Callable[[float, float], Point], low: Point, high: Point) -> None:
        """The plane with its grid and the numbers at its edges."""
        (x0, y1), (x1, y0) = at(*low), at(*high)
        canvas.rect(x0, y0, x1, y1, self.ground)
        if self.shades is not None:
            canvas.cells(LEFT, TOP, self.shades[::-1], self._cell)
        elif self._cell >= 8:
            for x in range(self.first[0], self.last[0]):
                canvas.rect(at(x + 0.5, low[1])[0], y0, at(x + 0.5, low[1])[0] + 1, y1, GRID)
            for y in range(self.first[1], self.last[1]):
                canvas.rect(x0, at(low[0], y + 0.5)[1], x1, at(low[0], y + 0.5)[1] + 1, GRID)
        if self.tokens[-1].x:
            canvas.text((x1 + 10, y1 + 8), self.tokens[-1].x, FAINT, 8)
            canvas.text((x0 - 8, y0 - 14), self.tokens[-1].y, FAINT, 8, "right")
        for x in _ticks(low[0], high[0]):
            canvas.text((at(x, low[1])[0], y1 + 8), str(x), FAINT, 8, "center")
        for y in _ticks(low[1], high[1]):
            canvas.text((x0 - 8, at(low[0], y)[1] - 4), str(y), FAINT, 8, "right")

    def _draw_arrows(self, canvas: Canvas, at: Callable[[float, float], Point]) -> None:
        if self.arrows is None:
            return
        _, u, v = self.arrows
        every = max(1, round(26 / self._cell))
        reach = 0.46 * self._cell * every / float(np.hypot(u, v).max())
        for row in range(every // 2, len(u), every):
            for column in range(every // 2, len(u[0]), every):
                x, y = at(self.first[0] + column, self.first[1] + row)
                dx, dy = u[row, column] * reach, -v[row, column] * reach
                canvas.arrow((x - dx, y - dy), (x + dx, y + dy), WHITE, 1.6, 6)

    def _draw_token(self, canvas: Canvas, trail: list[Point], token: Token, number: int) -> None:
        """A dart that points where its last step went, at the end of its way."""
        canvas.path(trail, token.color, max(2.0, self._cell / 12), 0.75)
        (x, y), size = trail[-1], max(5.0, 0.34 * self._cell)
        moves = [(x - a, y - b) for a, b in trail if (a, b) != (x, y)]
        dx, dy = moves[-1] if moves else (token.heading[0], -token.heading[1])
        ux, uy = dx / math.hypot(dx, dy), dy / math.hypot(dx, dy)
        canvas.disc((x, y), size * 1.25, WHITE, 0.9)
        tail, wing = (x - 0.8 * size * ux, y - 0.8 * size * uy), (0.7 * size * uy, -0.7 * size * ux)
        ends = ((tail[0] - wing[0], tail[1] - wing[1]), (tail[0] + wing[0], tail[1] + wing[1]))
        nose, notch = (x + size * ux, y + size * uy), (x - 0.35 * size * ux, y - 0.35 * size * uy)
        canvas.polygon([nose, ends[0], notch, ends[1]], token.color)

    def _legend(self, v: Values) -> list[tuple[str, Token | Area | None]]:
        named: dict[str, Token | Area | None] = {token.name: token for token in self.tokens}
        named |= {area.name: area for area in self.areas(v) if area.name}
        return list((named | ({self.arrows[0]: None} if self.arrows else {})).items())

    def _verdict(self, pmdp: ParametricMDP, states: Sequence[int]) -> tuple[str, Color]:
        for label, verdict in self.verdicts.items():
            if pmdp.labels[label][states[-1]]:
                return verdict
        of = "" if self.most_steps is None else f" of {self.most_steps}"
        return f"step {len(states) - 1}{of}", FAINT

    # ------------------------------------------------------------------ the same for a terminal
    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        v = columns(pmdp, states)
        at = {(int(v[t.x][-1]), int(v[t.y][-1])): t.sign for t in self.tokens}
        x, y = list(at)[-1]
        first, last = window(x, self.first[0], self.last[0], 71)
        low, high = window(y, self.first[1], self.last[1], 21)
        areas = list(self.areas(v))
        rows = [
            "".join(at.get((column, row)) or self._sign(areas, column, row) for column in range(first, last + 1))
            for row in range(high, low - 1, -1)
        ]
        return "\n".join([*rows, self._status(pmdp, states, v)])

    def _sign(self, areas: Sequence[Area], x: int, y: int) -> str:
        for area in reversed(areas):
            if area.x[0] <= x <= area.x[1] and area.y[0] <= y <= area.y[1]:
                return area.sign
        if self.arrows is None:
            return "."
        u, v = (part[y - self.first[1], x - self.first[0]] for part in self.arrows[1:])
        calm = np.hypot(u, v) < 0.05 * np.hypot(*self.arrows[1:]).max()
        return "·" if calm else ARROWS[round(np.arctan2(v, u) / (np.pi / 4)) % 8]

    def _status(self, pmdp: ParametricMDP, states: Sequence[int], v: Values) -> str:
        places = [f"{t.sign} {t.name} {t.x}={int(v[t.x][-1])} {t.y}={int(v[t.y][-1])}" for t in self.tokens]
        areas = [f"{a.sign} {a.name}" for a in self.areas(v) if a.sign != "."]
        return "   ".join([*places, *dict.fromkeys(areas), *self._gauges(v), self._verdict(pmdp, states)[0]])

    def _gauges(self, v: Values) -> list[str]:
        return [f"{gauge.name} {gauge.text(int(v[gauge.variable][-1]))}" for gauge in self.gauges]


@dataclass(frozen=True)
class CurveBoard(Board):
    """The tokens' values over the steps: ``last`` has the steps that are shown at least, and the largest value."""

    start: float | None = None  # a dashed line

    @property
    def _cell(self) -> int:
        return 7

    def _size(self) -> tuple[int, int]:
        return 520, 250

    def _corners(self, v: Values) -> tuple[Point, Point]:
        largest = max(float(v[token.y].max()) for token in self.tokens)
        steps = max(self.last[0], len(v[self.tokens[0].y]) - 1)
        return (0.0, self.first[1] - 0.5), (steps, min(self.last[1] + 0.5, max(20.0, 1.2 * largest)))

    def _trail(self, token: Token, v: Values) -> list[Point]:
        return list(enumerate(v[token.y].tolist()))

    def _draw_ground(self, canvas: Canvas, at: Callable[[float, float], Point], low: Point, high: Point) -> None:
        super()._draw_ground(canvas, at, low, high)
        for y in _ticks(low[1], high[1]):
            canvas.rect(*at(low[0], y), at(high[0], y)[0], at(low[0], y)[1] + 1, GRID)
        if self.start is not None:
            canvas.dashed(at(low[0], self.start), at(high[0], self.start), FAINT)

    def _draw_token(self, canvas: Canvas, trail: list[Point], token: Token, number: int) -> None:
        trail = [(x, y + 3.0 * number) for x, y in trail]  # equal curves must not hide each other
        canvas.path(trail, token.color, 2.4)
        for point in trail[:-1]:
            canvas.disc(point, 2.6, token.color)
        canvas.disc(trail[-1], 6.5, WHITE)
        canvas.disc(trail[-1], 5.5, token.color)

    def _legend(self, v: Values) -> list[tuple[str, Token | Area | None]]:
        values = {f"{token.name}: {int(v[token.y][-1])}": token for token in self.tokens}
        return [*values.items(), *((area.name, area) for area in self.areas(v) if area.name)]

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        v = columns(pmdp, states)
        lines = [self._verdict(pmdp, states)[0]]
        high = self._corners(v)[1][1]
        for token in self.tokens:
            curve = "".join(BLOCKS[min(7, int(8 * max(value, 0) / (high + 1)))] for value in v[token.y][-60:].tolist())
            lines.append(f"{token.name:>6} {int(v[token.y][-1]):>5} {curve}")
        return "\n".join([*lines, *self._gauges(v)])


def _ticks(low: float, high: float) -> range:
    """At most six round numbers between two."""
    step = next(s * 10**k for k in range(9) for s in (1, 2, 5) if (high - low) / (s * 10**k) <= 6)
    return range(math.ceil(low / step) * step, math.floor(high) + 1, step)


def _fill(canvas: Canvas, area: Area, corners: tuple[float, float, float, float]) -> None:
    if area.stripes:
        canvas.hatch(*corners, area.color, 9, area.stripes, 0.6)
    else:
        canvas.rect(*corners, area.color, area.alpha)
    if area.stripes or area.name:
        canvas.frame(*corners, area.color, 1.3)


def _draw_mark(canvas: Canvas, place: Point, name: str, mark: Token | Area | None) -> None:
    """A line of the legend: a disc for a token, a box for an area, an arrow for arrows."""
    x, y = place
    if isinstance(mark, Token):
        canvas.disc((x + 7, y + 5), 6, mark.color)
    elif mark is None:
        canvas.rect(x - 4, y - 2, x + 16, y + 12, BLUE)
        canvas.arrow((x - 1, y + 5), (x + 14, y + 5), WHITE, 1.6, 6)
    else:
        _fill(canvas, mark, (x, y - 1, x + 14, y + 12))
    canvas.text((x + 24, y), name, INK, 9)


def _draw_gauge(canvas: Canvas, place: Point, gauge: Gauge, value: int) -> None:
    x, y = place
    canvas.text((x, y), gauge.name, INK, 9)
    x += 104
    if gauge.names:
        canvas.text((x, y), gauge.names[value], gauge.color, 9)
        return
    color = RED if gauge.is_alarm and value >= gauge.most - 1 else gauge.color
    for k in range(gauge.most):
        left = x + (SQUARE + 4) * k
        canvas.rect(left, y - 3, left + SQUARE, y - 3 + SQUARE, color if k < value else GRID)
    canvas.text((x + (SQUARE + 4) * gauge.most + 6, y), f"{value} of {gauge.most}", FAINT, 8)
