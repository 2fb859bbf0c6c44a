"""Counts of the model's (s, a, s') transitions, with snapshots for decisions made along the way.

A `Mark` is a snapshot of the counts per expression taken at a stopping time s. The joint likelihood region
(`guarantee.likelihood`) learns a prior from the data up to s and tests with the data after s, and bets on the value
(`likelihood.bets`) are placed at s and settled by the data after it. So marks belong to the data: they are taken
when the data arrive and are part of every checkpoint.

A window of the likelihood has a weight, fixed no later than its mark, and all weights sum to at most 1: the region
is built from the weighted *average* of the windows' e-processes, never from the best of them. A mark with bets also
has the completed share of the planned data; bets are sized for the end of the plan.

A table of counts without an order has no marks: nothing in it came before anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rpl_agent.core.errors import DataError, ModelError, require_kind
from rpl_agent.core.model import ParametricMDP, cached_on, owners
from rpl_agent.core.native import core

#: Geometric schedule: a mark the first time the total reaches FIRST_MARK · RATIO^j, j = 0..MAX_MARKS-1.
FIRST_MARK = 64
RATIO = 4
MAX_MARKS = 12
#: Split schedule with a planned total: marks at these shares of it, with equal weights. Averaging three windows beats
#: the best single one by 1 % of the width, and by more with bad luck (the window's estimate far from the prior's).
SPLIT_MARKS = (0.04, 0.08, 0.16)
#: Weight of the window that starts at the first sample, by schedule; the marks share the rest.
ORIGIN_WEIGHT = {
    "geometric": 1 / (MAX_MARKS + 1),
    "planned": 1 / 16,
    "split": 0.01,
    "shares": 0.01,
    "table": 1.0,
}
SPLIT_WEIGHT = (1.0 - ORIGIN_WEIGHT["split"]) / len(SPLIT_MARKS)
#: Planned schedule: windows begin at `SPLIT_MARKS` of the plan, and later whenever there are this many times as many
#: data as at the last one.
LATER = 8
#: Share of the weight left that such a window takes, and that each geometric window before the first of them takes.
PLAN_SHARE, EARLY_SHARE = 1 / 4, 1 / 16
#: Shares of a plan at which new bets are placed. They get denser towards the end, when one of many looks succeeds.
BET_SHARES = (0.01, 0.02, 0.035, *(1.0 - (1.0 - k / 40) ** 2 for k in range(1, 40)))
#: Models with more expressions take every third of these marks, because each stores two numbers per expression.
MANY_EXPRESSIONS = 2**14
#: Models with more parameters have no bets.
MOST_PARAMETERS = 64
#: After this many changes a plan is ignored.
TRUSTED = 2
#: Without a plan, new bets are placed whenever the data have grown by this factor, sized as if this share of all data
#: had been seen.
BET_GROWTH, NO_PLAN = 2.0**0.5, 0.5
#: Share of the remaining weight that an explicit mark takes by default.
EXPLICIT_SHARE = 0.97
_SCHEDULES = tuple(ORIGIN_WEIGHT)
#: The largest total: every count is an exact float64, and no sum of counts overflows.
MOST = 2**53
#: Results of `locate` for records without a transition: the action is not enabled, the row does not lead to the state
#: (both as in core.h), or it leads there in several ways.
NO_ROW, NO_SUCCESSOR, AMBIGUOUS = -1, -2, -3


@dataclass(frozen=True, eq=False)  # compared by identity: what is derived from a mark is cached by it
class Mark:
    """Snapshot at a stopping time."""

    total: int  # transitions so far
    successes: np.ndarray  # (F,) transitions labelled with each expression
    weight: float  # of the likelihood window that starts here; 0 for none
    progress: float = 0.0  # completed share of the planned data, for the bets placed here; 0 for none
    trials: np.ndarray | None = None  # (F,) `Counts.trials`; None without bets


class _Due(NamedTuple):
    """A mark to take when the total reaches ``total``."""

    total: int
    weight: float
    progress: float


class Counts:
    """Mutable transition counts of one model.

    Parameters
    ----------
    pmdp : the model; a transition that it does not have is an error, never dropped.
    schedule : when to take marks.
        ``"geometric"``: automatically, for data of unknown length; no bets.
        ``"planned"``: by the caller, who knows how far the plan is (`bet`); at first as the geometric one.
        ``"split"``: automatically at shares of the ``planned`` number of transitions, bets included; without a plan by
        the caller, for windows only.
        ``"shares"``: by the caller, for both, who knows the completed share of the data (`mark`).
        ``"table"``: never; the data have no order.
        None: geometric if the first data are single steps, a table if they are several at once.
    planned : expected number of transitions (split only). Any number is sound; a good one is tight.

    >>> import rpl_envs
    >>> counts = Counts(rpl_envs.benchmark("Betting-25").pmdp)
    >>> counts.add_transitions([0, 0, 1])
    >>> counts.total
    3
    >>> counts
    Counts('Betting-25', transitions=3, episodes=3, schedule='geometric')
    """

    def __init__(self, pmdp: ParametricMDP, *, schedule: str | None = None, planned: int | None = None):
        if not isinstance(pmdp, ParametricMDP):
            raise ModelError(
                f"counts need a model first: write Counts(pmdp) with pmdp = build(...), not {type(pmdp).__name__}"
            )
        if schedule is not None and schedule not in _SCHEDULES:
            raise DataError(f"schedule {schedule!r} is not one of {_SCHEDULES}")
        if planned is not None and (schedule != "split" or planned < 1):
            raise DataError(f"planned = {planned} needs the schedule 'split' and at least one transition")
        self.planned = planned
        self.pmdp = pmdp
        self.schedule = schedule
        self.transitions = np.zeros(pmdp.num_transitions, dtype=np.int64)
        self.successes = np.zeros(pmdp.num_expressions, dtype=np.int64)
        self.total = 0
        self.marks: list[Mark] = []
        self._seen: tuple[np.ndarray, int, np.ndarray] | None = None  # of which counts, at which total, and `seen`

    def __repr__(self) -> str:
        schedule = "" if self.schedule is None else f", schedule={self.schedule!r}"
        return f"Counts({self.pmdp.name!r}, transitions={self.total}, episodes={self.episodes}{schedule})"

    # ------------------------------------------------------------------ adding data
    def add(self, state: int, action: int, successor: int, n: int = 1) -> None:
        """n observations of one step; O(row length)."""
        indices = self._locate([state], [action], [successor])
        if not isinstance(n, int | np.integer):
            raise DataError(f"count {n!r} is not a whole number")
        if n < 0:
            raise DataError(f"negative count {n}")
        self.schedule = self.schedule or ("geometric" if n == 1 else "table")  # several at once have lost their order
        self._add_sparse(indices, int(n))
        self._mark_if_due()

    def add_many(self, states: ArrayLike, actions: ArrayLike, successors: ArrayLike) -> None:
        """Add steps in the order in which they happened, arrays (n,); takes marks exactly where they are due."""
        self._add_in_order(self._locate(states, actions, successors))

    def add_transitions(self, transitions: ArrayLike) -> None:
        """The same for steps given as ids (n,) of the model's transitions."""
        indices = np.atleast_1d(np.asarray(transitions))
        if indices.ndim != 1 or (indices.dtype.kind not in "iu" and indices.size):
            raise DataError("transitions must be a flat array of whole numbers")
        outside = (indices < 0) | (indices >= len(self.transitions))
        if outside.any():
            raise DataError(f"transition {indices[outside][0]} of a model that has {len(self.transitions)}")
        self._add_in_order(indices.astype(np.int64))

    def _add_in_order(self, indices: np.ndarray) -> None:
        self.schedule = self.schedule or "geometric"
        begin = 0
        while begin < len(indices):
            due = self._next_due()
            end = len(indices) if due is None else min(len(indices), begin + max(1, due - self.total))
            self._add_sparse(indices[begin:end], 1)
            self._mark_if_due()
            begin = end

    def add_batch(self, transition_counts: np.ndarray) -> None:
        """Add the counts (T,) of one batch, e.g. from the simulator; a mark may be due after it.

        The sampling policy within the batch may depend on anything, as long as the batch was collected
        after all data that are already in this table.
        """
        self.schedule = self.schedule or "table"
        batch = np.asarray(transition_counts)
        if batch.shape != self.transitions.shape:
            raise DataError(f"batch of shape {batch.shape}, the model has {self.transitions.shape[0]} transitions")
        if batch.dtype.kind not in "iu":
            rounded = np.rint(batch) if batch.dtype.kind == "f" else None
            if rounded is None or not np.isfinite(batch).all() or not (rounded == batch).all():
                raise DataError("transition counts must be whole numbers")
        indices = np.flatnonzero(batch != 0)  # twice as fast as without
        amounts = batch[indices]
        if (amounts < 0).any():
            t = int(indices[np.argmax(amounts < 0)])
            raise DataError(f"negative count {int(batch[t])} for transition {t}")
        self._add_sparse(indices, amounts)
        self._mark_if_due()

    def merge(self, *pieces: Counts) -> Counts:
        """Add the counts of further pieces of the data, such as files or sites; returns this table.

        Pieces come in the order in which they were collected, or were collected independently of each other. Where one
        ends a mark may be taken, because that does not depend on outcomes; the marks within a piece are forgotten.

        >>> import rpl_envs
        >>> pmdp = rpl_envs.benchmark("Betting-25").pmdp
        >>> sites = [Counts(pmdp), Counts(pmdp)]
        >>> sites[0].add_transitions([0, 0, 1])
        >>> sites[1].add_transitions([1])
        >>> Counts(pmdp).merge(*sites).total
        4
        """
        for piece in pieces:
            require_kind("piece", piece, Counts)
        if len({id(piece) for piece in (self, *pieces)}) <= len(pieces):
            raise DataError("a piece of the data is given twice: merge each one once")
        for piece in pieces:
            if piece.pmdp is not self.pmdp and piece.pmdp.content_hash != self.pmdp.content_hash:
                hashes = f"{piece.pmdp.content_hash[:8]}, these are of {self.pmdp.name} {self.pmdp.content_hash[:8]}"
                raise DataError(f"a piece has the counts of another model, {piece.pmdp.name} {hashes}")
        self.schedule = self.schedule or "geometric"
        for piece in pieces:
            self.add_batch(piece.transitions)
        return self

    def copy(self) -> Counts:
        """An independent table; marks are immutable and shared."""
        copy = Counts(self.pmdp, schedule=self.schedule, planned=self.planned)
        copy.transitions = self.transitions.copy()
        copy.successes = self.successes.copy()
        copy.total = self.total
        copy.marks = list(self.marks)
        return copy

    # ------------------------------------------------------------------ reading
    @property
    def row_totals(self) -> np.ndarray:
        """(R,) visits of every enabled state-action pair."""
        found, (rows, visits) = np.zeros(self.pmdp.num_rows, np.int64), self.visited
        found[rows] = visits
        return found

    @property
    def seen(self) -> np.ndarray:
        """(k,) the transitions with data, in order; searched for once after data were added."""
        if self._seen is None or self._seen[0] is not self.transitions or self._seen[1] != self.total:
            self._seen = (self.transitions, self.total, np.flatnonzero(self.transitions != 0))
        return self._seen[2]

    @property
    def visited(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows (k,) with data, in order, and how often each was visited (k,))."""
        rows, first = cached_on(self.seen, "rows", lambda seen: owners(self.pmdp.row_ptr, seen))
        return rows, np.add.reduceat(self.transitions[self.seen], first[:-1])

    @property
    def episodes(self) -> int:
        """Episodes in the data: visits to the initial state that did not come from a transition into it."""
        pmdp, start = self.pmdp, self.pmdp.initial_state
        first, last = pmdp.row_ptr[pmdp.state_ptr[start]], pmdp.row_ptr[pmdp.state_ptr[start + 1]]
        back = np.flatnonzero(pmdp.visible_successor == start)
        source = np.searchsorted(pmdp.state_ptr, np.searchsorted(pmdp.row_ptr, back, "right") - 1, "right") - 1
        returned = int(self.transitions[back[~pmdp.is_silent[source]]].sum())
        return max(int(self.transitions[first:last].sum()) - returned, 0)

    @property
    def trials(self) -> np.ndarray:
        """(F,) how often each expression could have been observed: successors with it in the visited rows."""
        visits = self.row_totals[self.pmdp.transition_row].astype(float)  # exact: a table counts up to 2^53
        return np.bincount(self.pmdp.expression, visits, self.pmdp.num_expressions).astype(np.int64)

    @property
    def has_plan(self) -> bool:
        """Whether bets can be sized: the number of data to come is known along the way."""
        return self.schedule in ("planned", "shares") or self.planned is not None

    @property
    def origin_weight(self) -> float:
        """Weight of the window that starts at the first sample."""
        return ORIGIN_WEIGHT[self.schedule or "geometric"]

    # ------------------------------------------------------------------ marks
    def mark(self, weight: float | None = None, progress: float = 0.0) -> Mark:
        """Take a snapshot now. For validity, the time must not depend on data that are added later.

        Parameters
        ----------
        weight : share of the confidence budget's weight given to the window that starts here; by default
            almost all of what is left.
        progress : completed share of all data, as far as can be known; bets on the value are sized for
            the rest. Any share is sound, a good one is tight; 0 places no bets.
        """
        if self.schedule == "table":
            raise DataError("a table of counts has no order to mark: Counts(pmdp, schedule='split') has")
        self.schedule = self.schedule or "split"  # the caller knows the order
        left = self._weight_left
        weight = EXPLICIT_SHARE * left if weight is None else float(weight)
        if not (0.0 < weight or progress > 0.0 == weight) or weight > left + 1e-12:
            raise DataError(f"mark of weight {weight}: the weights left sum to {left:.6g}")
        if not 0.0 <= progress <= 1.0:
            raise DataError(f"progress {progress} is not between 0 and 1")
        return self._append(self.total, self.successes, weight, float(progress), self.trials if progress else None)

    @property
    def _weight_left(self) -> float:
        """The weight that no window has taken yet."""
        return 1.0 - self.origin_weight - sum(m.weight for m in self.marks)

    def bet(self, progress: float, value: bool = True) -> bool:
        """Take a mark if a share of the plan was passed at which bets or a window begin; return whether it was taken.

        For schedules whose plan the caller knows: call it whenever convenient, with the completed share. A
        smaller share than before means a new plan, and so do data beyond the end of a plan. After two changes
        bets ignore the plan. Without bets on the ``value`` there are windows only.
        """
        if self.total == 0 or not 0.0 < progress < 1.0:
            return False
        due, share = self._bet_due(progress) if value else (False, progress)
        weight = PLAN_SHARE * self._weight_left if self._window_due(progress) else 0.0
        if due or weight:
            self.mark(weight, share)
        return due or weight > 0.0

    def _window_due(self, progress: float) -> bool:
        """Whether a window of the plan begins."""
        begun = [mark.total for mark in self.marks if mark.weight > 0.0 < mark.progress]
        if self.schedule != "planned" or (begun and 2 * self.total < 3 * begun[-1]):
            return False
        return progress >= SPLIT_MARKS[len(begun)] if len(begun) < len(SPLIT_MARKS) else self.total >= LATER * begun[-1]

    def _bet_due(self, progress: float) -> tuple[bool, float]:
        """Whether to place new bets, and the share of the plan that they are sized for."""
        before = [mark for mark in self.marks if mark.progress > 0.0]
        if not before:
            due = progress >= next_share(self.pmdp, 0.0)
        elif sum(b.progress < a.progress for a, b in pairwise(before)) >= TRUSTED:
            due, progress = self.total >= BET_GROWTH * before[-1].total, NO_PLAN
        else:
            last = before[-1]
            due = progress < last.progress or progress >= next_share(self.pmdp, last.progress)
            due = (due or self.total * last.progress > last.total) and self.total > last.total
        return due, progress

    @property
    def _schedule(self) -> list[_Due]:
        """Marks that this table takes automatically, in order."""
        if self.schedule == "planned" and any(mark.weight > 0.0 < mark.progress for mark in self.marks):
            return []
        if self.schedule in ("geometric", "planned"):
            weight = ORIGIN_WEIGHT["geometric"] if self.schedule == "geometric" else EARLY_SHARE * self._weight_left
            return [_Due(FIRST_MARK * RATIO**j, weight, 0.0) for j in range(MAX_MARKS)]
        if self.planned is None:
            return []
        shares = {share: 0.0 for share in bet_shares(self.pmdp)} | dict.fromkeys(SPLIT_MARKS, SPLIT_WEIGHT)
        return sorted(_Due(max(1, round(s * self.planned)), weight, s) for s, weight in shares.items())

    def _next_due(self) -> int | None:
        """The total at which the next mark is due."""
        reached = self.marks[-1].total if self.marks else 0
        return next((due.total for due in self._schedule if due.total > reached), None)

    def _mark_if_due(self) -> None:
        """Take one mark for all that are due: a batch may jump over several."""
        reached = self.marks[-1].total if self.marks else 0
        due = [due for due in self._schedule if reached < due.total <= self.total]
        if due:
            progress = max(d.progress for d in due)
            if self.planned is not None and progress:
                progress = min(self.total / self.planned, 1.0)
            self.mark(max(d.weight for d in due), progress)

    def _append(
        self, total: int, successes: np.ndarray, weight: float, progress: float, trials: np.ndarray | None
    ) -> Mark:
        arrays = [np.array(a, dtype=np.int64) if a is not None else None for a in (successes, trials)]
        for array in arrays:
            if array is not None:
                array.setflags(write=False)
        assert arrays[0] is not None
        self.marks.append(Mark(total, arrays[0], weight, progress, arrays[1]))
        return self.marks[-1]

    # ------------------------------------------------------------------ checkpoints
    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays that restore this object exactly."""
        marks = self.marks
        empty = np.zeros((0, len(self.successes)), dtype=np.int64)
        bets = [m.trials for m in marks if m.trials is not None]
        return {
            "transitions": self.transitions.copy(),
            "schedule": np.array(self.schedule or ""),
            "planned": np.array(self.planned or 0, dtype=np.int64),
            "mark_totals": np.array([m.total for m in marks], dtype=np.int64),
            "mark_weights": np.array([m.weight for m in marks], dtype=float),
            "mark_progress": np.array([m.progress for m in marks], dtype=float),
            "mark_successes": np.stack([m.successes for m in marks]) if marks else empty,
            "mark_trials": np.stack(bets) if bets else empty,
        }

    @classmethod
    def from_arrays(cls, pmdp: ParametricMDP, arrays: dict[str, np.ndarray]) -> Counts:
        """Inverse of `to_arrays`; raises DataError if marks do not fit the model or the data."""
        counts = cls(pmdp, schedule=str(arrays["schedule"]) or None, planned=int(arrays.get("planned", 0)) or None)
        counts._set_transitions(np.asarray(arrays["transitions"]))
        totals = arrays["mark_totals"].tolist()
        shares = np.asarray(arrays.get("mark_progress", np.zeros(len(totals)))).tolist()
        trials = iter(np.asarray(arrays.get("mark_trials", [])))
        for total, weight, progress, successes in zip(
            totals, arrays["mark_weights"].tolist(), shares, np.asarray(arrays["mark_successes"]), strict=True
        ):
            at_mark = next(trials, None) if progress > 0.0 else None
            counts._restore_mark(int(total), successes, float(weight), float(progress), at_mark)
        if not counts.origin_weight + sum(m.weight for m in counts.marks) <= 1.0 + 1e-9:
            raise DataError("the marks' weights sum to more than 1")
        return counts

    def _restore_mark(
        self, total: int, successes: np.ndarray, weight: float, progress: float, trials: np.ndarray | None
    ) -> None:
        """Append a mark from a file, if this table could have taken it with the weight that its schedule gives."""
        last, none = self.marks[-1] if self.marks else None, np.zeros_like(self.successes)
        last_trials = next((m.trials for m in reversed(self.marks) if m.trials is not None), none)
        fits = total == successes.sum() and (trials is None) == (progress == 0.0)
        for before, found, now in (
            (last.successes if last else none, successes, self.successes),
            (last_trials, trials, self.trials),
        ):
            fits &= found is None or (found.shape == now.shape and bool(((before <= found) & (found <= now)).all()))
        if not fits:
            raise DataError(f"a mark at {total} transitions does not fit the counts or the mark before it")
        if not (0.0 <= weight <= 1.0 and 0.0 <= progress <= 1.0 and weight + progress > 0.0):
            raise DataError(f"a mark has the weight {weight} and the progress {progress}")
        if self.schedule == "planned" and weight > PLAN_SHARE * self._weight_left * (1.0 + 1e-9):
            raise DataError(f"a mark of weight {weight} at {total} transitions is not the schedule's own")
        if self.schedule == "geometric" or self.planned is not None:
            due = [d for d in self._schedule if (last.total if last else 0) < d.total <= total]
            if weight != max((d.weight for d in due), default=0.0):
                raise DataError(f"a mark of weight {weight} at {total} transitions is not the schedule's own")
        self._append(total, successes, weight, progress, trials)

    # ------------------------------------------------------------------ inside
    def _set_transitions(self, transitions: np.ndarray) -> None:
        schedule, planned = self.schedule, self.planned
        self.schedule, self.planned = "split", None  # takes no marks while restoring data
        self.add_batch(transitions)
        self.schedule, self.planned = schedule, planned

    def _add_sparse(self, indices: np.ndarray, amounts: np.ndarray | int) -> None:
        """Add amounts ≥ 0 to the transitions in ``indices`` (n,): one for each, or the same for all."""
        more = float(np.sum(amounts, dtype=float)) if np.ndim(amounts) else len(indices) * amounts
        if more > MOST - self.total:
            raise DataError(f"{more:.6g} more transitions: a table counts up to 2^53, the limit of exact floats")
        amounts = amounts.astype(np.int64) if isinstance(amounts, np.ndarray) else amounts
        np.add.at(self.transitions, indices, amounts)
        np.add.at(self.successes, self.pmdp.expression[indices], amounts)
        self.total += int(np.sum(amounts)) if np.ndim(amounts) else len(indices) * int(amounts)

    def _locate(self, states: ArrayLike, actions: ArrayLike, successors: ArrayLike) -> np.ndarray:
        columns = [np.atleast_1d(np.asarray(c)) for c in (states, actions, successors)]
        for name, column in zip(("states", "actions", "successors"), columns):
            if column.ndim != 1 or (column.dtype.kind not in "iu" and column.size):
                raise DataError(f"{name} must be a flat array of whole numbers")
            if len(column) != len(columns[0]):
                raise DataError("states, actions and successors must have one length")
        s, a, s2 = (c.astype(np.int64) for c in columns)
        out = locate(self.pmdp, s, a, s2)
        if (out < 0).any():
            k = int(np.argmax(out < 0))
            raise DataError(impossible(self.pmdp, int(s[k]), int(a[k]), int(s2[k]), int(out[k])))
        return out


def bet_shares(pmdp: ParametricMDP) -> tuple[float, ...]:
    """The shares of a plan at which new bets are placed for this model."""
    if pmdp.num_parameters > MOST_PARAMETERS:
        return ()
    return BET_SHARES if pmdp.num_expressions <= MANY_EXPRESSIONS else BET_SHARES[::3]


def next_share(pmdp: ParametricMDP, progress: float) -> float:
    """The first of `bet_shares` beyond ``progress``, 1 after the last."""
    return next((share for share in bet_shares(pmdp) if share > progress), 1.0)


def locate(pmdp: ParametricMDP, states: np.ndarray, actions: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """(n,) the transition of each record; NO_ROW, NO_SUCCESSOR or AMBIGUOUS if there is none.

    Successors are those of the transitions, or the visible states behind silent ones.
    """

    def found(targets: np.ndarray) -> np.ndarray:
        out = np.empty(len(states), dtype=np.int64)
        model = (pmdp.num_states, pmdp.state_ptr, pmdp.action, pmdp.row_ptr, targets)
        core.locate(len(states), states, actions, successors, *model, out)
        return out

    out = found(pmdp.successor)
    if pmdp.has_payments and (out == NO_SUCCESSOR).any():
        seen = found(pmdp.visible_successor)
        seen[(seen >= 0) & pmdp.ambiguous_without_reward[seen]] = AMBIGUOUS
        out = np.where(out == NO_SUCCESSOR, seen, out)
    return out


def impossible(p: ParametricMDP, state: int, action: int, successor: int, reason: int) -> str:
    """A sentence for a record without a transition, for a ``reason`` of `locate`."""
    if not 0 <= state < p.num_states:
        return f"the model has no state {state} (it has {p.num_states})"
    if not 0 <= action < p.num_actions:
        return f"the model has no action {action} (it has {p.num_actions})"
    shown = f"{p.state_name(state)}, action {p.action_names[action]!r}"
    if reason == NO_ROW:
        return f"{shown} is not enabled"
    if not 0 <= successor < p.num_states:
        return f"the model has no state {successor} (it has {p.num_states})"
    if reason == AMBIGUOUS:
        return f"{shown} leads to {p.state_name(successor)} in several ways that only the reward distinguishes"
    return f"{shown} never leads to {p.state_name(successor)}"
