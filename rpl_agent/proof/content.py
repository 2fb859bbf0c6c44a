"""Model, objective, policy and data as plain numbers: the part of a proof that the checker trusts."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from rpl_agent.evidence.counts import Counts
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP


def model_content(pmdp: ParametricMDP, objective: Objective) -> dict[str, Any]:
    """The model with the labels and the reward that the objective speaks of."""
    labels = {name: np.flatnonzero(pmdp.labels[name]).tolist() for name in (objective.target, objective.avoid) if name}
    rewards = {}
    if objective.reward_name is not None:
        reward = pmdp.rewards[objective.reward_name]
        rewards[objective.reward_name] = {"state": _sparse(reward.state), "row": _sparse(reward.row)}
    return {
        "name": pmdp.name, "hash": pmdp.content_hash, "state_ptr": pmdp.state_ptr.tolist(),
        "row_ptr": pmdp.row_ptr.tolist(), "action": pmdp.action.tolist(), "actions": list(pmdp.action_names),
        "successor": pmdp.successor.tolist(), "expression": pmdp.expression.tolist(), "initial": pmdp.initial_state,
        "silent": np.flatnonzero(pmdp.is_silent).tolist(), "labels": labels, "rewards": rewards,
        "parameters": list(pmdp.table.parameters), "lower": pmdp.domain.lower.tolist(),
        "upper": pmdp.domain.upper.tolist(), "expressions": _expressions(pmdp),
    }  # fmt: skip


def _expressions(pmdp: ParametricMDP) -> list[list[Any]]:
    """Per expression its terms (coefficient, [[parameter, power], …]); coefficients are whole or "p/q"."""
    table = pmdp.table
    if table.is_plain:
        monomials: list[list[list[int]]] = [[], *([[i, 1]] for i in range(table.num_parameters))]
    else:
        monomials = [[[i, p] for i, p in enumerate(row) if p] for row in table.monomials.tolist()]
    found: list[list[Any]] = []
    data, indices, pointers = table.data.tolist(), table.indices.tolist(), table.indptr.tolist()
    for begin, end in pairwise(pointers):
        terms = []
        for place in range(begin, end):
            c = Fraction(int(data[place]), table.denominators[indices[place]])
            if c:
                terms.append([int(c) if c.denominator == 1 else str(c), monomials[indices[place]]])
        found.append(terms)
    return found


def data_content(counts: Counts) -> dict[str, Any]:
    """Counts and the marks of likelihood windows, with the schedule that gave their weights; bets are not proved."""
    weights = {"planned": "geometric", "shares": "split", "table": "geometric", None: "geometric"}
    return {
        "schedule": weights.get(counts.schedule, counts.schedule), "planned": counts.planned or 0,
        "transitions": _sparse(counts.transitions),
        "marks": [
            {"total": m.total, "weight": float(m.weight), "successes": _sparse(m.successes)}
            for m in counts.marks
            if m.weight > 0.0
        ],
    }  # fmt: skip


def _sparse(numbers: np.ndarray) -> list[list[Any]]:
    places = np.flatnonzero(numbers)
    return [[k, x] for k, x in zip(places.tolist(), np.asarray(numbers)[places].tolist())]
