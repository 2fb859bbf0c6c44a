"""Learn a certified policy for a system whose structure is known and whose parameters are not."""

from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.certificate import Certificate
from rpl_agent.certify import Config, certify
from rpl_agent.errors import DataError, ModelError, RPLWarning
from rpl_agent.evidence.counts import Counts
from rpl_agent.model import (
    Domain,
    Nature,
    Objective,
    ParametricMDP,
    Policy,
    Polynomial,
    Sense,
    Simulator,
    build,
    build_arrays,
    validate,
)
from rpl_agent.solver import Solution, solve

__all__ = [
    "Certificate", "Config", "Counts", "DataError", "Domain", "ModelError", "Nature", "Objective", "ParametricMDP",
    "Policy", "Polynomial", "RPLAgent", "RPLWarning", "Sense", "Simulator", "Solution", "build", "build_arrays",
    "certify", "solve", "validate",
]  # fmt: skip
