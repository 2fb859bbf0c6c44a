"""`build_vectorized`: the vectorised builder for large regular models.

A model is described by one function that expands a whole frontier of states at once. Expressions are
given as integer numerators over one denominator per monomial, so tying stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.building.builder import named_actions
from rpl_agent.core.model.building.validation import require_valid
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import UNNAMED, ParametricMDP, Reward
from rpl_agent.core.model.states import Codec, Columns
from rpl_agent.core.native.memory import give_back_memory

#: Dense key → id tables up to this many entries; beyond that, keys are looked up in a sorted array.
DENSE_KEYS = 400_000_000


@dataclass(eq=False)
class Block:
    """Transitions of one action: from states ``source`` (indices into the frontier) to ``successor``.

    numerators : (n, M) int64. Several blocks may add to one row; equal successors are merged.
    """

    action: Hashable
    source: np.ndarray  # (n,)
    successor: Columns  # variable -> (n,)
    numerators: np.ndarray  # (n, M)


def build_vectorized(
    initial: Mapping[str, int],
    bounds: Mapping[str, tuple[int, int]],
    expand: Callable[[Columns], Iterable[Block]],
    *,
    domain: Domain,
    monomials: Sequence[Sequence[int]] | np.ndarray,
    denominators: Sequence[int],
    action_names: Sequence[Hashable],
    labels: Mapping[str, Callable[[Columns], np.ndarray]] | None = None,
    state_rewards: Mapping[str, Callable[[Columns], np.ndarray]] | None = None,
    action_rewards: Mapping[str, Callable[[Columns, Any], np.ndarray]] | None = None,
    name: str = UNNAMED,
    validate: bool = True,
) -> ParametricMDP:
    """Explore breadth-first, frontier by frontier.

    Parameters
    ----------
    initial, bounds : initial value and inclusive range of every state variable.
    expand : columns of a frontier (variable -> (n,) int64) -> blocks of transitions.
    monomials : (M, d) exponents, first row zero; ``denominators`` one per monomial.
    action_names : the actions as used in blocks, in the order of the environment's action space.
    labels, state_rewards : columns of all states -> (S,) array. ``action_rewards`` also get the action, as in
        ``action_names``.

    >>> import numpy as np
    >>> from rpl_agent.core.model import Block
    >>> def expand(columns):  # from 0..2 up with probability p, else stay
    ...     x = np.flatnonzero(columns["x"] < 3)
    ...     yield Block("try", x, {"x": columns["x"][x] + 1}, np.tile([0, 1], (len(x), 1)))
    ...     yield Block("try", x, {"x": columns["x"][x]}, np.tile([1, -1], (len(x), 1)))
    ...     end = np.flatnonzero(columns["x"] == 3)
    ...     yield Block("try", end, {"x": columns["x"][end]}, np.tile([1, 0], (len(end), 1)))
    >>> build_vectorized(
    ...     {"x": 0}, {"x": (0, 3)}, expand, domain=Domain.box(["p"]), monomials=[[0], [1]], denominators=[1, 1],
    ...     action_names=["try"],
    ... )
    ParametricMDP('model', states=4, transitions=7, expressions=3, parameters=('p',))
    """
    codec = Codec(bounds)
    actions = named_actions(action_names)
    start = codec.encode(_state_columns("initial", initial, bounds, ()), 1)
    found = _explore(codec, start, expand, actions.keys, len(denominators))
    state_ptr, row_ptr, row_action = found.rows(len(actions.keys))
    row_state = found.source[row_ptr[:-1]]
    table, rank = ExpressionTable.from_integers(
        domain.parameters, np.array(monomials), found.numerators, denominators
    ).sorted()
    columns = codec.decode(found.keys)
    on_states, on_actions = state_rewards or {}, action_rewards or {}
    rewards = {}
    for key in sorted({*on_states, *on_actions}):
        per_state = np.zeros(len(found.keys))
        if key in on_states:
            per_state = np.asarray(on_states[key](columns), dtype=float)
        per_row = np.zeros(len(row_action))
        for i, a in enumerate(actions.keys if key in on_actions else ()):
            at = np.flatnonzero(row_action == i)
            paid = np.asarray(on_actions[key]({k: v[row_state[at]] for k, v in columns.items()}, a), dtype=float)
            if paid.shape not in ((), at.shape):
                raise ModelError(f"reward {key!r} has shape {paid.shape} for action {a!r}, not {at.shape}")
            per_row[at] = paid
        rewards[key] = Reward(per_state, per_row)
    model = ParametricMDP(
        state_ptr,
        row_action,
        row_ptr,
        found.successor,
        rank[found.expression],
        table,
        domain,
        0,
        {k: np.asarray(f(columns), dtype=bool) for k, f in (labels or {}).items()},
        rewards,
        actions.names,
        {k: v.astype(np.int32) for k, v in columns.items()},
        name,
        own_actions=actions.keys,
    )
    if validate:
        require_valid(model)
    del found
    give_back_memory(model.num_transitions)
    return model


@dataclass(eq=False)
class _Transitions:
    """All transitions found (T,), ordered by source, action and successor."""

    keys: np.ndarray  # (S,) int64 of the states
    source: np.ndarray
    action: np.ndarray
    successor: np.ndarray
    expression: np.ndarray
    numerators: np.ndarray  # (F, M) int64 of the distinct expressions

    def rows(self, actions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(state_ptr (S+1,), row_ptr (R+1,), action (R,))."""
        row_key = self.source.astype(np.int64) * actions + self.action
        starts = np.flatnonzero(np.diff(row_key, prepend=-1) != 0)
        state_ptr = np.searchsorted(self.source[starts], np.arange(len(self.keys) + 1))
        return state_ptr, np.concatenate([starts, [len(row_key)]]), self.action[starts]


def _explore(
    codec: Codec,
    frontier: np.ndarray,
    expand: Callable[[Columns], Iterable[Block]],
    actions: tuple[Hashable, ...],
    width: int,
) -> _Transitions:
    """Explore breadth-first from the keys of a frontier; states are numbered level by level, by key within a level."""
    action_id = {a: i for i, a in enumerate(actions)}
    interner, ids = _Interner(width), _StateIds(codec.size)
    ids.add(frontier)
    levels: list[np.ndarray] = []
    parts: list[tuple[np.ndarray, ...]] = []
    base = 0
    while len(frontier):
        levels.append(frontier)
        blocks = expand(codec.decode(frontier))
        source, action, target, numerators = _merged(*_collect(blocks, len(frontier), codec, action_id, width))
        fresh = np.unique(target[ids.lookup(target) < 0])
        ids.add(fresh)
        parts.append(((source + base).astype(np.int32), action, ids.lookup(target), interner.intern(numerators)))
        base += len(frontier)
        frontier = fresh
    source, action, successor, expression = (np.concatenate(column) for column in zip(*parts))
    # within a row successors must be sorted by id (they were sorted by key)
    order = np.lexsort((successor, source.astype(np.int64) * len(actions) + action))
    if (np.diff(order) != 1).any():
        source, action, successor, expression = source[order], action[order], successor[order], expression[order]
    return _Transitions(np.concatenate(levels), source, action, successor, expression, interner.rows())


def _merged(
    source: np.ndarray, action: np.ndarray, target: np.ndarray, numerators: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One transition per (source, action, successor): the polynomials of equal keys are added, zeros dropped."""
    order = np.lexsort((target, action, source))
    source, action, target, numerators = source[order], action[order], target[order], numerators[order]
    first = np.ones(len(source), dtype=bool)
    first[1:] = (np.diff(source) != 0) | (np.diff(action) != 0) | (np.diff(target) != 0)
    starts = np.flatnonzero(first)
    if len(starts) < len(source):
        numerators = np.add.reduceat(numerators, starts, axis=0)
        source, action, target = source[starts], action[starts], target[starts]
    nonzero = numerators.any(axis=1)
    return source[nonzero], action[nonzero], target[nonzero], numerators[nonzero]


def _collect(
    blocks: Iterable[Block], states: int, codec: Codec, action_id: Mapping[Hashable, int], width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(source, action, successor's key, numerators) of all transitions from a frontier of so many states."""
    sources, actions, targets, numerators = [], [], [], []
    for block in blocks:
        if block.action not in action_id:
            raise ModelError(f"unknown action {block.action!r}; declared are {tuple(action_id)}")
        n, where = len(block.source), f"action {block.action!r}"
        source = _whole_numbers(f"{where}: source", block.source, (n,))
        if n and not 0 <= source.min() <= source.max() < states:
            raise ModelError(f"{where}: source must be places in the frontier, from 0 to {states - 1}")
        sources.append(source)
        actions.append(np.full(n, action_id[block.action], dtype=np.int32))
        targets.append(codec.encode(_state_columns(f"{where}: successor", block.successor, codec.bounds, (n,)), n))
        numerators.append(_whole_numbers(f"{where}: numerators", block.numerators, (n, width)))
    if not sources:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty.astype(np.int32), empty, np.zeros((0, width), dtype=np.int64)
    return np.concatenate(sources), np.concatenate(actions), np.concatenate(targets), np.concatenate(numerators)


def _state_columns(
    what: str, given: Mapping[str, Any], bounds: Mapping[str, tuple[int, int]], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """One column of whole numbers for each state variable, of this shape or the same number everywhere."""
    missing = [variable for variable in bounds if variable not in given]
    if missing:
        raise ModelError(f"{what} has no value for the variable {missing[0]!r}")
    columns = {}
    for variable in bounds:
        column = given[variable]
        columns[variable] = _whole_numbers(f"{what}[{variable!r}]", column, shape if np.ndim(column) else ())
    return columns


def _whole_numbers(what: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of this shape as int64, which would cut off fractions."""
    values = np.asarray(given)
    if values.shape != shape:
        raise ModelError(f"{what} has shape {values.shape}, not {shape}")
    if values.dtype.kind not in "iub":
        is_whole = values.dtype.kind == "f" and np.isfinite(values).all() and (np.rint(values) == values).all()
        if not is_whole:
            raise ModelError(f"{what} must be whole numbers")
    return values.astype(np.int64, copy=False)


class _StateIds:
    """Key → id in order of addition."""

    def __init__(self, size: int):
        self.count = 0
        self.dense = np.full(size, -1, dtype=np.int32) if size <= DENSE_KEYS else None
        self.keys = np.zeros(0, dtype=np.int64)
        self.ids = np.zeros(0, dtype=np.int32)

    def add(self, keys: np.ndarray) -> None:
        new = np.arange(self.count, self.count + len(keys), dtype=np.int32)
        self.count += len(keys)
        if self.dense is not None:
            self.dense[keys] = new
            return
        where = np.searchsorted(self.keys, keys)
        self.keys = np.insert(self.keys, where, keys)
        self.ids = np.insert(self.ids, where, new)

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        if self.dense is not None:
            return self.dense[keys]
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int32)
        where = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[where] == keys, self.ids[where], -1).astype(np.int32)


class _Interner:
    """Distinct rows of integers → ids. Rows are hashed to 64 bits and every hit is compared exactly."""

    def __init__(self, width: int):
        self.multipliers = np.random.default_rng(20240601).integers(1, 2**64, size=width, dtype=np.uint64)
        self.index: dict[bytes, int] = {}

    def intern(self, rows: np.ndarray) -> np.ndarray:
        hashes = rows.astype(np.uint64) @ self.multipliers  # modulo 2^64
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        representatives = rows[first]
        if not np.array_equal(representatives[inverse], rows):  # a collision: fall back to exact comparison
            representatives, inverse = np.unique(rows, axis=0, return_inverse=True)
        known = [self.index.setdefault(row.tobytes(), len(self.index)) for row in representatives]
        return np.array(known, dtype=np.int32)[inverse.ravel()]

    def rows(self) -> np.ndarray:
        rows = np.frombuffer(b"".join(self.index), dtype=np.int64)
        return rows.reshape(len(self.index), len(self.multipliers))
