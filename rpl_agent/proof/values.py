"""Value functions for a proof: candidates from the solver and the coupled bounds, and ranks for plays that end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.coupled.affine import Side
from rpl_agent.coupled.bounds import expansion_of, find_bound
from rpl_agent.coupled.horizon import StepExpansion, greedy_rules
from rpl_agent.model import Nature, Objective, ParametricMDP, Policy, Sense
from rpl_agent.regions.frame import Frame
from rpl_agent.relaxations.base import Relaxation
from rpl_agent.solver import solve
from rpl_agent.solver.problem import Problem

#: Relative widths by which numbers are moved outward, in turn, until they are proved.
WIDENED = (0.0, 1e-13, 1e-10, 1e-7)
PRECISION = 1e-9


def candidates(
    relaxation: Relaxation, frame: Frame | None, objective: Objective, policy: Policy, own: bool, upper: bool
) -> Iterator[dict[str, Any]]:
    """Value functions of one side, for the policy (``own``) or for all, most promising first."""
    found = []
    if frame is not None:
        found.append(_affine(relaxation, frame, objective, policy, own, upper))
    found.append(_plain(relaxation, objective, policy, own, upper))
    scale, sign = _time_scale(relaxation.pmdp, objective), 1.0 if upper else -1.0
    for _, values in sorted((f for f in found if f is not None), key=lambda f: sign * f[0]):
        for slack in WIDENED:
            yield _shown(values, scale, sign * slack)


def _time_scale(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(S,) factor for the solver's discounted values, whose silent states take a step (`Task`)."""
    late = int(pmdp.has_random_start) + pmdp.is_silent.astype(int)
    if pmdp.has_random_start:
        late[pmdp.initial_state] = 0
    return objective.resolve(pmdp).objective.discount ** late.astype(float)


def _plain(
    relaxation: Relaxation, objective: Objective, policy: Policy, own: bool, upper: bool
) -> tuple[float, dict[str, Any]]:
    """Bounds per state over the intervals of expressions."""
    nature = Nature.ADVERSARIAL if upper == (objective.sense is Sense.MIN) else Nature.COOPERATIVE
    solution = solve(relaxation, objective, nature, policy=policy if own else None, precision=PRECISION)
    values = solution.upper_values if upper else solution.lower_values
    return float(solution.upper if upper else solution.lower), {"kind": "intervals", "values": values}


def _affine(
    relaxation: Relaxation, frame: Frame, objective: Objective, policy: Policy, own: bool, upper: bool
) -> tuple[float, dict[str, Any]] | None:
    """Functions that are affine over the ball of the likelihood."""
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    side, start = Side.UPPER if upper else Side.LOWER, problem.pmdp.initial_state
    if problem.objective.horizon is not None:
        rules = policy if own else greedy_rules(problem, frame)
        bound = StepExpansion.of(problem, frame, rules).bound(side, not own)
    else:
        expansion = expansion_of(problem, frame, policy if own else None, policy)
        found = None if expansion is None else find_bound(problem, expansion, side, not own)
        if found is None:
            return None
        bound = found
    values, gradient = bound.moved, bound.gradient
    inside = bound.scope | problem.task.decided
    top, slope = values[..., start].flat[-1], gradient[..., start, :].reshape(-1, frame.dimension)[-1]
    predicted = float(top) + side.value * float(np.linalg.norm(slope))
    return predicted, {"kind": "affine", "values": np.where(inside, values, np.nan), "gradient": gradient}


def _shown(found: dict[str, Any], scale: np.ndarray, share: float) -> dict[str, Any]:
    """In file format, with values moved outward by a share of themselves (of the largest one, for affine functions)."""
    values = found["values"] * scale
    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    values = values + share * (finite if found["kind"] == "intervals" else finite.max())
    shown = {"values": _numbers(values), "gradient": None}
    return shown | ({"gradient": (found["gradient"] * scale[:, None]).tolist()} if "gradient" in found else {})


def _numbers(values: np.ndarray) -> list[Any]:
    """Numbers, or None where nothing is claimed."""
    if values.ndim == 2:
        return [_numbers(row) for row in values]
    return [v if np.isfinite(v) else None for v in values.tolist()]


def ranks(claim: checker.Claim, spent: dict[int, bool], active: set[int]) -> list[int | None]:
    """Ranks that decrease along unspent rows (all rows, or one row of a policy); None if there are none."""
    model, free = claim.model, claim.policy is None
    counts = claim.counts_spent(active)
    missing: dict[int, int] = {}
    into: dict[int, list[tuple[int, int]]] = {}
    rank: list[int | None] = [None] * model.states
    queue: deque[int] = deque()
    for s in active:
        played = model.rows_of[s] if claim.policy is None else [row for row, _ in claim.policy.at(s, 0)]
        out = [row for row in played if (counts and spent[row]) or claim.leads_out(s, row, active)]
        missing[s] = len(played) - len(out) if free else 0 if out else 1
        if missing[s] == 0:
            rank[s] = 0
            queue.append(s)
            continue
        for row in set(played) - set(out):
            for target, f in model.moves[row]:
                if claim.region.intervals.is_possible(f):
                    into.setdefault(target, []).append((s, row))
    done: set[int] = set()
    while queue:
        target = queue.popleft()
        for s, row in into.get(target, []):
            if rank[s] is None and row not in done:
                done.add(row)
                missing[s] -= 1
                if missing[s] <= 0:
                    rank[s] = rank[target] + 1  # type: ignore[operator]
                    queue.append(s)
    return rank
