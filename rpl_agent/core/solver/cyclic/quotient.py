"""`Quotient`: a local model with each end component as one state.

In an end component the proper side can loop without paying or being paid, so its value is that of the best way out, and
it is the same in every member. Collapsing serves only to *find* such bounds: they are verified on the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from rpl_agent.core.model import gather
from rpl_agent.core.native import read_only
from rpl_agent.core.solver.cyclic.local import Local
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, moves, staying_rows, usable_rows
from rpl_agent.core.solver.problem import FIXED_AGENT


@dataclass(frozen=True, eq=False)
class Quotient:
    """A local model with its end components collapsed."""

    local: Local
    class_of: np.ndarray  # (n + m,) state of the quotient for every state and exit
    stuck: np.ndarray  # (classes,) components without a way out; they are exits of value 0 here

    def down(self, values: np.ndarray) -> np.ndarray:
        """Values of the quotient's states, from any member."""
        out = np.empty(int(self.class_of.max()) + 1)
        out[self.class_of] = values
        out[self.stuck] = 0.0
        return out

    def up(self, values: np.ndarray) -> np.ndarray:
        """(n + m,) values of the model's states and exits."""
        return values[self.class_of]


def end_components(local: Local) -> tuple[np.ndarray, np.ndarray]:
    """Maximal end components of the remaining players: (class (n,) or -1, holds (rows,) bool)."""
    n = local.n
    source = local.row_state[local.transition_row]
    fixed = local.agent == FIXED_AGENT
    playable = local.weights > 0.0
    # first what the play cannot stay in at all, all at once: below it takes a round for every layer of a long queue
    usable = usable_rows(playable, local.reward != 0.0)
    start = np.arange(n + local.m) < n
    held = local.graph.hold_set(moves(local.lo, local.hi), usable, ALL_ROWS if fixed else ANY_ROW, start)
    label = np.where(held[:n], 0, -1)
    while True:
        extended = np.concatenate([label, np.full(local.m, -2)])
        inside = (extended[local.successor] == label[source]) & (label[source] >= 0)
        holds = staying_rows(inside, local.row_ptr, local.lo, local.hi) & (local.reward == 0.0) & playable
        over_rows, staying = (np.logical_and, holds | ~playable) if fixed else (np.logical_or, holds)
        member = over_rows.reduceat(staying, local.state_ptr[:-1]) & (label >= 0)
        if not member.any():
            return np.full(n, -1), member[local.row_state]
        used = inside & holds[local.transition_row] & (local.hi > 0.0) & member[source]
        used &= np.concatenate([member, np.zeros(local.m, dtype=bool)])[local.successor]
        graph = scipy.sparse.coo_array((np.ones(int(used.sum())), (source[used], local.successor[used])), shape=(n, n))
        _, strong = scipy.sparse.csgraph.connected_components(graph.tocsr(), directed=True, connection="strong")
        new = np.where(member, strong, -1)
        if len(np.unique(new)) == len(np.unique(label)) and ((new >= 0) == (label >= 0)).all():
            return label, holds & member[local.row_state]
        label = new


def collapse(local: Local) -> Quotient | None:
    """The quotient by the end components of the remaining players, or None if there are none."""
    if ((local.reward > 0.0) | (local.weights == 0.0)).all():
        return None
    label, holds = end_components(local)
    if (label < 0).all():
        return None
    n, m = local.n, local.m
    if local.agent == FIXED_AGENT:
        played = local.weights > 0.0
        if (np.add.reduceat(played.astype(int), local.state_ptr[:-1]) > 1).any():
            return None  # mixed rows cannot be split between members; the caller's verification decides
    else:
        played = np.ones(len(local.row_of), dtype=bool)
    # Rows that hold within their component are replaced by one row per way out that nature can open.
    row_state = local.row_state
    keep = played & ~holds
    opened = played & holds
    source_label = label[row_state[local.transition_row]]
    extended = np.concatenate([label, np.full(m, -2)])
    ways = opened[local.transition_row] & (extended[local.successor] != source_label) & (local.hi > 0.0)
    ways &= not local.nature_fixed
    groups = np.where(label >= 0, label, label.max() + 1 + np.arange(n))
    row_group = np.concatenate([groups[row_state[keep]], groups[row_state[local.transition_row[ways]]]])
    names, number = np.unique(groups, return_inverse=True)
    has_row = np.isin(names, row_group)
    position = np.where(has_row, np.cumsum(has_row) - 1, -1)
    live = int(has_row.sum())
    position[~has_row] = live + np.arange(int((~has_row).sum()))
    class_of = np.concatenate([position[number], len(names) + np.arange(m)])
    lengths = np.concatenate([np.diff(local.row_ptr)[keep], np.ones(int(ways.sum()), dtype=np.int64)])
    kept_transitions = keep[local.transition_row]
    successor = np.concatenate([local.successor[kept_transitions], local.successor[ways]])
    expression = np.concatenate([local.expression[kept_transitions], local.expression[ways]])
    reward = np.concatenate([local.reward[keep], np.zeros(int(ways.sum()))])
    row_class = position[np.searchsorted(names, row_group)]
    order = np.argsort(row_class, kind="stable")
    begin = np.concatenate([[0], np.cumsum(lengths)])
    picks = gather(begin, order)[0]
    row_ptr = read_only(np.concatenate([[0], np.cumsum(lengths[order])]), np.int64)
    state_ptr = read_only(np.searchsorted(row_class[order], np.arange(live + 1)), np.int64)
    direction = local.agent if local.agent != FIXED_AGENT else (1 if local.maximise else -1)
    quotient = replace(
        local,
        states=np.arange(live),
        exits=np.arange(len(names) - live + m),
        row_of=np.arange(len(order)),
        state_ptr=state_ptr,
        row_ptr=row_ptr,
        successor=read_only(class_of[successor[picks]], np.int32),
        expression=read_only(expression[picks], np.int32),
        reward=reward[order],
        weights=np.ones(len(order)),
        agent=direction,
        factors={},
    )
    return Quotient(quotient, class_of, np.arange(live, len(names)))
