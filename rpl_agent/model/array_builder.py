"""`build_arrays`: the vectorised builder for large regular models.

A model is described by one function that expands a whole frontier of states at once. Expressions are
given as integer numerators over one denominator per monomial, so tying stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model.codec import Codec, Columns
from rpl_agent.model.domain import Domain
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.pmdp import ParametricMDP, Reward
from rpl_agent.model.validation import require_valid

#: Dense key → id tables up to this many entries; beyond it keys are looked up in a sorted array.
DENSE_KEYS = 400_000_000


@dataclass
class Block:
    """Transitions of one action: from states ``source`` (indices into the frontier) to ``successor``.

    numerators : (n, M) int64. Several blocks may add to one row; equal successors are merged.
    """

    action: str
    source: np.ndarray  # (n,)
    successor: Columns  # variable -> (n,)
    numerators: np.ndarray  # (n, M)


def build_arrays(
    initial: Mapping[str, int],
    bounds: Mapping[str, tuple[int, int]],
    expand: Callable[[Columns], Iterable[Block]],
    *,
    domain: Domain,
    monomials: Sequence[Sequence[int]] | np.ndarray,
    denominators: Sequence[int],
    action_names: Sequence[str],
    labels: Mapping[str, Callable[[Columns], np.ndarray]] | None = None,
    state_rewards: Mapping[str, Callable[[Columns], np.ndarray]] | None = None,
    action_rewards: Mapping[str, Callable[[Columns, str], np.ndarray]] | None = None,
    name: str = "model",
    validate: bool = True,
) -> ParametricMDP:
    """Explore breadth-first, frontier by frontier.

    Parameters
    ----------
    initial, bounds : initial value and inclusive range of every state variable.
    expand : columns of a frontier (variable -> (n,) int64) -> blocks of transitions.
    monomials : (M, d) exponents, first row zero; ``denominators`` one per monomial.
    labels, state_rewards : columns of all states -> (S,) array. ``action_rewards`` also get the action's name.
    """
    codec = Codec(bounds)
    action_names = tuple(action_names)
    action_id = {a: i for i, a in enumerate(action_names)}
    interner = _Interner(len(denominators))
    ids = _StateIds(codec.size)
    frontier = codec.encode({k: np.array([v]) for k, v in initial.items()})
    ids.add(frontier)
    key_levels, parts = [frontier], []
    base = 0
    while len(frontier):
        columns = codec.decode(frontier)
        source, action, target, numerators = _collect(expand(columns), codec, action_id, len(denominators))
        # one transition per (source, action, successor): sort, then add the polynomials of equal keys
        order = np.lexsort((target, action, source))
        source, action, target, numerators = source[order], action[order], target[order], numerators[order]
        first = np.ones(len(source), dtype=bool)
        first[1:] = (np.diff(source) != 0) | (np.diff(action) != 0) | (np.diff(target) != 0)
        starts = np.flatnonzero(first)
        if len(starts) < len(source):
            numerators = np.add.reduceat(numerators, starts, axis=0)
            source, action, target = source[starts], action[starts], target[starts]
        nonzero = numerators.any(axis=1)
        source, action, target, numerators = source[nonzero], action[nonzero], target[nonzero], numerators[nonzero]
        expression = interner.intern(numerators)
        fresh = np.unique(target[ids.lookup(target) < 0])
        ids.add(fresh)
        parts.append(((source + base).astype(np.int32), action, ids.lookup(target), expression))
        base += len(frontier)
        frontier = fresh
        if len(fresh):
            key_levels.append(fresh)

    columns = codec.decode(np.concatenate(key_levels))
    states = base
    source = np.concatenate([p[0] for p in parts])
    action = np.concatenate([p[1] for p in parts])
    successor = np.concatenate([p[2] for p in parts])
    expression = np.concatenate([p[3] for p in parts])
    del parts
    # within a row successors must be sorted by id (they were sorted by key)
    row_key = source.astype(np.int64) * len(action_names) + action
    order = np.lexsort((successor, row_key))
    if (np.diff(order) != 1).any():
        source, action, successor = source[order], action[order], successor[order]
        expression, row_key = expression[order], row_key[order]
    row_start = np.flatnonzero(np.diff(row_key, prepend=-1) != 0)
    row_ptr = np.concatenate([row_start, [len(row_key)]])
    state_ptr = np.searchsorted(source[row_start], np.arange(states + 1))
    table, rank = ExpressionTable.from_integers(
        domain.parameters, np.array(monomials), interner.rows(), denominators
    ).sorted()
    row_action, row_state = action[row_start], source[row_start]
    rewards = {}
    for key in {*(state_rewards or {}), *(action_rewards or {})}:
        on_states = (state_rewards or {}).get(key)
        on_actions = (action_rewards or {}).get(key)
        per_row = np.zeros(len(row_start))
        if on_actions is not None:
            for i, a in enumerate(action_names):
                at = np.flatnonzero(row_action == i)
                per_row[at] = on_actions({k: v[row_state[at]] for k, v in columns.items()}, a)
        per_state = np.zeros(states) if on_states is None else np.asarray(on_states(columns), dtype=float)
        rewards[key] = Reward(per_state, per_row)
    model = ParametricMDP(
        state_ptr, row_action, row_ptr, successor, rank[expression], table, domain, 0,
        {k: np.asarray(f(columns), dtype=bool) for k, f in (labels or {}).items()},
        dict(sorted(rewards.items())), action_names, {k: v.astype(np.int32) for k, v in columns.items()}, name,
    )  # fmt: skip
    if validate:
        require_valid(model)
    return model


def _collect(blocks: Iterable[Block], codec: Codec, action_id: Mapping[str, int], width: int):
    sources, actions, targets, numerators = [], [], [], []
    for block in blocks:
        if block.action not in action_id:
            raise ModelError(f"unknown action {block.action!r}; declared are {tuple(action_id)}")
        n = len(block.source)
        if np.shape(block.numerators) != (n, width):
            raise ModelError(
                f"action {block.action!r}: numerators have shape {np.shape(block.numerators)}, not {(n, width)}"
            )
        sources.append(np.asarray(block.source, dtype=np.int64))
        actions.append(np.full(n, action_id[block.action], dtype=np.int32))
        targets.append(codec.encode(block.successor, n))
        numerators.append(np.asarray(block.numerators, dtype=np.int64))
    if not sources:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty.astype(np.int32), empty, np.zeros((0, width), dtype=np.int64)
    return np.concatenate(sources), np.concatenate(actions), np.concatenate(targets), np.concatenate(numerators)


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
        self.multipliers = np.random.default_rng(20240601).integers(1, 2**63, size=width, dtype=np.uint64) * np.uint64(
            2
        ) + np.uint64(1)
        self.index: dict[bytes, int] = {}

    def intern(self, rows: np.ndarray) -> np.ndarray:
        if not len(rows):
            return np.zeros(0, dtype=np.int32)
        with np.errstate(over="ignore"):
            mixed = rows.astype(np.uint64) * self.multipliers
            mixed ^= mixed >> np.uint64(29)
            hashes = (mixed * self.multipliers[::-1]).sum(axis=1, dtype=np.uint64)
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        representatives = rows[first]
        if not np.array_equal(representatives[inverse], rows):  # a collision: fall back to the exact way
            representatives, inverse = np.unique(rows, axis=0, return_inverse=True)
        ids = np.array(
            [self.index.setdefault(row.tobytes(), len(self.index)) for row in representatives], dtype=np.int32
        )
        return ids[inverse.ravel()]

    def rows(self) -> np.ndarray:
        rows = np.frombuffer(b"".join(self.index), dtype=np.int64)
        return rows.reshape(len(self.index), len(self.multipliers))
