"""Model, objective, policy and data as plain numbers: the part of a proof that the checker trusts."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.guarantee import checker


def model_content(pmdp: ParametricMDP, objective: Objective, graph: bool) -> dict[str, Any]:
    """The model with the labels and the reward of the objective, and those of its expressions that are trusted.

    If only the ``graph`` is trusted, every row has its own distribution.
    """
    labels = {name: np.flatnonzero(pmdp.labels[name]).tolist() for name in (objective.target, objective.avoid) if name}
    rewards = {}
    if objective.reward_name is not None:
        reward = pmdp.rewards[objective.reward_name]
        rewards[objective.reward_name] = {"state": _sparse(reward.state), "row": _sparse(reward.row)}
    found = {
        "name": pmdp.name,
        "hash": pmdp.content_hash,
        "state_ptr": pmdp.state_ptr.tolist(),
        "row_ptr": pmdp.row_ptr.tolist(),
        "action": pmdp.action.tolist(),
        "actions": list(pmdp.action_names),
        "successor": pmdp.successor.tolist(),
        "initial": pmdp.initial_state,
        "silent": np.flatnonzero(pmdp.is_silent).tolist(),
        "labels": labels,
        "rewards": rewards,
    }
    if graph:
        return found | _free_rows(pmdp)
    expressions = _expressions(pmdp)
    coordinates = _coordinates(pmdp, expressions)
    return found | {
        "expression": pmdp.expression.tolist(),
        "expressions": None if coordinates else expressions,
        "parameters": list(pmdp.table.parameters),
        "lower": pmdp.domain.lower.tolist(),
        "upper": pmdp.domain.upper.tolist(),
        "coordinates": coordinates,
    }


def _free_rows(pmdp: ParametricMDP) -> dict[str, Any]:
    """One parameter for each successor of a row except the last."""
    expressions: list[list[Any]] = []
    number = 0
    for begin, end in pairwise(pmdp.row_ptr.tolist()):
        own = list(range(number, number + end - begin - 1))
        number += len(own)
        expressions += [[[1, [[k, 1]]]] for k in own]
        expressions.append([[1, []], *([-1, [[k, 1]]] for k in own)])
    return {
        "expression": list(range(pmdp.num_transitions)),
        "expressions": expressions,
        "parameters": [f"p{k}" for k in range(number)],
        "lower": [0.0] * number,
        "upper": [1.0] * number,
        "coordinates": None,
    }


def _coordinates(pmdp: ParametricMDP, expressions: list[list[Any]]) -> dict[str, Any] | None:
    """Coordinates x in which all expressions are affine, and a point where all are positive."""
    if not 0 < pmdp.table.reduction.rank <= checker.MOST_COORDINATES:
        return None
    table = [checker.polynomial(terms, pmdp.num_parameters) for terms in expressions]
    powers = np.asarray(pmdp.table.monomials)[1:]
    monomials = [tuple((i, p) for i, p in enumerate(row) if p) for row in powers.tolist()]
    pivots = [monomials[k] for k in pmdp.table.reduction.pivots]
    basis: dict[checker.Monomial, checker.Polynomial] = {}
    for pivot, row in zip(pivots, np.asarray(pmdp.table.reduction.matrix).tolist()):
        numbers = (Fraction(c).limit_denominator(10**9) for c in row)
        basis[pivot] = {m: c for m, c in zip(monomials, numbers) if c}
    center = pmdp.domain.center()
    for theta in (np.rint(center * 1024) / 1024, center):  # round numbers are the same on all machines
        point = [Fraction(t) for t in theta.tolist()]
        x = [_at(basis[p], point) for p in pivots]
        if all(_at(terms, point) > 0 for terms in table):
            found = {
                "x": [[[_whole(c), [list(pair) for pair in m]] for m, c in basis[p].items()] for p in pivots],
                "terms": [[_whole(terms.get(m, Fraction(0))) for m in ((), *pivots)] for terms in table],
                "domain": [[_whole(y) for y in row] for row in _domain_rows(pmdp, basis)],
                "start": [float(y) for y in x],
            }
            return found if checker.Coordinates(found, pmdp.num_parameters).table == table else None
    return None


def _domain_rows(pmdp: ParametricMDP, basis: dict[checker.Monomial, checker.Polynomial]) -> list[list[Fraction]]:
    """(c, w) with c + w·x ≥ 0 in the domain: its bounds and rows, as far as x tells."""
    found = []
    for row, c in zip(*(part.tolist() for part in pmdp.domain.constraints())):
        terms: checker.Polynomial = {((i, 1),): -Fraction(y) for i, y in enumerate(row) if y}
        w = [terms.get(pivot, Fraction(0)) for pivot in basis]
        if checker.combined(list(zip(w, basis.values()))) == terms:
            found.append([Fraction(c), *w])
    return found


def _at(terms: checker.Polynomial, point: list[Fraction]) -> Fraction:
    return sum((c * math.prod(point[i] ** power for i, power in m) for m, c in terms.items()), Fraction(0))


def _whole(number: Fraction) -> int | str:
    return int(number) if number.denominator == 1 else str(number)


def _expressions(pmdp: ParametricMDP) -> list[list[Any]]:
    """The terms of each expression (coefficient, [[parameter, power], …]); coefficients are integers or "p/q"."""
    places = {name: i for i, name in enumerate(pmdp.table.parameters)}
    found = (pmdp.table.polynomial(f).terms.items() for f in range(pmdp.num_expressions))
    return [[[_whole(c), sorted([places[name], p] for name, p in powers)] for powers, c in terms] for terms in found]


def data_to_json(counts: Counts) -> dict[str, Any]:
    """Counts and marks as sparse JSON."""
    return {
        "schedule": counts.schedule or "",
        "planned": counts.planned or 0,
        "transitions": _sparse(counts.transitions),
        "marks": [
            {
                "total": m.total,
                "weight": float(m.weight).hex(),
                "progress": float(m.progress).hex(),
                "successes": _sparse(m.successes),
                "trials": [] if m.trials is None else _sparse(m.trials),
            }
            for m in counts.marks
        ],
    }


def data_content(counts: Counts, graph: bool) -> dict[str, Any]:
    """The same with plain numbers, under the name of the schedule that determined the weights of likelihood windows."""
    weights, data = {"shares": "split", "table": "geometric"}, data_to_json(counts)
    schedule = counts.schedule or "geometric"
    marks = [m | {name: float.fromhex(m[name]) for name in ("weight", "progress")} for m in data["marks"]]
    return data | {"schedule": weights.get(schedule, schedule), "marks": [] if graph else marks}  # of tied expressions


def _sparse(numbers: np.ndarray) -> list[list[Any]]:
    places = np.flatnonzero(numbers)
    return [[k, x] for k, x in zip(places.tolist(), np.asarray(numbers)[places].tolist())]
