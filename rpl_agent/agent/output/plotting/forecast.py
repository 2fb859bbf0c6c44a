"""A picture of a forecast: the expected gap and regret over the number of episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

#: colours of the gap, of the number that is needed, and of the regret
GAP, NEEDED, REGRET = "#d9480f", "#1c7ed6", "#2f9e44"


def plot_forecast(found: Any, path: str | Path, title: str) -> None:
    """Write the picture of a `Forecast` to a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=120, layout="constrained")
    axes: Any = figure.add_subplot()
    axes.loglog(found.episodes, found.gap, "o-", color=GAP, label=f"certificate, δ = {found.delta:g}")
    axes.fill_between(found.episodes, found.least, found.most, color=GAP, alpha=0.2, linewidth=0)
    if np.isfinite(found.sigma).any():
        axes.loglog(found.episodes, found.ideal, "--", color="0.4", label="one look at the value alone, 2 z σ")
    if found.needed is not None and found.wanted is not None:
        axes.axhline(found.wanted, color=NEEDED, linewidth=0.8)
        text = f"{found.needed:,} episodes for {found.wanted:g}"
        axes.plot(found.needed, found.wanted, "o", color=NEEDED, label=text)
    shown = found.regret > 0.0  # a regret of 0, a policy that is proved to be the best, has no logarithm
    if shown.any():
        axes.loglog(found.episodes[shown], found.regret[shown], "s-", color=REGRET, label="regret")
    axes.set(xlabel="episodes", ylabel="upper − lower, and regret", title=title)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend()
    figure.savefig(path)
