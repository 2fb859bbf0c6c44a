"""PRISM files: states per second from text to a validated model, compared with the Python builders and Storm's.

"seconds" covers reading, exploration, the expression table and validation. "python" is the vectorised builder of the
same model; "storm" builds the file at one parameter point with doubles (no parameters, no exact numbers), where
stormpy is installed.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import rpl_envs
from rpl_agent.formats import prism

MODELS = Path(__file__).parent.parent / "examples" / "models"
CASES: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "smoke": [("betting", "Betting-25", {}), ("glider", "Glider-11x9", {})],
    "usual": [
        ("aircraft", "Aircraft-100x20", {"width": 100, "height": 20, "zone": 4}),
        ("betting", "Betting-135", {"n": 135}),
        ("engagement", "Engagement-1000", {"L": 1000}),
        ("mars_rover", "MarsRover-50x50", {"width": 50, "height": 50, "tries": 9}),
        ("glider", "Glider-71x67", {"w": 71, "h": 67, "gx": 51, "gy": 50, "radius": 10}),
        ("parallel_betting", "ParallelBetting-20", {"n": 20, "capital": True}),
    ],
    "full": [
        ("aircraft", "Aircraft-200x40", {"width": 200, "height": 40, "zone": 11}),
        ("mars_rover", "MarsRover-75x75", {"width": 75, "height": 75, "tries": 12}),
        ("mars_rover", "MarsRover-125x125", {"width": 125, "height": 125, "tries": 14}),
    ],
}


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    cases = CASES["smoke"] if smoke else CASES["usual"] + (CASES["full"] if full else [])
    prism.load(MODELS / "glider.prism")  # the parser's tables are made once per process
    return [_row(file, instance, constants) for file, instance, constants in cases]


def _row(file: str, instance: str, constants: dict[str, Any]) -> dict:
    start = time.perf_counter()
    pmdp = prism.load(MODELS / f"{file}.prism", constants=constants).pmdp
    seconds = time.perf_counter() - start
    found = rpl_envs.INSTANCES[instance]
    start = time.perf_counter()
    reference = rpl_envs.benchmark(found.family, **found.size)
    python = time.perf_counter() - start
    storm = _storm_seconds(file, constants, reference.theta)
    return {
        "model": instance,
        "states": pmdp.num_states,
        "transitions": pmdp.num_transitions,
        "expressions": pmdp.num_expressions,
        "same": (pmdp.successor.tobytes(), pmdp.expression.tobytes())
        == (reference.pmdp.successor.tobytes(), reference.pmdp.expression.tobytes()),
        "seconds": seconds,
        "states_per_second": pmdp.num_states / seconds,
        "over_python": seconds / python,
        "over_storm": seconds / storm if storm else float("nan"),
    }


def _storm_seconds(file: str, constants: dict[str, Any], theta: tuple[float, ...]) -> float | None:
    try:
        import stormpy
    except ImportError:
        return None
    lines = (MODELS / f"{file}.prism").read_text().splitlines()
    for name, value in constants.items():  # Storm does not replace constants that have a value
        at = next(
            i
            for i, line in enumerate(lines)
            if line.startswith(("const int " + name + " ", "const bool " + name + " "))
        )
        lines[at] = lines[at].split("=")[0] + f"= {str(value).lower() if isinstance(value, bool) else value};"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.prism"
        path.write_text("\n".join(lines))
        start = time.perf_counter()
        program = stormpy.parse_prism_program(str(path))
    names = [c.name for c in program.constants if not c.defined]
    program, _ = stormpy.instantiate_constants(
        program, ",".join(f"{n}={v!r}" for n, v in zip(names, theta, strict=True))
    )
    stormpy.build_model[float](program)
    return time.perf_counter() - start
