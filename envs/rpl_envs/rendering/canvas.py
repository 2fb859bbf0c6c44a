"""A small rasteriser: anti-aliased shapes and text on a numpy array, no other library.

Shapes are drawn from their signed distance: a pixel is covered by as much as its centre lies inside, so edges are
smooth at any size. Coordinates are pixels, x to the right and y down.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rpl_envs.rendering.font import ADVANCE, DEPTH, EM, strokes

Color = tuple[int, int, int]
Point = tuple[float, float]

INK: Color = (38, 50, 56)
FAINT: Color = (144, 158, 166)
GRID: Color = (222, 228, 232)
PAPER: Color = (250, 251, 252)
WHITE: Color = (255, 255, 255)
BLUE: Color = (25, 103, 178)
RED: Color = (211, 61, 53)
GREEN: Color = (46, 139, 87)
ORANGE: Color = (232, 140, 30)
PURPLE: Color = (126, 75, 170)
YELLOW: Color = (255, 202, 58)


class Canvas:
    """An RGB picture that one can draw on."""

    def __init__(self, width: int, height: int, background: Color = PAPER):
        self.pixels = np.empty((height, width, 3))
        self.pixels[:] = background

    def array(self) -> np.ndarray:
        """(height, width, 3) uint8."""
        return np.clip(np.rint(self.pixels), 0, 255).astype(np.uint8)

    # ------------------------------------------------------------------ shapes
    def rect(self, x0: float, y0: float, x1: float, y1: float, color: Color, alpha: float = 1.0) -> None:
        """A filled rectangle on whole pixels."""
        height, width = self.pixels.shape[:2]
        left, right = sorted((min(max(round(x0), 0), width), min(max(round(x1), 0), width)))
        top, bottom = sorted((min(max(round(y0), 0), height), min(max(round(y1), 0), height)))
        area = self.pixels[top:bottom, left:right]
        area += alpha * (np.array(color) - area)

    def frame(self, x0: float, y0: float, x1: float, y1: float, color: Color, width: float = 1.0) -> None:
        self.path([(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], color, width)

    def line(self, a: Point, b: Point, color: Color, width: float = 1.5, alpha: float = 1.0) -> None:
        """A segment with round ends."""
        margin = width / 2 + 1
        box = self._box(
            min(a[0], b[0]) - margin, min(a[1], b[1]) - margin, max(a[0], b[0]) + margin, max(a[1], b[1]) + margin
        )
        if box is not None:
            area, x, y = box
            self._blend(area, width / 2 - _distance_to_segment(x, y, a, b), color, alpha)

    def path(self, points: Sequence[Point], color: Color, width: float = 1.5, alpha: float = 1.0) -> None:
        for a, b in itertools.pairwise(points):
            self.line(a, b, color, width, alpha)

    def dashed(self, a: Point, b: Point, color: Color, width: float = 1.0, dash: float = 5.0) -> None:
        length = max(np.hypot(b[0] - a[0], b[1] - a[1]), 1e-9)
        unit = ((b[0] - a[0]) / length, (b[1] - a[1]) / length)
        for start in np.arange(0.0, length, 2 * dash):
            end = min(start + dash, length)
            self.line(
                (a[0] + unit[0] * start, a[1] + unit[1] * start),
                (a[0] + unit[0] * end, a[1] + unit[1] * end),
                color,
                width,
            )

    def disc(self, center: Point, radius: float, color: Color, alpha: float = 1.0) -> None:
        box = self._box(center[0] - radius - 1, center[1] - radius - 1, center[0] + radius + 1, center[1] + radius + 1)
        if box is not None:
            area, x, y = box
            self._blend(area, radius - np.hypot(x - center[0], y - center[1]), color, alpha)

    def polygon(self, points: Sequence[Point], color: Color, alpha: float = 1.0) -> None:
        """A filled convex polygon."""
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        box = self._box(min(xs) - 1, min(ys) - 1, max(xs) + 1, max(ys) + 1)
        if box is None:
            return
        area, x, y = box
        middle = (sum(xs) / len(xs), sum(ys) / len(ys))
        inside = np.full(area.shape[:2], np.inf)
        for a, b in zip(points, [*points[1:], points[0]]):
            normal = (b[1] - a[1], a[0] - b[0])
            length = max(np.hypot(*normal), 1e-9)
            side = 1.0 if normal[0] * (middle[0] - a[0]) + normal[1] * (middle[1] - a[1]) > 0 else -1.0
            inside = np.minimum(inside, side * (normal[0] * (x - a[0]) + normal[1] * (y - a[1])) / length)
        self._blend(area, inside, color, alpha)

    def arrow(self, a: Point, b: Point, color: Color, width: float = 1.5, head: float = 5.0) -> None:
        """A line from a to b with a head at b."""
        length = np.hypot(b[0] - a[0], b[1] - a[1])
        if length < 1e-6:
            return
        head = min(head, length * 0.7)
        ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
        base = (b[0] - ux * head, b[1] - uy * head)
        self.line(a, base, color, width)
        side = 0.55 * head
        self.polygon([b, (base[0] - uy * side, base[1] + ux * side), (base[0] + uy * side, base[1] - ux * side)], color)

    def hatch(
        self, x0: float, y0: float, x1: float, y1: float, color: Color, spacing: int, slope: int, alpha: float
    ) -> None:
        """Diagonal stripes over a rectangle; slope 1 or −1."""
        box = self._box(x0, y0, x1, y1)
        if box is not None:
            area, x, y = box
            stripe = np.mod(x + slope * y, spacing) < spacing * 0.3
            area += (alpha * stripe)[..., None] * (np.array(color) - area)

    # ------------------------------------------------------------------ text
    def text(self, position: Point, text: str, color: Color = INK, size: float = 9.0, align: str = "left") -> None:
        """Text whose first capital has its top left corner at the position; ``align``: left, center or right."""
        advance = ADVANCE * size / EM
        width = advance * len(text) - (ADVANCE - 4) * size / EM
        x = position[0] - {"left": 0.0, "center": width / 2, "right": width}[align]
        height, limit = self.pixels.shape[:2]
        for letter in text:
            mask = _letter(letter, size)
            left, top = round(x) - 1, round(position[1]) - 1
            x0, y0, x1, y1 = (
                max(left, 0),
                max(top, 0),
                min(left + mask.shape[1], limit),
                min(top + mask.shape[0], height),
            )
            if x0 < x1 and y0 < y1:
                area = self.pixels[y0:y1, x0:x1]
                area += mask[y0 - top : y1 - top, x0 - left : x1 - left, None] * (np.array(color) - area)
            x += advance

    # ------------------------------------------------------------------ parts
    def _box(self, x0: float, y0: float, x1: float, y1: float):
        """The pixels of a rectangle with the coordinates of their centres, or None when it lies outside."""
        height, width = self.pixels.shape[:2]
        left, right = max(int(np.floor(x0)), 0), min(int(np.ceil(x1)), width)
        top, bottom = max(int(np.floor(y0)), 0), min(int(np.ceil(y1)), height)
        if left >= right or top >= bottom:
            return None
        return self.pixels[top:bottom, left:right], np.arange(left, right) + 0.5, np.arange(top, bottom)[:, None] + 0.5

    @staticmethod
    def _blend(area: np.ndarray, inside: np.ndarray, color: Color, alpha: float) -> None:
        cover = np.clip(inside + 0.5, 0.0, 1.0) * alpha
        area += cover[..., None] * (np.array(color) - area)


def _distance_to_segment(x: np.ndarray, y: np.ndarray, a: Point, b: Point) -> np.ndarray:
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = dx * dx + dy * dy
    t = np.clip(((x - a[0]) * dx + (y - a[1]) * dy) / length, 0.0, 1.0) if length else 0.0
    return np.hypot(x - a[0] - t * dx, y - a[1] - t * dy)


@lru_cache(maxsize=1024)
def _letter(letter: str, size: float) -> np.ndarray:
    """Coverage of a letter's pixels, with one pixel of margin."""
    unit = size / EM
    width = max(1.15, size / 7.5)
    y, x = np.mgrid[0 : int(np.ceil(DEPTH * unit)) + 3, 0 : int(np.ceil(4 * unit)) + 3] + 0.5
    mask = np.zeros(x.shape)
    for stroke in strokes(letter):
        points = [(1.5 + px * unit, 1.5 + py * unit) for px, py in stroke]
        weight = width
        if len(points) == 1:
            points, weight = points * 2, width * 1.4
        for a, b in itertools.pairwise(points):
            mask = np.maximum(mask, np.clip(weight / 2 + 0.5 - _distance_to_segment(x, y, a, b), 0.0, 1.0))
    mask.setflags(write=False)
    return mask
