"""From an environment to what the agent may use: the model, the objective, a source of data.

Reads only these from an environment: its ``pmdp``, ``objective``, ``observation_to_state`` and ``simulator``
attributes, its spaces, its wrappers and its spec. Never the true parameters, numbers in kernels (``P``) or ``info``.

The action of the environment for an action of the model is found in this order:

1. the user's mapping (``action_to_env={"left": 0, …}``);
2. an environment that provides the model, or is known by its rules, has its actions in the model's order;
3. actions of the model that are integers are the numbers of the action space, including its ``start``;
4. an environment that names its actions (an attribute ``action_names`` or ``action_meanings``, or ALE's
   ``get_action_meanings()``) has the model's under the same names, whatever their order;
5. otherwise the n-th action of the space is the n-th of the model, if the model has an order: given by
   ``build(action_names=[...])``, or the only one that fits the orders in which all states list their actions.

Anything else is refused: a permutation of actions that stays within the graph could be detected by statistics only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.agent.world.actions import EnvActions
from rpl_agent.agent.world.observations import (
    Env,
    StateOf,
    StateReader,
    asked_of,
    attribute,
    changing_wrapper,
    check_observations,
    is_vector,
    layers,
    make_registered,
    name_of,
    observation_space,
    representative,
    require_environment,
    time_limit,
)
from rpl_agent.agent.world.plays import (
    distinguishing_rewards,
    longest_episode,
    model_rewards,
    require_distinct_ways,
    reward_tolerance,
    with_certain_end,
)
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Binding, Limit, Objective, ParametricMDP
from rpl_agent.core.model.building.builder import whole_numbers
from rpl_agent.core.solver.problem import require_end

#: A user's mapping: action of the model (as it was written, or its name) -> its number in the environment.
ActionToEnv = Mapping[Any, int]
#: Attributes in which environments name their actions.
NAMED_BY = ("action_names", "action_meanings", "get_action_meanings")


def match_actions(env: Env, inner: Any, pmdp: ParametricMDP, own: bool, given: ActionToEnv | None) -> EnvActions:
    """The environment's number of each action of the model.

    inner : the environment, or one representing a vector of them.
    own : whether the model belongs to the environment (which provides it, or is known by its rules).
    """
    space, name = _space(env), name_of(env)
    low, high = int(space.start), int(space.start + space.n)
    if given is not None:
        return EnvActions(_given(pmdp, given, low, high, name), low, high - low, own)
    found = _matched(env, inner, pmdp, own)
    used = np.unique(pmdp.action[~pmdp.is_silent[pmdp.row_state]])
    forgotten = sorted(set(range(low, high)) - set(found[used].tolist()))
    if forgotten and not own:
        raise ModelError(
            f"the action space of {name} is {low} to {high - 1}, but no state of the model has the action "
            f"{forgotten[0]}: a policy that plays it could be better than any that the model knows. Add its rows, or "
            "leave it out knowingly with action_to_env={name: number}"
        )
    return EnvActions(found, low, high - low, own)


def _matched(env: Env, inner: Any, pmdp: ParametricMDP, own: bool) -> np.ndarray:
    """(A,) int64: the numbers, by numbers, names or order."""
    space, name = _space(env), name_of(env)
    low, high = int(space.start), int(space.start + space.n)
    numbers = None if own else whole_numbers(pmdp.action_keys) or _number_names(pmdp.action_names)
    if numbers is not None:
        bad = [n for n in numbers if not low <= n < high]
        if bad:
            raise ModelError(
                f"the model has the action {bad[0]}, but the action space of {name} is {low} to {high - 1}: use "
                "its numbers, or pass action_to_env={name: number}"
            )
        return np.array(numbers, dtype=np.int64)
    called = None if own else _names(env, inner, pmdp)
    if called is not None:
        return low + called
    if space.n != pmdp.num_actions:
        raise ModelError(
            f"the action space of {name} is {space}, but the model has {pmdp.num_actions} actions "
            f"{pmdp.action_names[:8]}: it must be Discrete({pmdp.num_actions}), or pass action_to_env={{name: number}}"
        )
    if not own and not pmdp.actions_ordered:
        raise ModelError(
            f"cannot match actions of {name} to {pmdp.action_names[:8]}: the model's states do not list them in one "
            "order. Pass action_names=[...] to build, in the action space's order, or action_to_env={name: number}"
        )
    return np.arange(low, high, dtype=np.int64)


def _space(env: Env) -> Any:
    """The action space, which must be finite."""
    from gymnasium.spaces import Discrete

    space = env.single_action_space if is_vector(env) else env.action_space
    if not isinstance(space, Discrete):
        raise ModelError(
            f"the action space of {name_of(env)} is {space}: it must be Discrete; a wrapper that numbers the "
            "combinations of actions (gymnasium.wrappers.TransformAction) makes it so"
        )
    return space


def _given(pmdp: ParametricMDP, given: ActionToEnv, low: int, high: int, name: str) -> np.ndarray:
    ways = (pmdp.action_keys, pmdp.action_names) if isinstance(given, Mapping) else ()
    actions = next((actions for actions in ways if set(given) == set(actions)), None)
    if actions is None:
        raise ModelError(f"action_to_env must map every action of the model, {pmdp.action_keys[:8]}, to its number")
    found = [given[action] for action in actions]
    whole = all(hasattr(n, "__index__") and low <= int(n) < high for n in found)
    if not whole or len({int(n) for n in found}) < len(found):
        raise ModelError(f"action_to_env must give different numbers from {low} to {high - 1}, those of {name}")
    return np.array([int(n) for n in found], dtype=np.int64)


def _number_names(names: Sequence[str]) -> list[int] | None:
    """Names that are integers, if all are; None otherwise."""
    if not names or not all(n.removeprefix("-").isdecimal() and str(int(n)) == n for n in names):
        return None
    return [int(n) for n in names]


def _names(env: Env, inner: Any, pmdp: ParametricMDP) -> np.ndarray | None:
    """(A,) indices of the model's actions among the environment's action names; None if it has none."""
    from rpl_envs.toy import known_actions

    declared, source = _declared(inner)
    binding = declared is not None
    if declared is None:
        declared, source = known_actions(inner), None
    if declared is None:
        return None
    place = {_plain(action): i for i, action in enumerate(declared)}
    missing = [action for action in pmdp.action_names if _plain(action) not in place]
    if missing and not binding and len(missing) == pmdp.num_actions:
        return None  # the user's own names for the actions of a world that does not name them
    if missing or len(place) < len(declared):
        raise ModelError(
            f"{name_of(env)} calls its actions {declared[:8]}, but the model {pmdp.action_names[:8]}: use its "
            "names, or pass action_to_env={name: number}"
        )
    wrapper = changing_wrapper(env, inner, source, "Action")
    if wrapper is not None:
        raise ModelError(
            f"{name_of(env)} names its actions, but the wrapper {wrapper} changes what they mean: pass "
            "action_to_env={name: number}"
        )
    return np.array([place[_plain(action)] for action in pmdp.action_names], dtype=np.int64)


def _declared(inner: Any) -> tuple[tuple[str, ...] | None, str | None]:
    """The environment's action names in order, and the attribute that has them."""
    for source in NAMED_BY:
        names = attribute(inner, source)
        names = names() if callable(names) else names
        if isinstance(names, Mapping):  # number -> name, or name -> number
            turned = {v: k for k, v in names.items()} if all(isinstance(k, str) for k in names) else names
            names = [turned[number] for number in sorted(turned)]
        if isinstance(names, Sequence) and not isinstance(names, str) and all(isinstance(n, str) for n in names):
            return tuple(names), source
    return None, None


def _plain(name: str) -> str:
    return name.strip().casefold()


#: Wrappers that do not change the law of an episode (TimeLimit's length is taken over).
TRANSPARENT = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")


@dataclass(frozen=True, eq=False)
class Attachment:
    """An environment with the model that explains it."""

    env: Env
    pmdp: ParametricMDP
    objective: Objective
    spec: dict[str, Any] | None  # how to remake the environment, as JSON
    paid: np.ndarray | None  # (3, T) least and most that a transition pays, and a tolerance; None: not compared
    reader: StateReader  # from observations to states
    actions: EnvActions
    compiled: bool
    limit: int | None = None  # steps after which episodes are cut
    longest: int | None = None  # steps after which we cut them, if there is no such limit
    reward_error: float = 0.0  # what bounds pay if rewards deviate by the tolerance
    method: tuple[str, str] | None = None  # (confidence, relaxation) better suited than the defaults
    limits: tuple[Limit, ...] = ()  # of the objective, which is given without them


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

    The model is the given one (``pmdp``), the environment's own, or else the one ``learned`` so far.

    By default rewards are compared if the objective is about rewards, or if the environment provides model and
    objective itself: then it promises `model_rewards`.
    """
    require_environment(env)
    if pmdp is not None and not isinstance(pmdp, ParametricMDP):
        raise ModelError(f"pmdp is {type(pmdp).__name__}, not a model: pass what build(...) or load_prism(...) returns")
    if state_of is not None and not callable(state_of):
        raise ModelError(
            f"observation_to_state is {type(state_of).__name__}, not a function from an observation to a state"
        )
    with representative(env) as inner:
        named, binding = attribute(inner, "pmdp"), None
        if named is None and state_of is None:
            binding = _bound(env, inner, pmdp)
        own = named if binding is None else binding.pmdp
        model = pmdp if pmdp is not None else own if isinstance(own, ParametricMDP) else learned
        if not isinstance(model, ParametricMDP):
            raise ModelError(_nothing_known(env))
        is_own = isinstance(named, ParametricMDP) and named.has_states_of(model)
        limit = time_limit(env, inner)
        promised = attribute(inner, "objective") if binding is None else binding.question(limit)
        goal = Objective.parse(objective) if isinstance(objective, str) else objective or promised
        limits = goal.limits if isinstance(goal, Objective) else ()
        alone = goal.free if isinstance(goal, Objective) else goal
        goal = _question(env, model, alone, binding, horizon, limit)
        if is_own:
            _refuse_changes(env, inner, "pmdp", state_of is not None)
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
    paid, error = _payments(model, goal, binding) if check_rewards else (None, 0.0)
    if paid is not None and not fast:
        require_distinct_ways(model, paid)
    # the first number of a Discrete observation space, where observations number the states
    start = int(getattr(observation_space(env), "start", 0)) if model.states is None else 0
    reader = StateReader(model if binding is None else binding.pmdp, state_of, start, over, binding)
    return Attachment(
        env,
        model,
        goal,
        environment_spec(env),
        paid,
        reader,
        actions,
        fast,
        limit,
        longest=None if limit is not None else longest_episode(model, goal.resolve(model), goal.horizon),
        reward_error=error,
        method=None if binding is None else binding.method,
        limits=limits,
    )


def _bound(env: Env, inner: Any, pmdp: ParametricMDP | None) -> Binding | None:
    """The model of an environment known by its rules or its table; None if there is none, or not this one."""
    from rpl_envs.toy import bind

    binding = bind(inner)
    if binding is None or (pmdp is not None and not binding.pmdp.has_states_of(pmdp)):
        return None
    _refuse_changes(env, inner, None, False)
    return binding


def _refuse_changes(env: Env, inner: Any, owner: str | None, mapped: bool) -> None:
    """Refuse wrappers around the model's environment that change observations or actions.

    Observations that the user maps (``mapped``) are the user's responsibility.
    """
    seen = None if mapped else changing_wrapper(env, inner, owner, "Observation")
    if seen is not None:
        raise ModelError(
            f"the model is about the observations of {name_of(env)}, but the wrapper {seen} changes what is observed: "
            "pass pmdp=... and observation_to_state=... that maps it to a state"
        )
    done = changing_wrapper(env, inner, owner, "Action")
    if done is not None:
        raise ModelError(
            f"the model is about the actions of {name_of(env)}, but the wrapper {done} changes what actions mean: "
            "pass a pmdp=... over the changed actions"
        )


#: Suggestion for an environment without a model.
FIRST_MODEL = """
    def rows(s):                                # {action: {successor: probability}}; the action is the env's number
        return {0: {s + 1: "p", s: "1-p"}, 1: {s: 1}} if s < 5 else {0: {s: 1}}
    pmdp = rpl_agent.build(0, rows, domain=["p"], labels={"goal": lambda s: s == 5})
    RPLAgent(pmdp=pmdp, objective="maximise probability of goal", observation_to_state=int).learn(env, budget=100)
"""


def _nothing_known(env: Env) -> str:
    space = observation_space(env)
    dtype = getattr(space, "dtype", None)
    continuous = dtype is not None and np.issubdtype(dtype, np.floating)
    return (
        f"the structure of {name_of(env)} is unknown: it has no attribute 'pmdp', no table P and is not one "
        "of Gymnasium's toy_text worlds. A structure says which states and actions exist, where they may lead, and "
        "which probabilities are the same unknown. Write it, for example,\n"
        + FIRST_MODEL
        + "or in the PRISM language"
        + (f"; {space} is continuous, and only finitely many states can be certified" if continuous else "")
    )


def _payments(model: ParametricMDP, goal: Objective, binding: Binding | None) -> tuple[np.ndarray, float]:
    """(3, T) least and most that transitions pay, with the tolerance, and what that costs the bounds."""
    declared = distinguishing_rewards(model, goal) if binding is None else binding.paid
    asked = goal if binding is None else binding.objective or goal
    paid = model_rewards(model, asked) if declared is None else np.stack([declared, declared])
    tolerance, error = reward_tolerance(model, goal, paid)
    return np.vstack([paid, tolerance]), error


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
    goal = with_certain_end(model, _with_horizon(goal, horizon, limit, name_of(env)), limit)
    require_end(model, goal.resolve(model))
    return goal


def _with_horizon(goal: Objective, horizon: int | str | None, limit: int | None, name: str) -> Objective:
    """The objective with the requested horizon; "env" takes the environment's time limit."""
    if horizon is None:
        return goal
    if horizon == "env":
        if limit is None:
            raise ModelError(f"horizon='env': {name} has no TimeLimit to take the horizon from")
        return replace(goal, horizon=limit)
    if isinstance(horizon, str):
        raise ModelError(f"horizon {horizon!r} is neither 'env' nor a number of steps")
    if not hasattr(horizon, "__index__") or isinstance(horizon, bool):
        raise ModelError(f"horizon {horizon!r} is neither 'env' nor a whole number of steps")
    return replace(goal, horizon=int(horizon))


def environment_spec(env: Env) -> dict[str, Any] | None:
    """Id and keyword arguments, if the environment is a registered one and they are plain data."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return None
    kwargs = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in spec.kwargs.items() if k != "render_mode"}
    try:
        return json.loads(json.dumps({"id": spec.id, "kwargs": kwargs}))
    except TypeError:
        return {"id": spec.id, "kwargs": None}


def make_env(spec: dict[str, Any] | None) -> Any:
    """Remake the environment of a checkpoint, or None. Only registered ids: a file cannot name code to run."""
    kwargs = (spec or {}).get("kwargs")
    return make_registered((spec or {}).get("id"), **kwargs) if isinstance(kwargs, dict) else None
