"""Value functions for proofs, the most promising ones first: numbers per state, or functions of the parameters.

They are searched in floats and shown as they stand in a file; `guarantee.checker` decides whether they prove anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, BoxFrame, Side
from rpl_agent.core.coupled.bounds import expansion_of, find_bound
from rpl_agent.core.coupled.gradients.over_cuts import can_search, over_cuts
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.combined import WeightedSum
from rpl_agent.guarantee.proof.foundation import Foundation, box_frame

#: Relative widths by which numbers are moved outward, one after the other, until they are proved.
WIDENED = (0.0, 1e-13, 1e-10, 1e-7)
PRECISION = 1e-9


class BoundGoal(NamedTuple):
    """The bound to prove: one side of the value of a policy, or of every policy."""

    objective: Objective
    policy: Policy  # with ``every_policy``: where the search for the best one starts
    every_policy: bool
    upper: bool

    @property
    def fixed(self) -> Policy | None:
        """The policy whose value is bounded; None: every one."""
        return None if self.every_policy else self.policy

    @property
    def sign(self) -> float:
        return 1.0 if self.upper else -1.0


def candidates(relaxation: Intervals, base: Foundation, goal: BoundGoal, with_cuts: bool) -> Iterator[dict[str, Any]]:
    """Value functions for a goal, the most promising ones first.

    ``with_cuts``: also those whose rows hold over cuts, which take seconds to find.
    """
    found: list[Any] = [plain(relaxation, goal)]
    if base.cuts is not None and base.region.line.is_product:
        found.append(affine(relaxation, base, goal, box_frame(base.region.boxed())))
    if base.frame is not None:
        found.insert(0, affine(relaxation, base, goal))
        if with_cuts and base.region.line.is_product:
            found.append(affine(relaxation, base, goal, with_cuts=True))
    rows = None if base.cuts is None else base.cuts.relaxation(relaxation.pmdp)
    if rows is not None:
        found.append(plain(rows, goal))
    scale = time_scale(relaxation.pmdp, goal.objective)
    for _, values in sorted((f for f in found if f is not None), key=lambda f: goal.sign * f[0]):
        infinite = np.isposinf(values["values"])
        much = [] if goal.upper or not infinite.any() else [_missed(relaxation, ~infinite, goal.fixed)]
        for large, slack in itertools.product([None, *much], WIDENED):
            yield shown(values, scale, goal.sign * slack, large) | _numbered(relaxation.pmdp, base, values, scale)


def _numbered(pmdp: ParametricMDP, base: Foundation, values: dict[str, Any], scale: np.ndarray) -> dict[str, Any]:
    """How rows are proved over cuts, with the numbers that cuts have in the proof from now on."""
    given = values.get("rows")
    if given is None or base.cuts is None:
        return {}
    used = np.zeros(len(base.cuts.names))
    used[given.chosen] = 1.0
    number = {cut: k for cut, (k, _) in zip(np.flatnonzero(used).tolist(), base.cuts.numbered(used))}
    names = [number[cut] for cut in given.chosen.tolist()]
    step, row = np.divmod(np.arange(len(given.level)), pmdp.num_rows)
    keys = [f"{k} {r}" for k, r in zip(step.tolist(), row.tolist())]
    factor = scale[pmdp.row_state[row]]
    rows = {
        keys[n]: [
            factor[n] * given.level[n],
            [[factor[n] * given.single[n, k], names[k]] for k in np.flatnonzero(given.single[n])],
        ]
        for n in np.flatnonzero(given.level).tolist()
    }
    for n, (i, j), multiple in zip(given.place.tolist(), given.pairs.tolist(), given.double.tolist()):
        rows[keys[n]][1].append([factor[n] * multiple, names[i], names[j]])
    return {"rows": rows}


def common_functions(relaxation: Intervals, base: Foundation, goal: BoundGoal) -> Iterator[dict[str, Any]]:
    """`candidates` for comparisons at one parameter: affine functions first."""
    makers: list[Any] = [affine(relaxation, base, goal)] if base.frame is not None else []
    scale = time_scale(relaxation.pmdp, goal.objective)
    for found in (*makers, plain(relaxation, goal)):
        for slack in WIDENED if found is not None else ():
            yield shown(found[1], scale, goal.sign * slack, None)


def summed_functions(
    relaxation: Intervals, base: Foundation, total: WeightedSum, upper: bool
) -> Iterator[dict[str, Any]]:
    """Functions of a weighted sum of values, for every policy, in the states of the model without the added end."""
    start = solve(relaxation, total.objective, Nature.ADVERSARIAL, precision=PRECISION).policy
    goal = BoundGoal(total.objective, start, every_policy=True, upper=upper)
    found: list[Any] = [plain(relaxation, goal)]
    if base.frame is not None:
        found.insert(0, affine(relaxation, base, goal))
    for _, values in sorted((f for f in found if f is not None), key=lambda f: goal.sign * f[0]):
        cut = {name: part[:-1] if isinstance(part, np.ndarray) else part for name, part in values.items()}
        cut["values"] = cut["values"] + total.constant
        for slack in WIDENED:
            yield shown(cut, np.ones(len(cut["values"])), goal.sign * slack, None)


def _missed(relaxation: Intervals, finite: np.ndarray, policy: Policy | None) -> np.ndarray:
    """(S,) numbers that bound infinity from below: L ≤ r + P L for any multiple of them where values are infinite.

    The least probability q of never getting to a finite value has q ≤ P q, and q² ≤ P q² with room for rounding.
    """
    pmdp = replace(relaxation.pmdp, labels={"finite": finite})
    intervals = Intervals(pmdp, relaxation.lower, relaxation.upper)
    best = solve(intervals, Objective.reach("finite"), Nature.COOPERATIVE, policy=policy, precision=PRECISION)
    return np.asarray(np.square(np.round(1.0 - best.upper_values, 9)))


def time_scale(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(S,) factors for the solver's discounted values: there, silent states take a step (`Task`)."""
    late = int(pmdp.has_random_start) + pmdp.is_silent.astype(int)
    if pmdp.has_random_start:
        late[pmdp.initial_state] = 0
    return objective.resolve(pmdp).objective.discount ** late.astype(float)


def plain(relaxation: Relaxation, goal: BoundGoal) -> tuple[float, dict[str, Any]]:
    """Bounds per state over the intervals of expressions."""
    nature = Nature.ADVERSARIAL if goal.upper == (goal.objective.sense is Sense.MIN) else Nature.COOPERATIVE
    solution = solve(relaxation, goal.objective, nature, policy=goal.fixed, precision=PRECISION, side=goal.upper)
    values = solution.upper_values if goal.upper else solution.lower_values
    return float(solution.upper if goal.upper else solution.lower), {"kind": relaxation.name, "values": values}


def affine(
    relaxation: Relaxation, base: Foundation, goal: BoundGoal, box: BoxFrame | None = None, with_cuts: bool = False
) -> tuple[float, dict[str, Any]] | None:
    """Functions that are affine over the ball of the likelihood, or over a box around the region.

    ``with_cuts``: those of `coupled.gradients.over_cuts`, whose rows hold over cuts as well.
    """
    frame, cuts = box or base.frame, base.cuts
    assert frame is not None and cuts is not None
    problem = Problem.of(relaxation, goal.objective, Nature.ADVERSARIAL, None)
    side, start = Side.UPPER if goal.upper else Side.LOWER, problem.pmdp.initial_state
    expansion = expansion_of(problem, frame, goal.fixed, goal.policy)
    if expansion is None:
        return None
    if with_cuts:
        if not can_search(problem, expansion):
            return None
        bound = over_cuts(problem, expansion, side, goal.every_policy, cuts.A, cuts.b)
    else:
        bound = find_bound(problem, expansion, side, goal.every_policy)
    if bound is None:
        return None
    slope = side.value * bound.gradient[..., start, :].reshape(-1, frame.dimension)[-1]
    most = (cuts.farthest(frame, slope) if isinstance(frame, Frame) else cuts.farthest_in_box(frame, slope))[0]
    predicted = float(bound.moved[..., start].flat[-1]) + side.value * most
    found = of_bound(problem, bound)
    return predicted, found if box is None else found | {"kind": "affine in a box"}


def of_bound(problem: Problem, bound: AffineBound) -> dict[str, Any]:
    """An affine bound as a function: nothing is said outside its scope."""
    inside = bound.scope | problem.task.decided
    values = np.where(inside, bound.moved, np.nan)
    return {"kind": "affine", "values": values, "gradient": bound.gradient, "rows": bound.rows}


def shown(found: dict[str, Any], scale: np.ndarray, share: float, large: np.ndarray | None) -> dict[str, Any]:
    """The function as in the file, its values moved outward by a share of themselves (affine: of the largest one).

    Where values are infinite, either nothing is claimed, or multiples of ``large`` (S,) are.
    """
    values = found["values"] * scale
    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    if large is not None:
        values = np.where(np.isposinf(values), 1e9 * (1.0 + finite.max()) * large, values)
    values = values + share * (finite.max() if "gradient" in found else finite)
    gradient = found.get("gradient", np.zeros((*values.shape, 0))) * scale[:, None]
    parts = np.concatenate([values[..., None], gradient], axis=-1)
    steps = parts.reshape(-1, *parts.shape[-2:]).tolist()
    tables = [[U if math.isfinite(U[0]) else None for U in table] for table in steps]
    function: dict[str, Any] = {"values": tables if parts.ndim == 3 else tables[0]}
    function |= {"box": True} if found["kind"] == "affine in a box" else {}
    return function | ({"duals": {}} if found["kind"] == "rectangular" else {})


def ranks(claim: checker.Claim, spent: dict[int, bool], active: set[int]) -> list[int]:
    """Ranks that some outcome of every row lowers (of a policy: of one it plays), unless the row is spent; else 0."""
    left, rank = set(active), [0] * claim.model.states
    into: dict[int, set[int]] = {}
    for s in active:
        for t in {t for row in claim.model.rows_of[s] for t, _ in claim.model.moves[row]}:
            into.setdefault(t, set()).add(s)
    new, level = set(active), 0
    while new:
        level += 1
        found = set()
        for s in new & left:
            groups = claim.played(s, 0)
            if all(any(spent[r] or claim.leads_out(r, left) for r, _ in group) for group in groups):
                found.add(s)
                rank[s] = level
        left -= found
        new = set().union(*(into.get(s, ()) for s in found))
    return rank


def prove_claim(claim: checker.Claim, values: dict[str, Any]) -> None:
    """Prove a claim, with ranks where plays must be shown to end; raises `Refused` if that fails."""
    if claim.objective.horizon is not None or claim.objective.discount < 1:
        claim.bound()
        return
    spent, claim.active = claim.inequalities(0, 0, 0)
    try:
        claim.plays_end(spent, claim.active)
    except checker.Refused:
        values["rank"] = claim.rank = ranks(claim, spent, claim.harmful(claim.active))
        claim.plays_end(spent, claim.active)
