"""How far a call of `learn` goes, and where it looks at its certificate on the way."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from rpl_agent.agent.schedule import NEVER
from rpl_agent.errors import ModelError

UNITS = ("episodes", "steps")
#: Log points without an interval: 10 episodes, then each a quarter more. Functions of the number of episodes alone,
#: so that a resumed run looks where an uninterrupted one would have looked.
FIRST_LOG = 10
LOG_GROWTH = 1.25


@dataclass(frozen=True)
class Target:
    """An absolute number of episodes or steps at which learning ends."""

    unit: str
    goal: int
    stop_when_gap: float | None = None
    log_interval: int | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ModelError(f"unit {self.unit!r} is not one of {UNITS}")
        if self.stop_when_gap is not None and not self.stop_when_gap > 0:
            raise ModelError(f"stop_when_gap {self.stop_when_gap} must be positive")
        if self.log_interval is not None and self.log_interval < 1:
            raise ModelError(f"log_interval {self.log_interval} must be at least 1 episode")

    @classmethod
    def after(cls, done: int, budget: Any, unit: str, stop_when_gap: float | None, log_interval: int | None) -> Target:
        """``budget`` more than ``done``."""
        whole = hasattr(budget, "__index__") or (isinstance(budget, float) and budget.is_integer())
        if not whole or isinstance(budget, bool) or int(budget) < 1:
            raise ModelError(f"budget {budget!r} must be a whole number of {unit}, at least 1")
        return cls(unit, done + int(budget), stop_when_gap, log_interval)

    def with_goal(self, goal: int) -> Target:
        return replace(self, goal=int(goal))

    def is_done(self, episodes: int, steps: int) -> bool:
        return (episodes if self.unit == "episodes" else steps) >= self.goal

    def left(self, episodes: int, steps: int) -> tuple[int, int]:
        """(episodes, steps) that may still be sampled."""
        return (self.goal - episodes, NEVER) if self.unit == "episodes" else (NEVER, self.goal - steps)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def next_log(episodes: int, interval: int | None) -> int:
    """The first log point after so many episodes."""
    if interval is not None:
        return (episodes // interval + 1) * interval
    point = FIRST_LOG
    while point <= episodes:
        point = max(point + 1, math.floor(point * LOG_GROWTH))
    return point
