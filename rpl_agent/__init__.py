"""Learn a certified policy for a system whose structure is known and whose parameters are not.

Names are loaded when they are first used: importing the package costs nothing, so that `rpl --help` and programs that
need one part of it start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpl_agent.agent.rpl import RPLAgent
    from rpl_agent.certificate import Certificate
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
        build_vectorized,
        validate,
    )
    from rpl_agent.model.unknown import hide_parameters
    from rpl_agent.pipeline import Config, certify
    from rpl_agent.relaxations.umdp import UncertainMDP
    from rpl_agent.solver import Solution, solve

__version__ = "0.2.0"
#: where each public name lives
_HOMES = {
    "rpl_agent.agent.rpl": ("RPLAgent",),
    "rpl_agent.certificate": ("Certificate",),
    "rpl_agent.pipeline": ("Config", "certify"),
    "rpl_agent.errors": ("DataError", "ModelError", "RPLWarning"),
    "rpl_agent.evidence.counts": ("Counts",),
    "rpl_agent.model": (
        "Domain", "Nature", "Objective", "ParametricMDP", "Policy", "Polynomial", "Sense", "Simulator", "build",
        "build_vectorized", "validate",
    ),
    "rpl_agent.model.unknown": ("hide_parameters",),
    "rpl_agent.relaxations.umdp": ("UncertainMDP",),
    "rpl_agent.solver": ("Solution", "solve"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Certificate", "Config", "Counts", "DataError", "Domain", "ModelError", "Nature", "Objective", "ParametricMDP",
    "Policy", "Polynomial", "RPLAgent", "RPLWarning", "Sense", "Simulator", "Solution", "UncertainMDP", "build",
    "build_vectorized", "certify", "hide_parameters", "solve", "validate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
