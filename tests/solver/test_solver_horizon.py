"""Finite horizons: rows that are prepared once and bounded in blocks give what each row gives alone."""

import numpy as np
import pytest

from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.solver.check import SMALLEST
from rpl_agent.core.solver.operator import row_bounds, state_bounds, step_images
from rpl_agent.core.solver.problem import Problem
from rpl_agent.core.solver.solve import horizon_side
from tests.reference.fuzz import Dice
from tests.reference.random_models import interval_sample

QUESTIONS = [
    Objective.reach("goal", horizon=30),
    Objective.reach("goal", sense=Sense.MIN, horizon=2),
    Objective.reward("signed", sense=Sense.MIN, horizon=30),
    Objective.reward("cost", target="goal", horizon=30),
]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("nature", Nature)
def test_steps_give_the_bounds_of_single_rows(nature, seed):
    """Bit for bit, in models with short and long rows, certain ones, and values that stay from some step on."""
    dice = Dice(seed)
    while (relaxation := interval_sample(dice).relaxation).compiled() is None:
        continue
    for objective in QUESTIONS:
        problem = Problem.of(relaxation, objective, nature, None)
        for upward in (False, True):
            values, _ = horizon_side(problem, upward)
            rows = [row_bounds(problem, value, upward) for value in values[:-1]]
            expected = np.stack([state_bounds(problem, row, upward, None) for row in rows])
            expected[:, problem.task.decided] = values[0, problem.task.decided]
            assert np.array_equal(step_images(problem, values, upward, None), expected)
            faint = (np.abs(expected) < SMALLEST) & (expected != 0.0) & ~problem.task.decided
            expected[faint & ((expected > 0.0) | upward)] = SMALLEST if upward else 0.0
            assert np.array_equal(values[1:], expected)
