"""Independent blocks of parameters: thousands of unknowns, cost linear in their number.

Two parameters belong to one block if they meet in a row of the model or in a constraint of its domain. Every row then
belongs to one block (or is known), so the likelihood is a product over blocks, D is a product, and nature's choice in
a row depends on one block only.

The theorem on blocks, and which sets they get, are in docs/guarantees.md ("Many parameters: independent blocks").
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import Mark
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, Reduction, cached_fact, gather
from rpl_agent.core.model.algebra.ranges import coordinate_box
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.product import Product

#: Up to this many coordinates one region over all of them is small enough for a vertex graph.
JOINT_RANK = 6


@dataclass(frozen=True, eq=False)
class JointBlock:
    """One block that is not a single distribution, with its own small model."""

    number: int  # its place among all blocks
    rows: np.ndarray  # (m,) ids of its rows
    expressions: np.ndarray  # (n,) ids of the expressions of its rows, constants included
    transitions: np.ndarray  # (t,) ids of its rows' transitions
    model: ParametricMDP  # the same rows over the same parameters, one state each
    _marks: weakref.WeakKeyDictionary[Mark, Mark] = field(default_factory=weakref.WeakKeyDictionary, repr=False)

    def counts(self, counts: Counts) -> Counts:
        """The data of this block's rows; marks are cut once, because priors are cached by mark."""
        part = Counts(self.model, schedule=counts.schedule, planned=counts.planned)
        part.transitions = counts.transitions[self.transitions]
        part.successes, part.total = self._cut(counts.successes)
        part.marks = [self._mark(mark) for mark in counts.marks if mark.weight > 0.0]
        return part

    def _cut(self, successes: np.ndarray) -> tuple[np.ndarray, int]:
        # Constants may occur in other blocks too; their counts carry no information and are dropped.
        own = np.where(self.model.table.is_constant, 0, successes[self.expressions])
        return own, int(own.sum())

    def _mark(self, mark: Mark) -> Mark:
        if mark not in self._marks:
            successes, total = self._cut(mark.successes)
            self._marks[mark] = Mark(total, successes, mark.weight)
        return self._marks[mark]


@dataclass(frozen=True, eq=False)
class Factorisation:
    """How a model's parameters fall into blocks; use `factorisation`."""

    num_blocks: int  # B
    order: np.ndarray  # (r,) coordinates, block after block
    block_ptr: np.ndarray  # (B+1,) into ``order``
    block_of_expression: np.ndarray  # (F,) −1 for constants
    block_of_row: np.ndarray  # (R,) −1 for known rows
    single: np.ndarray  # (B,) whether the block is one distribution
    rest: np.ndarray  # (B,) id of the expression 1 − Σ x of such a block, −1 otherwise
    first: np.ndarray  # (r,) id of the expression x_j of such a block, −1 otherwise
    others: tuple[JointBlock, ...]  # blocks that are not a single distribution

    @property
    def pays(self) -> bool:
        """Whether a product of small regions is better than one region over all coordinates."""
        return len(self.order) > JOINT_RANK and (self.num_blocks > 1 or bool(self.single.all()))

    def describes(self, region: Region) -> TypeGuard[Product]:
        """Whether a region is a product of these blocks."""
        if not isinstance(region, Product):
            return False
        return np.array_equal(region.order, self.order) and np.array_equal(region.block_ptr, self.block_ptr)


def blocks_pay(pmdp: ParametricMDP) -> bool:
    """Whether a product of small regions is better than one region over all coordinates."""
    return not has_few_coordinates(pmdp) and factorisation(pmdp).pays  # with few there is no need to look at rows


def has_few_coordinates(pmdp: ParametricMDP) -> bool:
    """Whether one region over all coordinates is small in each direction."""
    table = pmdp.table
    return (pmdp.num_parameters if table.is_plain else len(table.reduction.pivots)) <= JOINT_RANK


def is_blockwise(pmdp: ParametricMDP) -> bool:
    """Whether an affine model is learned block by block (for polynomial models see `polynomial.parameters`)."""
    return pmdp.table.is_affine and blocks_pay(pmdp)


def product_region(
    pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, joint: Callable[[JointBlock], Region]
) -> Product:
    """The product of the blocks' regions.

    lower, upper : (F,) bounds on the expressions of blocks that are a single distribution.
    joint : the region of any other block, in the coordinates of its own model.
    """
    blocks = factorisation(pmdp)
    order = blocks.order
    low, high = (bound[order] for bound in coordinate_box(pmdp.table, pmdp.domain))
    own = blocks.first[order] >= 0
    f = blocks.first[order][own]
    low[own], high[own] = np.maximum(low[own], lower[f]), np.minimum(high[own], upper[f])
    rest_low, rest_high = np.zeros(blocks.num_blocks), np.ones(blocks.num_blocks)
    rest_low[blocks.single], rest_high[blocks.single] = (bound[blocks.rest[blocks.single]] for bound in (lower, upper))
    others = {block.number: joint(block) for block in blocks.others}
    for k, region in others.items():
        span = slice(blocks.block_ptr[k], blocks.block_ptr[k + 1])
        if not region.is_empty:
            low[span], high[span] = region.box()
    return Product(blocks.block_ptr, low, high, rest_low, rest_high, others, order)


def single_block(pmdp: ParametricMDP, number: int) -> JointBlock:
    """A block that is a single distribution, with its own small model as other blocks have."""
    blocks = factorisation(pmdp)
    uses = parameters_of_expressions(pmdp.table)
    own = blocks.block_of_expression == number
    parameters = np.unique(uses[np.flatnonzero(own)].indices)
    of_parameter = np.full(pmdp.num_parameters, -1)
    of_parameter[parameters] = 0
    return _sub_models(pmdp, of_parameter, np.where(own, 0, -1), np.zeros(1, dtype=np.int64))[0]


# ---------------------------------------------------------------------- finding the blocks
@cached_fact
def factorisation(pmdp: ParametricMDP) -> Factorisation:
    """The model's blocks."""
    table = pmdp.table
    of_parameter = _parameter_blocks(pmdp)
    uses = parameters_of_expressions(table)
    expression_block = np.full(table.num_expressions, -1)
    some = np.flatnonzero(np.diff(uses.indptr))
    expression_block[some] = of_parameter[uses.indices[uses.indptr[some]]]
    coordinate_block = _coordinate_blocks(table, of_parameter)
    # blocks without a coordinate (unused parameters) are dropped, the others numbered by their first coordinate
    kept, coordinate_block = np.unique(coordinate_block, return_inverse=True)
    number = np.full(int(of_parameter.max(initial=-1)) + 1, -1)
    number[kept] = np.arange(len(kept))
    expression_block[some] = number[expression_block[some]]
    order = np.argsort(coordinate_block, kind="stable")
    block_ptr = np.concatenate([[0], np.cumsum(np.bincount(coordinate_block, minlength=len(kept)))])
    of_row = _blocks_of_rows(pmdp, expression_block)
    single, rest, first = _single_distributions(pmdp, expression_block, of_row, coordinate_block, len(kept))
    single &= ~_constrained(pmdp.domain, number[of_parameter], len(kept))
    first[~single[coordinate_block]] = -1
    rest[~single] = -1
    others = _sub_models(pmdp, number[of_parameter], expression_block, np.flatnonzero(~single))
    return Factorisation(len(kept), order, block_ptr, expression_block, of_row, single, rest, first, others)


def _blocks_of_rows(pmdp: ParametricMDP, expression_block: np.ndarray) -> np.ndarray:
    return np.maximum.reduceat(expression_block[pmdp.expression], pmdp.row_ptr[:-1])


def parameters_of_expressions(table: ExpressionTable) -> scipy.sparse.csr_array:
    """(F, d) nonzero where an expression uses a parameter."""
    pattern = scipy.sparse.csr_array(table.coefficients[:, 1:] != 0).astype(np.int64)
    if not table.is_plain:
        pattern = scipy.sparse.csr_array(pattern @ scipy.sparse.csr_array(table.monomials[1:] != 0).astype(np.int64))
    pattern.eliminate_zeros()
    return pattern


def _parameter_blocks(pmdp: ParametricMDP) -> np.ndarray:
    """(d,) block of each parameter: connected through rows and rows of the domain."""
    uses = parameters_of_expressions(pmdp.table)
    ones = np.ones(pmdp.num_transitions, dtype=np.int64)
    carries = scipy.sparse.csr_array((ones, pmdp.expression, pmdp.row_ptr), shape=(pmdp.num_rows, pmdp.num_expressions))
    links = scipy.sparse.vstack(
        [carries @ uses, scipy.sparse.csr_array(pmdp.domain.A != 0).astype(np.int64)], format="csr"
    )
    size, d = links.shape
    graph = scipy.sparse.block_array([[None, links], [scipy.sparse.csr_array((d, size)), None]], format="csr")
    _, label = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return np.unique(label[size:], return_inverse=True)[1]


def _coordinate_blocks(table: ExpressionTable, of_parameter: np.ndarray) -> np.ndarray:
    """(r,) block of each reduced coordinate: all monomials of one coordinate use parameters of one block."""
    if table.is_plain or not len(of_parameter):
        return of_parameter
    pivots = np.array(table.reduction.pivots, dtype=np.int64)
    return of_parameter[(table.monomials[1:][pivots] != 0).argmax(axis=1)]


def _single_distributions(
    pmdp: ParametricMDP, expression_block: np.ndarray, of_row: np.ndarray, coordinate_block: np.ndarray, blocks: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(single (B,), rest (B,), first (r,)): blocks whose rows all are (x_1, …, x_n, 1 − Σ x), each once."""
    weights, constant = scipy.sparse.csr_array(pmdp.table.reduction.weights), pmdp.table.constant
    entries = np.diff(weights.indptr)
    total, most = np.asarray(weights.sum(axis=1)).ravel(), np.asarray(abs(weights).sum(axis=1)).ravel()
    size = np.bincount(coordinate_block, minlength=max(blocks, 1))  # a model may have no unknowns
    free = expression_block >= 0
    is_first = free & (entries == 1) & (total == 1.0) & (constant == 0.0)
    is_rest = free & (total == -entries) & (most == entries) & (constant == 1.0)
    is_rest &= entries == size[np.maximum(expression_block, 0)]
    first = np.full(len(coordinate_block), -1)
    first[weights.indices[weights.indptr[np.flatnonzero(is_first)]]] = np.flatnonzero(is_first)
    rest = np.full(blocks, -1)
    rest[expression_block[is_rest]] = np.flatnonzero(is_rest)
    # every expression of the block is one of these, and every row has each of them once
    single = (rest >= 0) & (np.bincount(coordinate_block[first >= 0], minlength=blocks) == size)
    single[expression_block[free & ~is_first & ~is_rest]] = False
    if not single.any():
        return single, rest, first
    row, inside = pmdp.transition_row, np.flatnonzero(of_row >= 0)
    whole = np.diff(pmdp.row_ptr)[inside] == size[of_row[inside]] + 1
    pair = row * np.int64(pmdp.num_expressions) + pmdp.expression
    distinct = np.bincount(np.unique(pair) // pmdp.num_expressions, minlength=pmdp.num_rows)
    known = np.bincount(row, expression_block[pmdp.expression] < 0, minlength=pmdp.num_rows) > 0
    whole &= (distinct == np.diff(pmdp.row_ptr))[inside] & ~known[inside]
    single[of_row[inside][~whole]] = False
    return single, rest, first


def _constrained(domain: Domain, of_parameter: np.ndarray, blocks: int) -> np.ndarray:
    """(B,) whether the domain constrains a block beyond bounds and a sum of at most 1."""
    result = np.zeros(blocks, dtype=bool)
    A = scipy.sparse.csr_array(domain.A)
    used = np.flatnonzero(np.diff(A.indptr))
    own = of_parameter[A.indices[A.indptr[used]]]
    size = np.bincount(of_parameter[of_parameter >= 0], minlength=blocks)
    ones = np.asarray((A != 0).sum(axis=1)).ravel()[used]
    plain = (ones == size[own]) & (np.asarray(A.sum(axis=1)).ravel()[used] == ones)
    plain &= (np.asarray(abs(A).sum(axis=1)).ravel()[used] == ones) & (domain.b[used] >= 1.0)
    result[own[(own >= 0) & ~plain]] = True
    return result


# ---------------------------------------------------------------------- the small models of the other blocks
def _sub_models(
    pmdp: ParametricMDP, of_parameter: np.ndarray, expression_block: np.ndarray, numbers: np.ndarray
) -> tuple[JointBlock, ...]:
    if not len(numbers):
        return ()
    rows_by_block, parameters_by_block = _grouped(_blocks_of_rows(pmdp, expression_block)), _grouped(of_parameter)
    return tuple(
        _sub_model(pmdp, int(k), rows_by_block.get(int(k), np.zeros(0, int)), parameters_by_block[int(k)])
        for k in numbers
    )


def _grouped(label: np.ndarray) -> dict[int, np.ndarray]:
    """Positions by label, labels −1 left out; one sort for all."""
    order = np.argsort(label, kind="stable")
    values, starts = np.unique(label[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {int(v): part for v, part in zip(values, parts) if v >= 0}


def _sub_model(pmdp: ParametricMDP, number: int, rows: np.ndarray, parameters: np.ndarray) -> JointBlock:
    transitions, row_ptr = gather(pmdp.row_ptr, rows)
    expressions, local = np.unique(pmdp.expression[transitions], return_inverse=True)
    model = replace(
        pmdp,
        state_ptr=np.arange(len(rows) + 1),
        action=np.zeros(len(rows), np.int32),
        row_ptr=row_ptr,
        successor=np.arange(len(transitions)) - np.repeat(row_ptr[:-1], np.diff(row_ptr)),
        expression=local,
        table=_sub_table(pmdp.table, expressions, parameters),
        domain=pmdp.domain.part(parameters),
        initial_state=0,
        labels={},
        rewards={},
        action_names=("",),
        own_actions=None,
        variables={},
        state_values=None,
        silent=None,
        name=f"block {number}",
    )
    return JointBlock(number, rows, expressions, transitions, model)


def _sub_table(table: ExpressionTable, expressions: np.ndarray, parameters: np.ndarray) -> ExpressionTable:
    places, indptr = gather(table.indptr, expressions)
    columns, indices = np.unique(np.append(table.indices[places], 0), return_inverse=True)
    monomials = np.zeros((len(columns), len(parameters)), np.int32)
    if table.is_plain:
        monomials[np.arange(1, len(columns)), np.searchsorted(parameters, columns[1:] - 1)] = 1
    else:
        monomials = table.monomials[np.ix_(columns, parameters)]
    part = ExpressionTable(
        [table.parameters[j] for j in parameters],
        monomials,
        (indptr, indices[:-1].astype(np.int32), table.data[places]),
        [table.denominators[c] for c in columns],
    )
    if scipy.sparse.issparse(table.reduction.weights):
        # The whole model uses every monomial as a coordinate, so its blocks must too.
        r = len(columns) - 1
        weights = np.ascontiguousarray(part.coefficients[:, 1:].todense())
        is_identity = part.is_affine and r == len(parameters)
        part.__dict__["reduction"] = Reduction(np.eye(r), tuple(range(r)), weights, is_identity, monomials[1:])
    return part
