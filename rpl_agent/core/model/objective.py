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
import re
import warnings
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.core.errors import ModelError, RPLWarning, listed
from rpl_agent.core.model.caching import cached_fact
from rpl_agent.core.model.csr import reached
from rpl_agent.core.model.task import RewardError, Task

if TYPE_CHECKING:
    from rpl_agent.core.model.pmdp import ParametricMDP


class Sense(Enum):
    """The direction in which the agent optimises the value.

    >>> Sense.MAX.opposite
    <Sense.MIN: 'min'>
    """

    MAX = "max"
    MIN = "min"

    @property
    def opposite(self) -> Sense:
        return Sense.MIN if self is Sense.MAX else Sense.MAX


class Nature(Enum):
    """Whether nature chooses against the agent or with it.

    >>> Nature.ADVERSARIAL.direction(Sense.MAX)
    <Sense.MIN: 'min'>
    """

    ADVERSARIAL = "adversarial"
    COOPERATIVE = "cooperative"

    def direction(self, sense: Sense) -> Sense:
        """The direction in which nature moves the value, given the agent's."""
        return sense if self is Nature.COOPERATIVE else sense.opposite


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
    limits: tuple[Limit, ...] = ()  # that a policy has to keep; only `certify` and the agent know what to do with them

    def __post_init__(self) -> None:
        if not 0.0 < self.discount <= 1.0:
            raise ModelError(f"discount {self.discount} is outside (0, 1]")
        if self.horizon is not None and self.horizon < 0:
            raise ModelError(f"horizon {self.horizon} must not be negative")
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

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Parse plain English, with the labels and rewards of the model. For example

        maximise probability of goal avoiding hole within 100 steps
        minimise cost until done
        maximise money within 25 steps
        maximise discounted gain until end within 50 steps, gamma 0.9
        minimise steps until done subject to probability of fallen <= 0.05
        """
        goal, _, limits = _SUBJECT.sub("\0", text, count=1).partition("\0")
        form, fields = _read_words(goal)
        found: Objective = getattr(cls, form)(**fields | {"sense": Sense(fields["sense"])})
        return found.subject_to(*_AND.split(limits)) if limits.strip() else found

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
        """The reward of the state after exactly this many steps."""
        return cls(Kind.INSTANT, sense, None, reward_name=name, horizon=steps)

    @property
    def is_open_ended(self) -> bool:
        """Whether rewards are neither discounted nor limited to a number of steps."""
        return self.kind is Kind.REWARD and self.discount == 1.0 and self.horizon is None

    def with_reward_error(self, lower: float, upper: float, error: float) -> tuple[float, float]:
        """Bounds on a value for rewards that differ from the model's.

        ``error`` is a share of each reward if values are open-ended (for rewards ≥ 0 values differ by the same share;
        otherwise the solver counts it, see `Problem.of`), and otherwise an amount per step, whose sum is bounded by
        discount or horizon.
        """
        if error == 0.0 or self.kind is not Kind.REWARD:
            return lower, upper
        if self.is_open_ended:
            return math.nextafter(lower * (1.0 - error), -math.inf), math.nextafter(upper * (1.0 + error), math.inf)
        steps = math.inf if self.horizon is None else float(self.horizon)
        total = error * min(steps, math.inf if self.discount == 1.0 else 1.0 / (1.0 - self.discount)) * (1.0 + 1e-12)
        return math.nextafter(lower - total, -math.inf), math.nextafter(upper + total, math.inf)

    @property
    def must_reach(self) -> bool:
        """Whether a play that never reaches the target has infinite value."""
        if self.kind is not Kind.REWARD or self.discount < 1.0 or self.horizon is not None or self.target is None:
            return False
        return self.unreached is Unreached.INFINITE or (self.unreached is None and self.sense is Sense.MIN)

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
        bound = f"<={self.horizon}" if self.horizon is not None else ""
        target = None if self.target is None else _quoted(self.target)
        if self.kind is Kind.REACH:
            path = f"F{bound} {target}" if self.avoid is None else f"!{_quoted(self.avoid)} U{bound} {target}"
            return f"P{self.sense.value}=? [ {path} ]"
        if self.kind is Kind.INSTANT:
            path = f"I={self.horizon}"
        elif target is None:
            path = f"C{bound}"
        else:
            path = f"{'Fc' if self.is_open_ended and not self.must_reach else 'F'}{bound} {target}"
        suffix = f" discount {self.discount!r}" if self.discount < 1 else ""
        return f"R{{{_quoted(self.reward_name or '')}}}{self.sense.value}=? [ {path} ]{suffix}"

    def in_prism(self, is_always_reached: bool = False) -> str:
        """The property for PRISM and Storm; an error if they have none that means the same.

        is_always_reached : whether no play misses the target, so that the value of such a play does not matter
        """
        if self.kind is Kind.REWARD and self.discount < 1.0:
            raise ModelError(f"PRISM has no discounted rewards: {self.describe()} cannot be exported")
        if self.kind is Kind.REWARD and self.horizon is not None and self.target is not None:
            raise ModelError(
                f"PRISM has no reward until a target within a number of steps: {self.describe()} cannot be exported; "
                "leave out the target or the horizon"
            )
        if self.is_open_ended and self.target is not None and not self.must_reach:
            if not is_always_reached:
                raise ModelError(
                    f"in PRISM a play that misses the target is worth infinity: {self.describe()} cannot be exported, "
                    "because some plays miss it"
                )
            return replace(self, unreached=Unreached.INFINITE).describe()
        return self.describe()

    def resolve(self, pmdp: ParametricMDP) -> Task:
        """The objective as arrays over a model, known from then on; raises errors before any iteration."""
        if self.limits:  # an answer without them would be one to another question
            raise ModelError(f"{self.describe()} has limits: use rpl_agent.certify, RPLAgent or rpl certify")
        if self.target is not None and not self._mask(pmdp, self.target, "target").any():
            # so the value is 0, or infinite if the target must be reached: often a misspelt formula
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
        avoid, timed = self._mask(pmdp, self.avoid, "avoid") & ~target, self._timed(pmdp)
        if self.kind is Kind.REACH:
            return Task(timed, target, avoid, np.zeros(pmdp.num_rows))
        if self.reward_name is None or self.reward_name not in pmdp.rewards:
            raise ModelError(f"no reward named {self.reward_name!r}; the model has: {listed(sorted(pmdp.rewards))}")
        if not pmdp.rewards[self.reward_name].is_known:
            return self._resolve_unknown(pmdp)
        if self.kind is Kind.INSTANT:
            given = pmdp.rewards[self.reward_name]
            final = np.array(given.state, dtype=np.float64)
            error = RewardError.of(final, given.state_error)
            return Task(timed, target, avoid, np.zeros(pmdp.num_rows), final, reward_error=error)
        reward, off = pmdp.row_reward(self.reward_name), pmdp.row_reward_error(self.reward_name)
        reward[target[pmdp.row_state]] = 0.0
        off[target[pmdp.row_state]] = 0.0
        if not np.isfinite(reward).all():
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise ModelError(f"reward {self.reward_name!r} is not finite at {pmdp.row_name(row)}")
        scaled, rounding = self._scaled(pmdp, reward, timed.discount)
        signed = self.is_open_ended and bool((reward < 0.0).any())
        if signed and not self.must_reach:  # where nothing more is paid the play is over
            source = pmdp.row_state[pmdp.transition_row]
            avoid = ~(target | reached(pmdp.successor, source, pmdp.row_state[reward != 0.0], pmdp.num_states))
        error = RewardError.of(scaled, self._scaled(pmdp, off, timed.discount)[0])
        task = Task(timed, target, avoid, scaled, rounding=rounding, signed=signed, reward_error=error)
        if signed and not math.isfinite(error.share):
            row = int(np.flatnonzero((reward == 0.0) & (off > 0.0))[0])
            raise ModelError(
                f"reward {self.reward_name!r} is a sum that is 0 only after rounding at {pmdp.row_name(row)}; "
                "write it as one number"
            )
        if signed and self.must_reach and self.sense is Sense.MAX:
            raise task.without_end(pmdp, "a play that misses the target is worth infinity here, not what it pays")
        return task

    def _resolve_unknown(self, pmdp: ParametricMDP) -> Task:
        """With a reward that depends on the parameters: the most that it can be, or the least if that is 0.

        So every payment is visible; the solver's nature chooses between the two (`Problem.of`).
        """
        low, high = (self.resolve(pmdp.with_reward_end(self.reward_name, None, end)) for end in (False, True))
        return replace(
            high,
            avoid=low.avoid & high.avoid,
            reward=np.where(high.reward != 0.0, high.reward, low.reward),
            depends_on_parameters=True,
            reward_error=max(low.reward_error, high.reward_error, key=lambda error: error.amount),
            signed=low.signed or high.signed,
        )

    def _timed(self, pmdp: ParametricMDP) -> Objective:
        """The objective in solver time, in which silent states take a step (see `ParametricMDP.solver_step`)."""
        horizon, discount = self.horizon, self.discount
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
    """A number that a value must not exceed (of an objective that minimises) or not fall below (that maximises).

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
        found = _LIMIT.fullmatch(" ".join(text.strip().rstrip(".").split()))
        if found is None:
            raise ModelError(f"the limit {text!r} is not understood; write, for example, probability of LABEL <= 0.05")
        sense = "minimise" if found["sign"].lower() in ("<=", "≤", "at most") else "maximise"
        return cls(Objective.parse(f"{sense} {found['what']}"), float(found["number"]))

    @property
    def upward(self) -> bool:
        """Whether values must not exceed the threshold."""
        return self.objective.sense is Sense.MIN

    def describe(self) -> str:
        """The limit in PRISM's notation."""
        sign = "<=" if self.upward else ">="
        return self.objective.describe().replace(f"{self.objective.sense.value}=?", f"{sign}{self.threshold:g}", 1)

    def kept_by(self, lower: float, upper: float) -> bool | None:
        """Whether every value between two bounds keeps the limit; None if that is open."""
        inside = upper <= self.threshold if self.upward else lower >= self.threshold
        outside = lower > self.threshold if self.upward else upper < self.threshold
        return True if inside else False if outside else None


@cached_fact
def tasks(_: ParametricMDP) -> dict[Objective, Task]:
    """Objectives that were resolved against a model."""
    return {}


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# ---------------------------------------------------------------------- objectives in plain words
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


def _read_words(text: str) -> tuple[str, dict[str, Any]]:
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
