"""What a person sees while the agent learns: a live rich view, plain lines where there is no terminal, or nothing."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
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
    mean_return: float = math.nan

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    @property
    def eta(self) -> float:
        return self.seconds / self.done * (self.goal - self.done) if self.done else math.nan


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


class View:
    """No output; the base of the two that have one."""

    def __init__(self) -> None:
        self.gaps: list[float] = []

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

    def stop(self) -> None:
        pass


class LinesView(View):
    """One line every few seconds, for logs and pipes."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__()
        self._stream = stream
        self._last = -math.inf

    def show(self, status: Status) -> None:
        if time.monotonic() - self._last >= LINE_SECONDS:
            self._print(status)

    def certified(self, status: Status) -> None:
        if status.done >= status.goal:
            self._print(status)  # the last line always shows the result
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
        self._last = -math.inf

    def start(self) -> None:
        self._live.start()

    def show(self, status: Status) -> None:
        now = time.monotonic()
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
        f"{bounds}  updates {status.updates:,}  elapsed {duration(status.seconds)}  left {duration(status.eta)}"
    )


def render(status: Status, gaps: list[float]) -> Group:
    """The live panel."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row(
        status.unit, f"{status.done:,} of {status.goal:,}   ({status.steps:,} steps, {status.steps_per_second:,.0f}/s)"
    )
    if not math.isnan(status.lower):
        table.add_row("guarantee", Text(f"{status.lower:.6g} ≤ V ≤ {status.upper:.6g}", style="bold"))
        table.add_row("gap", Text.assemble(f"{status.gap:.4g}  ", (sparkline(gaps), "green")))
    else:
        table.add_row("guarantee", "not yet certified")
    if not math.isnan(status.mean_return):
        table.add_row("mean return", f"{status.mean_return:.5g}")
    table.add_row("updates", f"{status.updates:,}")
    table.add_row("time", shares_text(status.shares) or "–")
    table.add_row("elapsed", f"{duration(status.seconds)}, left {duration(status.eta)}")
    bar = ProgressBar(total=max(status.goal, 1), completed=status.done, width=60)
    return Group(Text(status.title, style="bold cyan"), bar, table)


def make_view(progress_bar: bool, verbose: int) -> View:
    """Live on a terminal, lines elsewhere; nothing unless asked for."""
    if not progress_bar and verbose < 1:
        return View()
    console = Console()
    if progress_bar and console.is_terminal:
        return LiveView(console)
    return LinesView()
