"""Anti-aliased shapes and text with Pillow, drawn large and reduced; coordinates are pixels, x right and y down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError

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
#: Every pixel is the mean of this many drawn ones in each direction.
LARGER = 4
#: Height of a capital of Pillow's own font, as a share of its size.
CAPITAL = 0.72


@lru_cache(maxsize=1)
def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ModelError("pictures need pillow: pip install pillow (render_mode='ansi' does without)") from None
    return Image, ImageDraw, ImageFont


@lru_cache(maxsize=32)
def _font(size: float) -> Any:
    return _pillow()[2].load_default(size)


class Canvas:
    """An RGB picture that one can draw on."""

    def __init__(self, width: int, height: int, background: Color = PAPER):
        Image, ImageDraw, _ = _pillow()
        self.width = width
        self._image = Image.new("RGB", (width * LARGER, height * LARGER), background)
        self._draw = ImageDraw.Draw(self._image, "RGBA")  # colours with an alpha are blended

    def array(self) -> np.ndarray:
        """(height, width, 3) uint8."""
        return np.array(self._image.reduce(LARGER))

    # ------------------------------------------------------------------ shapes
    def rect(self, x0: float, y0: float, x1: float, y1: float, color: Color, alpha: float = 1.0) -> None:
        """A filled rectangle on whole pixels."""
        (left, right), (top, bottom) = sorted((round(x0), round(x1))), sorted((round(y0), round(y1)))
        if left < right and top < bottom:
            box = (left * LARGER, top * LARGER, right * LARGER - 1, bottom * LARGER - 1)
            self._draw.rectangle(box, _blended(color, alpha))

    def frame(self, x0: float, y0: float, x1: float, y1: float, color: Color, width: float = 1.0) -> None:
        self.path([(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], color, width)

    def line(self, a: Point, b: Point, color: Color, width: float = 1.5) -> None:
        self.path([a, b], color, width)

    def path(self, points: Sequence[Point], color: Color, width: float = 1.5, alpha: float = 1.0) -> None:
        """Segments with round joints and, where nothing shines through, round ends."""
        if len(points) > 1:
            self._draw.line(_large(points), _blended(color, alpha), max(1, round(width * LARGER)), joint="curve")
        if alpha == 1.0:
            for end in (points[0], points[-1]):
                self.disc(end, width / 2, color)

    def dashed(self, a: Point, b: Point, color: Color, width: float = 1.0, dash: float = 5.0) -> None:
        length = math.dist(a, b)
        ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
        along = [(a[0] + ux * t, a[1] + uy * t) for t in np.arange(0, length, dash)]
        for start, end in zip(along[::2], along[1::2]):
            self.line(start, end, color, width)

    def disc(self, center: Point, radius: float, color: Color, alpha: float = 1.0) -> None:
        (x, y), r = center, radius
        self._draw.ellipse(_large([(x - r, y - r), (x + r, y + r)]), _blended(color, alpha))

    def polygon(self, points: Sequence[Point], color: Color, alpha: float = 1.0) -> None:
        self._draw.polygon(_large(points), _blended(color, alpha))

    def arrow(self, a: Point, b: Point, color: Color, width: float = 1.5, head: float = 5.0) -> None:
        """A line from a to b with a head at b."""
        length = math.dist(a, b)
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
        Image, ImageDraw, _ = _pillow()
        width, height = round((x1 - x0) * LARGER), round((y1 - y0) * LARGER)
        stripes = Image.new("L", (width, height))
        for start in range(-height, width + height, spacing * LARGER):
            ends = (start, 0, start - slope * height, height)
            ImageDraw.Draw(stripes).line(ends, round(255 * alpha), round(0.22 * spacing * LARGER))
        self._image.paste(color, (round(x0 * LARGER), round(y0 * LARGER)), stripes)

    def cells(self, x: int, y: int, colors: np.ndarray, size: int) -> None:
        """Squares of ``size`` pixels in the colours (rows, columns, 3), the first at the position."""
        image = _pillow()[0].fromarray(np.rint(colors).astype(np.uint8))
        large = image.resize((image.width * size * LARGER, image.height * size * LARGER), 0)  # nearest: sharp edges
        self._image.paste(large, (x * LARGER, y * LARGER))

    def text(self, position: Point, text: str, color: Color = INK, size: float = 9.0, align: str = "left") -> float:
        """Write text with capitals of ``size`` pixels, whose top is at the position; return its width."""
        font, anchor = _font(size / CAPITAL * LARGER), {"left": "ls", "center": "ms", "right": "rs"}[align]
        self._draw.text(_large([(position[0], position[1] + size)])[0], text, color, font, anchor)
        return font.getlength(text) / LARGER


def _large(points: Sequence[Point]) -> list[Point]:
    return [(x * LARGER, y * LARGER) for x, y in points]


def _blended(color: Color, alpha: float) -> tuple[int, int, int, int]:
    return (*color, round(255 * alpha))
