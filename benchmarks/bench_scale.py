"""Size: what a cyclic model of growing size costs per million transitions: building, memory, solves by precision.

A carrier on the floor of a depot with two unknowns; for precision and gap a drone in a cube, and a pursuit where plays
are long (`cyclic_models`).
``--only`` selects a part: build, memory, precision, growth or gap. Memory is that of a process of its own, beyond what
it has after its imports (Linux).
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from benchmarks.bench_cyclic import storm_methods, storm_program, timed
from benchmarks.cyclic_models import CHASE, DEPOT_TEXT, HOME, STEPS, depot_actions, drone, pursuit
from benchmarks.cyclic_models import depot as floor
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import MDP, Nature, Objective, ParametricMDP
from rpl_agent.core.model.building.builder import build
from rpl_agent.core.model.objectives.objective import tasks
from rpl_agent.core.relaxations.interval import Intervals, Point
from rpl_agent.core.solver import proved, solve
from rpl_agent.core.solver.problem import structures
from rpl_agent.formats import prism
from rpl_agent.guarantee.claims.limits import certify

Row = dict[str, Any]
TRUTH = {"slip": 0.1, "grip": 0.8}
DOMAIN = {"slip": (0.05, 0.2), "grip": (0.5, 0.95)}
#: (wide, deep) with 10^4, 10^5, 10^6 and 10^7 transitions, about
SIZES = ((21, 21), (66, 66), (208, 208), (655, 655))
#: cells along an edge of the cube, at smoke size and else
CUBES = (6, 16)
PRECISIONS = (1e-2, 1e-4, 1e-6)
DRAWS = 200_000


def rows(smoke: bool = False, full: bool = False, only: str = "") -> list[Row]:
    """Rows of every part that ``only`` names, or of all."""
    sizes = SIZES[:1] if smoke else SIZES if full else SIZES[:3]
    found: list[Row] = []
    for name, part in PARTS.items():
        if only in ("", name):
            found += part(sizes)
    return found


def depot(size: tuple[int, int], unknown: bool = True) -> tuple[ParametricMDP, Objective]:
    """A floor of a size, with two unknowns or with their true values."""
    constants = {"wide": size[0], "deep": size[1]}
    text = DEPOT_TEXT
    for name, value in TRUTH.items():
        text = text.replace(f"const double {name} = {value};", f"const double {name};") if unknown else text
    loaded = prism.loads(text, constants, parameters=DOMAIN if unknown else None, max_states=10**8)
    return loaded.objective(STEPS[0])


def build_cost(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """`build` from a function of one state."""
    found = []
    for size in ((8, 6), *sizes[:3]):  # the first for what first calls need
        began = time.process_time()
        goal = {"done": lambda state, *_: state == (0, 0, 1)}
        cost = {"steps": lambda state, action: float(state != (0, 0, 1))}
        model = build((0, 0, 0), depot_actions(*size), domain=DOMAIN, labels=goal, rewards=cost, name="depot")
        seconds = time.process_time() - began
        found.append(
            {
                "build": f"{size[0]} x {size[1]}",
                "transitions": model.num_transitions,
                "CPU s": seconds,
                "CPU s per 10^6": 1e6 * seconds / model.num_transitions,
                "asked": "<= 10",
            }
        )
    return found[1:]


def memory(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """Resident memory after loading and with a certificate, and the peaks of both."""
    context, found = multiprocessing.get_context("spawn"), []
    for size in sizes[1:3] or sizes:  # pages of a small model are too few to tell
        answer = context.Queue()
        process = context.Process(target=_measure_memory, args=(size, answer))
        process.start()
        found.append(answer.get())
        process.join()
    return found


def _measure_memory(size: tuple[int, int], answer: Any) -> None:
    _certificate(*depot((8, 6)))  # what imports and first calls need is not the model's
    start, _ = _resident()
    began = time.process_time()
    pmdp, objective = depot(size)
    loaded, loading = _resident()
    seconds = [time.process_time() - began]
    certificate = _certificate(pmdp, objective)
    seconds.append(time.process_time() - began - seconds[0])
    certified, certifying = _resident()
    per_million = 1e6 / pmdp.num_transitions
    answer.put(
        {
            "memory": f"{size[0]} x {size[1]}",
            "transitions": pmdp.num_transitions,
            "MB per 10^6, loaded": per_million * (loaded - start),
            "at most while loading": per_million * (loading - start),
            "with a certificate": per_million * (certified - start),
            "at most while certifying": per_million * (certifying - start),
            "loading, CPU s": seconds[0],
            "certificate, CPU s": seconds[1],
            "gap": certificate.gap,
        }
    )


def _resident() -> tuple[float, float]:
    """(resident memory, its peak since the last call), in MB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    Path("/proc/self/clear_refs").write_text("5")
    now, most = (float(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return now, most


def _certificate(pmdp: ParametricMDP, objective: Objective) -> Any:
    return certify(pmdp, _drawn(pmdp), objective, pieces=1)


def _drawn(pmdp: ParametricMDP) -> Counts:
    """Draws of random rows."""
    rng = np.random.default_rng(0)
    chances = pmdp.instantiate([TRUTH[name] for name in pmdp.table.parameters]).probability
    drawn = rng.integers(0, pmdp.num_rows, DRAWS)
    first, last = pmdp.row_ptr[drawn], pmdp.row_ptr[drawn + 1]
    point, at = rng.random(DRAWS), first.copy()
    for _ in range(int((last - first).max())):
        point -= chances[at]
        at += (point >= 0.0) & (at + 1 < last)
    counts = Counts(pmdp)
    counts.add_transitions(at)
    return counts


def cube(sizes: tuple[tuple[int, int], ...]) -> tuple[ParametricMDP, np.ndarray, Objective]:
    """A drone's model, chances of its expressions, and the probability to come home."""
    case = drone(CUBES[len(sizes) > 1])
    pmdp, objective = prism.loads(case.text, case.constants).objective(HOME[0])
    return pmdp, pmdp.table.at(np.zeros(0)), objective


def around(pmdp: ParametricMDP, chances: np.ndarray, share: float) -> Intervals:
    """Intervals from a share of the chances below to one above."""
    slack = share * np.minimum(chances, 1 - chances)
    return Intervals(pmdp, chances - slack, chances + slack)


def precision(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """Cold solves at each precision, of the known model and of intervals around it."""
    found = []
    pmdp, chances, objective = cube(sizes)
    known, uncertain = Point(pmdp.instantiate(np.zeros(0))), around(pmdp, chances, 0.02)
    case = pursuit(2 + (len(sizes) > 1))
    chase, steps = prism.loads(case.text, case.constants).objective(CHASE[2])
    for name, relaxation, asked, nature in (
        ("pursuit, known", Point(chase.instantiate(np.zeros(0))), steps, Nature.COOPERATIVE),
        ("drone, known", known, objective, Nature.COOPERATIVE),
        ("drone, robust", uncertain, objective, Nature.ADVERSARIAL),
        ("drone, optimistic", uncertain, objective, Nature.COOPERATIVE),
    ):
        row: Row = {"precision": name, "transitions": relaxation.pmdp.num_transitions}
        for width in PRECISIONS:
            seconds, solution = timed(_cold(relaxation, asked, nature, width))
            figures = {"CPU s": seconds, "sweeps": solution.iterations, "width": solution.gap}
            row |= {f"{name} at {width:.0e}": figure for name, figure in figures.items()}
        found.append(row)
    return found


def _cold(relaxation: Any, objective: Objective, nature: Nature, width: float) -> Callable:
    def call() -> Any:
        structures(relaxation.pmdp).clear()
        tasks(relaxation.pmdp).clear()
        return solve(relaxation, objective, nature, precision=width)

    return call


def growth(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """A cold solve of the known model at 1e-6, per transition, and Storm's on the same floor.

    At every size the first call is left out: it makes what a model keeps, such as its transitions backwards, and long
    calls are timed once. "one pass" is what the machine itself adds: one product of the transitions with a vector
    (scipy), per transition, over that of the smallest size.
    """
    found: list[Row] = []
    smallest = 0.0
    for size in sizes:
        pmdp, objective = depot(size, unknown=False)
        mdp = pmdp.instantiate(np.zeros(0))
        call = _cold(Point(mdp), objective, Nature.COOPERATIVE, 1e-6)
        call()
        seconds, solution = timed(call)
        each = 1e6 * seconds / pmdp.num_transitions
        one_pass = _one_pass(mdp)
        smallest = smallest or one_pass
        found.append(
            {
                "growth": f"{size[0]} x {size[1]}",
                "transitions": pmdp.num_transitions,
                "CPU s": seconds,
                "CPU s per 10^6": each,
                "of the smallest": each / (found[0]["CPU s per 10^6"] if found else each),
                "one pass, of the smallest": one_pass / smallest,
                "sweeps": solution.iterations,
                "value": solution.middle,
                **_of_storm(size, pmdp.num_transitions, found[0] if found else {}),
            }
        )
    return found


def _one_pass(mdp: MDP) -> float:
    """CPU seconds per transition of one product of all rows with a vector, less what the call itself takes."""
    pmdp = mdp.pmdp
    columns, row_ptr = pmdp.successor.astype(np.int32), pmdp.row_ptr.astype(np.int32)
    rows = scipy.sparse.csr_array((mdp.probability, columns, row_ptr), shape=(pmdp.num_rows, pmdp.num_states))
    values = np.linspace(0.0, 1.0, pmdp.num_states)
    nothing = rows[:1]
    seconds, overhead = (timed(lambda some=some: some @ values)[0] for some in (rows, nothing))
    return (seconds - overhead) / pmdp.num_transitions


def _of_storm(size: tuple[int, int], transitions: int, smallest: Row) -> Row:
    """Storm's CPU seconds per 10^6 transitions; nothing without Storm."""
    case = floor(*size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "floor.prism"
        path.write_text(case.text)
        program = storm_program(path, case.constants)
    if program is None:
        return {}
    each = 1e6 * min(method() for method in storm_methods(program, case.properties[0]))[0] / transitions
    return {"storm s per 10^6": each, "storm, of the smallest": each / smallest.get("storm s per 10^6", each)}


def gap(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """The width of the brackets behind a certificate, against what lies between robust and optimistic values."""
    pmdp, chances, objective = cube(sizes)
    found = []
    for share in (0.1, 0.01, 0.001):
        seconds, (robust, optimistic) = timed(_as_certified(around(pmdp, chances, share), objective, 1e-9))
        apart = abs(robust.middle - optimistic.middle)
        row: Row = {
            "gap": f"intervals of {share:.1%}",
            "statistical gap": apart,
            "width / gap": (robust.gap + optimistic.gap) / apart,
            "asked": "<= 0.01",
            "CPU s": seconds,
        }
        useful = proved.USEFUL
        proved.USEFUL = 0.0  # as if every digit were asked for
        row["CPU s, all to 1e-9"], _ = timed(_as_certified(around(pmdp, chances, share), objective, 1e-9))
        proved.USEFUL = useful
        found.append(row)
    return found


def _as_certified(relaxation: Intervals, objective: Objective, width: float) -> Callable:
    def call() -> Any:
        structures(relaxation.pmdp).clear()
        tasks(relaxation.pmdp).clear()
        return proved.checked_solutions(relaxation, objective, None, width, proved.Solutions(), {}, 0.0)

    return call


PARTS = {"build": build_cost, "memory": memory, "precision": precision, "growth": growth, "gap": gap}
