"""Objectives in plain words, for example

    maximise probability of goal
    maximise probability of goal avoiding hole within 100 steps
    minimise cost until done
    maximise money within 25 steps
    minimise discounted cost, gamma 0.95
    maximise discounted gain until end, gamma 0.9

Names of labels and rewards are the model's own.
"""

from __future__ import annotations

import re
from typing import Any

from rpl_agent.errors import ModelError

_NAME = r"[\"']?(?P<{}>[A-Za-z_]\w*)[\"']?"
_HORIZON = r"(?:,?\s+(?:within|for|horizon)\s+(?P<horizon>\d+)(?:\s+steps?)?)?"
_SENSE = r"(?P<sense>maximi[sz]e|minimi[sz]e|max|min)\s+(?:the\s+)?(?:expected\s+)?"
REACH = re.compile(
    rf"{_SENSE}(?:probability\s+(?:of|to)\s+)(?:reach(?:ing)?\s+)?{_NAME.format('target')}"
    rf"(?:,?\s+(?:avoiding|without)\s+{_NAME.format('avoid')})?{_HORIZON}",
    re.I,
)
REWARD = re.compile(
    rf"{_SENSE}(?P<kind>discounted\s+|total\s+)?{_NAME.format('reward')}(?:,?\s+until\s+{_NAME.format('target')})?"
    rf"{_HORIZON}(?:,?\s+(?:with\s+)?(?:gamma|discount)\s*=?\s*(?P<gamma>[\d.]+))?",
    re.I,
)
FORMS = (
    "maximise probability of LABEL [avoiding LABEL] [within N steps]",
    "minimise COST until LABEL [within N steps]",
    "maximise discounted REWARD [until LABEL], gamma X",
)


def read_objective(text: str) -> tuple[str, dict[str, Any]]:
    """(which maker of `Objective`, its arguments); an error shows the forms that are understood."""
    said = " ".join(text.strip().rstrip(".").split())
    found = REACH.fullmatch(said)
    if found is not None:
        return "reach", _fields(found, ("target", "avoid"))
    found = REWARD.fullmatch(said)
    if found is None:
        raise ModelError(f"the objective {text!r} is not understood; say one of: {'; '.join(FORMS)}")
    fields = {"name": found["reward"], **_fields(found, ("target",))}
    discounted = (found["kind"] or "").strip().lower() == "discounted"
    if discounted != (found["gamma"] is not None):
        raise ModelError(f"the objective {text!r}: a discounted reward needs its gamma, and only that has one")
    if not discounted:
        return "reward", fields
    if fields.pop("horizon") is not None:
        raise ModelError(f"the objective {text!r}: say either gamma or a number of steps")
    return "discounted", {**fields, "discount": _factor(found["gamma"], text)}


def _fields(found: re.Match[str], names: tuple[str, ...]) -> dict[str, Any]:
    horizon = found["horizon"]
    return {
        **{name: found[name] for name in names}, "sense": found["sense"].lower()[:3],
        "horizon": None if horizon is None else int(horizon),
    }  # fmt: skip


def _factor(text: str, said: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ModelError(f"the objective {said!r}: {text!r} is not a number") from None
