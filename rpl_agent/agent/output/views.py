"""User-facing views of a run: the figures of a certificate as tags, lines, a live terminal view, or nothing.

rich is imported lazily: it takes as long as importing half the agent.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.output.logger import CSVWriter, Forward, Logger
from rpl_agent.agent.session import Session
from rpl_agent.agent.storage.checkpoint import next_folder
from rpl_agent.certificate import Certificate
from rpl_agent.model import Sense

if TYPE_CHECKING:
    from rich.console import Console, Group

#: Seconds between two lines.
LINE_SECONDS = 2.0
#: Seconds of work before the remaining time is estimated.
JUDGE_SECONDS = 1.0


@dataclass
class Status:
    """A snapshot of a run for the views."""

    title: str
    unit: str
    done: int
    goal: int
    steps: int
    updates: int
    seconds: float
    steps_per_second: float
    lower: float = math.nan
    upper: float = math.nan
    shares: dict[str, float] = field(default_factory=dict)  # seconds per stage
    mean_return: float = math.nan  # of the exploring policy
    minimises: bool = False  # then costs are shown, with the sign of the certificate
    session_seconds: float = math.nan  # of this call alone
    delta: float = math.nan
    sentence: str = ""  # the guarantee as a sentence
    left: float = math.nan  # seconds, estimated

    @property
    def gap(self) -> float:
        return self.upper - self.lower


class RemainingTime:
    """Estimates the seconds left from the rate in the second half of the time so far, because runs speed up.

    Unknown until one per cent is done and some work was timed.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()  # seconds of work, units done

    def left(self, status: Status) -> float:
        working = status.session_seconds
        self._seen.append((working, status.done))
        while len(self._seen) > 1 and self._seen[1][0] <= working / 2:
            self._seen.popleft()
        before, done = self._seen[0]
        if status.done < status.goal / 100 or status.done == done or working - before < JUDGE_SECONDS:
            return math.nan
        return (working - before) / (status.done - done) * (status.goal - status.done)


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def shares_text(shares: dict[str, float]) -> str:
    total = sum(shares.values())
    if total <= 0:
        return ""
    return "  ".join(f"{name} {100 * value / total:.0f}%" for name, value in shares.items() if value >= 0.005 * total)


def tensorboard_command(log_dir: str | os.PathLike) -> str:
    """The command that shows a folder of runs, with its path, because the shell may not have it on PATH."""
    program = Path(sys.executable).with_name("tensorboard")
    relative = os.path.relpath(program)
    shown = relative if not relative.startswith("..") else str(program)
    program_arguments = [shown] if program.is_file() else [sys.executable, "-m", "tensorboard.main"]
    return shlex.join([*program_arguments, "--logdir", os.fspath(log_dir)])


class View:
    """No output; base class of the other views."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self._remaining = RemainingTime()
        self._last = -math.inf

    def start(self) -> None:
        pass

    def show(self, status: Status) -> None:
        """Called often; draws when a refresh is due."""

    def certified(self, status: Status) -> None:
        """Called at every certificate."""
        self.gaps.append(status.gap)
        self.show(status)

    def message(self, text: str) -> None:
        pass

    def _timed(self, status: Status) -> Status:
        """The status with the seconds left."""
        return replace(status, left=self._remaining.left(status))

    def stop(self) -> None:
        pass


class LinesView(View):
    """One line every few seconds, for logs and pipes."""

    def show(self, status: Status) -> None:
        status = self._timed(status)
        if time.monotonic() - self._last >= LINE_SECONDS:
            self._print(status)

    def certified(self, status: Status) -> None:
        if status.done >= status.goal:
            self._print(self._timed(status))  # the last line always shows the result
        else:
            super().certified(status)

    def _print(self, status: Status) -> None:
        self._last = time.monotonic()
        self.message(line(status))

    def message(self, text: str) -> None:
        print(text, flush=True)


def line(status: Status) -> str:
    bounds = ""
    if not math.isnan(status.lower):
        bounds = f"  lower {status.lower:.5g}  upper {status.upper:.5g}  gap {status.gap:.4g}"
    return (
        f"{status.unit} {status.done:,}/{status.goal:,}  {status.steps_per_second:,.0f} steps/s"
        f"{bounds}  updates {status.updates:,}  elapsed {duration(status.seconds)}  left {duration(status.left)}"
    )


def record(session: Session, logger: Logger, certificate: Certificate) -> None:
    """Record all tags of a log point (listed in docs/training.md)."""
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
    """The writers of a run folder, opened once and again after loading."""
    if folder is None or current.dir == folder:
        return current
    from rpl_agent.agent.output.events import TensorBoardWriter  # imports tensorboard: only for runs with a folder

    resumed = session.episodes or None
    table = CSVWriter(folder / "progress.csv", resumed)
    kept = [writer for writer in current.writers if isinstance(writer, Forward)]
    return Logger(folder, [TensorBoardWriter(folder, resumed, table.earlier), table, *kept])


def choose_folder(present: Path | None, given: Any, parent: Path | None, name: str) -> Path | None:
    """The folder of a run: the given one, its current one, or the next unused one below ``parent``."""
    if given is not None:
        folder = Path(given)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    return next_folder(parent, name) if present is None and parent is not None else present


BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40
#: Seconds between two refreshes.
REFRESH_SECONDS = 0.2


class LiveView(View):
    """A panel that redraws itself."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def start(self) -> None:
        self._live.start()

    def show(self, status: Status) -> None:
        now, status = time.monotonic(), self._timed(status)
        if now - self._last < REFRESH_SECONDS and status.done < status.goal:
            return
        self._last = now
        self._live.update(render(status, self.gaps), refresh=True)

    def message(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._live.stop()


def sparkline(values: list[float], width: int = SPARK_WIDTH) -> str:
    """The last values as bars, on a logarithmic scale (gaps shrink by factors)."""
    shown = [v for v in values if math.isfinite(v)][-width:]
    if not shown:
        return ""
    logs = [math.log(max(v, 1e-12)) for v in shown]
    low, high = min(logs), max(logs)
    span = high - low
    return "".join(BARS[-1 if span == 0 else int((v - low) / span * (len(BARS) - 1) + 0.5)] for v in logs)


def render(status: Status, gaps: list[float]) -> Group:
    """The live panel; every row fits 80 columns, longer ones wrap."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row(status.unit, f"{status.done:,} of {status.goal:,}")
    table.add_row("steps", f"{status.steps:,}, {status.steps_per_second:,.0f} per second")
    if math.isnan(status.lower):
        table.add_row("guarantee", "not yet certified")
    else:
        table.add_row("guarantee", Text(f"{status.lower:.6g} ≤ V ≤ {status.upper:.6g}", style="bold"))
        if status.sentence:
            table.add_row("", f"with probability ≥ {1 - status.delta:g} (δ = {status.delta:g}) {status.sentence}")
        table.add_row("gap", Text.assemble(f"{status.gap:.4g}  ", (sparkline(gaps), "green")))
    if not math.isnan(status.mean_return):
        what, shown = ("cost", -status.mean_return) if status.minimises else ("return", status.mean_return)
        table.add_row("exploring", f"mean {what} of the exploring policy {shown:.5g}")
    table.add_row("updates", f"{status.updates:,}")
    table.add_row("time", shares_text(status.shares) or "–")
    table.add_row("elapsed", f"{duration(status.seconds)}, left {duration(status.left)}")
    bar = Table.grid()  # a bar by itself does not end its line
    bar.add_row(ProgressBar(total=max(status.goal, 1), completed=status.done, width=60))
    # The cursor waits on its own line: at the end of a full one the echo of Ctrl-C would start another.
    return Group(Text(status.title, style="bold cyan"), bar, table, Text(""))


def make_view(progress_bar: bool, verbose: int) -> View:
    """Live on a terminal, lines elsewhere; nothing unless requested."""
    if progress_bar:
        from rich.console import Console

        console = Console()
        return LiveView(console) if console.is_terminal else LinesView()
    return LinesView() if verbose >= 1 else View()
