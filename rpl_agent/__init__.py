"""Learn a certified policy for a system with known structure and unknown parameters.

The public names are the imports below. They are loaded on first use: importing the package is cheap,
so that `rpl --help` and programs that need one part of it start at once.
"""

import ast
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the agent
    from rpl_agent.agent.callbacks import BaseCallback as BaseCallback
    from rpl_agent.agent.callbacks import CallbackList as CallbackList
    from rpl_agent.agent.callbacks import CertificateLog as CertificateLog
    from rpl_agent.agent.callbacks import CheckpointCallback as CheckpointCallback
    from rpl_agent.agent.callbacks import EvalCallback as EvalCallback
    from rpl_agent.agent.callbacks import OracleCallback as OracleCallback
    from rpl_agent.agent.callbacks import StopOnGap as StopOnGap
    from rpl_agent.agent.callbacks import StopOnRegret as StopOnRegret
    from rpl_agent.agent.rpl import RPLAgent as RPLAgent
    from rpl_agent.agent.sampling.returns import ReturnBound as ReturnBound
    from rpl_agent.agent.sampling.returns import bound_return as bound_return
    from rpl_agent.agent.schedule import Doubling as Doubling
    from rpl_agent.agent.schedule import EveryN as EveryN
    from rpl_agent.agent.schedule import Never as Never
    from rpl_agent.agent.world.check import check_model as check_model
    from rpl_agent.agent.world.check import sketch as sketch
if TYPE_CHECKING:  # models and objectives
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
if TYPE_CHECKING:  # certificates
    from rpl_agent.core.evidence.counts import Counts as Counts
    from rpl_agent.guarantee.certificate import Certificate as Certificate
    from rpl_agent.guarantee.claims.curves import curve as curve
    from rpl_agent.guarantee.claims.improvement import Improvement as Improvement
    from rpl_agent.guarantee.claims.improvement import LogReturns as LogReturns
    from rpl_agent.guarantee.claims.improvement import improve as improve
    from rpl_agent.guarantee.claims.limits import certify as certify
    from rpl_agent.guarantee.open_world.certificate import OpenCertificate as OpenCertificate
    from rpl_agent.guarantee.pipeline import Config as Config
if TYPE_CHECKING:  # solving
    from rpl_agent.core.coupled.region import RegionSolution as RegionSolution
    from rpl_agent.core.coupled.region import solve_region as solve_region
    from rpl_agent.core.relaxations.umdp import UncertainMDP as UncertainMDP
    from rpl_agent.core.solver import Solution as Solution
    from rpl_agent.core.solver import solve as solve
    from rpl_agent.core.solver import solve_at as solve_at
if TYPE_CHECKING:  # files
    from rpl_agent.agent.world.log_returns import log_returns as log_returns
    from rpl_agent.formats.logs import read_log as read_log
    from rpl_agent.formats.policies import read_policy as read_policy
    from rpl_agent.formats.prism import load as load_prism
    from rpl_agent.studies.baselines.sb3 import from_sb3 as from_sb3
if TYPE_CHECKING:  # extension points; `rpl_agent.guarantee.testing` has a check for each
    from rpl_agent.agent.exploration import register_exploration as register_exploration
    from rpl_agent.guarantee.confidence import register as register_confidence_set
if TYPE_CHECKING:  # errors
    from rpl_agent.core.errors import DataError as DataError
    from rpl_agent.core.errors import ModelError as ModelError
    from rpl_agent.core.errors import RPLWarning as RPLWarning

__version__ = "0.3.0"
#: public name -> (module, name there), from the imports above
_INDEX = {
    str(alias.asname): (str(node.module), alias.name)
    for block in ast.parse(__spec__.loader.get_source(__name__)).body  # type: ignore[union-attr]
    if isinstance(block, ast.If)
    for node in block.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_INDEX)


def __getattr__(name: str) -> Any:
    if name not in _INDEX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _INDEX[name]
    return getattr(import_module(module), original)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
