"""Proved optimal: rows that are beaten for every parameter of the region, rows that are ties, and what is left.

Let U bound the best value and L the value of the policy π, in every state and for every θ of the region C. A row of s
is *beaten* if r + γ p(θ)·U(s') < L(s) for every θ of C: whatever follows, it is worth less than π in s, so a policy
that takes it is improved by playing π from there on. No policy that matters takes it; without the row U can be lowered,
which may beat others, and so on in rounds. A row is a *tie* if it is worth what π is worth, r + γ p(θ)·V^π = V^π(s) for
every θ (`ties`). If in every state that is reached by rows that are not beaten all of these are π's own or ties, then
no policy is better than π: along the plays of any policy V^π does not rise, and plays that never end do no harm (see
`_ends_harmlessly`). Minimising is the mirror image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, chances_of, chances_of_rows, choice_of
from rpl_agent.core.coupled.bounds import proved_bound
from rpl_agent.core.coupled.expansion import ValueExpansion
from rpl_agent.core.coupled.ties import tied_rows
from rpl_agent.core.model import Sense, cached_on, gather, reached
from rpl_agent.core.native import Struct, core
from rpl_agent.core.solver.graph import ANY_ROW, usable_rows
from rpl_agent.core.solver.problem import Problem

#: the most rounds in which rows are dropped
ROUNDS = 3
#: a round that drops less than this share of the rows left is the last one
WORTHWHILE = 0.1
#: rows whose value at the centre is closer to that of their state than this, relative to the values, may be ties
CLOSE = 1e-9
#: rows that are dropped pay, or cost, this multiple of the largest value: then they never matter
NEVER_TAKEN = 1e3


@dataclass(frozen=True, eq=False)
class RowVerdict:
    """Which rows can still be part of a better policy."""

    undecided: np.ndarray  # rows that are neither beaten nor ties, in states that the rows left can reach
    best: AffineBound  # on every policy, with the rows that are left
    is_optimal: bool  # no policy is better


def settled_rows(proof: AffineProof, expansion: ValueExpansion, best: AffineBound, mine: AffineBound) -> RowVerdict:
    """Drop beaten rows in rounds, then ties.

    expansion : of the best policy at the centre
    best : proved, on every policy
    mine : proved, on a deterministic policy in all undecided states
    """
    problem, (policy, side) = proof.problem, (mine.policy, best.side)
    assert policy is not None and policy.rows is not None
    own = np.zeros(problem.pmdp.num_rows, bool)
    own[policy.rows] = True
    beaten = np.zeros(problem.pmdp.num_rows, bool)
    other = np.flatnonzero(~own & ~problem.task.decided[problem.pmdp.row_state])  # not beaten so far
    for _ in range(ROUNDS):
        new = _beaten(problem, best, mine, other)
        beaten[other[new]] = True
        other = other[~new]
        if new.sum() < WORTHWHILE * len(new) or not len(other):
            break
        without = _without_rows(problem, beaten, float(np.abs(expansion.values).max()))
        lowered = proved_bound(AffineProof(without, proof.region), expansion, side, True)
        if lowered is None:
            break
        best = lowered
    rows = _rows_left(problem, beaten, own, chances_of(problem, best.frame))
    ties = _ties(problem, mine, rows)
    undecided = rows[~ties]
    is_optimal = not len(undecided) and (not ties.any() or _ends_harmlessly(problem, ~beaten))
    return RowVerdict(undecided, best, is_optimal)


def _beaten(problem: Problem, best: AffineBound, mine: AffineBound, rows: np.ndarray) -> np.ndarray:
    """(n,) of some rows: whether r + γ p·U(s') is below L(s) for every parameter of the frame (minimising: above)."""
    pmdp, chances = problem.pmdp, chances_of(problem, best.frame)
    # π's functions are appended to those of U: a row looks up that of its own state there
    u = np.concatenate([best.moved, mine.moved])
    g = np.concatenate([best.gradient, mine.gradient])
    behind = cached_on(pmdp, "states behind", lambda pmdp: (pmdp.row_state + pmdp.num_states).astype(np.int32))
    reward, is_few = problem.reward, 2 * len(rows) < pmdp.num_rows  # copying most rows would take longer
    if is_few:
        behind, chances, reward = behind[rows], chances_of_rows(chances, rows), reward[rows]
    out = np.empty(len(behind))
    core.row_residuals(len(out), behind, chances, reward, problem.gamma, best.side.value, u, g, None, out)
    out = out if is_few else out[rows]
    return np.asarray(out < 0.0)


def _rows_left(problem: Problem, beaten: np.ndarray, own: np.ndarray, chances: Struct) -> np.ndarray:
    """The rows that are neither beaten nor the policy's, in undecided states that rows which are not beaten reach."""
    pmdp, decided = problem.pmdp, problem.task.decided
    kept = np.flatnonzero(~beaten & ~decided[pmdp.row_state])
    if problem.order is not None:
        seen = np.zeros(pmdp.num_states, bool)
        seen[pmdp.initial_state] = True
        agent = choice_of(replace(problem, dropped=beaten), None)
        core.reach_forward(len(problem.order), problem.order, agent, chances, seen)
    else:
        moves, first = gather(pmdp.row_ptr, kept)
        source = np.repeat(pmdp.row_state[kept], np.diff(first))
        seen = reached(source, pmdp.successor[moves], np.array([pmdp.initial_state]), pmdp.num_states)
    return np.asarray(kept[seen[pmdp.row_state[kept]] & ~own[kept]])


def _without_rows(problem: Problem, beaten: np.ndarray, size: float) -> Problem:
    """The problem without beaten rows. Code that looks at all rows sees them pay so little that they never matter."""
    sign = -1.0 if problem.objective.sense is Sense.MAX else 1.0
    reward = np.where(beaten, sign * NEVER_TAKEN * (1.0 + size), problem.reward)
    return replace(problem, task=replace(problem.task, reward=reward), dropped=beaten.copy())


def _ties(problem: Problem, mine: AffineBound, rows: np.ndarray) -> np.ndarray:
    """(n,) whether each of some rows is a tie; only rows with equal values at the centre are candidates."""
    pmdp, found = problem.pmdp, np.zeros(len(rows), bool)
    assert mine.policy is not None and mine.policy.rows is not None
    if not len(rows):
        return found
    chances = chances_of(problem, mine.frame)

    def worth(rows: np.ndarray) -> np.ndarray:
        """(n,) the worth of rows at the centre, if the policy is played after them."""
        moves, first = gather(pmdp.row_ptr, rows)
        terms = chances.p[pmdp.expression[moves]] * mine.values[pmdp.successor[moves]]
        return np.asarray(problem.reward[rows] + problem.gamma * np.add.reduceat(terms, first[:-1]))

    size = 1.0 + float(np.abs(mine.values).max())
    close = np.abs(worth(rows) - worth(mine.policy.rows[pmdp.row_state[rows]])) <= CLOSE * size
    if close.any():
        found[close] = tied_rows(problem, mine.policy.rows, mine.values, mine.gradient, rows[close])
    return found


def _ends_harmlessly(problem: Problem, kept: np.ndarray) -> bool:
    """Whether plays that never end, by rows that are kept, are no better than the policy.

    Discounted they are worth nothing in the end. Otherwise a maximiser of rewards ≥ 0 gains nothing from them, and a
    minimiser who must reach the target pays infinity for them. In all other cases there must be none, except where
    nothing is left to be paid, whatever is played.
    """
    if problem.criterion.endless_never_wins(problem.objective.sense):
        return True
    pmdp, decided = problem.pmdp, problem.task.decided
    worth = (problem.boundary() != 0.0) & decided
    worth[pmdp.row_state[problem.reward != 0.0]] = True
    source = pmdp.row_state[pmdp.transition_row]
    matters = reached(pmdp.successor, source, np.flatnonzero(worth), pmdp.num_states) & ~decided
    if problem.criterion.must_reach:
        matters = ~decided
    return not problem.held_states(usable_rows(kept, False), ANY_ROW, matters).any()
