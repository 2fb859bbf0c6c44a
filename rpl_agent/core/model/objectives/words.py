"""Objectives and limits in plain words, as the arguments of their constructors."""

from __future__ import annotations

import re
from typing import Any

from rpl_agent.core.errors import ModelError

_NAME = r"[\"']?(?P<{}>[A-Za-z_]\w*)[\"']?"
_HORIZON = r"(?:,?\s+(?:within|for|horizon)\s+(?P<horizon>\d+)(?:\s+steps?)?)?"
_SENSE = r"(?P<sense>maximi[sz]e|minimi[sz]e|max|min)\s+(?:the\s+)?(?:expected\s+)?"
_REACH = re.compile(
    rf"{_SENSE}(?:probability\s+(?:of|to)\s+)(?:reach(?:ing)?\s+)?{_NAME.format('target')}"
    rf"(?:,?\s+(?:avoiding|without)\s+{_NAME.format('avoid')})?{_HORIZON}",
    re.I,
)
_REWARD = re.compile(
    rf"{_SENSE}(?P<kind>discounted\s+|total\s+)?{_NAME.format('reward')}(?:,?\s+until\s+{_NAME.format('target')})?"
    rf"{_HORIZON}(?:,?\s+(?:with\s+)?(?:gamma|discount)\s*=?\s*(?P<gamma>[\d.]+))?",
    re.I,
)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LIMIT = re.compile(rf"(?:the\s+)?(?P<what>.+?)\s*(?P<sign><=|>=|≤|≥|at most|at least)\s*(?P<number>{_NUMBER})", re.I)
_SUBJECT = re.compile(r",?\s+(?:subject\s+to|such\s+that)\s+", re.I)
_AND = re.compile(r"(?<=\d)\s*(?:,\s*and|,|;|\band\b)\s+(?!gamma\b|discount\b)", re.I)  # between limits, after a number
_FORMS = (
    "maximise probability of LABEL [avoiding LABEL] [within N steps]",
    "minimise COST until LABEL [within N steps]",
    "maximise discounted REWARD [until LABEL] [within N steps], gamma X",
    "any of them, subject to probability of LABEL <= X",
)


LIMIT_EXAMPLE = "probability of LABEL <= 0.05"


def read_goal(text: str) -> tuple[str, dict[str, Any]]:
    """(which constructor of `Objective`, its arguments); errors show the accepted forms."""
    said = " ".join(text.strip().rstrip(".").split())
    found = _REACH.fullmatch(said)
    if found is not None:
        return "reach", _fields(found, ("target", "avoid"))
    found = _REWARD.fullmatch(said)
    if found is None:
        raise ModelError(f"the objective {text!r} is not understood; use one of: {'; '.join(_FORMS)}")
    fields = {"name": found["reward"], **_fields(found, ("target",))}
    discounted = (found["kind"] or "").strip().lower() == "discounted"
    if discounted != (found["gamma"] is not None):
        raise ModelError(f"the objective {text!r}: only a discounted reward has a gamma, and it needs one")
    if not discounted:
        return "reward", fields
    try:
        return "discounted", {**fields, "discount": float(found["gamma"])}
    except ValueError:
        raise ModelError(f"the objective {text!r}: {found['gamma']!r} is not a number") from None


def _fields(found: re.Match[str], names: tuple[str, ...]) -> dict[str, Any]:
    horizon = found["horizon"]
    return {
        **{name: found[name] for name in names},
        "sense": found["sense"].lower()[:3],
        "horizon": None if horizon is None else int(horizon),
    }


def split_limits(text: str) -> tuple[str, list[str]]:
    """(the goal, its limits) of a goal "subject to" limits."""
    goal, _, limits = _SUBJECT.sub("\0", text, count=1).partition("\0")
    return goal, _AND.split(limits) if limits.strip() else []


def read_limit(text: str) -> tuple[str, float]:
    """(the goal whose value is limited, the limit)."""
    found = _LIMIT.fullmatch(" ".join(text.strip().rstrip(".").split()))
    if found is None:
        raise ModelError(f"the limit {text!r} is not understood; write, for example, {LIMIT_EXAMPLE}")
    sense = "minimise" if found["sign"].lower() in ("<=", "≤", "at most") else "maximise"
    return f"{sense} {found['what']}", float(found["number"])
