"""From an environment to what the agent may use: the model, the objective, a source of data.

Reads only these from an environment: its ``pmdp``, ``objective``, ``observation_to_state`` and ``simulator``
attributes, its spaces, its wrappers and its spec. Never the true parameters, numbers in kernels (``P``) or ``info``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.agent.world.actions import ActionToEnv, EnvActions, match_actions
from rpl_agent.agent.world.observations import (
    Env,
    StateOf,
    StateReader,
    asked_of,
    attribute,
    check_observations,
    environment_spec,
    is_vector,
    layers,
    name_of,
    observation_space,
    refuse_changes,
    representative,
    require_environment,
    time_limit,
)
from rpl_agent.agent.world.plays import (
    longest_episode,
    payments,
    requested_horizon,
    require_distinct_ways,
    with_certain_end,
)
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Binding, Limit, Objective, ParametricMDP
from rpl_agent.core.solver.problem import require_end

#: Wrappers that do not change the law of an episode (TimeLimit's length is taken over).
TRANSPARENT = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")


@dataclass(frozen=True, eq=False)
class Attachment:
    """An environment with the model that explains it."""

    env: Env
    pmdp: ParametricMDP
    objective: Objective
    spec: dict[str, Any] | None  # how to remake the environment, as JSON
    paid: np.ndarray | None  # (2, T) what a transition pays, and a tolerance; None: not compared
    reader: StateReader  # from observations to states
    actions: EnvActions
    compiled: bool
    limit: int | None = None  # steps after which episodes are cut
    longest: int | None = None  # steps after which we cut them, if there is no such limit
    reward_error: float = 0.0  # what bounds pay if rewards deviate by the tolerance
    method: tuple[str, str] | None = None  # (confidence, relaxation) better suited than the defaults
    limits: tuple[Limit, ...] = ()  # of the objective, which is given without them


def shown_numbers(world: Attachment) -> dict[int, int] | None:
    """The state of each number that an environment shows; None if what it shows are no numbers."""
    from gymnasium.spaces import Discrete

    space = world.env.observation_space
    if not isinstance(space, Discrete):
        return None
    found: dict[int, int] = {}
    for number in range(int(space.start), int(space.start + space.n)):
        try:
            found[number] = world.reader.first(number)
        except ModelError:  # shown in no state of the model
            continue
    return found


def attach(
    env: Env,
    *,
    pmdp: ParametricMDP | None = None,
    objective: Objective | str | None = None,
    state_of: StateOf | None = None,
    compiled: bool = True,
    check_rewards: bool | None = None,
    horizon: int | str | None = None,
    action_to_env: ActionToEnv | None = None,
    learned: ParametricMDP | None = None,
    end: Any = None,
) -> Attachment:
    """Check an environment against the model; errors say what to pass.

    The model is the given one (``pmdp``), the environment's own, or else the one ``learned`` so far. The table of a toy
    environment is its own model only if no other was learned.

    By default rewards are compared if the objective is about rewards, or if the environment provides model and
    objective itself: then it promises `model_rewards`.
    """
    require_environment(env)
    spec = environment_spec(env)
    _require_arguments(pmdp, state_of)
    with representative(env) as inner:
        limit = time_limit(env, inner)
        named, binding = attribute(inner, "pmdp"), None
        if named is None and state_of is None:
            binding = _bound(env, inner, pmdp or learned)
        own = named if binding is None else binding.pmdp
        model = pmdp if pmdp is not None else own if isinstance(own, ParametricMDP) else learned
        if not isinstance(model, ParametricMDP):
            raise ModelError(_nothing_known(env))
        is_own = isinstance(named, ParametricMDP) and named.has_states_of(model)
        promised = attribute(inner, "objective") if binding is None else binding.question(limit)
        goal = Objective.parse(objective) if isinstance(objective, str) else objective or promised
        limits = goal.limits if isinstance(goal, Objective) else ()
        alone = goal.free if isinstance(goal, Objective) else goal
        goal = _question(env, model, alone, binding, horizon, limit)
        if is_own:
            refuse_changes(env, inner, "pmdp", state_of is not None)
            state_of = state_of if state_of is not None else attribute(inner, "observation_to_state")
        simulator = attribute(inner, "simulator") if is_own else None
        actions = match_actions(env, inner, model, is_own or binding is not None, action_to_env)
    over = None if end is None else model.state_index(end)
    if is_vector(env) and "info" in asked_of(state_of):
        raise ModelError("observation_to_state receives info from single environments only, not from a vector")
    if state_of is None and binding is None:
        check_observations(env, model, over)
    fast = compiled and not is_vector(env) and simulator is not None
    if fast:  # unless something stands between us and the simulator that could change the law
        fast = all(layer is env.unwrapped or type(layer).__name__ in TRANSPARENT for layer in layers(env))
    if check_rewards is None:
        check_rewards = goal.criterion.pays or binding is not None or (is_own and promised == goal)
        check_rewards |= bool(model.ambiguous_without_reward.any())
    paid, error = payments(model, goal, binding) if check_rewards else (None, 0.0)
    if paid is not None and not fast:
        require_distinct_ways(model, paid)
    longest = None if limit is not None else longest_episode(model, goal.resolve(model), goal.horizon)
    # the first number of a Discrete observation space, where observations number the states
    start = int(getattr(observation_space(env), "start", 0)) if model.states is None else 0
    reader = StateReader(model if binding is None else binding.pmdp, state_of, start, over, binding)
    return Attachment(
        env,
        model,
        goal,
        spec,
        paid,
        reader,
        actions,
        fast,
        limit,
        longest=longest,
        reward_error=error,
        method=None if binding is None else binding.method,
        limits=limits,
    )


def _require_arguments(pmdp: Any, state_of: Any) -> None:
    if pmdp is not None and not isinstance(pmdp, ParametricMDP):
        raise ModelError(f"pmdp is {type(pmdp).__name__}, not a model: pass what build(...) or load_prism(...) returns")
    if state_of is not None and not callable(state_of):
        raise ModelError(
            f"observation_to_state is {type(state_of).__name__}, not a function from an observation to a state"
        )


def _bound(env: Env, inner: Any, pmdp: ParametricMDP | None) -> Binding | None:
    """The model of an environment known by its rules or its table; None if there is none, or it is not ``pmdp``."""
    from rpl_envs.toy import bind

    binding = bind(inner)
    if binding is None or (pmdp is not None and not binding.pmdp.has_states_of(pmdp)):
        return None
    refuse_changes(env, inner, None, False)
    return binding


#: Suggestion for an environment without a model.
FIRST_MODEL = """
    def rows(s):                                # {action: {successor: probability}}; the action is the env's number
        return {0: {s + 1: "p", s: "1-p"}, 1: {s: 1}} if s < 5 else {0: {s: 1}}
    pmdp = rpl_agent.build(0, rows, domain=["p"], labels={"goal": lambda s: s == 5})
    RPLAgent(pmdp=pmdp, objective="maximise probability of goal", observation_to_state=int).learn(env, budget=100)
"""
#: The line on observations that are not finitely many.
FINITE = "\nOnly finitely many states can be certified, but {} is continuous: map it with observation_to_state=..."


def _nothing_known(env: Env) -> str:
    space = observation_space(env)
    dtype = getattr(space, "dtype", None)
    finite = "" if dtype is None or not np.issubdtype(dtype, np.floating) else FINITE.format(space)
    return (
        f"the structure of {name_of(env)} is unknown: it has no attribute 'pmdp', no table P and is not one "
        "of Gymnasium's toy_text worlds.\nA structure says which states and actions exist, where they may lead, and "
        "which probabilities are the same unknown. Write it, for example,\n"
        + FIRST_MODEL
        + "or in the PRISM language. If you know no more than what an episode can return, pass returns=(low, high)."
        + finite
    )


def _question(
    env: Env, model: ParametricMDP, goal: Any, binding: Binding | None, horizon: int | str | None, limit: int | None
) -> Objective:
    """The objective for the model, with its horizon; raises errors before any iteration."""
    if not isinstance(goal, Objective):
        reason = "never ends an episode and has no time limit" if binding else "has no attribute 'objective'"
        wanted = [f"Objective.total({name!r}, horizon=100)" for name in model.rewards]
        wanted += [f"Objective.reach({label!r})" for label in model.labels]
        hint = wanted[0] if wanted else "Objective.total('gain', horizon=100), with build(…, rewards={'gain': …})"
        raise ModelError(f"{name_of(env)} {reason}: pass objective=..., for example {hint}")
    if horizon is not None:
        goal = replace(goal, horizon=requested_horizon(horizon, limit, name_of(env)))
    goal = with_certain_end(model, goal, limit)
    require_end(model, goal.resolve(model))
    return goal
