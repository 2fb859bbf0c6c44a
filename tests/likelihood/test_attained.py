"""`benchmarks.attained`: values at parameters of the set, so that no certificate over it is narrower."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import attained, block_worlds
from rpl_agent.core.evidence.ledger import MAIN_SHARE
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.likelihood.region import learned, likelihood_region
from rpl_agent.guarantee.pipeline import Config

pytestmark = pytest.mark.short_runs


@pytest.fixture(scope="module", params=["bridges", "random 0"])  # a horizon, a discount
def searched(request):
    world = block_worlds.world(request.param)
    counts = uniform_counts(world.pmdp, world.objective, world.theta, 1_000, world.steps, 3)
    known = learned(world.pmdp, counts, MAIN_SHARE * world.delta, world.objective)
    return world, counts, attained.Search(known, known.ball, known.slabs, world.objective)


def test_a_certificate_is_wider_than_what_is_attained(searched):
    world, counts, _ = searched
    found = certify(world.pmdp, counts, world.objective, Config(delta=world.delta))
    widths = attained.attained(world.pmdp, counts, world.objective, world.delta, found.policy, found.gap)
    assert widths.attained <= found.gap
    assert 0.2 * found.gap < widths.fixed <= 1.001 * widths.foreseen <= 1.002 * widths.attained


def test_values_are_attained_in_the_set(searched):
    world, counts, search = searched
    found = certify(world.pmdp, counts, world.objective, Config(delta=world.delta))
    _, y = search.most(1.0, found.policy, found.gap)
    region = likelihood_region(world.pmdp, counts, MAIN_SHARE * world.delta, objective=world.objective)
    assert region.contains((search.center + (1.0 - 1e-6) * search.half * y)[None]).all()


def test_gradients_are_those_of_the_values(searched):
    _, _, search = searched
    (value, slope), step = search.values.at(search.center, None), 1e-6 * search.half
    for i in range(len(slope)):
        ahead, behind = (
            search.values.at(search.center + sign * step * (np.arange(len(step)) == i), None)[0] for sign in (1.0, -1.0)
        )
        assert (ahead - behind) / (2.0 * step[i]) == pytest.approx(slope[i], rel=1e-4, abs=1e-6 * abs(value))
