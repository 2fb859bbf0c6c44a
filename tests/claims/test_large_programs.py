"""Linear programs of models with thousands of states: seconds, where the simplex method takes minutes."""

from __future__ import annotations

import numpy as np
import pytest

import rpl_envs
from rpl_agent.core.model import Limit, Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.occupancy import OccupancyProgram


def test_a_program_of_many_states_is_solved():
    """It ended at its limit of a minute without a result, at each update of an agent that explores within limits."""
    world = rpl_envs.benchmark("Betting-25")
    limit = Limit.parse("probability of done >= 0.5")
    combined = CombinedModel(world.pmdp, [world.objective, limit.objective])
    program = OccupancyProgram(combined, world.theta, Sense.MAX, np.array([False]))
    best = solve_at(world.pmdp, world.theta, world.objective)
    found = program.solve(np.array([limit.threshold]), best.policy)
    assert found is not None and found.values[0] == pytest.approx(best.middle, abs=1e-3)
    assert found.values[1] >= 0.5 - 1e-6
