"""When to recompute the model and the sampling policy (schedules), and how far a call of `learn` goes (targets).

After every update the agent asks its schedule for `Limits`; sampling continues until the end of the episode in which
one of them is reached. Every schedule is sound, because the guarantee holds at all stopping times simultaneously
(`Config.is_anytime`); a schedule only trades computing time against up-to-date optimism.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from rpl_agent.core.errors import ModelError, require_count

#: An integer that no count reaches: "never" in limit arrays.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Progress:
    """What a schedule may use; all of it was observed."""

    episodes: int
    steps: int
    updates: int
    rows: np.ndarray  # (R,) int64 visits of every state-action pair
    expressions: np.ndarray  # (F,) int64 pooled observations of every expression
    unknown_rows: np.ndarray  # (R,) bool, false where the model already knows the probabilities
    unknown_expressions: np.ndarray  # (F,) bool, likewise


@dataclass(frozen=True)
class Limits:
    """The next update is due when a visit count, or the number of episodes, reaches its limit."""

    rows: np.ndarray | None = None  # (R,) int64
    expressions: np.ndarray | None = None  # (F,) int64
    episodes: int | None = None  # since the start
    not_before: int = 0  # episodes since the start, whatever the counts

    def reached(self, rows: np.ndarray, expressions: np.ndarray, episodes: int) -> bool:
        """Whether the update is due with these counts."""
        if episodes < self.not_before:
            return False
        return bool(
            (self.episodes is not None and episodes >= self.episodes)
            or (self.rows is not None and (rows >= self.rows).any())
            or (self.expressions is not None and (expressions >= self.expressions).any())
        )


@runtime_checkable
class Schedule(Protocol):
    """A custom schedule is any object with this method."""

    def limits(self, progress: Progress) -> Limits:
        """Called after every update: when is the next one due?"""
        ...


@dataclass(frozen=True)
class Doubling:
    """Update when a count has doubled since the last update (UCRL2's rule; the paper's with ``of="state-action"``).

    Parameters
    ----------
    of : ``"state-action"`` watches #(s, a); ``"expression"`` watches the pooled count of every expression, which
        grows over the whole model at once, so that updates are logarithmic in the data rather than in the states.
        Pairs and expressions with known probabilities are not watched: their counts carry no information.
    first : the count that first triggers; 1 makes every first visit of a pair an update, as in UCRL2.
    spacing : at least this fraction of the episodes so far between two updates. 0 is the paper's rule.

    >>> Doubling(of="expression", spacing=0.1)
    Doubling(of='expression', first=1, spacing=0.1)
    """

    of: str = "state-action"
    first: int = 1
    spacing: float = 0.0
    kind: ClassVar[str] = "doubling"

    def __post_init__(self) -> None:
        if self.of not in ("state-action", "expression"):
            raise ModelError(f"Doubling(of={self.of!r}): of is 'state-action' or 'expression'")
        require_count("Doubling: first", self.first)
        if not isinstance(self.spacing, Real) or not 0.0 <= self.spacing < math.inf:
            raise ModelError(f"Doubling: spacing {self.spacing!r} must be a share of the episodes so far, at least 0")

    def limits(self, progress: Progress) -> Limits:
        by_row = self.of == "state-action"
        watched = progress.rows if by_row else progress.expressions
        unknown = progress.unknown_rows if by_row else progress.unknown_expressions
        limit = np.where(unknown, np.maximum(2 * watched, self.first), NEVER)
        pause = progress.episodes + int(self.spacing * progress.episodes)
        return Limits(rows=limit, not_before=pause) if by_row else Limits(expressions=limit, not_before=pause)


@dataclass(frozen=True)
class EveryN:
    """Update after every n episodes.

    >>> EveryN(50)
    EveryN(n=50)
    """

    n: int = 100
    kind: ClassVar[str] = "every-n"

    def __post_init__(self) -> None:
        require_count("EveryN: n", self.n, "episodes")

    def limits(self, progress: Progress) -> Limits:
        return Limits(episodes=progress.episodes + self.n)


@dataclass(frozen=True)
class Never:
    """No update while sampling: the uniform policy throughout, one certificate at the end.

    >>> RPLAgent("rpl/Betting-25-v0", schedule=Never(), seed=0).learn(budget=20).num_updates
    1
    """

    kind: ClassVar[str] = "never"

    def limits(self, progress: Progress) -> Limits:
        return Limits(episodes=NEVER)


_KINDS = {cls.kind: cls for cls in (Doubling, EveryN, Never)}
#: Names for the command line.
NAMED: dict[str, Schedule] = {
    "state-action": Doubling("state-action"),
    "expression": Doubling("expression"),
    "never": Never(),
}


def schedule_to_dict(schedule: Schedule) -> dict[str, Any]:
    """JSON of a schedule; a custom one is stored by class name only."""
    kind = getattr(schedule, "kind", None)
    if kind in _KINDS and type(schedule) is _KINDS[kind]:
        return {"kind": kind, **asdict(schedule)}  # type: ignore[call-overload]
    return {"kind": "own", "name": type(schedule).__name__}


def schedule_from_dict(data: dict[str, Any]) -> Schedule:
    """Inverse of `schedule_to_dict`; a custom schedule has to be passed again when loading."""
    arguments = dict(data)
    kind = arguments.pop("kind", None)
    if kind == "own":
        raise ModelError(f"the run used a custom schedule ({arguments.get('name')}): pass schedule=... when loading it")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ModelError(f"unknown schedule {kind!r}")
    try:
        return _KINDS[kind](**arguments)
    except TypeError as error:
        raise ModelError(f"schedule {kind!r}: {error}") from None


# ---------------------------------------------------------------------- how far, and where to look on the way
UNITS = ("episodes", "steps")
#: Log points without an interval: 10 episodes, then each a quarter more. They depend on the number of episodes alone,
#: so that a resumed run certifies where an uninterrupted one would have.
FIRST_LOG = 10
LOG_GROWTH = 1.25


@dataclass(frozen=True)
class RegretGoal:
    """A regret to stop at: an amount, or a share of the value.

    >>> RegretGoal.parse("1%"), RegretGoal.parse(0.5)
    (RegretGoal(amount=0.01, is_share=True), RegretGoal(amount=0.5, is_share=False))
    """

    amount: float
    is_share: bool

    @classmethod
    def parse(cls, given: float | str) -> RegretGoal:
        """From a number such as 0.5 or "0.5", or a share such as "1%"."""
        text = str(given).strip()
        share = text.endswith("%")
        try:
            amount = float(text.removesuffix("%")) / (100.0 if share else 1.0)
        except ValueError:
            amount = math.nan
        if not 0.0 < amount < math.inf:
            raise ModelError(f"a regret of {given!r} must be a positive number, or a share of the value like '1%'")
        return cls(amount, share)

    def most(self, lower: float, upper: float) -> float:
        """The largest regret that is small enough for a value between two bounds."""
        if not self.is_share:
            return self.amount
        return self.amount * max(lower, -upper, 0.0)  # of the least size that the value can have


@dataclass(frozen=True)
class Target:
    """An absolute number of episodes or steps at which learning ends."""

    unit: str
    goal: int
    stop_when_gap: float | None = None
    log_interval: int | None = None
    stop_when_regret: float | str | None = None  # a number, or a share of the value such as "1%"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ModelError(f"unit {self.unit!r} is not one of {UNITS}")
        gap, interval = self.stop_when_gap, self.log_interval
        if gap is not None and (isinstance(gap, bool) or not isinstance(gap, Real) or not gap > 0):
            raise ModelError(f"stop_when_gap {gap!r} must be a positive number: upper − lower in the objective's unit")
        if self.stop_when_regret is not None:
            RegretGoal.parse(self.stop_when_regret)
        if interval is not None:
            require_count("log_interval", interval, "episodes")

    @classmethod
    def after(
        cls,
        done: int,
        budget: Any,
        unit: str,
        stop_when_gap: float | None,
        log_interval: int | None,
        stop_when_regret: float | str | None = None,
    ) -> Target:
        """The target ``budget`` beyond ``done``."""
        budget = int(budget) if isinstance(budget, float) and budget.is_integer() else budget  # such as 1e5
        require_count("budget", budget, unit)
        return cls(unit, done + int(budget), stop_when_gap, log_interval, stop_when_regret)

    def is_done(self, episodes: int, steps: int) -> bool:
        return (episodes if self.unit == "episodes" else steps) >= self.goal

    def left(self, episodes: int, steps: int) -> tuple[int, int]:
        """(episodes, steps) that may still be sampled."""
        return (self.goal - episodes, NEVER) if self.unit == "episodes" else (NEVER, self.goal - steps)

    def progress(self, episodes: int, steps: int) -> float:
        """The completed share of the target."""
        return min((episodes if self.unit == "episodes" else steps) / self.goal, 1.0)

    def episodes_until(self, share: float, episodes: int, steps: int) -> int:
        """Episodes until a share of the target is reached, at least one; an estimate if the target is in steps."""
        left = share * self.goal - (episodes if self.unit == "episodes" else steps)
        return max(1, math.ceil(left if self.unit == "episodes" else left * episodes / max(steps, 1)))


def next_log(episodes: int, interval: int | None) -> int:
    """The first log point after this many episodes."""
    if interval is not None:
        return (episodes // interval + 1) * interval
    point = FIRST_LOG
    while point <= episodes:
        point = max(point + 1, math.floor(point * LOG_GROWTH))
    return point
