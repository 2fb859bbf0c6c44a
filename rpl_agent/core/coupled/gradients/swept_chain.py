"""`SweptChain`: the chain of a policy of a large model, solved by sweeps.

The factors of a grid of 10⁵ states take several times the memory of the model. Sweeps and BiCGSTAB need a few numbers
per state; the results are guesses in both cases (`expansion`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.coupled.affine import choice_of
from rpl_agent.core.model import Policy, gather
from rpl_agent.core.native import Struct, core
from rpl_agent.core.solver.cyclic.local import AssembledChain
from rpl_agent.core.solver.problem import Problem

#: chains with more states are swept
SWEPT_STATES = 20_000
#: the largest residual, relative to the solution; the rounds of acceleration, and the sweeps before each
ACCURACY, ROUNDS, SWEEPS = 1e-13, 8, 24
#: an answer with a larger residual than this is rejected
NO_ANSWER = 1e-9


@dataclass(frozen=True, eq=False)
class SweptChain:
    """(I − γ P) x = b on some states, with the `solve` of a factorisation."""

    solved: np.ndarray  # (n,) states, by their distance from where plays end
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    def solve(self, right: np.ndarray) -> np.ndarray:
        """x (n,) or (n, k) for b of the same shape; NaN where it was not found."""
        if right.ndim == 2:
            return np.stack([self.solve(column) for column in np.ascontiguousarray(right.T)], axis=1)
        chain = AssembledChain(self.indptr, self.indices, self.data, np.ascontiguousarray(right))
        x, missing = np.zeros(len(right)), np.empty(len(right))
        for _ in range(ROUNDS):
            chain.relax(x, SWEEPS, 0.0)
            most = self._missing(chain.rhs, x, missing)
            if most <= ACCURACY:
                return x
            # the tolerance is on the length of the residual: half the accuracy in every equation
            chain.accelerate(x, 0.5 * ACCURACY * float(np.abs(x).max()) * np.sqrt(len(x)))
        return x if self._missing(chain.rhs, x, missing) <= NO_ANSWER else np.full(len(x), np.nan)

    def _missing(self, right: np.ndarray, x: np.ndarray, scratch: np.ndarray) -> float:
        """The largest residual, relative to the solution."""
        core.chain_residual(len(x), self.indptr, self.indices, self.data, right, x, scratch)
        size = float(np.abs(x).max(initial=0.0))
        return float(np.abs(scratch).max(initial=0.0)) / size if size > 0.0 else 0.0 if not right.any() else np.inf


def swept_chain(problem: Problem, policy: Policy, chances: Struct, solved: np.ndarray) -> SweptChain:
    """The chain of a policy on the states ``solved`` (n,), at the centre of the frame that chances belong to."""
    pmdp, agent = problem.pmdp, choice_of(problem, policy)
    rows = policy.rows[solved] if policy.rows is not None else gather(pmdp.state_ptr, solved)[0]
    capacity = int((pmdp.row_ptr[rows + 1] - pmdp.row_ptr[rows]).sum()) + len(solved)
    place = np.empty(pmdp.num_states, np.int32)

    def arrays(states: np.ndarray) -> SweptChain:
        place[:] = -1
        place[states] = np.arange(len(states), dtype=np.int32)
        indptr, indices = np.empty(len(states) + 1, np.int32), np.empty(capacity, np.int32)
        data = np.empty(capacity)
        model = (len(states), states, place, agent, chances, problem.gamma)
        used = core.policy_chain(*model, capacity, indptr, indices, data)
        return SweptChain(states, indptr, indices[:used], data[:used])

    return arrays(solved[_from_the_end(arrays(solved))])


def _from_the_end(chain: SweptChain) -> np.ndarray:
    """(n,) the places of states by the number of steps to where plays end: sweeps carry values far in this order."""
    n = len(chain.solved)
    graph = scipy.sparse.csr_array((chain.data, chain.indices, chain.indptr), shape=(n, n))
    leaving = np.flatnonzero(np.abs(graph.sum(axis=1)) > ACCURACY)
    # one more node, with an edge to every state that plays leave from; the diagonal does no harm
    first = scipy.sparse.csr_array((np.ones(len(leaving)), (np.zeros(len(leaving), int), leaving)), shape=(1, n))
    sources = scipy.sparse.vstack([abs(graph).T, first], format="csr")
    sources.resize((n + 1, n + 1))
    order = scipy.sparse.csgraph.breadth_first_order(sources, n, return_predecessors=False)[1:]
    seen = np.zeros(n, dtype=bool)
    seen[order] = True
    return np.concatenate([order, np.flatnonzero(~seen)])
