"""Fuzz: random models of every kind against an exact oracle in rationals, and false solutions against the check.

`python -m benchmarks fuzz --minutes 10 --jobs 4` runs rounds (one random model, all objectives, both natures) for that
long (`--problems N`: until N are solved), each process with its own seeds, and prints problems per minute and
failures; every failure names its seed and is written to stderr when it is found. `--first N` chooses the first seed.
The oracle (`tests/reference/oracle.py`) shares no code with the solver. `--polynomial`: models of degree up to 6 in up
to 6 parameters, regions of these, and exact values at many points of the regions; no false solutions. `--proofs`:
certificates of random models with their proofs, and false claims, against `guarantee/checker.py`. `--regrets`: the most
that any policy gains over one, and what is called optimal, against exact optima at many points of random regions.
`--claims`: improvements, limits and curves of models whose chances may be 0 and whose plays may never end, against
exact values of every policy at corners of the domain.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from typing import Any

from tests.reference import claims as claimed
from tests.reference import polynomials
from tests.reference import proofs as proved
from tests.reference import regrets as compared
from tests.reference.fuzz import Tally, round_of

Row = dict[str, Any]


def rows(
    smoke: bool = False, full: bool = False, minutes: float | None = None, problems: int | None = None, jobs: int = 1,
    first: int = 0, polynomial: bool = False, proofs: bool = False, regrets: bool = False, claims: bool = False,
) -> list[Row]:  # fmt: skip
    """One row per kind of model, one in all, one per failure."""
    limit = 60.0 * (minutes if minutes is not None else 10.0 if full else 1.0)
    least = 0 if problems is None else -(-problems // jobs)
    most = 4 if smoke else None
    began = time.perf_counter()
    one = proved.round_of if proofs else polynomials.round_of if polynomial else round_of
    one = compared.round_of if regrets else claimed.round_of if claims else one
    if jobs == 1:
        parts = [_rounds(first, 1, limit, most, least, one)]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            tasks = [pool.submit(_rounds, first + k, jobs, limit, most, least, one) for k in range(jobs)]
            parts = [task.result() for task in tasks]
    spent = (time.perf_counter() - began) / 60.0
    tally, by_kind, last = Tally(), Counter[str](), first
    for part, kinds, seed in parts:
        tally.add(part)
        by_kind += kinds
        last = max(last, seed)
    found: list[Row] = [
        {"models": kind, "problems": number, "failures": by_kind[kind]} for kind, number in tally.problems.items()
    ]
    solved = sum(tally.problems.values())
    found.append({
        "seeds": f"{first} to {last}", "problems": solved, "false solutions": tally.lies,
        "wider than asked": tally.wide,
        "problems per minute": solved / spent, "failures": len(tally.failures),
    })  # fmt: skip
    return found + [{"failure": text} for text in tally.failures]


def _rounds(
    first: int, step: int, limit: float, most: int | None, least: int, one: Callable[[int], Tally]
) -> tuple[Tally, Counter[str], int]:
    """(what happened, failures by kind, last seed) of the seeds first, first + step, ...

    Runs for ``limit`` seconds or ``most`` rounds or, if ``least`` is positive, until that many problems are solved.
    """
    warnings.simplefilter("ignore")  # false solutions with numbers near the largest float overflow in the check
    began, tally, by_kind, seed = time.perf_counter(), Tally(), Counter[str](), first
    for number, seed in enumerate(count(first, step), start=1):
        result = one(seed)
        tally.add(result)
        for kind in result.problems:
            by_kind[kind] += len(result.failures)
        for text in result.failures:
            print(text, file=sys.stderr, flush=True)
        enough = number == most or time.perf_counter() - began > limit
        if sum(tally.problems.values()) >= least if least else enough:
            break
    return tally, by_kind, seed
