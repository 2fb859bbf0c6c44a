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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.output.logger import CSVWriter, Logger
from rpl_agent.agent.session import RunSession
from rpl_agent.agent.world.when_attached import require
from rpl_agent.core.model import Sense
from rpl_agent.core.printed import FEW, ceil_text, chance_text, floor_text

if TYPE_CHECKING:
    from rich.console import Console, Group

#: Seconds between two lines.
LINE_SECONDS = 2.0
#: Seconds of work before the remaining time is estimated.
JUDGE_SECONDS = 1.0


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
        self._seen: deque[tuple[float, int]] = deque()  # seconds of work, units done
        self._last = -math.inf

    def seconds_left(self, session: RunSession) -> float:
        """An estimate from the rate in the second half of the time so far, because runs speed up.

        Unknown (nan) until one per cent is done and some work was timed.
        """
        working, now, goal = session.clock.current, session.done, require(session.target).goal
        self._seen.append((working, now))
        while len(self._seen) > 1 and self._seen[1][0] <= working / 2:
            self._seen.popleft()
        before, done = self._seen[0]
        if now < goal / 100 or now == done or working - before < JUDGE_SECONDS:
            return math.nan
        return (working - before) / (now - done) * (goal - now)

    def start(self) -> None:
        pass

    def show(self, session: RunSession) -> None:
        """Called often; draws when a refresh is due."""

    def certified(self, session: RunSession) -> None:
        """Called at every certificate."""
        self.gaps.append(require(session.certificate).gap)
        self.show(session)

    def message(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class LinesView(View):
    """One line every few seconds, for logs and pipes."""

    def show(self, session: RunSession, is_due: bool = False) -> None:
        left = self.seconds_left(session)
        if is_due or time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self.message(line(session, left))

    def certified(self, session: RunSession) -> None:
        self.show(session, is_due=session.is_done)  # the last line always shows the result

    def message(self, text: str) -> None:
        print(text, flush=True)


def line(session: RunSession, left: float) -> str:
    certificate, target = session.certificate, require(session.target)
    bounds = ""
    if certificate is not None:
        bounds = f"  lower {floor_text(certificate.lower, FEW)}  upper {ceil_text(certificate.upper, FEW)}"
        bounds += f"  gap {certificate.gap:.4g}  regret {ceil_text(certificate.regret, FEW)}"
    return (
        f"{target.unit} {session.done:,}/{target.goal:,}  {session.rate:,.0f} steps/s"
        f"{bounds}  updates {session.updates:,}  elapsed {duration(session.clock.elapsed)}  left {duration(left)}"
    )


def record(session: RunSession, logger: Logger, certificate: Any) -> None:
    """Record all tags of a log point (listed in docs/training.md)."""
    note = logger.record
    for name in ("lower", "upper", "gap", "regret", "estimate"):
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
    for tag, value in session.figures().items():
        note(tag, value)
    note("samples/transitions", session.samples)
    note("samples/steps", session.steps)
    note("samples/updates", session.updates)
    for stage, seconds in session.seconds.items():
        note(f"time/{stage}", seconds)
    note("time/elapsed", session.clock.elapsed)
    note("time/steps_per_second", session.rate)


def open_logs(current: Logger, folder: Path | None, session: RunSession) -> Logger:
    """The writers of a run folder, opened once and again after loading."""
    if folder is None or current.dir == folder:
        return current
    from rpl_agent.agent.output.events import TensorBoardWriter  # imports tensorboard: only for runs with a folder

    resumed = session.episodes or None
    table = CSVWriter(folder / "progress.csv", resumed)
    return Logger(folder, [TensorBoardWriter(folder, resumed, table.earlier), table], current.others)


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

    def show(self, session: RunSession) -> None:
        now, left = time.monotonic(), self.seconds_left(session)
        if now - self._last < REFRESH_SECONDS and not session.is_done:
            return
        self._last = now
        self._live.update(render(session, self.gaps, left), refresh=True)

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


def render(session: RunSession, gaps: list[float], left: float = math.nan) -> Group:
    """The live panel; every row fits 80 columns, longer ones wrap."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    certificate, target = session.certificate, require(session.target)
    table.add_row(target.unit, f"{session.done:,} of {target.goal:,}")
    table.add_row("steps", f"{session.steps:,}, {session.rate:,.0f} per second")
    if certificate is None:
        table.add_row("guarantee", "not yet certified")
    else:
        delta = session.config.delta
        table.add_row(
            "guarantee", Text(f"{floor_text(certificate.lower)} ≤ V ≤ {ceil_text(certificate.upper)}", style="bold")
        )
        table.add_row("", f"with probability ≥ {chance_text(delta)} (δ = {delta:g}) {certificate.sentence}")
        table.add_row("gap", Text.assemble(f"{certificate.gap:.4g}  ", (sparkline(gaps), "green")))
        others = "no policy within the limits" if session.objective.limits else "no policy"
        table.add_row("regret", f"at most {ceil_text(certificate.regret, FEW)}: {others} is better by more")
    if session.returns:
        name, sign = ("cost", -1) if session.objective.sense is Sense.MIN else ("return", 1)
        table.add_row("exploring", f"mean {name} of the exploring policy {sign * np.mean(session.returns):.5g}")
    table.add_row("updates", f"{session.updates:,}")
    table.add_row("time", shares_text(session.seconds) or "–")
    table.add_row("elapsed", f"{duration(session.clock.elapsed)}, left {duration(left)}")
    bar = Table.grid()  # a bar by itself does not end its line
    bar.add_row(ProgressBar(total=max(target.goal, 1), completed=session.done, width=60))
    title = f"{session.name}: {session.objective.describe()}"
    # The cursor waits on its own line: at the end of a full one the echo of Ctrl-C would start another.
    return Group(Text(title, style="bold cyan"), bar, table, Text(""))


def make_view(progress_bar: bool, verbose: int) -> View:
    """Live on a terminal, lines elsewhere; nothing unless requested."""
    if progress_bar:
        from rich.console import Console

        console = Console()
        return LiveView(console) if console.is_terminal else LinesView()
    return LinesView() if verbose >= 1 else View()
