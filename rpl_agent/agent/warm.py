"""Solutions as plain arrays: a checkpoint keeps them because a warm start decides the last digits of the next one."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpl_agent.agent.checkpoint import CheckpointError
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy
from rpl_agent.solver.solution import Solution

_NUMBERS = ("lower", "upper", "iterations", "seconds", "converged", "precision")


def solution_to_arrays(solution: Solution) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(numbers as JSON, arrays)."""
    numbers = {name: float(getattr(solution, name)).hex() for name in _NUMBERS}  # hex keeps every bit, and infinities
    arrays = {"lower": solution.lower_values, "upper": solution.upper_values}
    if solution.policy.rows is not None:
        arrays["rows"] = solution.policy.rows
    else:
        arrays["weights"] = solution.policy.as_weights(solution.problem.relaxation.pmdp)
    return numbers, arrays


def solution_from_arrays(pmdp: ParametricMDP, numbers: dict[str, Any], arrays: dict[str, np.ndarray]) -> Solution:
    """A solution good for warm starts and for its policy; it carries no evidence (its problem is gone)."""
    lower, upper = arrays["lower"], arrays["upper"]
    if lower.shape[-1] != pmdp.num_states or upper.shape != lower.shape:
        raise CheckpointError(f"the checkpoint's values have shape {lower.shape}, the model {pmdp.num_states} states")
    policy = Policy.deterministic(arrays["rows"]) if "rows" in arrays else Policy.randomised(arrays["weights"])
    policy.check(pmdp)
    found = {name: float.fromhex(numbers[name]) for name in _NUMBERS}
    return Solution(
        problem=None,  # type: ignore[arg-type]
        lower=found["lower"], upper=found["upper"], lower_values=lower, upper_values=upper, policy=policy,
        iterations=int(found["iterations"]), seconds=found["seconds"], converged=bool(found["converged"]),
        precision=found["precision"],
    )  # fmt: skip
