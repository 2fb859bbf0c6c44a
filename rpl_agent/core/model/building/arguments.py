"""Checks of what users pass to `build`: each mistake is one sentence that says what to write instead."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.domain import Simplex


def require_start(initial: Any) -> None:
    """Raise unless this can be a state, or a distribution over states."""
    if isinstance(initial, Mapping):
        return
    try:
        hash(initial)
    except TypeError:
        shown = tuple(initial) if isinstance(initial, (list, np.ndarray)) else None
        instead = (
            "" if shown is None else f", for example {tuple(x.item() if hasattr(x, 'item') else x for x in shown)}"
        )
        kind = type(initial).__name__
        raise ModelError(
            f"the start {initial!r} is a {kind}, which cannot be a state: write a tuple, a number or a string{instead}"
        ) from None


def require_functions(labels: Any, rewards: Any, actions: Any, variables: Any) -> None:
    """Raise unless labels and rewards are mappings to functions, and actions is a function."""
    if not callable(actions):
        raise ModelError(
            f"actions must be a function: state -> {{action: {{successor: probability}}}}, not {_kind(actions)}"
        )
    for what, given, example in (
        ("labels", labels, '{"goal": lambda state: state == 3}'),
        ("rewards", rewards, '{"gain": lambda state, action: 1.0}'),
    ):
        if given is not None and not isinstance(given, Mapping):
            raise ModelError(f"{what} must map names to functions, not be {_kind(given)}: write {example}")
        for name, function in (given or {}).items():
            if not callable(function):
                raise ModelError(f"{what}[{name!r}] is {_kind(function)}, not a function of the state: write {example}")
    for name, function in (rewards or {}).items():
        _require_arguments(name, function)
    if isinstance(variables, str):
        raise ModelError(f"variables={variables!r} is a string: write the names one by one, {tuple(variables)}")


def called(function: Callable[..., Any], name: str, place: str, *arguments: Any) -> Any:
    """Call a function of the user; an exception becomes a ModelError with the function's name and the place."""
    try:
        return function(*arguments)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{place}: {name} raised {type(error).__name__}: {error}") from error


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:60]


def _require_arguments(name: str, function: Callable[..., Any]) -> None:
    """Raise unless a reward can be called with two or three arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    for given in (2, 3):
        try:
            signature.bind(*range(given))
        except TypeError:
            continue
        return
    raise ModelError(
        f"rewards[{name!r}] must be a function of (state, action), or of (state, action, successor), not {signature}"
    )


def reward_amount(
    name: str, function: Callable[..., Any], state: Any, action: Hashable, *successor: Any
) -> float | Fraction:
    """Check that a reward is a finite number and return it; fractions are rounded later, where the error is noted."""
    value = called(function, f"rewards[{name!r}]", f"state {state!r}, action {action!r}", state, action, *successor)
    numeric = isinstance(value, (int, float, np.number, np.bool_)) or (
        isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf"
    )
    if not numeric and not isinstance(value, str) and hasattr(value, "__float__"):
        numeric = True  # fractions and the like
    if not numeric or not math.isfinite(float(value)):
        raise ModelError(
            f"state {state!r}, action {action!r}: the reward {name!r} must be a finite number, not {value!r}"
        )
    return value if isinstance(value, Fraction) else float(value)


def label_holds(name: str, function: Callable[[Any], Any], state: Any) -> bool:
    """Check that a label is true or false and return it."""
    value = called(function, f"labels[{name!r}]", f"state {state!r}", state)
    try:
        return bool(value)
    except ValueError:
        raise ModelError(
            f"state {state!r}: the label {name!r} must be true or false, not {value!r}; for arrays use .all() or .any()"
        ) from None


def require_names(parameters: Any) -> Sequence[str] | Mapping[str, Any]:
    """Parameters as names, or names with their bounds."""
    example = '["p"], or {"p": (0, 1)} with bounds'
    if isinstance(parameters, str) or not hasattr(parameters, "__iter__"):
        raise ModelError(f"domain={parameters!r} must list the unknown parameters: write {example}")
    parameters = parameters if isinstance(parameters, Mapping) else tuple(parameters)
    for name in parameters:
        if not isinstance(name, str):
            raise ModelError(f"domain: {name!r} is not the name of a parameter: write {example}")
        bounds = parameters[name] if isinstance(parameters, Mapping) else (0, 1)
        if isinstance(bounds, Simplex):
            continue
        if isinstance(bounds, str) or not hasattr(bounds, "__len__") or len(bounds) != 2:
            raise ModelError(f"domain: {name!r} needs two bounds, (lower, upper), not {bounds!r}")
    return parameters
