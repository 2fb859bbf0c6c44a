"""What a running agent tells: the figures of a certificate as tags, its status for the views, its log files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.agent.output.logger import CSVWriter, Forward, Logger
from rpl_agent.agent.output.views import LinesView, Status, View
from rpl_agent.agent.session import Session
from rpl_agent.agent.storage.run_folder import next_folder
from rpl_agent.certificate import Certificate
from rpl_agent.model.objective import Sense


def record(session: Session, logger: Logger, certificate: Certificate) -> None:
    """All tags of a log point (docs/training.md lists them)."""
    note, data = logger.record, session.experience
    for name in ("lower", "upper", "gap", "estimate"):
        note(f"guarantee/{name}", getattr(certificate, name))
    note("momentary/lower", certificate.momentary_lower)
    note("momentary/upper", certificate.momentary_upper)
    note("momentary/gap", certificate.momentary_upper - certificate.momentary_lower)
    for name, share in certificate.attribution.items():
        note(f"share_of_gap/{name}", share)
    if session.returns:
        # costs are paid as negative rewards, and shown with the certificate's sign
        name, sign = ("cost", -1) if session.objective.sense is Sense.MIN else ("rew", 1)
        note(f"rollout/ep_{name}_mean", sign * np.mean(session.returns))
        note("rollout/ep_len_mean", np.mean(session.lengths))
    if session.cut and session.objective.discount == 1.0:  # the guarantee is for plays without the limit
        note("rollout/cut_share", session.cut / max(1, session.episodes))
    for tag, value in session.planner.widths().items():
        note(tag, value)
    visited = int((data.rows > 0).sum())
    note("samples/transitions", data.counts.total)
    note("samples/steps", session.steps)
    note("samples/pairs_visited", visited)
    note("samples/pairs_visited_share", visited / max(1, len(data.rows)))
    note("samples/updates", session.updates)
    note("samples/updates_skipped", session.planner.skipped)
    for stage, seconds in session.planner.seconds.items():
        note(f"time/{stage}", seconds)
    now = status(session)
    note("time/elapsed", now.seconds)
    note("time/steps_per_second", now.steps_per_second)


def status(session: Session) -> Status:
    """A snapshot for the live view and the lines."""
    target, certificate = session.target, session.certificate
    assert target is not None
    clock = session.clock
    return Status(
        title=f"{session.pmdp.name}: {session.objective.describe()}",
        unit=target.unit,
        done=session.episodes if target.unit == "episodes" else session.steps,
        goal=target.goal,
        episodes=session.episodes,
        steps=session.steps,
        updates=session.updates,
        seconds=clock.elapsed,
        steps_per_second=(session.steps - clock.steps_before) / max(clock.current, 1e-9),
        lower=np.nan if certificate is None else certificate.lower,
        upper=np.nan if certificate is None else certificate.upper,
        session_seconds=clock.current,
        delta=session.config.delta,
        sentence="" if certificate is None else certificate.sentence,
        shares=dict(session.planner.seconds),
        mean_return=float(np.mean(session.returns)) if session.returns else np.nan,
        minimises=session.objective.sense is Sense.MIN,
    )


def open_logs(current: Logger, folder: Path | None, session: Session) -> Logger:
    """The writers of a run folder; opened once, and again after loading."""
    if folder is None or current.dir == folder:
        return current
    from rpl_agent.agent.output.events import TensorBoardWriter  # tensorboard: only where a run has a folder

    resumed = session.episodes or None
    table = CSVWriter(folder / "progress.csv", resumed)
    kept = [writer for writer in current.writers if isinstance(writer, Forward)]
    return Logger(folder, [TensorBoardWriter(folder, resumed, table.earlier), table, *kept])


def choose_folder(present: Path | None, given: Any, parent: Path | None, name: str) -> Path | None:
    """Where a run goes: the folder that was given, the one it has, or the next unused one below ``parent``."""
    if given is not None:
        folder = Path(given)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    return next_folder(parent, name) if present is None and parent is not None else present


def make_view(progress_bar: bool, verbose: int) -> View:
    """Live on a terminal, lines elsewhere; nothing unless asked for."""
    if progress_bar:
        from rpl_agent.agent.output.live import terminal_view  # imports rich

        return terminal_view()
    return LinesView() if verbose >= 1 else View()
