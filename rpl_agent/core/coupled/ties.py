"""Rows that are exactly as good as those of a policy, at every parameter: equal rows, equal fates, symmetry.

States fall into classes of equal value for the policy. The classes are guessed from values and gradients at one point,
and then proved: each class has one state that stands for it, and every other state of the class either pays the same
and leads to the same classes with the same probabilities as that one does, or pays nothing and leads to its own class
for certain (in a model without cycles, or to decided states at once). So the plays from all states of a class pay the
same, up to a finite delay. States for which this fails leave their class, and the others are looked at again.

A row is a tie if it pays and leads to classes as its state's class does, or pays nothing and stays in that class.
Rewards are compared as numbers, probabilities as polynomials, by their rational coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.model import cached_on, gather
from rpl_agent.core.solver.problem import Problem

#: values and gradients that differ by less than this share of the largest are guessed to be equal
EQUAL = 1e-9
#: rounds in which states leave their classes
ROUNDS = 10
#: the most integers in the table of coefficients, and the largest sum of them
MOST_TERMS, MOST_SUM = 10_000_000, 2**62


def tied_rows(
    problem: Problem, policy: np.ndarray, values: np.ndarray, gradient: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """(n,) whether each of some rows has the value of its state under a policy, whatever the parameters.

    policy : (S,) its rows
    values, gradient : (S,), (S, r) of the policy's value at one point
    """
    # Data change the bounds, rarely the policy, and never which rows are ties.
    known: dict[tuple[object, bytes], tuple[np.ndarray, np.ndarray]] = cached_on(problem.pmdp, "ties", lambda _: {})
    key = (problem.objective, policy.tobytes())
    if key not in known:
        known.clear()
        known[key] = np.zeros(problem.pmdp.num_rows, bool), np.zeros(problem.pmdp.num_rows, bool)
    asked, tied = known[key]
    new = rows[~asked[rows]]
    if len(new):
        asked[new], tied[new] = True, _new_ties(problem, policy, values, gradient, new)
    return tied[rows]


@dataclass(frozen=True, eq=False)
class FateClasses:
    """States in classes of equal value for a policy, whatever the parameters."""

    classes: np.ndarray  # (S,)
    delays: np.ndarray  # (S,) states whose row only leads to their own class
    stands: np.ndarray  # (number of classes,) the first state of each that is undecided and no delay, else −1


def fate_classes(problem: Problem, policy: np.ndarray, values: np.ndarray, gradient: np.ndarray) -> FateClasses | None:
    """The classes of a policy (S,), guessed from values and gradient and then proved; None if none were found."""
    pmdp, coefficients = problem.pmdp, _coefficients(problem)
    if coefficients is None:
        return None
    states = np.flatnonzero(~problem.task.decided)
    classes = _guess(problem, values, gradient)
    for _ in range(ROUNDS):
        leads = _Destinations(problem, coefficients, classes, policy[states])
        delays = leads.stays(classes[states], np.arange(len(states)))
        if problem.order is None:  # plays might be delayed forever, unless they end at once
            at_once = problem.task.decided[pmdp.successor].astype(float)
            ends = np.minimum.reduceat(at_once, pmdp.row_ptr[:-1]) > 0.0
            delays &= ends[policy[states]]
        stands = np.full(int(classes.max()) + 1, -1)
        moving = np.flatnonzero(~delays)[::-1]
        stands[classes[states[moving]]] = moving  # the first state of each class
        like = stands[classes[states]]
        good = delays | ((like >= 0) & leads.same(np.arange(len(states)), like))
        decided = np.zeros(len(stands), bool)
        decided[classes[problem.task.decided]] = True
        good &= delays | ~decided[classes[states]]
        if good.all():
            delayed = np.zeros(pmdp.num_states, bool)
            delayed[states[delays]] = True
            return FateClasses(classes, delayed, np.where(stands >= 0, states[stands], -1))
        bad = states[~good]
        classes[bad] = classes.max() + 1 + np.arange(len(bad))
    return None


def _new_ties(
    problem: Problem, policy: np.ndarray, values: np.ndarray, gradient: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    found, coefficients = fate_classes(problem, policy, values, gradient), _coefficients(problem)
    if found is None or coefficients is None:
        return np.zeros(len(rows), bool)
    state = problem.pmdp.row_state[rows]
    own = found.classes[state]
    # the state's own row, if no state stands for its class
    like = policy[np.where(found.stands[own] >= 0, found.stands[own], state)]
    leads = _Destinations(problem, coefficients, found.classes, np.concatenate([like, rows]))
    asked = len(rows) + np.arange(len(rows))
    return np.asarray(leads.stays(own, asked) | leads.same(asked, np.arange(len(rows))))


def _coefficients(problem: Problem) -> np.ndarray | None:
    """(F, M) the numerators of the expressions; None if they are too many or too large for exact sums."""
    table = problem.pmdp.table
    shape = (table.num_expressions, table.num_monomials)
    if table.data.dtype == object or shape[0] * shape[1] > MOST_TERMS:
        return None
    longest = int(np.diff(problem.pmdp.row_ptr).max())
    if int(np.abs(table.data).max(initial=0)) * longest >= MOST_SUM:
        return None
    found = np.zeros(shape, np.int64)
    found[table.owner, table.indices] = table.data
    return found


def _guess(problem: Problem, values: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """(S,) classes of states whose values and gradients are nearly equal; decided ones by their exact value."""
    decided = problem.task.decided
    values = np.where(decided, problem.boundary(), values)
    columns = [values, *np.where(decided[:, None], 0.0, gradient).T]
    classes = np.zeros(len(values), np.int64)
    for column in columns:
        number = _clusters(column)
        classes = np.unique(classes * (number.max() + 1) + number, return_inverse=True)[1].reshape(-1)
    exact = np.unique(values[decided], return_inverse=True)[1]
    # a state that ends for certain joins the class of decided states of that value, if there is one such class
    numbers = np.full(int(classes.max()) + 1, -1)
    numbers[classes[decided]] = exact
    classes[decided] = np.where(numbers[classes[decided]] == exact, classes[decided], classes.max() + 1 + exact)
    return classes


def _clusters(column: np.ndarray) -> np.ndarray:
    """(n,) the cluster of each number: neighbours in order that are nearly equal share one."""
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    new = np.diff(ordered, prepend=ordered[:1]) > EQUAL * (1.0 + np.abs(ordered).max())
    found = np.empty(len(column), np.int64)
    found[order] = np.cumsum(new)
    return found


class _Destinations:
    """What rows pay, and with which probability, as a polynomial, they lead to each class."""

    def __init__(self, problem: Problem, coefficients: np.ndarray, classes: np.ndarray, rows: np.ndarray) -> None:
        pmdp = problem.pmdp
        moves, first = gather(pmdp.row_ptr, rows)
        of_move = np.repeat(np.arange(len(rows)), np.diff(first))
        after = classes[pmdp.successor[moves]]
        order = np.lexsort((after, of_move))
        of_move, after = of_move[order], after[order]
        new = np.flatnonzero((np.diff(of_move, prepend=-1) != 0) | (np.diff(after, prepend=-1) != 0))
        self._totals = np.add.reduceat(coefficients[pmdp.expression[moves[order]]], new)
        self._after = after[new]
        self._count = np.bincount(of_move[new], minlength=len(rows))
        self._first = np.concatenate([[0], np.cumsum(self._count)])
        self._reward = problem.reward[rows]
        self._is_delay = (self._reward == 0.0) & (self._count == 1) & (problem.gamma == 1.0)
        certain = np.zeros(coefficients.shape[1], np.int64)
        certain[0] = pmdp.table.denominators[0]
        self._is_delay[self._is_delay] = (self._totals[self._first[:-1][self._is_delay]] == certain).all(axis=1)

    def stays(self, classes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(n,) whether each row pays nothing and leads to the given class for certain."""
        return np.asarray(self._is_delay[rows] & (self._after[self._first[rows]] == classes))

    def same(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """(n,) whether each row pays and leads like the other one; False where that is −1."""
        known = others >= 0
        found = known & (self._reward[rows] == self._reward[others]) & (self._count[rows] == self._count[others])
        rows, others, count = rows[found], others[found], self._count[rows[found]]
        if len(rows):
            starts = np.concatenate([[0], np.cumsum(count)[:-1]])
            step = np.arange(count.sum()) - np.repeat(starts, count)
            one, other = np.repeat(self._first[rows], count) + step, np.repeat(self._first[others], count) + step
            equal = (self._after[one] == self._after[other]) & (self._totals[one] == self._totals[other]).all(axis=1)
            found[found] = np.logical_and.reduceat(equal, starts)
        return np.asarray(found)
