"""The errors and warnings that users see; each message names the place that is wrong."""


class ModelError(ValueError):
    """A model, objective, policy or setting is wrong; the message names the state, action and expression."""


class DataError(ValueError):
    """Data contradict the model or have the wrong shape; nothing of them was used."""


class RPLWarning(UserWarning):
    """A result is sound but weaker than asked for (for example: an iteration limit, an empty region)."""
