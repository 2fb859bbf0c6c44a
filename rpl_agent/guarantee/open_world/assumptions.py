"""`Assumptions`: what the user states of a world without a model; nothing else is assumed.

A fact that a step contradicts is an error that names the step: a bound that rests on it would be false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rpl_agent.core.errors import DataError, ModelError, finite_range, require_count
from rpl_agent.core.model import Objective, Sense
from rpl_agent.core.model.objectives.objective import Kind, Unreached

Range = tuple[float, float]
#: Relative tolerance of comparisons with what users wrote: sums of rewards in floats.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Assumptions:
    """The facts of a world without a model.

    Parameters
    ----------
    discount : of the return; 1 needs a horizon, or ``returns``, which alone then bounds the return.
    horizon : count only this many steps; None: plays may go on.
    returns : (low, high) of the return of every play from every state, whatever is done; or a function of the state.
        With a horizon: of the return still to come, with any number of steps to go; 0 is then added to the range.
    rewards : (low, high) of the reward of every step.
    deterministic : every action has one outcome in every state (the start may still be random).
    successors : function of (state, action number): the states that may follow, None among them where the episode may
        end (terminate); more is allowed, fewer is an error.
        Needs ``rewards``. A row that was never tried is then worth no more than what may follow.

    >>> Assumptions(discount=0.5, rewards=(0, 1)).overall
    (0.0, 2.0)
    """

    discount: float = 1.0
    horizon: int | None = None
    returns: Range | Callable[[Any], Range] | None = None
    rewards: Range | None = None
    deterministic: bool = False
    successors: Callable[[Any, Any], Iterable[Hashable]] | None = None
    states: tuple[Hashable, ...] | None = field(default=None, repr=False)  # all of them, if they are known

    def __post_init__(self) -> None:
        if not (isinstance(self.discount, (int, float)) and 0.0 < self.discount <= 1.0):
            raise ModelError(f"discount {self.discount!r} is outside (0, 1]")
        if self.horizon is not None:
            require_count("horizon", self.horizon, "steps")
        if self.returns is None and self.rewards is None:
            raise ModelError("give returns=(low, high) of a whole episode, or rewards=(low, high) of a step")
        for name in ("returns", "rewards"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                object.__setattr__(self, name, finite_range(name, value, "a range (low, high)"))
        if self.successors is not None and not callable(self.successors):
            raise ModelError(f"successors={self.successors!r} must be a function of (state, action number)")
        if self.successors is not None and self.rewards is None:
            raise ModelError(
                "successors=... needs rewards=(low, high) too: a step that was never seen may pay as much as any return"
            )
        if not math.isfinite(self._steps) and (self.returns is None or callable(self.returns)):
            raise ModelError("rewards=(low, high) bound returns only with a discount below 1 or a horizon: give one")
        self.overall  # noqa: B018  (raises if it is unknown)

    @classmethod
    def of_proof(cls, assumed: dict[str, Any]) -> Assumptions:
        """The facts that a proof names. Functions of the state are known for its own states, by their numbers."""
        own = assumed["state_returns"]
        return cls(
            discount=assumed["discount"],
            horizon=assumed["horizon"],
            returns=assumed["returns"] if own is None else own.__getitem__,
            rewards=assumed["rewards"],
            deterministic=assumed["deterministic"],
            successors=None if assumed["successors"] is None else lambda state, action: (),
            states=None if own is None else tuple(range(len(own))),
        )

    @property
    def objective(self) -> Objective:
        """The return, as an objective of the environment's reward."""
        unreached = Unreached.ACCUMULATE if self.discount == 1.0 else None
        return Objective(Kind.REWARD, Sense.MAX, None, None, "reward", self.discount, self.horizon, unreached=unreached)

    @property
    def layers(self) -> int:
        """Number of value functions: one per number of steps to go."""
        return 1 if self.horizon is None else self.horizon

    @cached_property
    def overall(self) -> Range:
        """A range of the returns from every state, including the unknown start."""
        if not callable(self.returns):
            return self.range_of(None, self.layers)
        if self.states is not None:
            ranges = [self.range_of(state, self.layers) for state in self.states]
            return min(low for low, _ in ranges), max(high for _, high in ranges)
        if self.rewards is None:
            raise ModelError(
                "returns is a function of the state, but the start may be any state: add rewards=(low, high) of a step"
            )
        return self._of_rewards(self._steps)

    def range_of(self, state: Any, steps: int) -> Range:
        """(low, high) of the return from a state with this many steps to go; low < high."""
        low, high = -math.inf, math.inf
        if self.rewards is not None:
            low, high = self._of_rewards(self._steps if self.horizon is None else self._sum(steps))
        if self.returns is not None:
            least, most = self.stated(state)
            if self.horizon is not None and steps < self.horizon:  # a play may be nearly over, and return nothing more
                least, most = min(least, 0.0), max(most, 0.0)
            low, high = max(low, least), min(high, most)
        if not low <= high:
            raise ModelError(f"returns and rewards exclude each other: no return lies in [{low:.6g}, {high:.6g}]")
        # a state whose return is known still gets a range of positive width, because numbers are divided by it
        return (low, high) if low < high else (low, high + 1e-12 * max(1.0, abs(high)))

    @cached_property
    def _slack(self) -> float:
        """How far rounding may take a return out of its range."""
        return TOLERANCE * _size(*self.overall)

    @property
    def _steps(self) -> float:
        """What a reward of 1 in every step returns."""
        return self._sum(self.horizon)

    def _sum(self, steps: int | None) -> float:
        """Σ γ^i over this many steps, rounded up."""
        if steps is None:
            return math.inf if self.discount == 1.0 else (1.0 + TOLERANCE) / (1.0 - self.discount)
        if self.discount == 1.0:
            return float(steps)
        return max(1.0, (1.0 + TOLERANCE) * (1.0 - self.discount**steps) / (1.0 - self.discount))

    def _of_rewards(self, weight: float) -> Range:
        """The range of a play of at least one step, whose steps together have at most this weight."""
        assert self.rewards is not None
        low, high = self.rewards
        return (low if low >= 0.0 else low * weight), (high if high <= 0.0 else high * weight)

    def check_reward(self, reward: float, where: Callable[[], str]) -> None:
        """Raise unless the reward lies in its range."""
        if self.rewards is not None and not _within(reward, self.rewards):
            low, high = self.rewards
            raise DataError(f"{where()}: reward {reward:.6g} refutes rewards=({low:.6g}, {high:.6g})")

    def check_step(self, state: Any, reward: float, after: Range, where: Callable[[], str]) -> None:
        """Raise unless r + γV(s') can lie in the range of returns from the state, V(s') in the range ``after``."""
        if self.returns is None:
            return
        low, high = self.stated(state)
        least, most = (reward + self.discount * end for end in after)
        slack = TOLERANCE * _size(low, high)
        if most < low - slack or least > high + slack:
            raise DataError(
                f"{where()}: reward {reward:g} in state {state!r} refutes its range of returns [{low:g}, {high:g}], "
                f"because what follows returns {after[0]:g} to {after[1]:g}"
            )

    def after(self, successor: Any, over: bool) -> Range:
        """The stated range of returns from a successor; 0 after an end."""
        return (0.0, 0.0) if over or self.returns is None else self.stated(successor)

    def stated(self, state: Any) -> Range:
        """The range of returns that was stated for a state."""
        given = self.returns
        assert given is not None
        if not callable(given):
            return given
        return finite_range(f"returns({state!r})", given(state), "a range (low, high)", equal=True)

    def check_return(self, earned: float, left: float, over: bool, where: Callable[[], str]) -> None:
        """Raise unless a play that earned this much can have a return in the range.

        left : the weight of what follows; ``over``: nothing follows.
        """
        low, high = self.overall
        least, most = (0.0, 0.0) if over else (min(low, 0.0), max(high, 0.0))
        if earned + left * most < low - self._slack or earned + left * least > high + self._slack:
            raise DataError(
                f"{where()}: a return of {earned:.6g} {'' if over else 'so far '}refutes the range of returns "
                f"[{low:.6g}, {high:.6g}]"
            )

    def sentences(self) -> list[str]:
        """What a certificate assumes, in words."""
        low, high = self.overall
        found = ["observations are a Markov state"]
        if callable(self.returns):
            found.append(f"returns lie in the ranges given per state, all in [{low:g}, {high:g}]")
        elif self.returns is not None:
            found.append(f"returns lie in [{low:g}, {high:g}]")
        if self.rewards is not None:
            found.append(f"rewards lie in [{self.rewards[0]:g}, {self.rewards[1]:g}]")
        if self.deterministic:
            found.append("every action has one outcome")
        if self.successors is not None:
            found.append("only the given successors can follow")
        return found


def _within(value: float, bounds: Range) -> bool:
    slack = TOLERANCE * _size(*bounds)
    return bounds[0] - slack <= value <= bounds[1] + slack


def _size(low: float, high: float) -> float:
    return max(1.0, abs(low), abs(high))
