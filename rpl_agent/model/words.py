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

from rpl_agent.errors import ModelError
from rpl_agent.model.objective import Objective, Sense

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


def parse_objective(text: str) -> Objective:
    """The objective that is said; an error shows the forms that are understood."""
    said = " ".join(text.strip().rstrip(".").split())
    found = REACH.fullmatch(said)
    if found is not None:
        return Objective.reach(
            found["target"], avoid=found["avoid"], sense=_sense(found), horizon=_whole(found["horizon"])
        )
    found = REWARD.fullmatch(said)
    if found is None:
        raise ModelError(f"the objective {text!r} is not understood; say one of: {'; '.join(FORMS)}")
    discounted = (found["kind"] or "").strip().lower() == "discounted"
    if discounted != (found["gamma"] is not None):
        raise ModelError(f"the objective {text!r}: a discounted reward needs its gamma, and only that has one")
    if discounted:
        if found["horizon"]:
            raise ModelError(f"the objective {text!r}: say either gamma or a number of steps")
        return Objective.discounted(
            found["reward"], _factor(found["gamma"], text), target=found["target"], sense=_sense(found)
        )
    return Objective.reward(
        found["reward"], target=found["target"], sense=_sense(found), horizon=_whole(found["horizon"])
    )


def _sense(found: re.Match[str]) -> Sense:
    return Sense.MAX if found["sense"].lower().startswith("max") else Sense.MIN


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _factor(text: str, said: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ModelError(f"the objective {said!r}: {text!r} is no number") from None
