"""Random models, regions and policies: what is said about regrets against exact optima at rational parameters."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from rpl_agent.core.coupled import coupled_bounds
from rpl_agent.core.coupled.regret import proved_regret
from rpl_agent.core.model import Policy, Sense
from rpl_agent.core.regions.intersection import Ellipsoid
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.core.relaxations.rectangular import Rectangular
from tests.reference.coupled import box_points, exact_value, objectives, random_model
from tests.reference.fuzz import Tally


def region_of(pmdp, center: np.ndarray, width: float, kind: str):
    """A region that contains every θ with |θ − center| ≤ width."""
    grid = np.array([center + width * np.array([i - 1, j - 1]) for i, j in np.ndindex(3, 3)])
    if kind == "ellipsoid":
        x = pmdp.table.reduction.coordinates(grid)
        middle = x.mean(axis=0)
        metric = np.diag(1.0 / np.maximum(np.abs(x - middle).max(axis=0), 1e-3) ** 2)
        return Ellipsoid(middle, metric, 1.2 * max(float(d @ metric @ d) for d in x - middle))
    values, slack = pmdp.table.at(grid), np.where(pmdp.table.is_constant, 0.0, 1e-9)
    return build_region(pmdp, np.clip(values.min(axis=0) - slack, 0, 1), np.clip(values.max(axis=0) + slack, 0, 1))


def round_of(seed: int) -> Tally:
    """One model with all objectives, for the policy found and for a random one."""
    rng, tally = np.random.default_rng([seed, 46]), Tally()
    pmdp = random_model(seed, polynomial=bool(rng.integers(2)), loops=bool(rng.integers(2)))
    width = float(rng.choice([0.001, 0.01, 0.05]))
    center, kind = np.array([0.5, 0.5]), str(rng.choice(["intervals", "ellipsoid"]))
    region = region_of(pmdp, center, width, kind)
    points = box_points(center, Fraction(width), seed, 2)
    for objective in objectives():
        rows = pmdp.state_ptr[:-1] + rng.integers(0, np.diff(pmdp.state_ptr))
        for policy in (None, Policy.deterministic(rows)):
            found = coupled_bounds(Rectangular(pmdp, region), region, objective, policy, Policy.deterministic(rows))
            if found is None:
                continue
            regret = proved_regret(found, region, found.policy, np.inf, int(rng.choice([1, 4])))
            kind = "proved optimal" if regret.is_optimal else "regrets" if np.isfinite(regret.most) else "no regret"
            tally.problems[kind] += 1
            for theta in points if np.isfinite(regret.most) else ():
                own, best = (exact_value(pmdp, objective, theta, p) for p in (found.policy, None))
                true = best - own if objective.sense is Sense.MAX else own - best
                if true > Fraction(regret.most):
                    tally.failures.append(f"seed {seed}, {objective.describe()}: {float(true)} > {regret.most}")
    return tally
