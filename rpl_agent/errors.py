"""The errors and warnings that users see; each message names the place that is wrong."""

from collections.abc import Iterable


def listed(items: Iterable[object], most: int = 8) -> str:
    """Names for a message: the first of them, and how many more there are."""
    names = [str(item) for item in items]
    rest = len(names) - most
    return ", ".join(names[:most] + ([f"… and {rest} more"] if rest > 0 else [])) or "none"


class ModelError(ValueError):
    """A model, objective, policy or setting is wrong; the message names the state, action and expression."""


class DataError(ValueError):
    """Data contradict the model or have the wrong shape; nothing of them was used."""


class RPLWarning(UserWarning):
    """A result is sound but weaker than asked for (for example: an iteration limit, an empty region)."""


class PrecisionWarning(RPLWarning):
    """A bracket is sound but wider than the precision asked for."""


class RefutedWarning(RPLWarning):
    """The data refute the model."""
