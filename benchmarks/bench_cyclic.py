"""Cyclic models against Storm: CPU seconds of sound answers at precision 1e-6, both in one run.

Both read the same PRISM text, explore it as far as each question needs, and are asked for the value at the start.
Loading is excluded for both, the decomposition of the graph is included for both. `ours s` is for a model that has been
asked before: what we work out once for a model, such as its predecessors, is not in it. `first s` is for its first
question, with all of that. Ours returns a bracket that `Solution.check` confirms (outside the clock). Storm runs
optimistic and sound value iteration; `storm s` is the faster of the two. Both are timed in turns, and the least counts:
a machine may be half as fast for seconds. `--folder FOLDER` adds public models, found below it by the ends of their
paths (such as consensus/coin2.nm in PRISM's examples); `--only "drone|wlan"` selects models by parts of their names.
"""

from __future__ import annotations

import gc
import re
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cyclic_models import LARGE, PUBLIC, SMOKE, USUAL, Case
from rpl_agent.core.model import Nature, Objective, ParametricMDP
from rpl_agent.core.model.objectives.objective import tasks
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.problem import structures
from rpl_agent.formats import prism

PRECISION = 1e-6
METHODS = ("OPTIMISTIC_VALUE_ITERATION", "SOUND_VALUE_ITERATION")
#: answers that take longer than this are timed once; others for as long, up to so many times
LONG, MOST_TIMES = 0.25, 1_000
#: how often both are timed, in turns
TURNS = 4
#: new models that are asked a first question
FIRST_TIMES = 3


def rows(smoke: bool = False, full: bool = False, only: str = "", folder: str | None = None) -> list[dict[str, Any]]:
    """One dictionary per question, and medians of the ratios."""
    cases = list(SMOKE if smoke else USUAL + LARGE * full)
    if folder is not None:
        cases += PUBLIC
    found = []
    for case in cases:
        if any(part in case.name for part in only.split("|")):
            found += judge(case, folder)
            gc.collect()
    ratios = [row["ratio"] for row in found if "ratio" in row]
    if ratios:
        large = [row["ratio"] for row in found if "ratio" in row and row["transitions"] >= 100_000]
        found.append(
            {
                "questions": len(ratios),
                "median ratio": statistics.median(ratios),
                "worst": max(ratios),
                "from 10^5 transitions: median": statistics.median(large) if large else float("nan"),
                "largest": max(large, default=float("nan")),
            }
        )
    return found


def judge(case: Case, folder: str | None) -> list[dict[str, Any]]:
    """Rows of a case: every question to both."""
    with tempfile.TemporaryDirectory() as scratch:
        if case.file:
            paths = [p for p in sorted(Path(folder or ".").rglob(Path(case.file).name)) if str(p).endswith(case.file)]
            if not paths:
                return [{"cyclic": case.name, "note": f"no file {case.file} below {folder}"}]
            path = paths[0]
        else:
            path = Path(scratch) / "model.prism"
            path.write_text(case.text)
        program = storm_program(path, case.constants)
        found = []
        for question in case.properties:  # Storm builds a model for each question, too
            model = prism.load(path, case.constants, max_states=10**8, only_for=question)
            found.append(_row(case, question, model, program))
    return found


def _row(case: Case, question: str, model: Any, program: Any) -> dict[str, Any]:
    query = model.query(question)
    point, objective = Point(query.pmdp.instantiate(np.zeros(0))), query.objective

    def ours() -> Any:
        structures(query.pmdp).clear()
        tasks(query.pmdp).clear()
        return solve(point, objective, Nature.COOPERATIVE, precision=PRECISION, everywhere=False)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = min(_first(query.pmdp, objective) for _ in range(FIRST_TIMES))
        seconds, solution = timed(ours)
        methods = [] if program is None else storm_methods(program, question)
        storm, value = min((method() for method in methods), default=(np.nan, np.nan))
        for _ in range(TURNS - 1 if methods else 0):
            seconds = min(seconds, timed(ours)[0])
            storm, value = min((storm, value), *(method() for method in methods))
    low, high = solution.lower, solution.upper
    row = {
        "cyclic": case.name,
        "question": question,
        "states": query.pmdp.num_states,
        "transitions": query.pmdp.num_transitions,
        "first s": first,
        "ours s": seconds,
        "lower": low,
        "width": high - low,
        "asked": solution.converged,
        "checked": not solution.check(),
    }
    if program is None:
        return row
    if query.complement:
        low, high = 1.0 - high, 1.0 - low
    slack = PRECISION * max(1.0, abs(low))
    agrees = (low - slack <= value <= high + slack) if np.isfinite(value) else low == value
    return {**row, "storm s": storm, "ratio": seconds / storm, "agree": agrees}


def _first(pmdp: ParametricMDP, objective: Objective) -> float:
    """CPU seconds of the first question to a model."""
    point = Point(replace(pmdp).instantiate(np.zeros(0)))
    began = time.process_time()
    solve(point, objective, Nature.COOPERATIVE, precision=PRECISION, everywhere=False)
    return time.process_time() - began


def timed(call: Any) -> tuple[float, Any]:
    """(least CPU seconds of a call, last result)."""
    least, spent = np.inf, 0.0
    for k in range(MOST_TIMES):
        began = time.process_time()
        result = call()
        seconds = time.process_time() - began
        least, spent = min(least, seconds), spent + seconds
        if spent > LONG and (k >= 2 or least > LONG):
            break
    return least, result


def storm_program(path: Path, constants: dict[str, str]) -> Any:
    try:
        import stormpy
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "model.prism"
        copy.write_text(_for_storm(path.read_text()))
        try:
            program = stormpy.parse_prism_program(str(copy), prism_compatibility=True)
        except RuntimeError:  # a file that Storm refuses
            return None
    names = {constant.name for constant in program.constants if not constant.defined}
    given = ",".join(f"{name}={value}" for name, value in constants.items() if name in names)
    return stormpy.instantiate_constants(program, given)[0] if given else program


def _for_storm(text: str) -> str:
    """The same model with its type first, and constants that are numbers before those that refer to them."""
    kind = re.compile(r"\s*(mdp|nondeterministic)\s*(//.*)?")  # the latter is the former's old name
    number = re.compile(r"\s*const\s+((int|double)\s+)?\w+\s*=\s*[0-9.]+\s*;")
    lines = [line for line in text.splitlines() if not kind.fullmatch(line)]  # without a type: mdp
    return "\n".join(["mdp", *sorted(lines, key=lambda line: not number.match(line))])


def storm_methods(program: Any, question: str) -> list[Callable[[], tuple[float, float]]]:
    """Calls that return (CPU seconds, value) of each method of Storm, on the model that it builds for this question."""
    import stormpy
    from stormpy import environments

    formula = stormpy.parse_properties(question, program)[0]
    model = stormpy.build_model(program, [formula])

    def answered(environment: Any) -> tuple[float, float]:
        ask = partial(stormpy.model_checking, model, formula, only_initial_states=True, environment=environment)
        seconds, result = timed(ask)
        at = model.initial_states[0]
        is_number = hasattr(result, "get_value")
        return seconds, float(result.get_value(at)) if is_number else float(result.get_truth_values_vector()[at])

    found: list[Callable[[], tuple[float, float]]] = []
    for method in METHODS:
        environment = environments.Environment()
        settings = environment.solver().min_max()
        settings.method = getattr(environments.MinMaxMethod, method)
        settings.precision = stormpy.Rational(str(PRECISION))
        found.append(partial(answered, environment))
    return found
