"""What a person sees while the agent learns: a live rich view, plain lines where there is no terminal, or nothing."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
#: Seconds between two plain lines, and between two refreshes of the live view.
LINE_SECONDS = 2.0
REFRESH_SECONDS = 0.2
SPARK_WIDTH = 40
#: Seconds of work after which the time left is estimated.
JUDGE_SECONDS = 1.0


@dataclass
class Status:
    """A snapshot of a run, as the views need it."""

    title: str
    unit: str
    done: int
    goal: int
    episodes: int
    steps: int
    updates: int
    seconds: float
    steps_per_second: float
    lower: float = math.nan
    upper: float = math.nan
    shares: dict[str, float] = field(default_factory=dict)  # seconds per stage
    mean_return: float = math.nan  # of the exploring policy
    session_seconds: float = math.nan  # of this call alone
    delta: float = math.nan
    sentence: str = ""  # the guarantee in words
    left: float = math.nan  # seconds, estimated

    @property
    def gap(self) -> float:
        return self.upper - self.lower


class Pace:
    """Seconds left, by the rate in the second half of the time so far: runs become faster while updates become rare.

    Unknown until one per cent is done and there was some work to judge by.
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


def sparkline(values: list[float], width: int = SPARK_WIDTH) -> str:
    """The last values as bars, on a logarithmic scale (gaps shrink by factors)."""
    shown = [v for v in values if math.isfinite(v)][-width:]
    if not shown:
        return ""
    logs = [math.log(max(v, 1e-12)) for v in shown]
    low, high = min(logs), max(logs)
    span = high - low
    return "".join(BARS[-1 if span == 0 else int((v - low) / span * (len(BARS) - 1) + 0.5)] for v in logs)


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
    """The command that shows a folder of runs: with its path, because the environment need not be the shell's."""
    program = Path(sys.executable).with_name("tensorboard")
    relative = os.path.relpath(program)
    shown = relative if not relative.startswith("..") else str(program)
    words = [shown] if program.is_file() else [sys.executable, "-m", "tensorboard.main"]
    return shlex.join([*words, "--logdir", os.fspath(log_dir)])


class View:
    """No output; the base of the two that have one."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self._pace = Pace()
        self._last = -math.inf

    def start(self) -> None:
        pass

    def show(self, status: Status) -> None:
        """Called often; draws when it is time to."""

    def certified(self, status: Status) -> None:
        """Called at every certificate."""
        self.gaps.append(status.gap)
        self.show(status)

    def message(self, text: str) -> None:
        pass

    def _timed(self, status: Status) -> Status:
        """With the seconds that are left."""
        return replace(status, left=self._pace.left(status))

    def stop(self) -> None:
        pass


class LinesView(View):
    """One line every few seconds, for logs and pipes."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__()
        self._stream = stream

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
        print(text, file=self._stream or sys.stdout, flush=True)


class LiveView(View):
    """A panel that redraws itself."""

    def __init__(self, console: Console | None = None) -> None:
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


def line(status: Status) -> str:
    bounds = ""
    if not math.isnan(status.lower):
        bounds = f"  lower {status.lower:.5g}  upper {status.upper:.5g}  gap {status.gap:.4g}"
    return (
        f"{status.unit} {status.done:,}/{status.goal:,}  {status.steps_per_second:,.0f} steps/s"
        f"{bounds}  updates {status.updates:,}  elapsed {duration(status.seconds)}  left {duration(status.left)}"
    )


def render(status: Status, gaps: list[float]) -> Group:
    """The live panel; every row fits 80 columns, long ones wrap."""
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
        table.add_row("exploring", f"mean return of the exploring policy {status.mean_return:.5g}")
    table.add_row("updates", f"{status.updates:,}")
    table.add_row("time", shares_text(status.shares) or "–")
    table.add_row("elapsed", f"{duration(status.seconds)}, left {duration(status.left)}")
    bar = Table.grid()  # a bar by itself ends no line
    bar.add_row(ProgressBar(total=max(status.goal, 1), completed=status.done, width=60))
    return Group(Text(status.title, style="bold cyan"), bar, table)


def make_view(progress_bar: bool, verbose: int) -> View:
    """Live on a terminal, lines elsewhere; nothing unless asked for."""
    if not progress_bar and verbose < 1:
        return View()
    console = Console()
    if progress_bar and console.is_terminal:
        return LiveView(console)
    return LinesView()
