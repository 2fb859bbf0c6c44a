"""`from_matrices`: a model from the arrays P and R of mdptoolbox and QuantEcon; and how matrices are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP, Reward
from rpl_agent.core.model.polynomial import Polynomial, exact

#: The largest deviation of a row's sum from 1 that rounding explains; it is added to the largest entry.
ROUNDED = Fraction(1, 10**9)


def from_matrices(
    P: Any,
    R: Any = None,
    *,
    initial_state: int = 0,
    labels: Mapping[str, Any] | None = None,
    action_names: Sequence[str] = (),
    name: str = "MDP",
) -> ParametricMDP:
    """A model without unknowns from transition matrices and rewards.

    To learn it, hide its numbers (`hide_parameters`). Matrices of bounds: `UncertainMDP.from_matrices(lower, upper)`.

    Parameters
    ----------
    P : A matrices (S, S), dense or sparse, or an array (A, S, S); one matrix (S, S) is a chain. An action whose row is
        0 is not enabled in that state.
    R : the reward, called ``reward``: (S,) of states, (S, A) of states and actions, or (A, S, S) of transitions, of
        which each row gets the mean. A mapping from names to such arrays gives several.
    labels : name -> states, as numbers or as a mask (S,).

    >>> import numpy as np
    >>> P = np.array([[[0.5, 0.5], [0.8, 0.2]], [[0.0, 1.0], [0.1, 0.9]]])  # mdptoolbox's example
    >>> R = np.array([[5.0, 10.0], [-1.0, 2.0]])
    >>> round(solve(from_matrices(P, R), Objective.discounted("reward", 0.9)).middle, 3)
    42.442
    """
    matrices = read_matrices(P, "P")
    layout = layout_of(matrices)
    values = layout.entries(matrices)
    rows = _whole_rows([exact(value) for value in values.tolist()], layout)
    distinct = {value: k for k, value in enumerate(dict.fromkeys(rows))}
    table, rank = ExpressionTable.from_polynomials([Polynomial.constant(v) for v in distinct], ()).sorted()
    given = R if isinstance(R, Mapping) else {} if R is None else {"reward": R}
    return ParametricMDP(
        layout.state_ptr,
        layout.action,
        layout.row_ptr,
        layout.successor,
        rank[[distinct[value] for value in rows]],
        table,
        Domain.box({}),
        initial_state,
        read_masks(labels, layout.size),
        {key: _reward_of_any_shape(array, layout, values, key) for key, array in given.items()},
        tuple(action_names) or tuple(f"a{k}" for k in range(layout.actions)),
        name=name,
    )


class Layout(NamedTuple):
    """Where the entries of the matrices go in a model: each matrix row with an entry becomes a row of the model."""

    size: int  # S
    actions: int  # A
    rows: np.ndarray  # (R,) state · A + action
    state_ptr: np.ndarray  # (S+1,)
    row_ptr: np.ndarray  # (R+1,)
    successor: np.ndarray  # (T,)

    @property
    def action(self) -> np.ndarray:
        return (self.rows % self.actions).astype(np.int32)

    @property
    def row_of(self) -> np.ndarray:
        """(T,) the row of each transition."""
        return np.repeat(np.arange(len(self.rows)), np.diff(self.row_ptr))

    def entries(self, matrices: Sequence[scipy.sparse.csr_array]) -> np.ndarray:
        """(T,) the matrices' numbers, in the order of the model's transitions."""
        state, action = np.divmod(self.rows[self.row_of], self.actions)
        stacked = scipy.sparse.csr_array(scipy.sparse.vstack(matrices))
        return np.asarray(stacked[action * self.size + state, self.successor]).ravel()


def layout_of(matrices: Sequence[scipy.sparse.csr_array]) -> Layout:
    """The layout of the entries that are not 0."""
    size, number = matrices[0].shape[0], len(matrices)
    if any(matrix.shape != (size, size) for matrix in matrices):
        shapes = sorted({matrix.shape for matrix in matrices})
        raise ModelError(f"the matrices must all be of one shape (S, S), one per action; found {shapes}")
    stacked = scipy.sparse.coo_array(scipy.sparse.vstack(matrices))
    stacked.eliminate_zeros()
    action, state = np.divmod(stacked.coords[0], size)
    order = np.lexsort((stacked.coords[1], action, state))
    rows, row_of = np.unique((state * number + action)[order], return_inverse=True)
    if len(missing := np.setdiff1d(np.arange(size), rows // number)):
        raise ModelError(f"state {missing[0]} has no transition")
    return Layout(
        size,
        number,
        rows,
        np.searchsorted(rows // number, np.arange(size + 1)),
        np.searchsorted(row_of, np.arange(len(rows) + 1)),
        stacked.coords[1][order].astype(np.int32),
    )


def read_matrices(given: Any, what: str) -> list[scipy.sparse.csr_array]:
    """One sparse matrix per action."""
    if scipy.sparse.issparse(given) or (isinstance(given, np.ndarray) and given.ndim == 2):
        given = [given]
    if not isinstance(given, Iterable):
        raise ModelError(f"{what} must be matrices of finite numbers, one per action, not {given!r}")
    try:
        found = [scipy.sparse.csr_array(matrix, dtype=np.float64) for matrix in given]
    except (TypeError, ValueError):
        found = []
    if not found or not all(matrix.ndim == 2 and np.isfinite(matrix.data).all() for matrix in found):
        raise ModelError(f"{what} must be matrices of finite numbers, one per action")
    return found


def read_masks(labels: Mapping[str, Any] | None, size: int) -> dict[str, np.ndarray]:
    """name -> (S,) bool from masks or state numbers by name."""
    if labels is not None and not isinstance(labels, Mapping):
        raise ModelError(f"labels must map names to states, not be {labels!r}: write labels={{'goal': [3]}}")
    return {name: read_mask(at, size, name) for name, at in (labels or {}).items()}


def read_mask(at: Any, size: int, name: str) -> np.ndarray:
    """(S,) bool from a mask or from state numbers."""
    given = np.atleast_1d(np.asarray(at))
    if given.dtype == bool and given.shape == (size,):
        return given
    is_numbers = given.dtype.kind in "iu" or not given.size
    if not is_numbers or ((given < 0) | (given >= size)).any():
        raise ModelError(f"the label {name!r} must be {size} booleans, or state numbers from 0 to {size - 1}")
    return np.isin(np.arange(size), given)


def read_reward(given: Any, layout: Layout, name: str) -> Reward:
    """A reward of states (S,), or of states and actions (S, A)."""
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"the reward {name!r} must be an array of numbers, not {given!r}") from None
    if values.shape == (layout.size,):
        return Reward(values, np.zeros(len(layout.rows)))
    shape = (layout.size, layout.actions)
    if values.shape != shape:
        raise ModelError(f"the reward {name!r} has shape {values.shape}, not ({layout.size},) or {shape}")
    return Reward(np.zeros(layout.size), values.reshape(-1)[layout.rows])


def _reward_of_any_shape(given: Any, layout: Layout, probability: np.ndarray, name: str) -> Reward:
    """As `read_reward`, or of transitions (A, S, S): the mean of each row, which has the same value."""
    shape = (layout.actions, layout.size, layout.size)
    is_sparse = isinstance(given, (list, tuple)) and len(given) > 0 and scipy.sparse.issparse(given[0])
    if not is_sparse and np.ndim(given) != 3:
        return read_reward(given, layout, name)
    matrices = read_matrices(given, f"the reward {name!r}")
    if (len(matrices), *matrices[0].shape) != shape:
        raise ModelError(f"the reward {name!r} has {len(matrices)} matrices of shape {matrices[0].shape}, not {shape}")
    paid = probability * layout.entries(matrices)
    return Reward(np.zeros(layout.size), np.bincount(layout.row_of, paid, len(layout.rows)))


def _whole_rows(values: list[Fraction], layout: Layout) -> list[Fraction]:
    """Probabilities whose rows sum to exactly 1; ModelError where more than rounding is missing."""
    starts = layout.row_ptr.tolist()
    for row, (first, last) in enumerate(pairwise(starts)):
        part = values[first:last]
        state, action = divmod(int(layout.rows[row]), layout.actions)
        if min(part) < 0:
            raise ModelError(f"state {state}, action {action}: {float(min(part))} is not a probability")
        missing = 1 - sum(part, Fraction(0))
        if abs(missing) > ROUNDED:
            raise ModelError(f"the probabilities of state {state}, action {action} sum to {float(sum(part))}")
        values[first + part.index(max(part))] += missing
    return values
