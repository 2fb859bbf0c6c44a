"""From what an environment shows to a state of the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rpl_agent.agent.world.env_facts import name_of, observation_space
from rpl_agent.errors import ModelError
from rpl_agent.model import Binding, ParametricMDP, StateIndex

#: A user's mapping: observation -> value of a state, or StateIndex(number) of it. If it has parameters called
#: ``terminated`` or ``info``, it gets them too (False and the info of the reset for the first state of an episode).
StateOf = Callable[..., Any]
#: So many states are compared with the observation space when an environment is attached.
CHECKED_STATES = 10_000


class StateReader:
    """Says which state of the model an environment is in: by its value, through the user's mapping, or by its number.

    end : the state that ``terminated`` means, whatever is observed then.
    """

    def __init__(self, pmdp: ParametricMDP, state_of: StateOf | None, start: int = 0, end: int | None = None):
        self.pmdp = pmdp
        self.state_of = state_of
        self.start = start  # the first number of a Discrete space, where states have numbers only
        self.end = end
        self._asks = asked_of(state_of)

    def first(self, observation: Any, info: Any = None, terminated: bool = False) -> int:
        """State index after a reset."""
        if self.state_of is not None:
            given = {"terminated": terminated, "info": info}
            return self.pmdp.state_index(self.state_of(observation, **{name: given[name] for name in self._asks}))
        if self.pmdp.states is None and self.start:
            return self.pmdp.state_index(StateIndex(observation.__index__() - self.start))
        return self.pmdp.state_index(observation)

    def next(
        self, state: int, action: int, observation: Any, reward: Any = None, terminated: bool = False, info: Any = None
    ) -> int:
        """State index after a step from ``state``; the reward is not known to whoever only acts."""
        return self.end if terminated and self.end is not None else self.first(observation, info, terminated)


class Bound(StateReader):
    """States by the rules of a binding, which may need to know the state before."""

    def __init__(self, binding: Binding):
        super().__init__(binding.pmdp, None)
        self.binding = binding

    def first(self, observation: Any, info: Any = None, terminated: bool = False) -> int:
        return self.pmdp.state_index(self.binding.first(observation))

    def next(
        self, state: int, action: int, observation: Any, reward: Any = None, terminated: bool = False, info: Any = None
    ) -> int:
        before = self.pmdp.state_value(state)
        return self.pmdp.state_index(self.binding.next(before, action, observation, reward, terminated))


def asked_of(state_of: StateOf | None) -> list[str]:
    """What a user's mapping wants beside the observation."""
    try:
        names = inspect.signature(state_of).parameters if state_of is not None else ()
    except (TypeError, ValueError):  # of a class or function written in C
        names = ()
    return [name for name in ("terminated", "info") if name in names]


def check_observations(env: Any, pmdp: ParametricMDP, end: int | None = None) -> None:
    """Refuse a space in which some state of the model could never be seen (but the one that ``terminated`` means)."""
    from gymnasium.spaces import Dict, Discrete, Text

    space = observation_space(env)
    seen = f"the observation space of {name_of(env)} is {space}"
    if pmdp.states is None:
        if not isinstance(space, Discrete) or space.n != pmdp.num_states:
            raise ModelError(
                f"{seen}, the model has {pmdp.num_states} states without values: it must be "
                f"Discrete({pmdp.num_states}), or pass observation_to_state=... that maps it to a state"
            )
        return
    for index in np.flatnonzero(~pmdp.is_silent[:CHECKED_STATES]).tolist():
        value = pmdp.state_value(index)
        if index == end:
            continue
        if pmdp.variables and isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        if isinstance(space, Discrete):
            fits = hasattr(value, "__index__") and space.start <= int(value) < space.start + space.n
        elif isinstance(space, Dict):
            fits = isinstance(value, tuple) and len(value) == len(space.spaces)
        elif isinstance(space, Text):
            fits = isinstance(value, str)
        else:  # the values themselves are looked up when they are seen
            fits = not space.shape or np.shape(value) == space.shape
        if not fits:
            raise ModelError(
                f"{seen}, but the model has the state {pmdp.state_value(index)!r}: observations must be state values, "
                "or pass observation_to_state=... that maps them (return StateIndex(i) where they number the states)"
            )
