"""`ModelGraph`: where a play can be held, left or kept finite, given nature's bounds per transition.

A graph has states 0..n-1 with rows and exits n..n+m-1 without. Nature is seen through bounds per transition, lo and hi
(T,): it *can stay* in a set at a row if lo is 0 outside and hi sums to at least 1 inside, decided exactly.
That is exact for intervals. The hull of a region may allow what none of its points does, so the region is queried too:
nature cannot stay where the least mass outside the set is proved to be positive (`moves`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent.core.model import ParametricMDP, cached_fact, cached_on
from rpl_agent.core.native import Struct, core
from rpl_agent.core.relaxations.base import INTERVAL, CompiledSet, workspace

#: who chooses the row of a state: the other side, one's own side, or a fixed policy that draws it
ALL_ROWS, ANY_ROW, DRAWN_ROW = core.ALL_ROWS, core.ANY_ROW, core.DRAWN_ROW
TRIVIAL, SINK, CYCLIC = core.TRIVIAL, core.SINK, core.CYCLIC


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """The graph of a model or of a part of one, with n states and m exits."""

    state_ptr: np.ndarray  # (n+1,) int64
    row_ptr: np.ndarray  # (R+1,) int64
    successor: np.ndarray  # (T,) int32
    size: int  # n + m

    @property
    def n(self) -> int:
        return len(self.state_ptr) - 1

    @cached_property
    def forward(self) -> Struct:
        return self._struct(None, None)

    @cached_property
    def both_ways(self) -> Struct:
        """The same with the sources of every state."""
        first, sources = np.empty(self.size + 1, np.int64), np.empty(len(self.successor), np.int32)
        core.predecessors(self.forward, first, sources)
        return self._struct(first, sources)

    def _struct(self, first: np.ndarray | None, sources: np.ndarray | None) -> Struct:
        return core.Graph(
            count=self.n,
            size=self.size,
            state_ptr=self.state_ptr,
            row_ptr=self.row_ptr,
            successor=self.successor,
            first=first,
            sources=sources,
        )

    def _queue(self) -> Struct:
        return core.Queue(head=0, length=0, states=np.empty(self.n, np.int64), waiting=np.empty(self.n, np.bool_))

    # ------------------------------------------------------------------ where a play can be held
    def hold_set(self, nature: Struct, usable: np.ndarray, quantifier: int, start: np.ndarray) -> np.ndarray:
        """(n+m,) the largest subset of ``start`` (n+m,) in which the play can be held forever.

        ``nature`` is made by `moves`; core.h says what ``usable`` (R,) int8 and ``quantifier`` mean, here and below.
        """
        inside = start.copy()
        core.hold_set(self.both_ways, nature, usable, quantifier, inside, self._queue())
        return inside

    def finite_set(
        self,
        nature: Struct,
        played: np.ndarray,
        pays: np.ndarray,
        quantifier: int,
        nature_helps: bool,
        must_reach: bool,
        goal: np.ndarray,
        start: np.ndarray,
    ) -> np.ndarray:
        """(n+m,) the states of ``start`` (n+m,) from which the minimiser keeps the total finite.

        ``played`` (R,) are the rows in play, ``pays`` (R,) those with a positive reward; ``nature_helps`` if nature is
        the minimiser.
        """
        inside, usable, sets = start.copy(), np.empty(len(played), np.int8), np.empty(4 * self.size, np.bool_)
        core.finite_set(
            self.both_ways,
            nature,
            played,
            pays,
            quantifier,
            nature_helps,
            must_reach,
            goal,
            inside,
            usable,
            sets,
            self._queue(),
        )
        return inside

    def progress_rows(
        self,
        nature: Struct,
        preferred: np.ndarray,
        allowed: np.ndarray,
        pays: np.ndarray,
        adversary: bool,
        rows: np.ndarray,
    ) -> int:
        """Choose rows (n,) that leave: extend an attractor of the exits, preferred rows first.

        Returns the number of states that were not attracted; they keep their rows.
        """
        sets = np.empty(2 * self.size, np.bool_)
        return core.progress_rows(
            self.both_ways, nature, preferred, allowed, pays, adversary, rows, sets, self._queue()
        )

    # ------------------------------------------------------------------ components
    def forward_order(self, decided: np.ndarray) -> np.ndarray | None:
        """(k,) the undecided states that do not only loop, successors first; None if a play can come back."""
        order = np.empty(self.n, np.int64)
        count = core.forward_order(self.forward, decided, order, None, None)
        return None if count < 0 else order[:count]

    def backward_order(self, ends: np.ndarray) -> tuple[np.ndarray, int]:
        """(order (n,), how many reach them): states by the number of steps to the exits marked in ``ends`` (m,)."""
        order = np.empty(self.n, np.int64)
        return order, core.backward_order(self.both_ways, ends, order, np.empty(self.n, np.bool_))

    def front(self) -> float:
        """The mean distance between a state and the farthest of its successors, in the order of steps to the exits."""
        order, _ = self.backward_order(np.ones(self.size - self.n, dtype=bool))
        return core.front_of(self.forward, order, None)

    def components(self, decided: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """(order (n,), component (n,), their number): successors come first; decided states (n,) have no edges."""
        order, component = np.empty(self.n, np.int64), np.empty(self.n, np.int64)
        count = core.components(self.forward, decided, order, component, np.empty(5 * self.n, np.int64))
        return order, component, count

    def layers(
        self, decided: np.ndarray, order: np.ndarray, component: np.ndarray, sinks: bool, every: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """(kind (n,) int8, depth (n,)): TRIVIAL, CYCLIC or, if ``sinks``, SINK; cyclic (or all) components below."""
        kind, depth = np.empty(self.n, np.int8), np.empty(self.n, np.int64)
        core.layers(self.forward, decided, order, component, sinks, every, kind, depth)
        return kind, depth

    def retry_costs(self, p: np.ndarray, reward: np.ndarray, exit_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(order (n,), cost (n,)): the cheapest path to an exit, a transition of probability p (T,) costing reward / p.

        The cheapest states come first; the cost is 0 if no exit of finite value (m,) can be reached.
        """
        order, cost = np.empty(self.n, np.int64), np.empty(self.size)
        weight, space = np.empty(len(self.successor)), np.empty(2 * self.size, np.int64)
        core.retry_costs(self.both_ways, p, reward, exit_values, order, cost, weight, space)
        return order, cost[: self.n]

    def extract(self, states: np.ndarray, labels: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, ...]:
        """(state_ptr, row_ptr, successor, row_of, label, exits) of the part on ``states`` (k,).

        labels : (T,) int32, of which ``label`` has those of the part's transitions
        position : (n+m,) int64, all -1 on entry and on return
        """
        rows = int((self.state_ptr[states + 1] - self.state_ptr[states]).sum())
        size = int((self.row_ptr[self.state_ptr[states + 1]] - self.row_ptr[self.state_ptr[states]]).sum())
        pointers = np.empty(len(states) + 1, np.int64), np.empty(rows + 1, np.int64)
        successor, row_of, label = np.empty(size, np.int32), np.empty(rows, np.int64), np.empty(size, np.int32)
        exits = np.empty(min(size, self.size - len(states)), np.int64)
        places = (*pointers, successor, row_of, labels, label, exits)
        m = core.extract(self.forward, len(states), states, position, *places)
        return *pointers, successor, row_of, label, exits[:m].copy()


def model_graph(pmdp: ParametricMDP) -> ModelGraph:
    """The graph of a model."""
    return cached_on(pmdp, "graph", lambda _: ModelGraph(pmdp.state_ptr, pmdp.row_ptr, pmdp.successor, pmdp.num_states))


@cached_fact
def comes_back(pmdp: ParametricMDP) -> bool:
    """Whether a play that nothing ends can come back to a state that it has left."""
    return model_graph(pmdp).forward_order(np.zeros(pmdp.num_states, dtype=bool)) is None


def staying_rows(inside: np.ndarray, row_ptr: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """(R,) whether nature can keep all mass of each row on the transitions marked in ``inside`` (T,)."""
    out = np.empty(len(row_ptr) - 1, np.bool_)
    core.staying_rows(len(out), row_ptr, inside, lo, hi, out)
    return out


def graph_bounds(known: bool, lower: np.ndarray, upper: np.ndarray, rows: Struct) -> tuple[np.ndarray, np.ndarray]:
    """(lo, hi) (T,) of nature, from bounds (F,): exact for an interval hull, the support of a ``known`` MDP.

    A known MDP has rounded probabilities: beside 1 - 1e-20, which is 1 as a float, there would be no room for
    the 1e-20. The only successor of a row has all of the mass.
    """
    if known:
        lengths = np.diff(rows.row_ptr)
        p = np.where(np.repeat(lengths == 1, lengths), 1.0, lower[rows.expression])
        return p, p
    lo, hi = np.empty(len(rows.expression)), np.empty(len(rows.expression))
    core.attainable(rows, lower, upper, lo, hi)
    return lo, hi


def moves(
    lo: np.ndarray | None,
    hi: np.ndarray,
    compiled: CompiledSet | None = None,
    rows: Struct | None = None,
    size: int = 0,
) -> Struct:
    """Nature for a graph of ``size`` states and exits, by bounds lo, hi (T,); for regions also by its set and the rows.

    lo None: a nature that does not want to hold the play, and stays if hi leaves no way out.
    """
    if compiled is None or rows is None or compiled.kind <= INTERVAL:
        return core.Moves(lo=lo, hi=hi, set=None, expression=None, outside=None, space=None)
    longest = int(np.diff(rows.row_ptr).max(initial=1))
    return core.Moves(
        lo=lo,
        hi=hi,
        set=compiled,
        expression=rows.expression,
        outside=np.zeros(size),
        space=workspace(compiled, longest),
    )


def played_rows(weights: np.ndarray | None, size: int) -> np.ndarray:
    """(R,) bool: the rows that a policy with weights (R,) plays; all rows if the agent is free."""
    return np.ones(size, dtype=bool) if weights is None else weights > 0.0


def usable_rows(played: np.ndarray, pays: np.ndarray | bool) -> np.ndarray:
    """(R,) int8 for `hold_set`, from rows that are played and rows that pay (bool)."""
    return np.where(pays, np.int8(1), np.int8(2)) * played


def held_states(
    pmdp: ParametricMDP,
    usable: np.ndarray,
    quantifier: int,
    start: np.ndarray,
    nature: Callable[[], Struct],
    rank: np.ndarray | None = None,
) -> np.ndarray:
    """(S,) the largest part of ``start`` in which the play can stay, in the sense of `hold_set`.

    nature : returns `moves`; not called if the play runs forward by ranks (S,), or state numbers: then it cannot stay.
    """
    graph = model_graph(pmdp)
    if core.runs_forward(graph.forward, start, usable, rank):
        return np.zeros_like(start)
    return graph.hold_set(nature(), usable, quantifier, start)
