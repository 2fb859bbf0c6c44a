"""Kinds of tasks for testing the runner; workers import them by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


def draw(task):
    """A few seeded numbers."""
    return {"numbers": np.random.default_rng(task["seed"]).normal(size=3)}, {"drawing": 0.0}


def die_once(task):
    """Ends its process the first time, answers the second time."""
    marker = Path(task["folder"]) / f"died-{task['seed']}"
    if not marker.exists():
        marker.touch()
        os._exit(17)
    return draw(task)


def die_always(task):
    os._exit(17)


def complain(task):
    raise ValueError(f"seed {task['seed']} is no good")


def complain_once(task):
    marker = Path(task["folder"]) / f"complained-{task['seed']}"
    if not marker.exists():
        marker.touch()
        raise ValueError("not yet")
    return draw(task)


def infinite(task):
    return {"bound": np.inf, "list": [1.0, -np.inf]}, {}
