"""`Learner`: what callbacks, reports and views may see of a running agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rpl_agent.certificate import Certificate
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy

if TYPE_CHECKING:
    from rpl_agent.agent.logger import Logger
    from rpl_agent.agent.session import Session


class Learner(Protocol):
    """Read it, save it, log to it; learning goes through the agent itself."""

    run_folder: Path | None
    observation_to_state: Any
    weight: float
    schedule: Any

    @property
    def session(self) -> Session: ...

    @property
    def logger(self) -> Logger: ...

    @property
    def num_episodes(self) -> int: ...

    @property
    def num_timesteps(self) -> int: ...

    @property
    def pmdp(self) -> ParametricMDP: ...

    @property
    def objective(self) -> Objective: ...

    @property
    def planner(self) -> Any: ...

    @property
    def certificate(self) -> Certificate | None: ...

    @property
    def policy(self) -> Policy: ...

    def get_env(self) -> Any: ...

    def save(self, path: str | os.PathLike) -> None: ...

    def require_anytime(self, why: str) -> None: ...
