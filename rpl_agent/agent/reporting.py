"""What a running agent tells: the figures of a certificate as tags, its status for the views, its log files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.console import Status
from rpl_agent.agent.logger import CSVWriter, Logger, TensorBoardWriter, run_folder

if TYPE_CHECKING:
    from rpl_agent.agent.rpl import RPLAgent
    from rpl_agent.certificate import Certificate


def record(agent: RPLAgent, certificate: Certificate) -> None:
    """All tags of a log point (docs/training.md lists them)."""
    note, data = agent.logger.record, agent.experience
    for name in ("lower", "upper", "gap", "estimate"):
        note(f"guarantee/{name}", getattr(certificate, name))
    if agent.returns:
        note("rollout/ep_rew_mean", np.mean(agent.returns))
        note("rollout/ep_len_mean", np.mean(agent.lengths))
    for tag, value in agent.planner.widths().items():
        note(tag, value)
    visited = int((data.rows > 0).sum())
    note("counts/transitions", data.counts.total)
    note("counts/steps", agent.num_timesteps)
    note("counts/pairs_visited", visited)
    note("counts/pairs_visited_share", visited / max(1, len(data.rows)))
    note("counts/updates", agent.num_updates)
    note("counts/updates_skipped", agent.planner.skipped)
    for stage, seconds in agent.planner.seconds.items():
        note(f"time/{stage}", seconds)
    now = status(agent)
    note("time/elapsed", now.seconds)
    note("time/steps_per_second", now.steps_per_second)


def status(agent: RPLAgent) -> Status:
    """A snapshot for the live view and the lines."""
    target, certificate = agent.target, agent.certificate
    assert target is not None
    begun_seconds, begun_steps, clock = agent.session
    seconds = time.perf_counter() - clock
    return Status(
        title=f"{agent.pmdp.name}: {agent.objective.describe()}",
        unit=target.unit,
        done=agent.num_episodes if target.unit == "episodes" else agent.num_timesteps,
        goal=target.goal,
        episodes=agent.num_episodes,
        steps=agent.num_timesteps,
        updates=agent.num_updates,
        seconds=begun_seconds + seconds,
        steps_per_second=(agent.num_timesteps - begun_steps) / max(seconds, 1e-9),
        lower=np.nan if certificate is None else certificate.lower,
        upper=np.nan if certificate is None else certificate.upper,
        shares=dict(agent.planner.seconds),
        mean_return=float(np.mean(agent.returns)) if agent.returns else np.nan,
    )


def open_logs(agent: RPLAgent, name: str, folder: Any) -> Logger:
    """The agent's run folder and its writers; opened once, and again after loading."""
    if folder is not None:
        agent.run_folder = Path(folder)
        agent.run_folder.mkdir(parents=True, exist_ok=True)
    elif agent.run_folder is None and agent.tensorboard_log is not None:
        agent.run_folder = run_folder(agent.tensorboard_log, name)
    where, resumed = agent.run_folder, agent.num_episodes or None
    if where is None or agent.logger.dir == where:
        return agent.logger
    return Logger(where, [TensorBoardWriter(where, resumed), CSVWriter(where / "progress.csv", resumed)])
