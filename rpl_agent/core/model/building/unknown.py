"""`hide_parameters`: turn a known MDP into a parametric one by declaring what is unknown.

The numbers of the known MDP become the simulator's truth θ. The learner gets only the parametric model: its graph, and
which rows share an unknown distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.core.errors import ModelError, listed, require_kind
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import DENSE_COLUMNS, ExpressionTable
from rpl_agent.core.model.pmdp import MDP, ParametricMDP


@dataclass(frozen=True)
class Unknown:
    """The result of `hide_parameters`: the model for the learner, and the truth for the simulator."""

    pmdp: ParametricMDP
    theta: np.ndarray  # (d,)

    @property
    def mdp(self) -> MDP:
        """The simulator's MDP."""
        return self.pmdp.instantiate(self.theta)


def hide_parameters(
    mdp: MDP | ParametricMDP,
    rows: Sequence[int] | np.ndarray | None = None,
    outcomes: Sequence[int] | np.ndarray | None = None,
) -> Unknown:
    """The parametric model with unknown distributions of a known MDP.

    Parameters
    ----------
    mdp : a known MDP, or a parametric one without parameters.
    rows : (R,) the distribution of each row: rows with one number share it, −1 keeps a row's probabilities known.
        By default every row of two or more successors has its own (only the graph is known).
    outcomes : (T,) the outcome of each transition in its row's distribution, 0, 1, …; two transitions of one row with
        the same number are an error. By default outcomes are numbered in the order of the successors.

    Returns
    -------
    Unknown
        n − 1 parameters on a simplex per distribution of n outcomes.

    >>> import rpl_envs
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> hide_parameters(world.pmdp.instantiate(world.theta)).pmdp.num_parameters
    12039
    """
    if isinstance(mdp, ParametricMDP):
        if mdp.num_parameters:
            raise ModelError(f"hide_parameters needs a known MDP; instantiate {listed(mdp.table.parameters)} first")
        mdp = mdp.instantiate(np.zeros(0))
    require_kind("mdp", mdp, MDP)
    pmdp = mdp.pmdp
    owner = _owners(pmdp, rows)
    place = _places(pmdp, owner, outcomes)
    free = np.flatnonzero(owner[pmdp.transition_row] >= 0)
    group = owner[pmdp.transition_row[free]]
    number = group * np.int64(place.max(initial=0) + 1) + place[free]
    outcome, which = np.unique(number, return_inverse=True)
    truth = _pooled_truth(mdp, free, which, len(outcome))
    of_outcome = np.zeros(len(outcome), dtype=np.int64)
    of_outcome[which] = group
    last = np.append(np.diff(of_outcome) != 0, True)  # outcomes are sorted by distribution: the last one has the rest
    parameter = np.where(last, -1, np.cumsum(~last) - 1)
    names = [f"r{g}_{k}" for g, k in zip(of_outcome[~last], (outcome % (place.max(initial=0) + 1))[~last])]
    table, expression = _table(mdp, names, parameter, of_outcome, free, which)
    domain = Domain.box(names).with_sums(of_outcome[~last])
    return Unknown(replace(pmdp, expression=expression, table=table, domain=domain), truth[~last])


def _owners(pmdp: ParametricMDP, rows: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """(R,) the distribution of each row, numbered 0, 1, …; −1 for rows with known probabilities."""
    length = np.diff(pmdp.row_ptr)
    given = np.arange(pmdp.num_rows) if rows is None else np.asarray(rows, dtype=np.int64)
    if given.shape != (pmdp.num_rows,):
        raise ModelError(f"rows has shape {given.shape}, not ({pmdp.num_rows},): one distribution per row of the model")
    owner = np.where(length > 1, given, -1)
    sizes: dict[int, int] = {}
    used, first = np.unique(owner, return_index=True)
    for g, r in zip(used.tolist(), first.tolist()):
        sizes[g] = int(length[r])
    bad = np.flatnonzero((owner >= 0) & (length != np.array([sizes[g] for g in used])[np.searchsorted(used, owner)]))
    if len(bad):
        raise ModelError(
            f"{pmdp.row_name(int(bad[0]))} has {length[bad[0]]} successors; another row of its distribution has "
            f"{sizes[int(owner[bad[0]])]}"
        )
    return np.where(owner >= 0, np.searchsorted(used[used >= 0], owner), -1)


def _places(pmdp: ParametricMDP, owner: np.ndarray, outcomes: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """(T,) the outcome of each transition within its distribution."""
    order = np.arange(pmdp.num_transitions) - pmdp.row_ptr[pmdp.transition_row]
    if outcomes is None:
        return order
    given = np.asarray(outcomes, dtype=np.int64)
    if given.shape != (pmdp.num_transitions,) or (given < 0).any():
        raise ModelError(f"outcomes must be {pmdp.num_transitions} numbers of at least 0, one per transition")
    free = owner[pmdp.transition_row] >= 0
    length = np.diff(pmdp.row_ptr)[pmdp.transition_row]
    pairs = pmdp.transition_row[free] * np.int64(given.max(initial=0) + 1) + given[free]
    if (given[free] >= length[free]).any() or len(np.unique(pairs)) != free.sum():
        raise ModelError("the outcomes of a row of n successors must be 0 to n - 1, each once")
    return given


def _pooled_truth(mdp: MDP, free: np.ndarray, which: np.ndarray, count: int) -> np.ndarray:
    """(count,) true probability of every outcome; rows that share a distribution must agree."""
    probability = mdp.probability[free]
    low, high = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(low, which, probability)
    np.maximum.at(high, which, probability)
    bad = np.flatnonzero(high - low > 1e-12)
    if len(bad):
        t = int(free[np.flatnonzero(which == bad[0])[0]])
        raise ModelError(
            f"rows that should share one distribution differ: probabilities {low[bad[0]]:.6g} and {high[bad[0]]:.6g} "
            f"of one outcome, at {mdp.pmdp.transition_name(t)}"
        )
    return high


def _table(
    mdp: MDP, names: list[str], parameter: np.ndarray, of_outcome: np.ndarray, free: np.ndarray, which: np.ndarray
) -> tuple[ExpressionTable, np.ndarray]:
    """Λ: one expression per outcome and one per known probability; (T,) expression ids."""
    pmdp, d, outcomes = mdp.pmdp, len(names), len(parameter)
    known = np.ones(pmdp.num_transitions, dtype=bool)
    known[free] = False
    constants, constant_of = np.unique(pmdp.expression[known], return_inverse=True)
    expression = np.empty(pmdp.num_transitions, dtype=np.int32)
    expression[free] = which
    expression[known] = outcomes + constant_of
    old = pmdp.table
    q = old.denominators[0]
    numerators = [int(old.data[old.indptr[c]]) if old.indptr[c + 1] > old.indptr[c] else 0 for c in constants]
    shared = math.gcd(q, *numerators) if q > 2**60 else 1  # drop common factors that only hidden rows needed
    q, numerators = q // shared, [n // shared for n in numerators]
    # numerators of outcomes: θ_j, or 1 − Σ of its distribution's parameters
    own, rest = np.flatnonzero(parameter >= 0), np.flatnonzero(parameter < 0)
    rows = np.concatenate([own, rest, rest[of_outcome[own]], outcomes + np.arange(len(constants))])
    columns = np.concatenate([parameter[own] + 1, 0 * rest, parameter[own] + 1, np.zeros(len(constants), dtype=int)])
    values = [1] * len(own) + [q] * len(rest) + [-1] * len(own) + numerators
    order = np.lexsort((columns, rows))
    data = np.array(values, dtype=object if q > 2**60 else np.int64)[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=outcomes + len(constants)))])
    packed = (indptr, columns[order].astype(np.int32), data)
    monomials = None if d else np.zeros((1, 0), dtype=np.int32)
    table = ExpressionTable(names, monomials, packed, [q] + [1] * d)
    if d + 1 <= DENSE_COLUMNS:  # small tables are in canonical order, as from the builders
        table, rank = ExpressionTable(names, table.monomials, packed, table.denominators).sorted()
        expression = rank[expression]
    return table, expression
