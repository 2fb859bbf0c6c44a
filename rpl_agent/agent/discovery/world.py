"""`OpenWorld`: an environment of which nothing is known but what the user states."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.agent.world.observations import (
    Env,
    environment_spec,
    is_vector,
    name_of,
    observation_space,
    representative,
    require_environment,
    time_limit,
)
from rpl_agent.agent.world.plays import LONGEST, LONGEST_ENDLESS, requested_horizon
from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from rpl_agent.core.model.states import canonical
from rpl_agent.core.schema import jsonable
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.values import FEW_STATES

#: Most combinations of the parts of an action.
MOST_ACTIONS = 4_096


@dataclass(frozen=True, eq=False)
class OpenWorld:
    """An environment with what is assumed of it; states are canonical observations, or what the user makes of them."""

    env: Env
    assumptions: Assumptions
    actions: list[Any]  # what the environment takes, by number of our action
    spec: dict[str, Any] | None  # how to remake the environment, as JSON
    state_of: Callable[[Any], Any] | None
    limit: int | None  # steps after which the environment cuts episodes
    longest: int | None  # steps after which we cut them
    known: frozenset[Hashable] | None = None  # all states, if they are known
    compiled: bool = False
    paid: None = None  # nothing is known about rewards

    @property
    def name(self) -> str:
        return name_of(self.env)

    def state(self, observation: Any, where: Callable[[], str]) -> Hashable:
        """The state of an observation."""
        try:
            value = observation if self.state_of is None else self.state_of(observation)
            if type(value) is not int:
                value = canonical(value)
                hash(value)
        except TypeError as error:
            raise DataError(
                f"{where()}: observation {observation!r} is no state, because it is not hashable ({error}); pass "
                "observation_to_state=... that makes it a number, a string or a tuple"
            ) from None
        if self.known is not None and value not in self.known:
            raise DataError(
                f"{where()}: observation {value!r} is outside the space {observation_space(self.env)}; correct the "
                "space, or pass observation_to_state=... that makes states of observations"
            )
        return value


def enter_world(
    env: Env, facts: dict[str, Any], horizon: int | str | None, state_of: Callable[[Any], Any] | None
) -> OpenWorld:
    """Attach an environment without a model; ``facts`` are arguments of `Assumptions`."""
    require_environment(env)
    spec = environment_spec(env)
    with representative(env) as inner:
        limit = time_limit(env, inner)
    space = env.single_action_space if is_vector(env) else env.action_space
    actions = list_actions(space, name_of(env))
    if is_vector(env) and isinstance(actions[0], (dict, tuple)):
        raise ModelError(f"the action space {space} of a vector environment is not supported: pass one environment")
    if state_of is None:
        warn_of_continuous(observation_space(env), name_of(env))
    states = list_states(observation_space(env)) if state_of is None else None
    if horizon is None:  # without a discount the time limit is the horizon
        steps = limit if facts.get("discount") is None else None
    else:
        steps = requested_horizon(horizon, limit, name_of(env))
    given = {name: value for name, value in facts.items() if value is not None}
    assumptions = Assumptions(**given, horizon=steps, states=states)
    endless = LONGEST_ENDLESS if assumptions.discount < 1.0 else LONGEST
    longest = steps if steps is not None else None if limit is not None else endless
    known = None if states is None else frozenset(states)
    return OpenWorld(env, assumptions, actions, spec, state_of, limit, longest, known)


def warn_of_continuous(space: Any, name: str) -> None:
    """Warn that nothing will be learned if hardly any observation is seen twice."""
    from gymnasium.spaces import Box, Dict, Tuple

    if isinstance(space, Dict | Tuple):
        parts = space.spaces.values() if isinstance(space, Dict) else space.spaces
        for part in parts:
            warn_of_continuous(part, name)
    elif isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        warnings.warn(
            f"observations of {name} are declared continuous ({space}): if hardly any is seen twice, the bounds hardly "
            "move; pass observation_to_state to make them discrete, or bound the return of a policy that was learned "
            "elsewhere with bound_return (rpl evaluate --policy FILE --env ID --returns LO HI)",
            RPLWarning,
            stacklevel=2,
        )


def list_states(space: Any) -> tuple[Hashable, ...] | None:
    """All observations of a space, if they are few and of one or several numbers; else None."""
    from gymnasium.spaces import Discrete, MultiDiscrete

    size = int(space.n) if isinstance(space, Discrete) else math.inf
    if isinstance(space, MultiDiscrete):
        size = math.prod(map(int, space.nvec.ravel()))
    return tuple(map(canonical, list_actions(space, "it"))) if size <= FEW_STATES else None


def list_actions(space: Any, name: str) -> list[Any]:
    """Everything that an action space allows, as the environment takes it; combinations of parts are listed."""
    from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    if isinstance(space, Discrete):
        return [int(space.start) + k for k in range(int(space.n))]
    if isinstance(space, MultiDiscrete):
        parts = [[int(low) + k for k in range(int(n))] for low, n in zip(space.start.ravel(), space.nvec.ravel())]
        return [np.array(c, dtype=space.dtype).reshape(space.shape) for c in _combinations(parts, space, name)]
    if isinstance(space, MultiBinary):
        parts = [[0, 1]] * int(np.prod(space.shape))
        return [np.array(c, dtype=space.dtype).reshape(space.shape) for c in _combinations(parts, space, name)]
    if isinstance(space, Tuple):
        return _combinations([list_actions(part, name) for part in space.spaces], space, name)
    if isinstance(space, Dict):
        keys = list(space.spaces)
        found = _combinations([list_actions(space.spaces[key], name) for key in keys], space, name)
        return [dict(zip(keys, combination)) for combination in found]
    raise ModelError(f"the action space of {name} is {space}: it must be Discrete, or made of discrete parts")


def _combinations(parts: list[list[Any]], space: Any, name: str) -> list[tuple[Any, ...]]:
    number = math.prod(map(len, parts))
    if number > MOST_ACTIONS:
        raise ModelError(f"{name} has {number:,} actions, at most {MOST_ACTIONS:,} can be tried: {space}")
    return list(itertools.product(*parts))


def same_world(before: OpenWorld, after: OpenWorld) -> bool:
    """Whether data of one environment are data of the other, as far as can be seen."""
    bare = [replace(w.assumptions, returns=(0.0, 1.0), successors=None) for w in (before, after)]
    return bare[0] == bare[1] and jsonable(before.actions) == jsonable(after.actions)


def refuse_mixture(without_model: bool, facts: Mapping[str, Any], model_only: Mapping[str, Any]) -> None:
    """Raise if options for agents with and without a model are mixed."""
    given = [name for name, value in (model_only if without_model else facts).items() if value is not None]
    if given and without_model:
        raise ModelError(f"{given[0]} needs a model, but returns or rewards are given in place of one: drop either")
    if given:
        hint = "add returns=(low, high) of an episode"
        if given[0] == "discount":
            hint += ', or, with a model, write the objective "maximise discounted gain, gamma 0.9"'
        raise ModelError(f"{given[0]} is for environments without a model: {hint}")
