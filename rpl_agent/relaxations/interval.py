"""Rows without a region: a known MDP, and expressions between two bounds, with nature free within each row.

*Untied* intervals, one per transition, rely only on the model's graph: the classical interval MDP, which
remains sound when the data refute the model's expressions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpl_agent._core import core, read_only
from rpl_agent.errors import ModelError
from rpl_agent.model import MDP, ExpressionTable, ParametricMDP, gather
from rpl_agent.relaxations.base import INTERVAL, POINT, CompiledRelaxation, compiled_set

FEASIBILITY_TOLERANCE = core.FEASIBILITY_TOLERANCE


class Intervals(CompiledRelaxation):
    """An interval MDP with bounds per expression, so nothing of size T is rebuilt when data arrive.

    Parameters
    ----------
    pmdp : ParametricMDP
    lower, upper : (F,) array
        Bounds on every expression; 0 and 1 are allowed (a pair never sampled).
    name : str

    Raises
    ------
    ModelError
        NaN, lower > upper, bounds outside [0, 1], or a row whose bounds admit no distribution.
    """

    def __init__(self, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, name: str = "interval") -> None:
        lower, upper = _checked(pmdp, lower, upper)
        super().__init__(pmdp, compiled_set(INTERVAL, lower, upper), name)
        self.lower, self.upper = lower, upper


def _checked(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
    shape = (pmdp.num_expressions,)
    if lower.shape != shape or upper.shape != shape:
        raise ModelError(f"bounds have shapes {lower.shape} and {upper.shape}; the model has {shape[0]} expressions")

    def place(f: int) -> str:
        used = np.flatnonzero(pmdp.expression == f)
        return pmdp.transition_name(int(used[0])) if len(used) else f"expression {pmdp.table.polynomial(f)}"

    for bad, what in (
        (~np.isfinite(lower) | ~np.isfinite(upper), "bounds are not finite"),
        (lower > upper, "the lower bound exceeds the upper bound"),
        ((lower < -FEASIBILITY_TOLERANCE) | (upper > 1 + FEASIBILITY_TOLERANCE), "bounds leave [0, 1]"),
    ):
        if bad.any():
            f = int(np.flatnonzero(bad)[0])
            raise ModelError(f"{what} ([{lower[f]}, {upper[f]}]) at {place(f)}")
    lower, upper = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
    starts = pmdp.row_ptr[:-1]
    least = np.add.reduceat(lower[pmdp.expression], starts)
    most = np.add.reduceat(upper[pmdp.expression], starts)
    for bad, total, what in (
        (least > 1 + FEASIBILITY_TOLERANCE, least, "lower bounds sum to more than 1"),
        (most < 1 - FEASIBILITY_TOLERANCE, most, "upper bounds sum to less than 1"),
    ):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            names = [
                str(pmdp.table.polynomial(int(f))) for f in pmdp.expression[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]]
            ]
            raise ModelError(f"{what} ({total[row]:.12g}) at {pmdp.row_name(row)}, expressions {', '.join(names)}")
    return read_only(lower), read_only(upper)


def untied(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Intervals:
    """Intervals (T,) per transition; the relaxation's model has one expression per transition."""
    return Intervals(untied_model(pmdp), lower, upper, "untied")


def untied_model(pmdp: ParametricMDP) -> ParametricMDP:
    """The same model with one copy of its expression per transition, so that bounds are per transition."""
    table = pmdp.table
    places, indptr = gather(table.indptr, pmdp.expression)
    numerators = (indptr, table.indices[places], table.data[places])
    monomials = None if table.is_plain else table.monomials
    repeated = ExpressionTable(table.parameters, monomials, numerators, table.denominators)
    rewards = {name: reward.unlinked() for name, reward in pmdp.rewards.items()}
    return replace(pmdp, expression=np.arange(pmdp.num_transitions, dtype=np.int32), table=repeated, rewards=rewards)


class Point(CompiledRelaxation):
    """The MDP itself; robust and optimistic values coincide.

    Raises
    ------
    ModelError
        A row whose probabilities are not a distribution.
    """

    def __init__(self, mdp: MDP, name: str = "point") -> None:
        pmdp = mdp.pmdp
        if not (np.isfinite(mdp.probability).all() and (mdp.probability >= 0).all()):
            t = int(np.flatnonzero(~(mdp.probability >= 0) | ~np.isfinite(mdp.probability))[0])
            raise ModelError(f"probability {mdp.probability[t]} at {pmdp.transition_name(t)}")
        total = np.add.reduceat(mdp.probability, pmdp.row_ptr[:-1])
        bad = np.abs(total - 1.0) > 1e-9
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(f"probabilities sum to {total[row]:.12g} at {pmdp.row_name(row)}")
        probability = np.zeros(pmdp.num_expressions)
        probability[pmdp.expression] = mdp.probability
        super().__init__(pmdp, compiled_set(POINT, probability, probability), name)
        self.mdp = mdp
