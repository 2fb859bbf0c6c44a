"""Statistical model checking: samples until the value is known to ε, tied against untied.

For every model (`smc_models`: written here, with the states, choices and transitions of the published ones) and three
seeds: transitions sampled until upper − lower ≤ ε at confidence 1 − δ (ε times the value where that is above 1), with

- *rows*: the graph is known, every row of every state is learned separately, by anytime intervals (the setting of
  online statistical model checking with confidence sequences);
- *commands*: every probabilistic command is one unknown distribution, renamed modules share theirs, by likelihood sets.

``ratio`` is rows over commands, medians over the seeds; a run that used up its budget counts with the budget, so that
the ratio is a lower bound (``≥``). ``inside`` counts intervals that contain Storm's value. The last row has the median.
`python -m benchmarks.bench_smc FOLDER` runs the models of a folder in place of ours: NAME.prism, .nm or .pm with one
property in NAME.props, and constants in NAME.props.args as PRISM's tests have them (-const N=2,K=3).
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import rpl_envs
from rpl_agent.agent.smc import check_by_sampling
from rpl_agent.core.errors import RPLWarning
from rpl_agent.formats import prism
from rpl_agent.guarantee.pipeline import Config

FOLDER = Path(__file__).parent / "smc_models"
ARMS = {"rows": ("rows", False, "anytime"), "commands": ("commands", True, "likelihood")}
DELTA = 0.01
EPSILON = {"smoke": 0.3, "usual": 0.1, "full": 0.05}
BUDGET = {"smoke": 20_000, "usual": 30_000_000, "full": 100_000_000}
#: Steps after which an episode is cut.
STEPS = 1000
#: The cheapest models.
SMOKE = ("leader", "loop")


def rows(smoke: bool = False, full: bool = False, folder: Path = FOLDER) -> list[dict]:
    """One row per model, and the median of all."""
    size = "smoke" if smoke else "full" if full else "usual"
    files = sorted(p for p in folder.iterdir() if p.suffix in (".prism", ".nm", ".pm"))
    if smoke:
        files = [path for path in files if path.stem in SMOKE]
    found = [one(path, EPSILON[size], BUDGET[size], range(1 if smoke else 3)) for path in files]
    held = [row["inside"].split("/") for row in found]
    inside = f"{sum(int(a) for a, _ in held)}/{sum(int(b) for _, b in held)}"
    typical = median(float(row["ratio"].lstrip("≥ ")) for row in found)
    bound = "≥ " if any(row["ratio"].startswith("≥") for row in found) else ""
    last = {"model": "median", "ratio": f"{bound}{typical:.1f}", "inside": inside}
    return [*found, {**dict.fromkeys(found[0], ""), **last}]


def one(path: Path, epsilon: float, budget: int, seeds: range) -> dict[str, Any]:
    """Samples of both arms on one model, medians over the seeds."""
    text, constants = property_of(path)
    truth = storm_value(path, text, constants)
    epsilon *= max(1.0, abs(truth))
    samples, sizes, ended, inside, began = {}, {}, {}, 0, time.process_time()
    for arm, (unknown, tie, confidence) in ARMS.items():
        model = prism.load(path, constants, unknown=unknown, tie_modules=tie)
        pmdp, objective = model.objective(text)
        assert model.truth is not None
        sizes[arm] = pmdp.num_parameters
        answers = []
        for seed in seeds:
            env = rpl_envs.make_own(pmdp, objective, model.truth, max_episode_steps=STEPS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RPLWarning)
                answers.append(
                    check_by_sampling(env, Config(confidence, delta=DELTA), epsilon, budget=budget, seed=seed)
                )
        inside += sum(a.lower <= truth <= a.upper for a in answers)
        samples[arm], ended[arm] = median(a.samples for a in answers), all(a.decided for a in answers)
    bound = "" if ended["rows"] else "≥ "
    return {
        "model": path.stem, "states": pmdp.num_states, "unknown rows": sizes["rows"],
        "unknown commands": sizes["commands"], "epsilon": round(epsilon, 3), "rows": f"{bound}{samples['rows']:.0f}",
        "commands": f"{'' if ended['commands'] else '≥ '}{samples['commands']:.0f}",
        "ratio": f"{bound}{samples['rows'] / samples['commands']:.1f}",
        "inside": f"{inside}/{len(ARMS) * len(seeds)}", "storm": round(truth, 6),
        "cpu s": round(time.process_time() - began, 1),
    }  # fmt: skip


def property_of(path: Path) -> tuple[str, dict[str, str]]:
    """The one property of NAME.props, and the constants that NAME.props.args gives in PRISM's way (-const N=2,K=3)."""
    beside = path.with_suffix(".props")
    given = beside.with_name(f"{beside.name}.args")
    found = re.search(r"-const\s+(\S+)", given.read_text()) if given.is_file() else None
    constants = dict(item.split("=", 1) for item in found[1].split(",")) if found else {}
    return beside.read_text().strip().rstrip(";"), constants


def storm_value(path: Path, text: str, constants: dict[str, str]) -> float:
    """The value by Storm, which shares no code with us; our own checked bracket where stormpy is not installed."""
    try:
        import stormpy
    except ImportError:
        return _own_value(path, text, constants)
    program = stormpy.parse_prism_program(str(path), prism_compatibility=True)
    if constants:
        program, _ = stormpy.instantiate_constants(program, ",".join(f"{n}={v}" for n, v in constants.items()))
    properties = stormpy.parse_properties(text, program)
    model = stormpy.build_model(program, properties)
    found = stormpy.model_checking(model, properties[0], only_initial_states=True)
    return float(found.get_value(model.initial_states[0]))


def _own_value(path: Path, text: str, constants: dict[str, str]) -> float:
    import numpy as np

    from rpl_agent.core.relaxations.interval import Point
    from rpl_agent.core.solver import solve

    pmdp, objective = prism.load(path, constants).objective(text)
    return solve(Point(pmdp.instantiate(np.zeros(0))), objective).lower


if __name__ == "__main__":
    for row in rows(folder=Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(json.dumps(row, default=str))
