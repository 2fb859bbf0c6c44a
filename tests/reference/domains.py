"""Points of a domain."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.model import Domain


def points_of(domain: Domain, rng: np.random.Generator, n: int) -> np.ndarray:
    """(n, d) points of D: rejection from the box, hit-and-run if that is hopeless."""
    points: list[np.ndarray] = []
    for _ in range(50):
        proposal = rng.uniform(domain.lower, domain.upper, size=(4 * n, domain.dimension))
        points.extend(proposal[domain.contains(proposal, tol=0.0)])
        if len(points) >= n:
            return np.array(points[:n]).reshape(n, domain.dimension)
    A, b = domain.constraints()
    x, found = domain.center(), []
    for k in range(n * 5):
        direction = rng.normal(size=domain.dimension)
        slope, slack = A @ direction, b - A @ x
        with np.errstate(divide="ignore"):
            steps = slack / slope
        high = steps[slope > 1e-12].min(initial=np.inf)
        low = steps[slope < -1e-12].max(initial=-np.inf)
        x = x + direction * rng.uniform(low, high)
        if k % 5 == 4:
            found.append(x)
    return np.array(found)
