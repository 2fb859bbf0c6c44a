"""The agent's goal: the property of the paper's Sec. 2.1, small and serialisable.

Semantics
---------
REACH   the probability of reaching ``target`` without visiting ``avoid`` before (avoid states that
        are not targets have value 0).
REWARD  expected accumulated reward until ``target``. The reward of a state-action pair is paid on
        leaving the state; targets pay nothing. Without discount and horizon, rewards of both signs need an
        end: no play may go on forever without a loss (see `solver.problem.require_end`).
        ``unreached`` is the value of a play that never reaches the target:
        INFINITE    infinity, whatever it pays: the meaning of PRISM's ``R=? [F target]``, for both senses;
        ACCUMULATE  the total of what it pays: PRISM-games' ``R=? [Fc target]``, and without a target the
                    total reward ``R=? [C]``.
        By default a cost (MIN) is INFINITE and a reward (MAX) is ACCUMULATE. The two differ only if
        the target can be missed.
INSTANT expected reward of the state after exactly ``horizon`` steps (state rewards only).
``discount`` < 1 makes rewards discounted (any sign, target optional); ``horizon`` k counts k steps, 0 included.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.core.errors import ModelError, RPLWarning, listed
from rpl_agent.core.model.caching import cached_fact
from rpl_agent.core.model.csr import reached
from rpl_agent.core.model.objectives.checks import (
    require_discount,
    require_horizon,
    require_label,
    require_reward,
    require_sense,
    require_text,
)
from rpl_agent.core.model.objectives.criterion import Criterion, Discounted, Horizon, Instant, Reach, Total
from rpl_agent.core.model.objectives.reward_error import EXACT, RewardError
from rpl_agent.core.model.objectives.sense import Sense
from rpl_agent.core.model.objectives.words import LIMIT_EXAMPLE, read_goal, read_limit, split_limits
from rpl_agent.core.native import read_only

if TYPE_CHECKING:
    from rpl_agent.core.model.pmdp import ParametricMDP


#: takes the place of infinity where an infinite error is taken from it
LARGEST = float(np.finfo(np.float64).max)


class Kind(Enum):
    REACH = "reach"
    REWARD = "reward"
    INSTANT = "instant"


class Unreached(Enum):
    """The value of a play that never reaches the target of a reward objective."""

    INFINITE = "infinite"
    ACCUMULATE = "accumulate"


@dataclass(frozen=True)
class Objective:
    """A property over labels and reward names of a model.

    >>> Objective.reach("goal", avoid="crash").describe()
    'Pmax=? [ !"crash" U "goal" ]'
    >>> Objective.parse("minimise time until goal").describe()
    'R{"time"}min=? [ F "goal" ]'
    """

    kind: Kind
    sense: Sense
    target: str | None
    avoid: str | None = None
    reward_name: str | None = None
    discount: float = 1.0
    horizon: int | None = None
    unreached: Unreached | None = None
    limits: tuple[Limit, ...] = ()  # that a policy has to keep; used by `certify` and the agent only

    def __post_init__(self) -> None:
        self._require_types()
        if self.kind is Kind.REACH and self.target is None:
            raise ModelError("a reachability objective needs a target label")
        if self.kind is Kind.REACH and self.discount != 1.0:
            raise ModelError("a reachability objective has no discount")
        if self.kind is not Kind.REACH and self.reward_name is None:
            raise ModelError("a reward objective needs the name of a reward")
        if self.kind is not Kind.REACH and self.avoid is not None:
            raise ModelError("a reward objective takes no avoid label")
        if self.kind is Kind.INSTANT and (self.horizon is None or self.target is not None or self.discount != 1.0):
            raise ModelError("an instantaneous reward needs a number of steps, and neither target nor discount")
        if self.unreached is not None and (self.kind is not Kind.REWARD or self.discount != 1.0):
            raise ModelError("only an undiscounted reward objective has a value for unreached targets")
        free = self.unreached is not Unreached.ACCUMULATE
        if self.target is None and self.discount == 1.0 and self.horizon is None and free:
            raise ModelError("an undiscounted reward without horizon needs a target label")

    def __hash__(self) -> int:
        return hash((self.target, self.reward_name, self.horizon))  # of all fields it takes as long as a small solve

    def _require_types(self) -> None:
        """Raise unless every field is of its kind and in its range."""
        if not isinstance(self.kind, Kind):
            raise ModelError(f"kind={self.kind!r} is not a Kind: use Objective.reach, .reward, .cost or .discounted")
        require_sense(self.sense)
        require_label("target", self.target)
        require_label("avoid", self.avoid)
        require_reward(self.reward_name)
        require_discount(self.discount)
        require_horizon(self.horizon)
        for limit in self.limits:
            if not isinstance(limit, Limit):
                raise ModelError(f"the limit {limit!r} is not a string: write, for example, {LIMIT_EXAMPLE!r}")

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Parse plain English, with the labels and rewards of the model. For example

        maximise probability of goal avoiding hole within 100 steps
        minimise cost until done
        maximise money within 25 steps
        maximise discounted gain until end within 50 steps, gamma 0.9
        minimise steps until done subject to probability of fallen <= 0.05
        """
        require_text("objective", text, "maximise probability of goal")
        goal, limits = split_limits(text)
        form, fields = read_goal(goal)
        found: Objective = getattr(cls, form)(**fields | {"sense": Sense(fields["sense"])})
        return found.subject_to(*limits) if limits else found

    def subject_to(self, *limits: Limit | str) -> Objective:
        """The same objective for policies that keep these limits as well."""
        read = tuple(Limit.parse(limit) if isinstance(limit, str) else limit for limit in limits)
        return replace(self, limits=self.limits + read)

    @property
    def free(self) -> Objective:
        """The same objective without its limits."""
        return replace(self, limits=()) if self.limits else self

    @classmethod
    def reach(
        cls, target: str, *, avoid: str | None = None, sense: Sense = Sense.MAX, horizon: int | None = None
    ) -> Objective:
        """The probability of reaching a label without visiting ``avoid`` before, within ``horizon`` steps if given."""
        return cls(Kind.REACH, sense, target, avoid=avoid, horizon=horizon)

    @classmethod
    def reward(
        cls, name: str, *, target: str | None = None, sense: Sense = Sense.MAX, horizon: int | None = None
    ) -> Objective:
        """The expected total of a reward until a label is reached, or over ``horizon`` steps."""
        return cls(Kind.REWARD, sense, target, reward_name=name, horizon=horizon)

    @classmethod
    def total(
        cls, name: str, *, target: str | None = None, sense: Sense = Sense.MAX, horizon: int | None = None
    ) -> Objective:
        """All reward that a play pays, until the target and within ``horizon`` steps if given; plays may miss it."""
        return cls(Kind.REWARD, sense, target, None, name, horizon=horizon, unreached=Unreached.ACCUMULATE)

    @classmethod
    def instant(cls, name: str, steps: int, *, sense: Sense = Sense.MAX) -> Objective:
        """The reward of the state after exactly this many steps; what actions pay, as in `build`, is not counted."""
        return cls(Kind.INSTANT, sense, None, reward_name=name, horizon=steps)

    @cached_property
    def criterion(self) -> Criterion:
        """What a play is worth, as the class that answers what depends on it."""
        if self.kind is Kind.INSTANT:
            return Instant(self.reward_name or "", self.horizon or 0)
        found: Reach | Total | Discounted
        if self.kind is Kind.REACH:
            found = Reach(self.target or "", self.avoid)
        elif self.discount < 1.0:
            found = Discounted(self.reward_name or "", self.target, self.discount)
        else:
            by_default = self.unreached is None and self.sense is Sense.MIN
            is_infinite = self.target is not None and (by_default or self.unreached is Unreached.INFINITE)
            found = Total(self.reward_name or "", self.target, is_infinite and self.horizon is None)
        return found if self.horizon is None else Horizon(found, self.horizon)

    @property
    def must_reach(self) -> bool:
        """Whether a play that never reaches the target has infinite value."""
        return self.criterion.must_reach

    def with_reward_error(self, lower: float, upper: float, error: float) -> tuple[float, float]:
        """Bounds on a value for rewards that differ from the model's.

        ``error`` is a share of each reward if values are open-ended (for rewards ≥ 0 values differ by the same share;
        otherwise the solver counts it, see `Problem.of`), and otherwise an amount per step, whose sum is bounded by
        discount or horizon.
        """
        return self.criterion.moved(lower, upper, error)

    @classmethod
    def cost(cls, name: str, *, target: str | None = None, horizon: int | None = None) -> Objective:
        """The least expected total of a cost until a label is reached; a play that never reaches it costs infinity."""
        return cls.reward(name, target=target, sense=Sense.MIN, horizon=horizon)

    @classmethod
    def discounted(
        cls,
        name: str,
        discount: float,
        *,
        target: str | None = None,
        sense: Sense = Sense.MAX,
        horizon: int | None = None,
    ) -> Objective:
        """The expected sum of discount^t times the reward of step t = 0, 1, …: until ``target``, and for ``horizon``
        steps, if given."""
        return cls(Kind.REWARD, sense, target, reward_name=name, discount=discount, horizon=horizon)

    def describe(self) -> str:
        """The objective as text: two with the same text mean the same.

        PRISM's notation where it has one; `F<=k "label"` of a reward (until the label, in at most k steps) and
        `discount` are ours.
        """
        if self.limits:
            return f"multi({', '.join([self.free.describe(), *(limit.describe() for limit in self.limits)])})"
        return self.criterion.text(self.sense)

    def in_prism(self, is_always_reached: bool = False) -> str:
        """The property for PRISM and Storm; an error if they have none that means the same.

        is_always_reached : whether no play misses the target, so that the value of such a play does not matter
        """
        return self.criterion.in_prism(self.sense, is_always_reached)

    def resolve(self, pmdp: ParametricMDP) -> Task:
        """The objective as arrays over a model, cached; raises errors before any iteration."""
        if self.limits:  # ignoring them would answer another question
            raise ModelError(f"{self.describe()} has limits: use rpl_agent.certify, RPLAgent or rpl certify")
        if self.target is not None and not np.count_nonzero(self._mask(pmdp, self.target, "target")):
            # the value is 0, or infinite if the target must be reached: often the formula is misspelt
            warnings.warn(f"the target label {self.target!r} holds in no state", RPLWarning, stacklevel=2)
        known = tasks(pmdp)
        task = known.get(self)
        if task is None:
            if len(known) > 8:
                known.clear()
            task = known[self] = self._resolve(pmdp)
            task.reward.flags.writeable = False
        return task

    def _resolve(self, pmdp: ParametricMDP) -> Task:
        target = self._mask(pmdp, self.target, "target")
        avoid, timed = self._mask(pmdp, self.avoid, "avoid"), self._timed(pmdp)
        if self.avoid is not None:
            avoid = avoid & ~target
        if self.kind is Kind.REACH:
            return Task(timed, target, avoid, np.zeros(pmdp.num_rows))
        if self.reward_name is None or self.reward_name not in pmdp.rewards:
            raise ModelError(f"no reward named {self.reward_name!r}; the model has: {listed(sorted(pmdp.rewards))}")
        if self.kind is Kind.REWARD:
            return self._reward_task(pmdp, timed, target)
        given = pmdp.rewards[self.reward_name]
        if not np.any(given.state) and np.any(given.row):
            raise ModelError(
                f"reward {self.reward_name!r} is paid for actions, and no state has one: a reward after exactly "
                f"{self.horizon} steps is that of the state there. Ask for the steps up to there "
                "(Objective.total(…, horizon=N)), or write a reward of states in a PRISM or DRN file"
            )
        final = np.array(given.state, dtype=np.float64)
        error = RewardError.of(final, given.state_error)
        return Task(timed, target, avoid, np.zeros(pmdp.num_rows), final, reward_error=error)

    def _reward_task(self, pmdp: ParametricMDP, timed: Objective, target: np.ndarray) -> Task:
        """The task of a REWARD; ``timed`` is the objective in solver time."""
        reward, off, least = self._rewards_until(pmdp, target)
        scaled, rounding = self._scaled(pmdp, reward, timed.discount)
        error = EXACT if off is None else RewardError.of(scaled, self._scaled(pmdp, off, timed.discount)[0])
        signed = self.criterion.is_open_ended and least < 0.0
        over = np.zeros(pmdp.num_states, dtype=bool)
        if signed and not self.must_reach:  # where nothing more is paid the play is over
            source = pmdp.row_state[pmdp.transition_row]
            over = ~(target | reached(pmdp.successor, source, pmdp.row_state[reward != 0.0], pmdp.num_states))
        task = Task(timed, target, over, scaled, rounding=rounding, signed=signed, reward_error=error)
        if signed and off is not None and not math.isfinite(error.share):
            row = int(np.flatnonzero((reward == 0.0) & (off > 0.0))[0])
            raise ModelError(
                f"reward {self.reward_name!r} is a sum that is 0 only after rounding at {pmdp.row_name(row)}; "
                "write it as one number"
            )
        if signed and self.must_reach and self.sense is Sense.MAX:
            raise task.without_end(pmdp, "a play that misses the target is worth infinity here, not what it pays")
        return task

    def _rewards_until(self, pmdp: ParametricMDP, target: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, float]:
        """`ParametricMDP.payments`, 0 in target states (S,); all finite."""
        assert self.reward_name is not None
        reward, off, least = pmdp.payments(self.reward_name, target)
        if math.isnan(least):
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise ModelError(f"reward {self.reward_name!r} is not finite at {pmdp.row_name(row)}")
        return reward, off, least

    def _timed(self, pmdp: ParametricMDP) -> Objective:
        """The objective in solver time, in which silent states take a step (see `ParametricMDP.solver_step`)."""
        horizon, discount = self.horizon, self.discount
        if horizon is None and discount == 1.0:
            return self
        if horizon is not None:
            horizon = pmdp.solver_step(horizon)
        if discount < 1.0 and pmdp.solver_steps_per_step > 1:
            # not rounded to 1, which would turn a discounted objective into a total
            discount = min(discount ** (1.0 / pmdp.solver_steps_per_step), math.nextafter(1.0, 0.0))
        return replace(self, horizon=horizon, discount=discount)

    def _scaled(self, pmdp: ParametricMDP, reward: np.ndarray, discount: float) -> tuple[np.ndarray, float]:
        """Rewards (R,) for a solver that discounts each of its own steps, and the resulting error at the start.

        A step t of an episode counts γ^t. The solver takes it as its step m(t) = b + n t (`ParametricMDP.solver_step`),
        where b is 1 with a random start, and multiplies by g^m(t), and one more g for the silent state behind it: so
        rewards are divided by g^b and g^(b + 1). These quotients are rounded, and g^n is not exactly γ. With rewards of
        at most r per step the error of values is at most 2^-50 r / (1 − γ) and |γ − g^n| r / (1 − γ)², because
        |γ^t − g^(n t)| ≤ t γ^(t−1) |γ − g^n| for the larger of the two factors.
        """
        if self.discount == 1.0 or not (pmdp.has_random_start or pmdp.is_silent.any()):
            return reward, 0.0
        late = int(pmdp.has_random_start) + pmdp.is_silent[pmdp.row_state]
        scaled = reward / discount**late
        most = pmdp.solver_steps_per_step * Fraction(float(np.abs(scaled).max(initial=0.0)))
        wanted, given = Fraction(self.discount), Fraction(discount) ** pmdp.solver_steps_per_step
        left = 1 - max(wanted, given)
        rounding = Fraction(1, 2**50) * most / left + abs(wanted - given) * most / left**2
        return scaled, math.nextafter(float(rounding), math.inf)

    @staticmethod
    def _mask(pmdp: ParametricMDP, label: str | None, role: str) -> np.ndarray:
        if label is None:
            return np.zeros(pmdp.num_states, dtype=bool)
        if label not in pmdp.labels:
            raise ModelError(f"no label {label!r} for the {role}; the model has: {listed(sorted(pmdp.labels))}")
        return pmdp.labels[label]


@dataclass(frozen=True)
class Limit:
    """A limit on a value: an upper one if its objective minimises, a lower one if it maximises.

    >>> Limit.parse("probability of fallen <= 0.05").describe()
    'P<=0.05 [ F "fallen" ]'
    """

    objective: Objective
    threshold: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ModelError(f"the limit {self.threshold} on {self.objective.describe()} is not a number")
        if self.objective.limits:
            raise ModelError("a limit has no limits of its own")

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse ``probability of fallen <= 0.05`` or ``fuel until done >= 3``, with the words of `Objective.parse`."""
        require_text("limit", text, LIMIT_EXAMPLE)
        goal, threshold = read_limit(text)
        return cls(Objective.parse(goal), threshold)

    @property
    def upward(self) -> bool:
        """Whether values must not exceed the threshold."""
        return self.objective.sense is Sense.MIN

    def describe(self) -> str:
        """The limit in PRISM's notation, with all digits: a rounded one may be stricter."""
        sign, threshold = "<=" if self.upward else ">=", repr(float(self.threshold)).removesuffix(".0")
        return self.objective.describe().replace(f"{self.objective.sense.value}=?", f"{sign}{threshold}", 1)

    def kept_by(self, lower: float, upper: float) -> bool | None:
        """Whether all values between two bounds keep the limit; None if some do and some do not."""
        inside = upper <= self.threshold if self.upward else lower >= self.threshold
        outside = lower > self.threshold if self.upward else upper < self.threshold
        return True if inside else False if outside else None


@dataclass(frozen=True, eq=False)
class Task:
    """An objective resolved against a model, in solver time.

    Silent states take a step in the solver but none in an environment. So with a random start the horizon is one
    step longer here, with rewards r(s, a, s') it is doubled and the discount is a square root, and discounted rewards
    are scaled (see `ParametricMDP.solver_step` and `Objective._scaled`).
    """

    objective: Objective
    target: np.ndarray  # (S,) bool
    avoid: np.ndarray  # (S,) bool, disjoint from target; of a total of both signs: where nothing more is paid
    reward: np.ndarray  # (R,) float64, 0 on rows of target states
    final: np.ndarray | None = None  # (S,) value of a state when no step is left, for INSTANT
    rounding: float = 0.0  # error of values at the start from the scaling of rewards
    reward_error: RewardError = EXACT  # how far rewards are from the exact ones
    signed: bool = False  # whether this is a total of rewards of which some are negative, without discount and horizon

    @cached_property
    def criterion(self) -> Criterion:
        """What a play is worth, in solver time; it depends on whether the model's rewards have both signs."""
        found = self.objective.criterion
        return replace(found, has_losses=True) if self.signed and isinstance(found, Total) else found

    def paid(self, pmdp: ParametricMDP) -> np.ndarray:
        """(R,) what an environment pays for each row: the rewards without scaling."""
        discount = self.objective.discount
        late = int(pmdp.has_random_start) + pmdp.is_silent[pmdp.row_state]
        return self.reward if discount == 1.0 or not late.any() else self.reward * discount**late

    def must_play_errors(self, more: float = 0.0) -> bool:
        """Whether nature has to choose the errors of rewards (rounding, and ``more``): in sums of gains and losses.

        There an error can be any share of the sum. Elsewhere it is a known share or amount (`outward`).
        """
        return self.criterion.signed and more + self.reward_error.amount > 0.0

    def outward(self, lower: Any, upper: Any) -> tuple[Any, Any]:
        """Bounds on values at the start (numbers or arrays) for exact rewards, from bounds for those of this task.

        The errors of a total of both signs are in the bounds already: nature chooses them, see `Problem.of`.
        """
        lower, upper = lower - self.rounding, upper + self.rounding
        error = self.reward_error
        if error.amount == 0.0 or self.signed:
            return lower, upper
        if not error.any_negative and math.isfinite(error.share):  # the value of every policy differs by the same share
            share = error.share * (1.0 + 1e-12)
            return _down(lower, _share(share, lower)), _up(upper, _share(share, upper))
        most = error.amount * self.criterion.payments * (1.0 + 1e-12)
        return _down(lower, most), _up(upper, most)

    def difference(self, most: float) -> float:
        """How far a policy's value can be from that for exact rewards, where ``most`` is the largest value in size."""
        error = self.reward_error
        if error.amount == 0.0 or self.signed:
            return self.rounding
        if not error.any_negative and math.isfinite(error.share):
            return math.nextafter(self.rounding + most * error.share * (1.0 + 1e-12), math.inf)
        return math.nextafter(self.rounding + error.amount * self.criterion.payments * (1.0 + 1e-12), math.inf)

    def reward_end(self, share: float, upward: bool) -> np.ndarray:
        """(R,) rewards raised or lowered by a share of themselves, rounded outward."""
        side, signed_share = (np.inf, share) if upward else (-np.inf, -share)
        off = np.nextafter(self.reward + np.nextafter(signed_share * np.abs(self.reward), side), side)
        return np.where(self.reward == 0.0, 0.0, off)

    @cached_property
    def decided(self) -> np.ndarray:
        """(S,) states with known value, where an episode may end."""
        return read_only(self.target | self.avoid, np.bool_)

    def without_end(self, pmdp: ParametricMDP, reason: str) -> ModelError:
        """The error for a total of gains and losses that need not exist."""
        row, name = int(np.flatnonzero(self.reward < 0)[0]), self.objective.reward_name
        return ModelError(
            f"reward {name!r} is negative ({self.reward[row]}) at {pmdp.row_name(row)}: a total of gains and costs "
            f"needs a certain end, but {reason}. Give a horizon (Objective.total(…, horizon=N); for an agent "
            "horizon='env', the time limit of its environment), a discount (Objective.discounted), or costs ≥ 0 "
            "(Objective.cost)"
        )


@cached_fact
def tasks(_: ParametricMDP) -> dict[Objective, Task]:
    """The cache of objectives that were resolved against a model."""
    return {}


def _share(share: float, value: Any) -> Any:
    """A share of what is positive; 0 of infinity, which is infinite for exact rewards as well."""
    if isinstance(value, float):
        return share * value if 0.0 < value < math.inf else 0.0
    return share * np.where(np.isfinite(value), np.maximum(value, 0.0), 0.0)


def _down(value: Any, by: Any) -> Any:
    if isinstance(value, float):
        return value if by == 0.0 else math.nextafter(min(value, LARGEST) - by, -math.inf)
    return np.where(by == 0.0, value, np.nextafter(np.minimum(value, LARGEST) - by, -np.inf))[()]


def _up(value: Any, by: Any) -> Any:
    if isinstance(value, float):
        return value if by == 0.0 else math.nextafter(max(value, -LARGEST) + by, math.inf)
    return np.where(by == 0.0, value, np.nextafter(np.maximum(value, -LARGEST) + by, np.inf))[()]
