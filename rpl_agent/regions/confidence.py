"""Regions of the paper's other uncertainty classes (Sec. 3.4, App. E): L1 balls and least squares."""

from __future__ import annotations

import numpy as np

from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.l1 import l1_rows
from rpl_agent.evidence.least_squares import least_squares
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.regions.base import Region
from rpl_agent.regions.ellipsoid import Ellipsoid
from rpl_agent.regions.intersection import Intersection
from rpl_agent.regions.lifting import build_region, domain_region


def l1_region(pmdp: ParametricMDP, counts: Counts, delta: float) -> Region:
    """The domain cut by one L1 ball per kind of row."""
    ones = np.ones(pmdp.num_expressions)
    return build_region(pmdp, 0.0 * ones, ones, extra=l1_rows(pmdp, counts, delta))


def least_squares_region(pmdp: ParametricMDP, counts: Counts, delta: float) -> Region:
    """The self-normalised ellipsoid, intersected with the domain."""
    center, V, beta = least_squares(pmdp, counts, delta)
    return Intersection([domain_region(pmdp), Ellipsoid(center, V, beta**2)])
