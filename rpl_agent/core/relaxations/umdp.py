"""Uncertain MDPs, and the corresponding parametric MDPs (Appendix B of the paper).

An uncertain MDP is a skeleton with a polytope of transition probabilities p (T,): bounds on every entry and rows
A p <= b. If no row of A involves two state-action pairs the set is (s, a)-rectangular; otherwise it is coupled.

To a parametric MDP: every transition but the last of its row becomes a parameter, the last is 1 minus their sum, and
the admissible parameters form a `Product` with one block per group of coupled rows. The pair is then used like any
other model: `Rectangular(pmdp, region)`, `expression_wise(region, pmdp)` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, Reward
from rpl_agent.core.model.building.matrices import layout_of, read_masks, read_matrices, read_reward
from rpl_agent.core.model.expressions import DENSE_COLUMNS
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.blocks import JointBlock, product_region
from rpl_agent.core.regions.parameter_region import affine_rows
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.regions.product import Product
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.relaxations.rectangular import Rectangular


@dataclass(frozen=True)
class UncertainMDP:
    """An MDP whose transition probabilities p (T,) are known only to lie in a polytope: lower ≤ p ≤ upper, A p ≤ b.

    >>> import numpy as np
    >>> lower, upper = np.array([[[0.0, 0.4], [0.0, 1.0]]]), np.array([[[0.6, 1.0], [0.0, 1.0]]])
    >>> UncertainMDP.from_matrices(lower, upper, labels={"goal": [False, True]}).upper
    array([0.6, 1. , 1. ])
    """

    state_ptr: np.ndarray  # these four as in ParametricMDP
    action: np.ndarray
    row_ptr: np.ndarray
    successor: np.ndarray
    lower: np.ndarray  # (T,)
    upper: np.ndarray
    A: scipy.sparse.csr_array = field(default_factory=lambda: scipy.sparse.csr_array((0, 0)))  # (m, T)
    b: np.ndarray = field(default_factory=lambda: np.zeros(0))
    initial_state: int = 0
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    rewards: Mapping[str, Reward] = field(default_factory=dict)
    action_names: tuple[str, ...] = ()
    name: str = "uncertain MDP"

    @classmethod
    def from_intervals(cls, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> UncertainMDP:
        """The interval MDP of a model with bounds (F,) per expression, for example from a certificate's relaxation."""
        return cls(
            pmdp.state_ptr,
            pmdp.action,
            pmdp.row_ptr,
            pmdp.successor,
            np.asarray(lower)[pmdp.expression],
            np.asarray(upper)[pmdp.expression],
            initial_state=pmdp.initial_state,
            labels=pmdp.labels,
            rewards=pmdp.rewards,
            action_names=pmdp.action_names,
            name=pmdp.name,
        )

    @classmethod
    def from_matrices(
        cls,
        lower: Any,
        upper: Any,
        *,
        initial_state: int = 0,
        labels: Mapping[str, Any] | None = None,
        rewards: Mapping[str, Any] | None = None,
        action_names: Sequence[str] = (),
        name: str = "uncertain MDP",
    ) -> UncertainMDP:
        """An interval MDP from one matrix of lower and one of upper bounds per action.

        Parameters
        ----------
        lower, upper : A matrices (S, S), dense or sparse, or an array (A, S, S); one matrix (S, S) is a chain. An entry
            with an upper bound of 0 is not a transition; an action whose row is 0 is not enabled in that state.
        labels : name -> states, as numbers or as a mask (S,).
        rewards : name -> (S,) rewards of states, or (S, A) of states and actions.
        """
        low, high = read_matrices(lower, "lower"), read_matrices(upper, "upper")
        layout = layout_of(high)
        if len(low) != len(high) or any(matrix.shape != high[0].shape for matrix in low):
            raise ModelError(f"lower and upper must be matrices of one shape (S, S) for each of {len(high)} action(s)")
        if any(one.count_nonzero() > (one * (other != 0)).count_nonzero() for one, other in zip(low, high)):
            raise ModelError("lower has an entry that is positive where upper is 0: there is no such transition")
        return cls(
            layout.state_ptr,
            layout.action,
            layout.row_ptr,
            layout.successor,
            layout.entries(low),
            layout.entries(high),
            initial_state=initial_state,
            labels=read_masks(labels, layout.size),
            rewards={key: read_reward(given, layout, key) for key, given in (rewards or {}).items()},
            action_names=tuple(action_names) or tuple(f"a{k}" for k in range(layout.actions)),
            name=name,
        )

    def relaxation(self) -> Intervals | Rectangular:
        """Nature's choices, for `solve`: exact in every row; coupling between rows is dropped (a superset)."""
        pmdp, region = self._parametric
        if len(self.b):
            return Rectangular(pmdp, region)
        return Intervals(pmdp, *_expression_bounds(self, pmdp), name="uncertain MDP")

    @property
    def pmdp(self) -> ParametricMDP:
        """The parametric model over all transitions but the last of each row, for data and `certify`."""
        return self._parametric[0]

    @cached_property
    def _parametric(self) -> tuple[ParametricMDP, Product]:
        return to_pmdp(self)

    def __post_init__(self) -> None:
        size = len(self.successor)
        for attribute in ("lower", "upper", "b"):
            object.__setattr__(self, attribute, np.asarray(getattr(self, attribute), dtype=np.float64))
        if self.lower.shape != (size,) or self.upper.shape != (size,):
            raise ModelError(f"{len(self.lower)} lower and {len(self.upper)} upper bounds for {size} transitions")
        object.__setattr__(self, "A", scipy.sparse.csr_array(self.A if len(self.b) else (0, size), dtype=np.float64))
        if self.A.shape != (len(self.b), size):
            raise ModelError(f"constraints of shape {self.A.shape} for {len(self.b)} right sides, {size} transitions")
        if not (np.isfinite(self.A.data).all() and np.isfinite(self.b).all()):
            raise ModelError("the constraints of an uncertain MDP must be finite")
        row_of = self.row_of
        bad = np.flatnonzero(~(self.lower <= self.upper) | (self.lower < 0) | (self.upper > 1))
        if len(bad):
            t = int(bad[0])
            raise ModelError(
                f"[{self.lower[t]}, {self.upper[t]}] is not an interval of probabilities at row {row_of[t]}, "
                f"successor {self.successor[t]}"
            )
        for bound, wrong, what in ((self.lower, 1, "lower"), (self.upper, -1, "upper")):
            total = np.bincount(row_of, bound, len(self.row_ptr) - 1)
            bad = np.flatnonzero(wrong * (total - 1) > 1e-9)
            if len(bad):
                raise ModelError(f"the {what} bounds of row {bad[0]} sum to {total[bad[0]]}: no distribution fits")

    @property
    def row_of(self) -> np.ndarray:
        """(T,) the row of each transition."""
        return np.repeat(np.arange(len(self.row_ptr) - 1), np.diff(self.row_ptr))


# ---------------------------------------------------------------------- uncertain MDP -> pMDP
def to_pmdp(umdp: UncertainMDP) -> tuple[ParametricMDP, Product]:
    """A pMDP and an admissible set of parameters that induce exactly the uncertain MDP.

    One parameter per transition, except the last of each row; the domain has all bounds and constraints, and sums of at
    most 1. The region is in the coordinates of ``pmdp.table.reduction``, which are the parameters.
    """
    pmdp = _skeleton(umdp)
    lower, upper = _expression_bounds(umdp, pmdp)

    def joint(block: JointBlock) -> Polytope:
        return affine_rows(block.model, lower[block.expressions], upper[block.expressions]).polytope()

    return pmdp, product_region(pmdp, lower, upper, joint)


def _expression_bounds(umdp: UncertainMDP, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """The bounds (F,), (F,) on the expressions of its pMDP."""
    lower, upper = pmdp.table.constant.copy(), pmdp.table.constant.copy()  # rows with one successor
    free = ~pmdp.table.is_constant[pmdp.expression]
    lower[pmdp.expression[free]], upper[pmdp.expression[free]] = umdp.lower[free], umdp.upper[free]
    return lower, upper


def _skeleton(umdp: UncertainMDP) -> ParametricMDP:
    """The pMDP with a parameter on every transition but the last of each row, which has 1 minus the others."""
    size, last = len(umdp.successor), umdp.row_ptr[1:] - 1
    transitions = np.setdiff1d(np.arange(size), last)
    row, d = umdp.row_of[transitions], len(transitions)
    names, columns = tuple(f"p{t}" for t in transitions), np.arange(1, d + 1)
    places = np.concatenate([transitions, last, last[row]]), np.concatenate([columns, 0 * last, columns])
    numbers = np.repeat([1, 1, -1], [d, len(last), d])
    numerators = scipy.sparse.csr_array((numbers, places), shape=(size, d + 1))
    expression, single = np.arange(size), last[np.diff(umdp.row_ptr) == 1]
    expression[single] = single[:1]  # all rows with one successor share the constant 1
    used, expression = np.unique(expression, return_inverse=True)
    packed = scipy.sparse.csr_array(numerators[used])
    packed.sort_indices()
    table = ExpressionTable(
        names,
        None if d > DENSE_COLUMNS else np.eye(d + 1, d, k=-1, dtype=np.int32),
        (packed.indptr.astype(np.int64), packed.indices.astype(np.int32), packed.data),
        [1] * (d + 1),
    )
    domain = Domain(names, umdp.lower[transitions], umdp.upper[transitions]).with_sums(row)
    if len(umdp.b):  # A p = A (numerators · (1, θ)), rounded
        A = umdp.A @ numerators
        mass = np.abs(umdp.b) + 2.0 * (abs(umdp.A) @ (1.0 + np.diff(umdp.row_ptr)[umdp.row_of]))
        slack = 4 * UNIT_ROUNDOFF * mass * (1 + np.diff(umdp.A.indptr))
        rows = A[:, 1:] if d > DENSE_COLUMNS else A[:, 1:].toarray()
        domain = domain.with_constraints(rows, umdp.b - A[:, [0]].toarray().ravel() + slack)
    return ParametricMDP(
        umdp.state_ptr,
        umdp.action,
        umdp.row_ptr,
        umdp.successor,
        expression,
        table,
        domain,
        umdp.initial_state,
        umdp.labels,
        umdp.rewards,
        umdp.action_names,
        name=umdp.name,
    )
