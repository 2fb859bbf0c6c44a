"""Untied intervals: one interval per transition, trusting nothing but the model's graph.

The classical interval MDP, and what remains sound when the data refute the model's expressions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpl_agent.model import ExpressionTable, ParametricMDP, gather
from rpl_agent.relaxations.interval import Intervals


def untied(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Intervals:
    """Intervals (T,) per transition; the relaxation's model has one expression per transition."""
    return Intervals(untied_model(pmdp), lower, upper, "untied")


def untied_model(pmdp: ParametricMDP) -> ParametricMDP:
    """The same model with Λ repeated once per transition, so that bounds per expression are bounds per transition."""
    table = pmdp.table
    places, indptr = gather(table.indptr, pmdp.expression)
    numerators = (indptr, table.indices[places], table.data[places])
    monomials = None if table.is_plain else table.monomials
    repeated = ExpressionTable(table.parameters, monomials, numerators, table.denominators)
    rewards = {name: reward.unlinked() for name, reward in pmdp.rewards.items()}
    return replace(pmdp, expression=np.arange(pmdp.num_transitions, dtype=np.int32), table=repeated, rewards=rewards)
