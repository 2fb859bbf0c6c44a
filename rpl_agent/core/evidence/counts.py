"""Counts of the model's (s, a, s') transitions, with snapshots for decisions made along the way (`evidence.marks`).

Marks belong to the data: they are taken when the data arrive and are part of every checkpoint. A table of counts
without an order has no marks: nothing in it came before anything else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rpl_agent.core.errors import DataError, ModelError, require_kind
from rpl_agent.core.evidence.marks import EXPLICIT_SHARE, SCHEDULES, Mark, MarkSchedule
from rpl_agent.core.evidence.records import located
from rpl_agent.core.model import ParametricMDP, cached_on, owners

#: The largest total: every count is an exact float64, and no sum of counts overflows.
MOST = 2**53


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
        if schedule is not None and schedule not in SCHEDULES:
            raise DataError(f"schedule {schedule!r} is not one of {SCHEDULES}")
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
        indices = located(self.pmdp, [state], [action], [successor])
        if not isinstance(n, int | np.integer):
            raise DataError(f"count {n!r} is not a whole number")
        if n < 0:
            raise DataError(f"negative count {n}")
        self.schedule = self.schedule or ("geometric" if n == 1 else "table")  # several at once have lost their order
        self._add_sparse(indices, int(n))
        self._mark_if_due()

    def add_many(self, states: ArrayLike, actions: ArrayLike, successors: ArrayLike) -> None:
        """Add steps in the order in which they happened, arrays (n,); takes marks exactly where they are due."""
        self._add_in_order(located(self.pmdp, states, actions, successors))

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
            due = self._marks_to_take.next_total()
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
        return self._marks_to_take.origin_weight

    @property
    def _marks_to_take(self) -> MarkSchedule:
        return MarkSchedule(self.pmdp, self.schedule, self.planned, self.marks)

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
        left = self._marks_to_take.weight_left
        weight = EXPLICIT_SHARE * left if weight is None else float(weight)
        if not (0.0 < weight or progress > 0.0 == weight) or weight > left + 1e-12:
            raise DataError(f"mark of weight {weight}: the weights left sum to {left:.6g}")
        if not 0.0 <= progress <= 1.0:
            raise DataError(f"progress {progress} is not between 0 and 1")
        return self._append(self.total, self.successes, weight, float(progress), self.trials if progress else None)

    def bet(self, progress: float, value: bool = True) -> bool:
        """Take a mark if a share of the plan was passed at which bets or a window begin; return whether it was taken.

        For schedules whose plan the caller knows: call it whenever convenient, with the completed share. A
        smaller share than before means a new plan, and so do data beyond the end of a plan. After two changes
        bets ignore the plan. Without bets on the ``value`` there are windows only.
        """
        if self.total == 0 or not 0.0 < progress < 1.0:
            return False
        marks = self._marks_to_take
        due, share = marks.bet_due(self.total, progress) if value else (False, progress)
        weight = marks.weight_of_window(self.total, progress)
        if due or weight:
            self.mark(weight, share)
        return due or weight > 0.0

    def _mark_if_due(self) -> None:
        due = self._marks_to_take.due(self.total)
        if due is not None:
            self.mark(due.weight, due.progress)

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
        if not self._marks_to_take.allows(total, weight):
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
