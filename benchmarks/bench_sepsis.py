"""ICU-Sepsis: how wide certificates are after that many stays, with 2,241 unknown rows.

    pip install --no-deps icu-sepsis==2.0.1
    python -m benchmarks sepsis

Stays with doses drawn at random, δ = 0.05, marks at shares of their number. ``best policy`` is what `certify` says;
``no graph`` the same from bets on rows and on later visits alone, which ask for no graph here: every number of a row
lies in [0, 1], whatever may follow. ``clinicians`` is their policy, fixed before their own stays. ``value`` is the true
one of the policy, at least ``lower``; the optimum is at most ``upper``. Without the package one row says so.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from rpl_agent import Config, Counts, Policy, certify
from rpl_agent.core.evidence.ledger import Ledger
from rpl_agent.core.evidence.marks import SPLIT_MARKS, SPLIT_WEIGHT
from rpl_agent.guarantee.untied.fixed import VisitBets
from rpl_agent.guarantee.untied.rows import RowBets

Row = dict[str, Any]
STAYS = {"smoke": 3_000, "usual": 1_060_000, "full": 1_060_000}
DELTA, SEED = 0.05, 1


def rows(smoke: bool = False, full: bool = False) -> list[Row]:
    """One dictionary per certificate."""
    if importlib.util.find_spec("icu_sepsis") is None:
        return [{"skipped": "the package is missing: pip install --no-deps icu-sepsis==2.0.1"}]
    return list(measured(_example(), STAYS["smoke" if smoke else "full" if full else "usual"]))


def _example() -> ModuleType:
    """`examples/sepsis.py`, which makes the model of the package's files."""
    path = Path(__file__).parents[1] / "examples" / "sepsis.py"
    spec = importlib.util.spec_from_file_location("sepsis", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sepsis"] = module
    spec.loader.exec_module(module)
    return module


def measured(sepsis: ModuleType, number: int) -> list[Row]:
    world = sepsis.load()
    pmdp, goal, best = world.pmdp, world.objective, sepsis.value_iteration(world)
    found = []

    def add(what: str, bounds: tuple[float, float], policy: Policy, seconds: float) -> None:
        value = best if policy is None else sepsis.value_iteration(world, policy)
        lower, upper = bounds
        row = {"bounds": what, "stays": number, "lower": lower, "upper": upper, "width": upper - lower}
        found.append(row | {"value": value, "optimum": best, "CPU s": seconds})

    counts = in_order(sepsis, world, Policy.uniform(pmdp), number)
    start, ledger = time.process_time(), Ledger.of_untied(DELTA)
    upper = RowBets(pmdp, counts, goal, ledger.take("rows")).bound()
    claim = VisitBets(pmdp, counts, goal, ledger.take("visits")).own
    if claim is not None:
        add("no graph", (claim.lower, upper), claim.policy, time.process_time() - start)
    start = time.process_time()
    certificate = certify(pmdp, counts, goal, Config(delta=DELTA))
    add("best policy", (certificate.lower, certificate.upper), certificate.policy, time.process_time() - start)
    counts, start = in_order(sepsis, world, world.clinicians, number), time.process_time()
    logged = VisitBets(pmdp, counts, goal, Ledger.of_untied(DELTA).take("visits")).given(world.clinicians)
    if logged is not None:
        add("clinicians", (logged.lower, logged.upper), world.clinicians, time.process_time() - start)
    return found


def in_order(sepsis: ModuleType, world: Any, policy: Policy, number: int) -> Counts:
    """Counts of simulated stays, with marks at shares of their number."""
    counts, done = Counts(world.pmdp, schedule="shares"), 0
    for k, share in enumerate((*SPLIT_MARKS, 1.0)):
        end = round(share * number)
        counts.add_batch(sepsis.stays(world, policy, end - done, seed=SEED + k)[0])
        done = end
        if share < 1.0:
            counts.mark(SPLIT_WEIGHT, progress=share)
    return counts
