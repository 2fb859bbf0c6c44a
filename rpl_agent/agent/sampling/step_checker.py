"""`StepChecker`: compares every step with the model and counts it.

Compares the state after every reset with the model's start, every successor with the graph, every reward with what
the model pays, every end with the end of the objective, and an action mask, if there is one, with the actions of
the model. A contradiction is an error that names the episode, the step, the state, what was expected and what was
observed; everything before it has been counted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.world.actions import EnvActions, lacking_note
from rpl_agent.agent.world.observations import StateReader
from rpl_agent.agent.world.plays import finished, gains, over_at_once, way_taken
from rpl_agent.core.errors import DataError, RPLWarning
from rpl_agent.core.model import Objective, Policy, Sense

Where = Callable[[], str]
#: Types of observations whose values never change, and the most observed steps to remember.
PLAIN, REMEMBERED = frozenset({int, str, tuple, np.int64}), 100_000


class StepChecker:
    """Checks and records single steps.

    paid : (2, T) what the environment pays for each transition by the model, and the tolerance;
        None to skip the comparison.
    reward_error : what the bounds pay if a reward deviates by the full tolerance, and in proportion if by less.
    longest : steps after which an episode is cut here.
    actions : the environment's; by default they are the model's.
    """

    def __init__(
        self,
        experience: Experience,
        reader: StateReader,
        objective: Objective,
        paid: np.ndarray | None,
        reward_error: float = 0.0,
        longest: int | None = None,
        actions: EnvActions | None = None,
    ):
        self._reward_error, self._longest, self._warned = reward_error, longest, False
        self.experience = experience
        self.pmdp = experience.pmdp
        self.reader = reader
        own = np.arange(self.pmdp.num_actions)
        self.actions = EnvActions(own, 0, len(own), own=True) if actions is None else actions
        self.paid = None if paid is None else list(zip(*paid.tolist()))  # plain numbers: looked up in every step
        self.task = objective.resolve(self.pmdp)
        self.over_at_once = over_at_once(self.pmdp, self.task)
        self.horizon = objective.horizon
        self._gain = gains(self.pmdp, self.task)
        self.sign = 1.0 if objective.sense is Sense.MAX else -1.0
        self._discount = objective.discount
        # of `ParametricMDP.solver_step`, read in every step
        self._solver_steps = self.pmdp.solver_step(0), self.pmdp.solver_steps_per_step
        self._finished: np.ndarray | None = None
        self._ways: dict[tuple[int, int], list[int]] = {}  # transitions from a row to a state
        self._followed: dict[Any, tuple[int, int]] = {}  # steps that passed all comparisons, whenever they happen
        self._choices: dict[int, tuple[int, list[float]]] = {}
        self.compared: set[int] = set()  # states whose actions have been compared
        self._policy: Policy | None = None
        self._weights: np.ndarray | None = None

    # ------------------------------------------------------------------ choosing
    def use(self, policy: Policy) -> None:
        """Set the policy that `choose` draws from; one with a rule per step is deterministic."""
        if policy is not self._policy:
            policy.require_fit(self.pmdp)
            stepped = policy.rows is not None and policy.rows.ndim == 2
            self._weights = None if stepped else policy.as_weights(self.pmdp)
            self._policy = policy
            self._choices.clear()

    def choose(self, state: int, u: float, step: int) -> int:
        """Draw a row with a uniform number, at a step of the episode."""
        if self._weights is None:
            assert self._policy is not None and self._policy.rows is not None
            rules, (first, per_step) = self._policy.rows, self._solver_steps
            # the last rule persists, as in `Policy.at`
            return int(rules[min(first + per_step * step, len(rules) - 1), state])
        choice = self._choices.get(state)
        if choice is None:
            lo, hi = int(self.pmdp.state_ptr[state]), int(self.pmdp.state_ptr[state + 1])
            choice = self._choices[state] = (lo, np.cumsum(self._weights[lo:hi]).tolist())
        low, cumulative = choice
        u *= cumulative[-1]
        k = 0
        while k < len(cumulative) - 1 and cumulative[k] <= u:
            k += 1
        return low + k

    # ------------------------------------------------------------------ comparing
    def begin(self, observation: Any, where: Where, info: Any = None) -> tuple[int, int | None]:
        """The state after a reset, which must be a start of the model, and the transition that drew it, if any."""
        pmdp, start = self.pmdp, self.pmdp.initial_state
        state = self._read(lambda: self.reader.first(observation, info), observation, where)
        if not pmdp.has_random_start:
            if state != start:
                seen, expected = self._name(state), self._name(start)
                raise DataError(f"{where()}: the environment starts in {seen}, but the model in {expected}")
            return state, None
        row = int(pmdp.state_ptr[start])
        t = pmdp.find_transition(row, state)
        if t < 0:
            raise DataError(
                f"{where()}: the environment starts in {self._name(state)}, but the model never does; expected one of "
                f"{self._successors(row)}"
            )
        return state, t

    def follow(
        self,
        state: int,
        row: int,
        observation: Any,
        reward: Any,
        terminated: bool,
        where: Where,
        step: int = 0,
        info: Any = None,
    ) -> tuple[int, int]:
        """(successor, transition) of an observed step, number ``step`` (from 0) of its episode; -1 after its end.

        A step that the model cannot make is an error that names it. An environment may end where the horizon does.
        What has been observed before is looked up, unless the user's own mapping says which state it is.
        """
        key = (row, type(observation), observation, reward, terminated)
        repeats = type(observation) in PLAIN and self.reader.state_of is None
        try:
            if repeats and (step or not self.over_at_once[state]) and key in self._followed:
                return self._followed[key]
        except TypeError:  # a tuple of arrays is not hashable
            repeats = False
        seen = state, int(self.pmdp.action[row]), observation, reward, terminated, info
        successor = self._read(lambda: self.reader.next(*seen), observation, where)
        if not step and self.over_at_once[state]:
            return successor, -1
        t = self._transition(row, successor, reward, where)
        at_horizon = self.horizon is not None and step + 1 >= self.horizon
        if not terminated or self.ends(successor):
            # remembered unless something is left to record about it: a reward that is only nearly the model's
            exact = self.paid is None or self.paid[t][0] == reward
            if repeats and exact and len(self._followed) < REMEMBERED:
                self._followed[key] = successor, t
        elif not at_horizon:
            raise DataError(
                f"{where()}: the environment terminated in {self._name(successor)}, where the objective is not "
                "decided and the model continues; label such states as target or avoid, make them absorbing, or pass "
                "end=... for the state of the model that the end of an episode means"
            )
        return successor, t

    def compare_actions(self, state: int, mask: Any, where: Where) -> None:
        """Compare the actions of a state with the environment's, which a mask may restrict; once for each state.

        A mask must not forbid an action by which the model can leave the state. It may forbid actions that are
        possible but do nothing, as in Taxi next to a wall. An action that the model lacks and no mask forbids restricts
        what the certificate says about all policies.
        """
        if state in self.compared:
            return
        self.compared.add(state)
        pmdp = self.pmdp
        rows = range(int(pmdp.state_ptr[state]), int(pmdp.state_ptr[state + 1]))
        if mask is not None:
            allowed = np.append(np.asarray(mask).astype(bool).ravel(), False)
            for row in rows:
                moves = (pmdp.visible_successor[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]] != state).any()
                if moves and not allowed[min(self.actions.place(pmdp.action[row]), len(allowed) - 1)]:
                    raise DataError(
                        f"{where()}: the environment's action_mask forbids action "
                        f"{pmdp.action_names[pmdp.action[row]]!r} in {self._name(state)}, where the model has it"
                    )
        if self.experience.lacking is None and not self.ends(state):
            lacking = self.actions.lacking(pmdp, state, mask)
            if lacking:
                self.experience.lacking = lacking_note(pmdp, state, lacking[0])

    def _transition(self, row: int, successor: int, reward: float, where: Where) -> int:
        """The transition from a row to a state that pays this reward."""
        pmdp, ways = self.pmdp, self._ways.get((row, successor))
        if ways is None:
            low, high = int(pmdp.row_ptr[row]), int(pmdp.row_ptr[row + 1])
            ways = (low + np.flatnonzero(pmdp.visible_successor[low:high] == successor)).tolist()
            if not ways:
                raise DataError(
                    f"{where()}: successor {self._name(successor)} of {pmdp.row_name(row)} is unknown to the "
                    f"model (its probability is zero there); expected one of {self._successors(row)}"
                )
            self._ways[row, successor] = ways
        if self.paid is None:
            if len(ways) > 1:
                raise DataError(f"{where()}: only the reward determines the outcome: check_rewards=False cannot work")
            return ways[0]
        t, missed = way_taken(self.paid, ways, reward)
        if t is not None and missed:
            # rounded up, so that it seldom changes
            share = 10.0 ** math.ceil(math.log10(missed / self.paid[t][1]))
            self.experience.reward_error = max(self.experience.reward_error, share * self._reward_error)
        if t is not None:
            return t
        expected = " or ".join(f"{self.paid[way][0]:.9g}" for way in ways)
        raise DataError(
            f"{where()}: reward {reward} contradicts the model, which pays {expected} for "
            f"{pmdp.transition_name(ways[0])}; pass check_rewards=False if that is intended"
        )

    def _read(self, read: Callable[[], int], observation: Any, where: Where) -> int:
        try:
            return read()
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{where()}: observation {_short(observation)} has no state: {error}") from error

    def _name(self, state: int) -> str:
        return f"state {state} = {self.pmdp.state_name(state)}"

    def _successors(self, row: int) -> str:
        found = self.pmdp.visible_successor[self.pmdp.row_ptr[row] : self.pmdp.row_ptr[row + 1]]
        shown = ", ".join(self.pmdp.state_name(int(s)) for s in found[:4])
        return shown + (", …" if len(found) > 4 else "")

    # ------------------------------------------------------------------ ends and values
    def ends(self, state: int) -> bool:
        """Whether nothing after this state can change the objective."""
        if self.task.decided[state]:
            return True
        if self._finished is None:
            self._finished = finished(self.pmdp, self.task)
        return bool(self._finished[state])

    def is_too_long(self, length: int) -> bool:
        """Whether to cut an episode that has not ended after this many steps; warns the first time."""
        if self._longest is None or length < self._longest:
            return False
        if not self._warned and self.horizon is None:
            self._warned = True
            warnings.warn(
                f"an episode has not ended after {length:,} steps, and the environment has no TimeLimit; episodes are "
                "cut here; set their length with gymnasium.wrappers.TimeLimit, and give the budget in steps: "
                'learn(env, budget, unit="steps")',
                RPLWarning,
                stacklevel=2,
            )
        return True

    def gain(self, t: int, step: int) -> float:
        """What a transition adds to the objective as step number ``step`` (from 0) of a play."""
        if self.horizon is not None and step >= self.horizon:
            return 0.0
        return float(self._gain[t]) * self._discount**step

    def count(self, row: int, t: int, limits: Limits) -> bool:
        """Add to the running visit counts; return whether a limit is reached."""
        rows, expressions = self.experience.rows, self.experience.expressions
        f = self.pmdp.expression[t]
        rows[row] += 1
        expressions[f] += 1
        return bool(
            (limits.rows is not None and rows[row] >= limits.rows[row])
            or (limits.expressions is not None and expressions[f] >= limits.expressions[f])
        )


# ---------------------------------------------------------------------- what reset and step return
def unpack_reset(returned: Any, where: Where) -> tuple[Any, Any]:
    """(observation, info) of ``env.reset()``."""
    proper = isinstance(returned, tuple) and len(returned) == 2
    if not proper or not (type(returned[1]) is dict or isinstance(returned[1], Mapping)):  # most are dictionaries
        raise DataError(f"{where()}: reset() must return (observation, info), but returned {_short(returned)}")
    return returned[0], returned[1]


def unpack_step(returned: Any, where: Where) -> tuple[Any, ...]:
    """(observation, reward, terminated, truncated, info) of ``env.step()``."""
    if not (isinstance(returned, tuple) and len(returned) == 5):
        count = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
        raise DataError(
            f"{where()}: step() must return (observation, reward, terminated, truncated, info), but returned {count}"
            + ("; that is the interface of gym before 0.26" if count == "4 values" else "")
        )
    return returned


def checked_reward(reward: Any, where: Where) -> float:
    """Check that a reward is finite and return it as a float."""
    if type(reward) is float and math.isfinite(reward):
        return reward
    plain = isinstance(reward, (int, float, np.number)) or (isinstance(reward, np.ndarray) and reward.ndim == 0)
    if not plain or not math.isfinite(float(reward)):
        raise DataError(f"{where()}: the reward must be a finite number, not {_short(reward)}")
    return float(reward)


def checked_flag(value: Any, name: str, where: Where) -> bool:
    """Check that a value is a bool and return it."""
    if (
        type(value) is not bool
        and not isinstance(value, np.bool_)
        and not (isinstance(value, (int, np.integer)) and value in (0, 1))
    ):
        raise DataError(f"{where()}: {name} must be True or False, not {_short(value)}")
    return bool(value)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
