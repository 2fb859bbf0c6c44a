"""The live view of a run on a terminal. Imported where it is shown: rich takes as long to import as half the agent."""

from __future__ import annotations

import math
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rpl_agent.agent.output.views import LinesView, Status, View, duration, shares_text

BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40
#: Seconds between two refreshes.
REFRESH_SECONDS = 0.2


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
        what, shown = ("cost", -status.mean_return) if status.minimises else ("return", status.mean_return)
        table.add_row("exploring", f"mean {what} of the exploring policy {shown:.5g}")
    table.add_row("updates", f"{status.updates:,}")
    table.add_row("time", shares_text(status.shares) or "–")
    table.add_row("elapsed", f"{duration(status.seconds)}, left {duration(status.left)}")
    bar = Table.grid()  # a bar by itself ends no line
    bar.add_row(ProgressBar(total=max(status.goal, 1), completed=status.done, width=60))
    # the cursor waits in a line of its own: at the end of a full one the echo of Ctrl-C would begin another
    return Group(Text(status.title, style="bold cyan"), bar, table, Text(""))


def terminal_view() -> View:
    """Live on a terminal, lines elsewhere."""
    console = Console()
    return LiveView(console) if console.is_terminal else LinesView()
