"""Showing pictures to people: a window where there is one, otherwise the text on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: matplotlib's backends that write files and cannot show anything.
FILE_BACKENDS = {"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"}


def interactive_pyplot() -> Any | None:
    """matplotlib.pyplot if it is installed and can open windows (or draws in a notebook), else None."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return None
    return None if pyplot.get_backend().lower() in FILE_BACKENDS else pyplot


class Window:
    """One window that is redrawn; without a display (or without matplotlib) it prints the text instead."""

    def __init__(self, title: str, fps: float):
        self._pause = 1.0 / fps
        self._pyplot: Any = interactive_pyplot()
        self._title = title
        self._figure: Any = None
        self._image: Any = None

    def show(self, picture: Callable[[], np.ndarray], text: Callable[[], str]) -> None:
        if self._pyplot is None:
            print(text())
            return
        frame = picture()
        if self._figure is None:
            height, width = frame.shape[:2]
            self._figure = self._pyplot.figure(self._title, figsize=(width / 100, height / 100))
            axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))
            axes.set_axis_off()
            self._image = axes.imshow(frame)
        self._image.set_data(frame)
        self._pyplot.pause(self._pause)

    def close(self) -> None:
        if self._figure is not None:
            self._pyplot.close(self._figure)
            self._figure = None
