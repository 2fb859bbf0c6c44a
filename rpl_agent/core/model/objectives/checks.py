"""Checks of what users pass to `Objective`: each mistake is one sentence that says what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.objectives.sense import Sense


def require_label(role: str, label: Any) -> None:
    """Raise unless this is the name of a label, or None."""
    if label is not None and not isinstance(label, str):
        raise ModelError(
            f"the {role} {label!r} is not the name of a label: define one, labels={{'goal': function}} of build, "
            f"and write {role}='goal'"
        )


def require_reward(name: Any) -> None:
    """Raise unless this is the name of a reward, or None."""
    if name is not None and not isinstance(name, str):
        raise ModelError(f"{name!r} is not the name of a reward: write the name that the model has in rewards={{...}}")


def require_sense(sense: Any) -> None:
    if not isinstance(sense, Sense):
        raise ModelError(f"sense={sense!r} is not a direction: write Sense.MAX or Sense.MIN")


def require_horizon(horizon: Any) -> None:
    """Raise unless this is a number of steps, or None."""
    if horizon is None:
        return
    if not hasattr(horizon, "__index__") or isinstance(horizon, bool):
        raise ModelError(f"horizon {horizon!r} must be a whole number of steps")
    if horizon < 0:
        raise ModelError(f"horizon {horizon} must not be negative")


def require_discount(discount: Any) -> None:
    if not isinstance(discount, int | float | np.number) or isinstance(discount, bool) or not 0.0 < discount <= 1.0:
        raise ModelError(f"discount {discount!r} must be a number in (0, 1]")


def require_text(what: str, text: Any, example: str) -> None:
    if not isinstance(text, str):
        raise ModelError(f"the {what} {text!r} is not a string: write, for example, {example!r}")
