"""The value of a policy and its gradient at the centre of a frame: r + 1 linear systems with one factorisation.

With P the chain of the policy at the centre, β the derivatives of its probabilities and v its values,

    (I − γ P) v = reward,     (I − γ P) g = γ Σ_i v(i) β_i;

for a model without cycles in one backward pass. These numbers are guesses, which `affine.AffineProof` proves or
rejects; no bound depends on their accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.coupled.affine import AffineBound, BoxFrame, Side, chances_of, choice_of, rules_of
from rpl_agent.core.coupled.gradients.swept_chain import SWEPT_STATES, SweptChain, swept_chain
from rpl_agent.core.model import Policy, Sense, best_rows, cached_on, gather, reached
from rpl_agent.core.native import Struct, core
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.solver.graph import ALL_ROWS, held_states, moves, usable_rows
from rpl_agent.core.solver.problem import Problem
from rpl_agent.core.solver.solve import from_the_end

#: cyclic parts with more states than this are not factorised: fill-in grows faster than their number
FACTOR_LIMIT = 120_000
#: chains with more states keep the order of their first factorisation; the digits of smaller ones never depend on what
#: was computed before, so that the same data have the same certificate
REORDERED = 500
#: the most chains of policies in the cache, and the most states of all of them together
KEPT_CHAINS, KEPT_STATES = 64, 100_000
#: steps of policy iteration at the centre of a frame
IMPROVEMENTS = 12
#: a finite substitute for infinite values, relative to the other values
LOST = 4.0
#: smaller gains, relative to the values, do not change a policy; values from sweeps are less accurate
IMPROVEMENT = 1e-12
SWEPT_IMPROVEMENT = 1e-11


@dataclass(frozen=True, eq=False)
class ValueExpansion:
    """v + g·y, the value of a policy to first order."""

    policy: Policy
    frame: Frame | BoxFrame
    chances: Struct  # row_chances
    values: np.ndarray  # (S,)
    gradient: np.ndarray  # (S, r)
    scope: np.ndarray  # (S,) bool, undecided states
    reached: np.ndarray  # (S,) bool, undecided states that the policy can reach
    order: np.ndarray | None = None  # (n,) the undecided states of a model without cycles, successors first
    solved: np.ndarray | None = None  # (n,) with cycles: states of the linear system, the others are known
    factors: Any = None

    def bound(self, side: Side, every_policy: bool, everywhere: bool = False) -> AffineBound:
        """A bound without slack, for the policy or for all, still to be checked.

        The bound on the policy covers the states that it reaches, or all states (``everywhere``).
        """
        policy, scope = (
            None if every_policy else self.policy,
            self.scope if every_policy or everywhere else self.reached,
        )
        return AffineBound(side, policy, self.frame, self.values, self.gradient, np.zeros(len(self.values)), scope)

    def spread(self, extra: np.ndarray) -> np.ndarray:
        """(S,) what an extra reward (S,) per visit adds to the values of the policy (models with cycles)."""
        result = np.zeros(len(extra))
        result[self.solved] = self.factors.solve(extra[self.solved])
        return result


def expand_without_cycles(
    problem: Problem, frame: Frame | BoxFrame, order: np.ndarray, policy: Policy | None, everywhere: bool = False
) -> ValueExpansion | None:
    """The expansion of a policy on the states it reaches, or of the best one at the centre (None), without cycles.

    With ``everywhere``, the expansion of a policy covers all states.
    """
    pmdp, chances = problem.pmdp, chances_of(problem, frame)
    sinks = problem.structure.sinks
    if problem.criterion.must_reach and len(sinks):
        return None
    if problem.reward[gather(pmdp.state_ptr, sinks)[0]].any():
        return None
    seen = None if policy is None or everywhere else _reached(problem, order, policy, chances)
    order = order if seen is None else order[seen[order]]
    sense = 0.0 if policy is not None else 1.0 if problem.objective.sense is Sense.MAX else -1.0
    values, gradient = problem.boundary(), np.zeros((pmdp.num_states, frame.dimension))
    rows, model = np.array(pmdp.state_ptr[:-1]), (choice_of(problem, policy), chances, problem.reward)
    core.expand_backward(len(order), order, *model, sense, values, gradient, rows)
    if not (np.isfinite(values).all() and np.isfinite(gradient).all()):
        return None
    chosen = policy if policy is not None else Policy.deterministic(rows)
    seen = _reached(problem, order, chosen, chances) if seen is None else seen
    return ValueExpansion(chosen, frame, chances, values, gradient, ~problem.task.decided, seen, order)


def _reached(problem: Problem, order: np.ndarray, policy: Policy, chances: Struct) -> np.ndarray:
    """(S,) the undecided states that a policy can reach, in a model without cycles."""
    pmdp, seen = problem.pmdp, np.zeros(problem.pmdp.num_states, bool)
    seen[pmdp.initial_state] = True
    core.reach_forward(len(order), order, choice_of(problem, policy), chances, seen)
    return seen & ~problem.task.decided


def expansion_everywhere(problem: Problem, frame: Frame | BoxFrame, policy: Policy) -> ValueExpansion | None:
    """The expansion of a policy in all states, without a horizon."""
    if problem.order is not None:
        return expand_without_cycles(problem, frame, problem.order, policy, everywhere=True)
    return expand(problem, frame, policy)


def expansion_of(
    problem: Problem, frame: Frame | BoxFrame, policy: Policy | None, start: Policy
) -> ValueExpansion | StepExpansion | None:
    """The expansion of a policy, or, without one, of the best one at the centre, searched from a start."""
    if problem.objective.horizon is not None:
        return StepExpansion.of(problem, frame, policy if policy is not None else greedy_rules(problem, frame))
    if problem.order is not None:
        return expand_without_cycles(problem, frame, problem.order, policy)
    expansion = expand(problem, frame, policy if policy is not None else start)
    if policy is not None or start.rows is None:
        return expansion
    for _ in range(IMPROVEMENTS):
        if expansion is None:
            return None
        better = improved(problem, expansion)
        if better is None:
            return expansion
        expansion = expand(problem, frame, better)
    return expansion


@dataclass(frozen=True, eq=False)
class PolicyChain:
    """The part of a policy's chain that does not depend on the parameters while the same probabilities are positive."""

    source: np.ndarray  # (n,) of the transitions that are played in undecided states, by state; likewise the next three
    target: np.ndarray
    expression: np.ndarray
    weight: np.ndarray
    first: np.ndarray  # where the transitions of each of `states` begin
    states: np.ndarray
    solved: np.ndarray  # as in `ValueExpansion`, like `reached`
    reached: np.ndarray
    lost: np.ndarray  # where the value is infinite
    inner: np.ndarray  # (n,) which transitions stay among the solved states
    place: np.ndarray  # where the entries of the identity and of P stand in the pattern of I − γ P
    indices: np.ndarray
    indptr: np.ndarray
    is_ordered: bool  # whether `solved` is in an order of little fill-in: finding one takes half of a factorisation
    order: list[np.ndarray] = field(default_factory=list)  # such an order of `solved`, once it is known

    def factors(self, p: np.ndarray) -> Any:
        """The factorisation of I − γ P for probabilities p (n,); None if it is singular."""
        n = len(self.solved)
        entries = np.concatenate([np.ones(n), -p[self.inner]])
        data = np.bincount(self.place, entries, len(self.indices))
        matrix = scipy.sparse.csc_array((data, self.indices, self.indptr), shape=(n, n))
        try:  # rows have few entries: no supernodes (half the fill in crowds, a twelfth less in grids)
            found = scipy.sparse.linalg.splu(
                matrix,
                "NATURAL" if self.is_ordered else "MMD_AT_PLUS_A",  # two thirds of the fill that COLAMD leaves
                relax=1,
                panel_size=1,
                diag_pivot_thresh=0.1,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # singular
            return None
        self.order[:] = [np.argsort(found.perm_c)]
        return found

    def sums(self, terms: np.ndarray, size: int) -> np.ndarray:
        """(S, …) sums over the transitions of each state, of terms (n, …)."""
        total = np.zeros((size, *terms.shape[1:]))
        if len(self.states):
            total[self.states] = np.add.reduceat(terms, self.first)
        return total


def _chain_of(problem: Problem, weights: np.ndarray, p: np.ndarray, order: np.ndarray | None = None) -> PolicyChain:
    """The chain of a policy (R,) for expressions with these values (F,); ``order`` is that of the solved states."""
    pmdp, decided = problem.pmdp, problem.task.decided
    size, (row, moves) = pmdp.num_states, _played_moves(problem, weights)
    source, target, f = pmdp.row_state[row], pmdp.successor[moves], pmdp.expression[moves]
    worthless, lost = _never_ending(problem, weights, p)
    solved = np.flatnonzero(~decided & ~worthless & ~lost)
    solved = solved if order is None else solved[order]
    position = np.full(size, -1)
    position[solved] = np.arange(len(solved))
    inner = (position[source] >= 0) & (position[target] >= 0)
    diagonal = np.arange(len(solved))
    rows = np.concatenate([diagonal, position[source[inner]]])
    columns = np.concatenate([diagonal, position[target[inner]]])
    entries, place = np.unique(columns * len(solved) + rows, return_inverse=True)
    indptr = np.searchsorted(entries, np.arange(len(solved) + 1) * len(solved))
    states, first = np.unique(source, return_index=True)
    seen = ~decided & reached(source, target, np.array([pmdp.initial_state]), size)
    return PolicyChain(
        source,
        target,
        f,
        problem.gamma * weights[row],
        first,
        states,
        solved,
        seen,
        lost,
        inner,
        place.reshape(-1),
        (entries % max(len(solved), 1)).astype(np.int32),
        indptr.astype(np.int32),
        order is not None,
    )


def known_chain(problem: Problem, weights: np.ndarray, p: np.ndarray) -> PolicyChain:
    """The chain of a policy (R,) for expressions with these values (F,), cached: data change bounds, rarely chains."""
    known: dict[Any, PolicyChain] = cached_on(problem.pmdp, "chains", lambda _: {})
    marks = (weights, p > 0.0, problem.reward, problem.task.decided)
    key = (problem.gamma, problem.criterion.must_reach, problem.criterion.signed, *(array.tobytes() for array in marks))
    if key not in known:
        if len(known) >= max(1, min(KEPT_CHAINS, KEPT_STATES // problem.pmdp.num_states)):
            known.clear()
        known[key] = _chain_of(problem, weights, p)
    elif len(known[key].solved) > REORDERED and known[key].order and not known[key].is_ordered:
        known[key] = _chain_of(problem, weights, p, *known[key].order)
    return known[key]


def visits(problem: Problem, expansion: ValueExpansion) -> np.ndarray:
    """(S,) the policy's expected discounted visits to each undecided state, from the initial state on."""
    p, start = expansion.chances.p, problem.pmdp.initial_state
    chain = known_chain(problem, expansion.policy.shares(problem.pmdp), p)
    factors = expansion.factors
    if expansion.solved is None or isinstance(factors, SweptChain):
        factors = chain.factors(chain.weight * p[chain.expression])
    found = np.zeros(problem.pmdp.num_states)
    if factors is not None:
        found[chain.solved] = factors.solve((chain.solved == start).astype(float), "T")
    return found


def solve_chain(problem: Problem, policy: Policy, p: np.ndarray) -> tuple[PolicyChain, np.ndarray, Any] | None:
    """(chain, values (S,), factors) of a policy in a model with cycles, for expressions with values p (F,).

    None if its value is infinite or its chain too large to be factorised.
    """
    pmdp, weights = problem.pmdp, policy.shares(problem.pmdp)
    chain, values = known_chain(problem, weights, p), problem.boundary()
    if chain.lost[pmdp.initial_state] or not 0 < len(chain.solved) <= FACTOR_LIMIT:
        return None
    p = chain.weight * p[chain.expression]
    factors = chain.factors(p)
    if factors is None:
        return None
    total = np.bincount(pmdp.row_state, weights * problem.reward, pmdp.num_states)
    values[chain.solved] = factors.solve((total + chain.sums(p * values[chain.target], len(values)))[chain.solved])
    return chain, values, factors


def value_at(problem: Problem, policy: Policy, p: np.ndarray) -> float | None:
    """The value of a policy for expressions with values p (F,), up to rounding; None if it was not found."""
    point, state = BoxFrame(np.zeros(0), np.zeros(0), p), problem.pmdp.initial_state
    if problem.objective.horizon is not None:
        return float(StepExpansion.of(problem, point, policy).values[-1, state])
    if problem.order is None:
        swept = swept_expansion(problem, point, policy)
        found = solve_chain(problem, policy, p) if swept is None else None
        return float(swept.values[state]) if swept is not None else None if found is None else float(found[1][state])
    expansion = expand_without_cycles(problem, point, problem.order, policy)
    return None if expansion is None else float(expansion.values[state])


def expand(problem: Problem, frame: Frame | BoxFrame, policy: Policy) -> ValueExpansion | None:
    """The expansion of a policy in a model with cycles; None if it is infinite or too large to be factorised."""
    swept = swept_expansion(problem, frame, policy)
    if swept is not None:
        return swept
    chances, size = chances_of(problem, frame), problem.pmdp.num_states
    found = solve_chain(problem, policy, chances.p)
    if found is None:
        return None
    (chain, values, factors), gradient = found, np.zeros((size, frame.dimension))
    if chances.slope.any():  # a point has none
        pull = (chain.weight * values[chain.target])[:, None] * chances.slope[chain.expression]
        gradient[chain.solved] = factors.solve(chain.sums(pull, size)[chain.solved])
    if not (np.isfinite(values).all() and np.isfinite(gradient).all()):
        return None
    values[chain.lost] = LOST * (1.0 + float(np.abs(values).max()))
    scope, solved = ~problem.task.decided, chain.solved
    return ValueExpansion(policy, frame, chances, values, gradient, scope, chain.reached, None, solved, factors)


def swept_expansion(problem: Problem, frame: Frame | BoxFrame, policy: Policy) -> ValueExpansion | None:
    """`expand` by sweeps; None for a small chain, if plays have no end, or if sweeps do not find it."""
    pmdp, chances, decided = problem.pmdp, chances_of(problem, frame), problem.task.decided
    if pmdp.num_states <= SWEPT_STATES:
        return None
    worthless, lost = _never_ending(problem, policy.shares(pmdp), chances.p)
    solved = np.flatnonzero(~decided & ~worthless)
    if len(solved) <= SWEPT_STATES or lost.any():
        return None
    chain, agent = swept_chain(problem, policy, chances, solved), choice_of(problem, policy)
    solved, r = chain.solved, frame.dimension
    values, gradient = problem.boundary(), np.zeros((pmdp.num_states, r))
    total, slope = np.empty(len(solved)), np.empty((len(solved), r))
    model = (len(solved), solved, agent, chances, problem.reward, problem.gamma)
    core.policy_sums(*model, values, total, slope)
    values[solved] = chain.solve(total)
    core.policy_sums(*model, values, total, slope)
    if slope.any():
        gradient[solved] = chain.solve(slope)
    if not (np.isfinite(values).all() and np.isfinite(gradient).all()):
        return None
    seen = np.zeros(pmdp.num_states, dtype=bool)
    core.policy_reach(agent, chances, decided, pmdp.initial_state, seen, None)
    return ValueExpansion(policy, frame, chances, values, gradient, ~decided, seen & ~decided, None, solved, chain)


def greedy_policy(problem: Problem, expansion: ValueExpansion) -> Policy:
    """A best row in every state, for an expansion's values at the centre."""
    pmdp = problem.pmdp
    return Policy.deterministic(best_rows(_row_values(problem, expansion), pmdp.state_ptr, pmdp.row_state))


def _row_values(problem: Problem, expansion: ValueExpansion) -> np.ndarray:
    """(R,) the value of each row at the centre; larger is better."""
    sign, q = 1.0 if problem.objective.sense is Sense.MAX else -1.0, np.empty(problem.pmdp.num_rows)
    core.row_values(len(q), expansion.chances, problem.reward, problem.gamma, expansion.values, q)
    return np.asarray(sign * q)


def improved(problem: Problem, expansion: ValueExpansion) -> Policy | None:
    """The greedy policy for an expansion's values at the centre; None if it is the same."""
    pmdp, rows = problem.pmdp, expansion.policy.rows
    assert rows is not None
    q = _row_values(problem, expansion)
    best = np.maximum.reduceat(q, pmdp.state_ptr[:-1])
    least = SWEPT_IMPROVEMENT if isinstance(expansion.factors, SweptChain) else IMPROVEMENT
    better = (best > q[rows] + least * (1.0 + np.abs(best))) & expansion.scope
    if not better.any():
        return None
    return Policy.deterministic(np.where(better, best_rows(q, pmdp.state_ptr, pmdp.row_state), rows))


def _staying(problem: Problem, weights: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(S,) where the policy stays forever."""
    pmdp = problem.pmdp
    if problem.criterion.contracts:
        return np.zeros(pmdp.num_states, bool)
    usable = usable_rows(weights > 0.0, False)
    return held_states(pmdp, usable, ALL_ROWS, ~problem.task.decided, lambda: moves(None, p[pmdp.expression]))


def _played_moves(problem: Problem, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, transitions), each (n,): the transitions that a policy (R,) plays in undecided states, by state."""
    pmdp = problem.pmdp
    played = np.flatnonzero((weights > 0.0) & ~problem.task.decided[pmdp.row_state])
    moves, own = gather(pmdp.row_ptr, played)
    return np.repeat(played, np.diff(own)), moves


def _never_ending(problem: Problem, weights: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(worthless, lost), each (S,): where the policy stays forever at value 0, and where its value is infinite."""
    pmdp, none = problem.pmdp, np.zeros(problem.pmdp.num_states, bool)
    still = _staying(problem, weights, p)
    if not still.any():
        return none, none
    row, move = _played_moves(problem, weights)
    possible = p[pmdp.expression[move]] > 0.0
    source, target = pmdp.row_state[row], pmdp.successor[move]

    def before(states: np.ndarray) -> np.ndarray:
        """(S,) from where the policy gets to one of the states (S,)."""
        return reached(target[possible], source[possible], np.flatnonzero(states), pmdp.num_states)

    if problem.proper_max:
        paid = np.maximum.reduceat(np.where(weights > 0.0, problem.reward, 0.0), pmdp.state_ptr[:-1]) > 0.0
        worthless = still & ~before(paid)
        costly = still & ~before(worthless)  # what is paid on the way to where nothing is paid is finite
    else:
        worthless, costly = still, still
    if not costly.any():
        return worthless, none
    # Every state that can reach them has an infinite value too.
    found = reached(target, source, np.flatnonzero(costly), pmdp.num_states)
    return worthless & ~found, found


# ---------------------------------------------------------------------- finite horizons
#: added to the excess of a step, relative to the values: more than its rounding error
ROUNDING = 1e-14


def greedy_rules(problem: Problem, frame: Frame | BoxFrame) -> Policy:
    """The best policy at the centre of the frame, one decision rule per step."""
    pmdp, values = problem.pmdp, from_the_end(problem)
    rules = np.empty((len(values) - 1, pmdp.num_states), np.int64)
    sense = 1.0 if problem.objective.sense is Sense.MAX else -1.0
    core.greedy_steps(
        pmdp.num_states,
        len(rules),
        pmdp.state_ptr,
        problem.task.decided,
        chances_of(problem, frame),
        problem.reward,
        problem.gamma,
        sense,
        values,
        rules,
    )
    return Policy.deterministic(rules[::-1])


@dataclass(frozen=True, eq=False)
class StepExpansion:
    """Values (H + 1, S) and gradients (H + 1, S, r) of a policy at the centre of a frame, by steps to go."""

    problem: Problem
    frame: Frame | BoxFrame
    policy: Policy
    values: np.ndarray
    gradient: np.ndarray

    @classmethod
    def of(cls, problem: Problem, frame: Frame | BoxFrame, policy: Policy) -> StepExpansion:
        values = from_the_end(problem)
        gradient = np.empty((*values.shape, frame.dimension))
        gradient[0] = 0.0
        core.expand_steps(
            rules_of(problem, policy),
            problem.task.decided,
            chances_of(problem, frame),
            problem.reward,
            problem.gamma,
            values,
            gradient,
        )
        return cls(problem, frame, policy, values, gradient)

    def bound(self, side: Side, every_policy: bool) -> AffineBound:
        """A bound with these gradients, for the policy or for all, still to be checked."""
        problem, policy, r = self.problem, None if every_policy else self.policy, self.frame.dimension
        rules, chances, decided = rules_of(problem, policy), chances_of(problem, self.frame), problem.task.decided
        slack, scope = np.empty_like(self.values), np.empty(self.values.shape, dtype=bool)
        scope[:] = ~decided & every_policy
        scope[-1, problem.pmdp.initial_state] = True
        if not every_policy:
            core.reach_steps(rules, decided, chances, scope)
        core.raise_steps(
            rules,
            scope,
            chances,
            problem.reward,
            problem.gamma,
            side.value,
            ROUNDING,
            self.values,
            self.gradient,
            slack,
            np.empty_like(slack),
            np.empty(2 * r + 2 * r * r),
        )
        return AffineBound(side, policy, self.frame, self.values, self.gradient, slack, scope)
