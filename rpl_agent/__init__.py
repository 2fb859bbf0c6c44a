"""Learn a certified policy for a system with known structure and unknown parameters.

The public names stand in one table. They are loaded on first use: importing the package is cheap,
so that `rpl --help` and programs that need one part of it start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rpl_agent.core.version import __version__ as __version__

#: public name -> where it is: `module` or `module:other name`. The imports below say the same to type checkers.
_INDEX = {
    # the agent
    "BaseCallback": "agent.callbacks",
    "CallbackList": "agent.callbacks",
    "CertificateLog": "agent.callbacks",
    "CheckpointCallback": "agent.callbacks",
    "EvalCallback": "agent.callbacks",
    "OracleCallback": "agent.callbacks",
    "StopOnGap": "agent.callbacks",
    "StopOnRegret": "agent.callbacks",
    "RPLAgent": "agent.rpl",
    "ReturnBound": "agent.sampling.returns",
    "bound_return": "agent.sampling.returns",
    "Doubling": "agent.schedule",
    "EveryN": "agent.schedule",
    "Never": "agent.schedule",
    "check_model": "agent.world.check",
    "sketch": "agent.world.sketch",
    # models and objectives
    "Domain": "core.model",
    "Limit": "core.model",
    "Nature": "core.model",
    "Objective": "core.model",
    "ParametricMDP": "core.model",
    "Policy": "core.model",
    "Polynomial": "core.model",
    "Sense": "core.model",
    "Simulator": "core.model",
    "StateIndex": "core.model",
    "build": "core.model",
    "build_vectorized": "core.model",
    "from_matrices": "core.model",
    "validate": "core.model",
    "build_noise": "core.model.building.noise",
    "hide_parameters": "core.model.building.unknown",
    # certificates
    "Counts": "core.evidence.counts",
    "Certificate": "guarantee.certificate",
    "curve": "guarantee.claims.curves",
    "Improvement": "guarantee.claims.improvement",
    "LogReturns": "guarantee.claims.improvement",
    "improve": "guarantee.claims.improvement",
    "certify": "guarantee.claims.limits",
    "OpenCertificate": "guarantee.open_world.certificate",
    "Config": "guarantee.pipeline",
    # solving
    "RegionSolution": "core.coupled.region",
    "solve_region": "core.coupled.region",
    "UncertainMDP": "core.relaxations.umdp",
    "Solution": "core.solver",
    "solve": "core.solver",
    "solve_at": "core.solver",
    # files
    "log_returns": "agent.world.log_returns",
    "read_log": "formats.logs",
    "read_policy": "formats.policies",
    "load_prism": "formats.prism:load",
    "from_sb3": "studies.baselines.sb3",
    # extension points; `rpl_agent.guarantee.testing` has a check for each
    "register_exploration": "agent.exploration",
    "register_confidence_set": "guarantee.confidence:register",
    # errors
    "DataError": "core.errors",
    "ModelError": "core.errors",
    "RPLWarning": "core.errors",
}
__all__ = sorted(_INDEX)

if TYPE_CHECKING:
    from rpl_agent.agent.callbacks import BaseCallback as BaseCallback
    from rpl_agent.agent.callbacks import CallbackList as CallbackList
    from rpl_agent.agent.callbacks import CertificateLog as CertificateLog
    from rpl_agent.agent.callbacks import CheckpointCallback as CheckpointCallback
    from rpl_agent.agent.callbacks import EvalCallback as EvalCallback
    from rpl_agent.agent.callbacks import OracleCallback as OracleCallback
    from rpl_agent.agent.callbacks import StopOnGap as StopOnGap
    from rpl_agent.agent.callbacks import StopOnRegret as StopOnRegret
    from rpl_agent.agent.exploration import register_exploration as register_exploration
    from rpl_agent.agent.rpl import RPLAgent as RPLAgent
    from rpl_agent.agent.sampling.returns import ReturnBound as ReturnBound
    from rpl_agent.agent.sampling.returns import bound_return as bound_return
    from rpl_agent.agent.schedule import Doubling as Doubling
    from rpl_agent.agent.schedule import EveryN as EveryN
    from rpl_agent.agent.schedule import Never as Never
    from rpl_agent.agent.world.check import check_model as check_model
    from rpl_agent.agent.world.log_returns import log_returns as log_returns
    from rpl_agent.agent.world.sketch import sketch as sketch
    from rpl_agent.core.coupled.region import RegionSolution as RegionSolution
    from rpl_agent.core.coupled.region import solve_region as solve_region
    from rpl_agent.core.errors import DataError as DataError
    from rpl_agent.core.errors import ModelError as ModelError
    from rpl_agent.core.errors import RPLWarning as RPLWarning
    from rpl_agent.core.evidence.counts import Counts as Counts
    from rpl_agent.core.model import Domain as Domain
    from rpl_agent.core.model import Limit as Limit
    from rpl_agent.core.model import Nature as Nature
    from rpl_agent.core.model import Objective as Objective
    from rpl_agent.core.model import ParametricMDP as ParametricMDP
    from rpl_agent.core.model import Policy as Policy
    from rpl_agent.core.model import Polynomial as Polynomial
    from rpl_agent.core.model import Sense as Sense
    from rpl_agent.core.model import Simulator as Simulator
    from rpl_agent.core.model import StateIndex as StateIndex
    from rpl_agent.core.model import build as build
    from rpl_agent.core.model import build_vectorized as build_vectorized
    from rpl_agent.core.model import from_matrices as from_matrices
    from rpl_agent.core.model import validate as validate
    from rpl_agent.core.model.building.noise import build_noise as build_noise
    from rpl_agent.core.model.building.unknown import hide_parameters as hide_parameters
    from rpl_agent.core.relaxations.umdp import UncertainMDP as UncertainMDP
    from rpl_agent.core.solver import Solution as Solution
    from rpl_agent.core.solver import solve as solve
    from rpl_agent.core.solver import solve_at as solve_at
    from rpl_agent.formats.logs import read_log as read_log
    from rpl_agent.formats.policies import read_policy as read_policy
    from rpl_agent.formats.prism import load as load_prism
    from rpl_agent.guarantee.certificate import Certificate as Certificate
    from rpl_agent.guarantee.claims.curves import curve as curve
    from rpl_agent.guarantee.claims.improvement import Improvement as Improvement
    from rpl_agent.guarantee.claims.improvement import LogReturns as LogReturns
    from rpl_agent.guarantee.claims.improvement import improve as improve
    from rpl_agent.guarantee.claims.limits import certify as certify
    from rpl_agent.guarantee.confidence import register as register_confidence_set
    from rpl_agent.guarantee.open_world.certificate import OpenCertificate as OpenCertificate
    from rpl_agent.guarantee.pipeline import Config as Config
    from rpl_agent.studies.baselines.sb3 import from_sb3 as from_sb3


def __getattr__(name: str) -> Any:
    if name not in _INDEX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, original = _INDEX[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), original or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
