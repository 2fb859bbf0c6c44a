"""`ParametricMDP`: the known structure, as frozen arrays; `MDP`: the same skeleton with numbers.

Terms: a *row* is an enabled state-action pair. Rows of state s are ``state_ptr[s]:state_ptr[s+1]``, sorted
by action; transitions of row r are ``row_ptr[r]:row_ptr[r+1]``, sorted by successor. S states, R rows,
T transitions, F = |Λ| expressions. Nothing per transition is a Python object: 10^7 transitions fit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.model.csr import compact_parts
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.states import NamedStates, StateIndex, named_states
from rpl_agent.core.native import core

#: Name of a model that was given none.
UNNAMED = "model"


def nearest(values: Iterable[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Round exact numbers to doubles; also bound the errors, None if there are none."""
    given = list(values)
    numbers = np.array([float(value) for value in given])
    errors = np.zeros(len(given))
    for i, value in enumerate(given):
        if not isinstance(value, float) and np.isfinite(numbers[i]):
            off = abs(Fraction(value) - Fraction(numbers[i]))
            errors[i] = math.nextafter(float(off), math.inf) if off else 0.0
    return numbers, errors if errors.any() else None


@dataclass(frozen=True)
class Reward:
    """Reward of a state (paid on leaving it, whatever the action) and of a state-action pair.

    The errors bound how far each number is from the exact one, which need not be a double (1/10).
    """

    state: np.ndarray  # (S,)
    row: np.ndarray  # (R,)
    state_error: np.ndarray | None = None  # (S,) ≥ 0; None if all numbers are exact
    row_error: np.ndarray | None = None  # (R,)

    @cached_property
    def is_single(self) -> bool:
        """Whether all numbers are finite, and either only states or only rows pay: then no sum is rounded."""
        finite = np.isfinite(self.state).all() and np.isfinite(self.row).all()
        return bool(finite and not (self.state.any() and self.row.any()))

    @property
    def is_exact(self) -> bool:
        """Whether `ParametricMDP.row_reward` is exact."""
        return self.state_error is None and self.row_error is None and self.is_single

    def taken(self, states: np.ndarray, rows: np.ndarray) -> Reward:
        """The rewards of some states and rows, in that order."""
        return Reward(
            self.state[states],
            self.row[rows],
            None if self.state_error is None else self.state_error[states],
            None if self.row_error is None else self.row_error[rows],
        )

    def fingerprint(self) -> bytes:
        """Bytes that determine its meaning."""
        return b"".join(np.ascontiguousarray(a).tobytes() for a in (self.state, self.row))


@dataclass(frozen=True)
class ParametricMDP:
    """A parametric MDP (Definition 2 of the paper).

    >>> import rpl_envs
    >>> rpl_envs.benchmark("Betting-25").pmdp
    ParametricMDP('Betting-25', states=3625, transitions=27703, expressions=1283, parameters=('p',))
    """

    state_ptr: np.ndarray  # (S+1,) int64
    action: np.ndarray  # (R,) int32, id into action_names
    row_ptr: np.ndarray  # (R+1,) int64
    successor: np.ndarray  # (T,) int32
    expression: np.ndarray  # (T,) int32, id into table
    table: ExpressionTable
    domain: Domain
    initial_state: int = 0
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> (S,) bool
    rewards: Mapping[str, Reward] = field(default_factory=dict)
    action_names: tuple[str, ...] = ()
    variables: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> (S,) int
    name: str = UNNAMED
    state_values: Sequence[Hashable] | None = None  # (S,) the user's own; None for the variables, or numbers only
    silent: np.ndarray | None = None  # (S,) bool, states that take no step and are never observed (see builder.py)
    actions_ordered: bool = True  # whether the order of action_names can be that of an environment's action space
    own_actions: tuple[Hashable, ...] | None = None  # (A,) the user's own keys; None for the names themselves
    assumption: str | None = None  # an assumption about the system, repeated by every certificate

    def __post_init__(self) -> None:
        for attribute, dtype in (
            ("state_ptr", np.int64),
            ("action", np.int32),
            ("row_ptr", np.int64),
            ("successor", np.int32),
            ("expression", np.int32),
        ):
            array = np.ascontiguousarray(getattr(self, attribute), dtype=dtype)
            array.setflags(write=False)
            object.__setattr__(self, attribute, array)
        if self.state_ptr[-1] != len(self.action) or self.row_ptr[-1] != len(self.successor):
            raise ModelError("the pointers of states, rows and transitions do not fit together")
        if not hasattr(self.initial_state, "__index__") or not 0 <= self.initial_state < self.num_states:
            last = self.num_states - 1
            raise ModelError(f"initial state {self.initial_state} does not exist: states are 0 to {last}")
        if self.state_values is not None and len(self.state_values) != self.num_states:
            raise ModelError(f"{len(self.state_values)} state values were given for {self.num_states} states")
        if self.silent is not None and np.shape(self.silent) != (self.num_states,):
            raise ModelError(
                f"silent has shape {np.shape(self.silent)}, not ({self.num_states},): one boolean per state"
            )
        if self.own_actions is not None and len(self.own_actions) != self.num_actions:
            raise ModelError(f"{len(self.own_actions)} action keys were given for {self.num_actions} actions")
        if self.domain.parameters != self.table.parameters:
            over, used = listed(self.domain.parameters), listed(self.table.parameters)
            raise ModelError(f"the domain has the parameters {over}, the expressions have {used}: give both the same")
        self._require_shapes()

    def _require_shapes(self) -> None:
        """Raise unless labels, rewards and action names fit the states and rows."""
        of_states, of_rows = (self.num_states,), (self.num_rows,)
        for name, mask in self.labels.items():
            if np.shape(mask) != of_states:
                raise ModelError(f"label {name!r} has shape {np.shape(mask)}, not {of_states}: one number per state")
        for name, reward in self.rewards.items():
            if np.shape(reward.state) != of_states or np.shape(reward.row) != of_rows:
                shapes = f"{np.shape(reward.state)} and {np.shape(reward.row)}"
                raise ModelError(f"reward {name!r} has shapes {shapes}, not {of_states} and {of_rows}: states and rows")
        most = int(self.action.max(initial=0))
        if not 0 <= int(self.action.min(initial=0)) <= most < max(self.num_actions, 1):
            raise ModelError(f"{self.num_actions} action names for actions up to number {most}")

    # ------------------------------------------------------------------ sizes
    @property
    def num_states(self) -> int:
        return len(self.state_ptr) - 1

    @property
    def num_rows(self) -> int:
        return len(self.action)

    @property
    def num_transitions(self) -> int:
        return len(self.successor)

    @property
    def num_expressions(self) -> int:
        return self.table.num_expressions

    @property
    def num_parameters(self) -> int:
        return self.table.num_parameters

    @property
    def num_actions(self) -> int:
        return len(self.action_names)

    @property
    def action_keys(self) -> tuple[Hashable, ...]:
        """The actions as the user wrote them; `action_names` are their names for messages and files."""
        return self.action_names if self.own_actions is None else self.own_actions

    # ------------------------------------------------------------------ derived arrays
    @cached_property
    def row_state(self) -> np.ndarray:
        """(R,) int32 the state of each row."""
        return np.repeat(np.arange(self.num_states, dtype=np.int32), np.diff(self.state_ptr))

    @cached_property
    def transition_row(self) -> np.ndarray:
        """(T,) int32 the row of each transition."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), np.diff(self.row_ptr))

    def payments(self, name: str, over: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None, float]:
        """(reward (R,), bounds (R,) on their errors, the least reward): of a row's two numbers, and of their sum.

        over : (S,) states that pay nothing

        The bounds are None if all rewards are exact; the least one is NaN if one is not finite.
        """
        given = self.rewards[name]
        reward, error = np.empty(self.num_rows), None if given.is_exact else np.empty(self.num_rows)
        numbers = (
            None if part is None else np.ascontiguousarray(part, np.float64)
            for part in (given.state, given.row, given.state_error, given.row_error)
        )
        least = core.row_payments(self.num_states, self.state_ptr, *numbers, not given.is_single, over, reward, error)
        return reward, error, least

    def row_reward_error(self, name: str) -> np.ndarray | None:
        """(R,) bounds on the errors of `row_reward`: of its two numbers, and of their sum; None if it is exact."""
        return self.payments(name)[1]

    def row_reward(self, name: str) -> np.ndarray:
        """(R,) reward paid when row r is taken, a new array."""
        return self.payments(name)[0]

    def find_row(self, state: int, action: int) -> int:
        """Row of (state, action id), or −1."""
        lo, hi = self.state_ptr[state], self.state_ptr[state + 1]
        k = lo + int(self.action[lo:hi].searchsorted(action))
        return int(k) if k < hi and self.action[k] == action else -1

    def find_transition(self, row: int, successor: int) -> int:
        """Transition of a row to a successor, or −1."""
        lo, hi = self.row_ptr[row], self.row_ptr[row + 1]
        k = lo + int(self.successor[lo:hi].searchsorted(successor))
        return int(k) if k < hi and self.successor[k] == successor else -1

    def action_mask(self, state: int) -> np.ndarray:
        """(A,) int8, 1 where the action is enabled."""
        mask = np.zeros(self.num_actions, dtype=np.int8)
        mask[self.action[self.state_ptr[state] : self.state_ptr[state + 1]]] = 1
        return mask

    @cached_property
    def is_silent(self) -> np.ndarray:
        """(S,) bool, states that an environment passes without a step."""
        return np.zeros(self.num_states, dtype=bool) if self.silent is None else np.asarray(self.silent, dtype=bool)

    @property
    def has_random_start(self) -> bool:
        """Whether the initial state is a silent one whose only row draws the first visible state."""
        return bool(self.is_silent[self.initial_state])

    @property
    def first_states(self) -> np.ndarray:
        """(n,) the visible states in which plays may begin."""
        row = self.state_ptr[self.initial_state]
        drawn = self.successor[self.row_ptr[row] : self.row_ptr[row + 1]]
        return drawn if self.has_random_start else np.array([self.initial_state])

    @cached_property
    def has_payments(self) -> bool:
        """Whether silent states pay rewards r(s, a, s') on the way to all successors (see builder.py)."""
        return bool(self.is_silent.sum() > self.has_random_start)

    @property
    def solver_steps_per_step(self) -> int:
        """Solver steps for one step of an environment: two if every transition passes a silent state."""
        return 1 + int(self.has_payments)

    def solver_step(self, step: int) -> int:
        """The number of solver steps before step number ``step`` (from 0) of an episode is taken."""
        return int(self.has_random_start) + self.solver_steps_per_step * step

    @cached_property
    def visible_successor(self) -> np.ndarray:
        """(T,) int32 the visible state after each transition, behind a silent state if there is one."""
        if not self.is_silent.any():
            return self.successor
        first = self.successor[self.row_ptr[self.state_ptr[:-1]]]  # of each state; silent ones have no other
        visible = np.where(self.is_silent[self.successor], first[self.successor], self.successor)
        visible.setflags(write=False)  # read-only like the other arrays
        return visible

    @cached_property
    def ambiguous_without_reward(self) -> np.ndarray:
        """(T,) bool, transitions whose row also leads to the same state in another way, which pays differently."""
        pairs = self.transition_row.astype(np.int64) * self.num_states + self.visible_successor
        _, which, ways = np.unique(pairs, return_inverse=True, return_counts=True)
        return ways[which] > 1

    def on_transitions(self, reward: np.ndarray) -> np.ndarray:
        """(T,) what each transition pays, from rewards (R,) of rows; a silent state on the way adds its own."""
        between = np.where(self.is_silent[self.successor], reward[self.state_ptr[self.successor]], 0.0)
        return reward[self.transition_row] + between

    # ------------------------------------------------------------------ names
    @cached_property
    def states(self) -> NamedStates | None:
        """The values of the states; None if they are numbers only."""
        return named_states(self.state_values, self.variables, tuple(self.variables))

    def state_index(self, value: Any) -> int:
        """The number of the state with this value (see `rpl_agent.core.model.states` for what counts as equal).

        A number is an index only if the model has no state values, or as `StateIndex(number)`.
        """
        if isinstance(value, StateIndex) or self.states is None:
            index = int(value) if hasattr(value, "__index__") else -1
        else:
            index = self.states.find(value)
        if not 0 <= index < self.num_states:
            known = ", ".join(repr(self.state_value(s)) for s in range(min(3, self.num_states)))
            raise ModelError(f"{value!r} is not a state of {self.name}; its {self.num_states} states are {known}, …")
        return index

    def state_value(self, index: int) -> Any:
        """The value of a state: as given to the builder, the tuple of its variables, or the number itself."""
        if not 0 <= index < self.num_states:
            raise ModelError(f"there is no state {index}; {self.name} has {self.num_states}")
        return int(index) if self.states is None else self.states.value(int(index))

    def has_states_of(self, other: ParametricMDP) -> bool:
        """Whether states, actions and transitions are the same, regardless of labels and rewards."""
        if self is other:
            return True
        mine, theirs = self.states, other.states
        return (
            self.action_names == other.action_names
            and self.initial_state == other.initial_state
            and all(
                np.array_equal(getattr(self, name), getattr(other, name))
                for name in ("state_ptr", "action", "row_ptr", "successor")
            )
            and (mine is None) == (theirs is None)
            and (mine is None or theirs is None or b"".join(mine.fingerprint()) == b"".join(theirs.fingerprint()))
        )

    # ------------------------------------------------------------------ for people
    def state_name(self, state: int) -> str:
        if not self.variables or self.is_silent[state]:
            return f"s{state}" if self.state_values is None else repr(self.state_values[state])
        return "(" + ", ".join(f"{name}={values[state]}" for name, values in self.variables.items()) + ")"

    def row_name(self, row: int) -> str:
        state = int(self.row_state[row])
        if not self.action_names:  # nothing but the draw of a start
            return f"state {state} = {self.state_name(state)}"
        return f"state {state} = {self.state_name(state)}, action {self.action_names[self.action[row]]!r}"

    def transition_name(self, t: int) -> str:
        successor = int(self.successor[t])
        return (
            f"{self.row_name(int(self.transition_row[t]))}, successor {successor} = {self.state_name(successor)}, "
            f"expression {self.table.polynomial(int(self.expression[t]))}"
        )

    # ------------------------------------------------------------------ numbers
    def instantiate(self, theta: np.ndarray | Sequence[float] | Mapping[str, float]) -> MDP:
        """The MDP M[θ]: same skeleton, probabilities in floats."""
        if isinstance(theta, Mapping):
            missing = set(self.table.parameters) ^ set(theta)
            if missing:
                raise ModelError(f"θ and the model differ in parameters: {listed(sorted(missing))}")
            theta = np.array([theta[name] for name in self.table.parameters])
        try:
            theta = np.asarray(theta, dtype=float)
        except (TypeError, ValueError):
            theta = np.full(0, np.nan)
        if theta.shape != (self.num_parameters,) or not np.isfinite(theta).all():
            raise ModelError(
                f"θ must be {self.num_parameters} finite numbers, one per parameter: {listed(self.table.parameters)}"
            )
        if not self.domain.contains(theta):
            raise ModelError(f"θ = {dict(zip(self.table.parameters, theta.tolist()))} lies outside the domain")
        values = self.table.accurate(theta)
        bad = np.flatnonzero((values < -1e-9) | (values > 1 + 1e-9))
        if len(bad):
            t = int(np.flatnonzero(self.expression == bad[0])[0])
            raise ModelError(f"probability {values[bad[0]]:.6g} is outside [0, 1] at {self.transition_name(t)}")
        return MDP(self, (p := np.clip(values, 0.0, 1.0))[self.expression], theta, p)

    @cached_property
    def content_hash(self) -> str:
        """Hash of everything that determines the meaning of data and policies for this model."""
        digest = hashlib.blake2b(digest_size=16)
        table = self.table
        A: Any = self.domain.A
        parts: list[Iterable[bytes | memoryview]] = [
            compact_parts(self.state_ptr, lengths=True),
            compact_parts(self.action),
            compact_parts(self.row_ptr, lengths=True),
            *map(
                compact_parts,
                (
                    self.successor,
                    self.expression,
                    np.zeros(0) if table.is_plain else table.monomials,
                    table.indptr,
                    table.indices,
                    self.domain.lower,
                    self.domain.upper,
                    *((A.indptr, A.indices, A.data) if scipy.sparse.issparse(A) else (A,)),
                    self.domain.b,
                ),
            ),
            [repr((table.data.tolist(), table.denominators, table.parameters, self.initial_state)).encode()],
            [repr(self.action_names).encode()],
            [] if self.silent is None else compact_parts(self.is_silent),
            [] if self.states is None else self.states.fingerprint(),  # they determine the state of an observation
        ]
        for name in sorted(self.labels):
            parts += [[name.encode()], compact_parts(self.labels[name])]
        for name in sorted(self.rewards):
            parts += [[name.encode(), self.rewards[name].fingerprint()]]
        for part in chain.from_iterable(parts):
            digest.update(part)
        return digest.hexdigest()

    def __repr__(self) -> str:
        names = self.table.parameters
        shown = names if len(names) <= 12 else f"{len(names)}, from {names[0]!r} to {names[-1]!r}"
        return (
            f"ParametricMDP({self.name!r}, states={self.num_states}, transitions={self.num_transitions}, "
            f"expressions={self.num_expressions}, parameters={shown})"
        )


@dataclass(frozen=True, eq=False)
class MDP:
    """A parametric MDP at one θ: the skeleton and one probability per transition."""

    pmdp: ParametricMDP
    probability: np.ndarray  # (T,) float64
    theta: np.ndarray  # (d,)
    values: np.ndarray | None = None  # (F,) the same per expression, where they were computed from θ
