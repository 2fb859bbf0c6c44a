"""README's numbers again: what its first program certifies, and the gaps of its table.

``pump`` is the first program as it stands there; every other row is a world of the table after 10^5 uniform episodes
(`rpl reproduce --suite uniform` has the other sets).
"""

from __future__ import annotations

import contextlib
import io
import re
import time
from pathlib import Path
from typing import Any

from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.runner import run_group

Row = dict[str, Any]
README = Path(__file__).parents[1] / "README.md"
WORLDS = ("Aircraft-50x10", "Betting-50", "Engagement-100", "MarsRover-50x50", "Glider-21x17", "ParallelBetting-5")
OURS = [("likelihood", "coupled")]


def rows(smoke: bool = False, full: bool = False) -> list[Row]:
    """One dictionary per number."""
    worlds = WORLDS[-1:] if smoke else WORLDS
    return [pump(), *(relative_gap(world, 1_000 if smoke else suites.UNIFORM_EPISODES) for world in worlds)]


def pump() -> Row:
    """What the certificate of README's first program says."""
    block = re.search(r"^```python\n(.*?)^```", README.read_text(), re.S | re.M)
    assert block is not None
    namespace: dict[str, Any] = {"__name__": "__main__"}
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block[1], str(README), "exec"), namespace)
    found = namespace["agent"].certificate
    numbers = {"lower": found.lower, "upper": found.upper, "regret": found.regret}
    return {"world": "pump", "episodes": 1_000, **numbers, "seconds": time.perf_counter() - start}


def relative_gap(world: str, episodes: int) -> Row:
    (row,) = run_group(suites.uniform([world], OURS, episodes))
    result = row["result"]
    found = {"world": world, "episodes": episodes, "lower": result["lower"], "upper": result["upper"]}
    return found | {"gap / V*": result["relative_gap"], "seconds": row["timing"]["total"]}
