"""Errors and warnings for users; each message names the place that is wrong."""

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

Called = TypeVar("Called", bound=Callable[..., Any])


def listed(items: Iterable[object], most: int = 8) -> str:
    """Join the first names for a message, and count the rest; "none" if there are none."""
    names = [str(item) for item in items]
    rest = len(names) - most
    return ", ".join(names[:most] + ([f"… and {rest} more"] if rest > 0 else [])) or "none"


class ModelError(ValueError):
    """A model, objective, policy or setting is wrong; the message names the state, action and expression.

    >>> RPLAgent(weight=2.0)
    Traceback (most recent call last):
        ...
    rpl_agent.core.errors.ModelError: weight 2.0 is not a number from 0 to 1
    """


class DataError(ValueError):
    """Data contradict the model or have the wrong shape; none of them were used.

    >>> import rpl_envs
    >>> Counts(rpl_envs.benchmark("Betting-25").pmdp).add_transitions([-1])
    Traceback (most recent call last):
        ...
    rpl_agent.core.errors.DataError: transition -1 of a model that has 27703
    """


class RPLWarning(UserWarning):
    """A result is sound but weaker than requested (for example: an iteration limit, an empty region).

    >>> issubclass(RPLWarning, UserWarning)
    True
    """


class PrecisionWarning(RPLWarning):
    """A bracket is sound but wider than the requested precision."""


class RefutedWarning(RPLWarning):
    """The data refute the model."""


class RepeatedChanceWarning(RefutedWarning):
    """The same chance was observed more than once."""


# ---------------------------------------------------------------------- arguments
def require_kind(name: str, given: Any, *kinds: type) -> None:
    """Raise unless an argument is of one of these kinds."""
    if not isinstance(given, kinds):
        shown = f"{type(given).__name__} {given!r}"[:60]
        raise ModelError(f"{name} is {shown}, not {' or '.join(kind.__name__ for kind in kinds)}")


def require_positive(name: str, number: Any) -> None:
    """Raise unless an argument is a number above 0."""
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    if not is_number or not number > 0:
        raise ModelError(f"{name} {number!r} must be a positive number")


def as_path(given: Any, name: str) -> Path:
    """Convert an argument to a path; raise if it cannot be one."""
    if not isinstance(given, str | os.PathLike):
        raise ModelError(f"{name}={given!r} is not a path: write a string, for example 'logs/demo'")
    return Path(given)


def require_file(path: Path) -> None:
    """Raise unless this is a file."""
    if not path.is_file():
        raise DataError(f"{path} is a folder, not a file" if path.is_dir() else f"{path}: no such file")


def text_of(path: Path) -> str:
    """The text in a file, without the mark with which spreadsheets begin theirs."""
    require_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file in UTF-8") from None


def require_count(name: str, number: Any, unit: str = "", *, least: int = 1) -> None:
    """Raise unless an argument is a whole number of at least ``least``; ``unit`` is what it counts."""
    if not hasattr(number, "__index__") or isinstance(number, bool) or number < least:
        of_unit = f" of {unit}" if unit else ""
        raise ModelError(f"{name} {number!r} must be a whole number{of_unit}, at least {least}")


def finite_range(name: str, given: Any, meaning: str, *, equal: bool = False) -> tuple[float, float]:
    """(low, high) from an argument; raise unless these are finite numbers with low < high, or ``equal`` ones."""
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        low = high = math.nan
    in_order = low <= high if equal else low < high
    if not (math.isfinite(low) and math.isfinite(high) and in_order):
        sign = "≤" if equal else "<"
        raise ModelError(f"{name}={given!r} must be {meaning}: two finite numbers with low {sign} high")
    return low, high


def takes(function: Callable[..., Any], number: int, *names: str) -> bool:
    """Whether a function takes this number of arguments, and these by name; True if it has no signature."""
    try:
        inspect.signature(function).bind(*[None] * number, **dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # a function without a signature
        return True
    return True


def check_seed(seed: Any) -> None:
    """Raise unless an argument is a seed: a whole number of at least 0, or None."""
    if seed is not None and (not hasattr(seed, "__index__") or isinstance(seed, bool) or seed < 0):
        raise ModelError(f"seed {seed!r} must be a whole number, at least 0, or None")


def nearest(name: str, known: list[str]) -> str:
    """A hint for a name that does not exist: the nearest known one, or all of them."""
    near = get_close_matches(name, known, 1)
    return f"the nearest is {near[0]!r}" if near else f"it has {', '.join(known)}"


def front_door(function: Called) -> Called:
    """Decorate a function or class: a call with missing or unknown arguments says what to write instead.

    For the functions that beginners call first: Python's own message lists the arguments only.
    """
    if isinstance(function, type):
        function.__init__ = _answering(function.__init__, function.__name__)  # type: ignore[misc]
        return function
    return _answering(function, function.__name__)  # type: ignore[return-value]


def _answering(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def answering(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except TypeError:  # of the call or of the body; checking every call would take as long as a small solve
            try:
                signature.bind(*given, **named)
            except TypeError as error:
                raise ModelError(_misfit(name, signature, given, named) or str(error)) from None
            raise

    return answering


def _misfit(name: str, signature: inspect.Signature, given: tuple[Any, ...], named: dict[str, Any]) -> str:
    """The message for missing arguments, or for the first that does not exist; empty if there are neither."""
    passed = {*list(signature.parameters)[: len(given)], *named}
    wanted = {p.name: p for p in signature.parameters.values() if p.name != "self" and p.kind is not p.VAR_KEYWORD}
    needed = [p for p in wanted.values() if p.default is p.empty]
    missing = [p.name for p in needed if p.name not in passed]
    unknown = [other for other in named if other not in wanted]
    if unknown and len(wanted) == len(signature.parameters) - ("self" in signature.parameters):
        return f"{name} has no argument {unknown[0]!r}: {nearest(unknown[0], list(wanted))}"
    call = ", ".join(f"{p.name}=..." if p.kind is p.KEYWORD_ONLY else p.name for p in needed)
    return f"{name} needs {' and '.join(missing)}: write {name}({call})" if missing else ""
