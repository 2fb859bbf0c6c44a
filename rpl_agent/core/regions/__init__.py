"""Sets of parameters: boxes, polytopes, ellipsoids, and the region U of a model."""

from rpl_agent.core.regions.base import Box, Region
from rpl_agent.core.regions.intersection import Ellipsoid, Image, Intersection
from rpl_agent.core.regions.lifting import build_region, domain_region
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.regions.product import Product
