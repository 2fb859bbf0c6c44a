"""Region questions on parametric models of the literature, against Storm's parameter lifting.

For boxes around a centre: our width over the true one (``ours``; Storm's to 1e-4, or what is attained where it has no
answer), the boxes that were bounded, and CPU seconds of ours and of Storm's refinement (both ends, by
`stormpy.pars.compute_extremal_value`) to the same precision: each bound within 2.5 % of the range of values. The models
come with stormpy (so do the MDPs two_dice and coin, for which it has no such question); zeroconf and kydie are written
here, so that some run without it. Reading is not counted. `python -m benchmarks.bench_boxes FOLDER` adds the files of a
folder that are listed below and not shipped: nand-5-2.pm (Storm's tests) and virus.pm (18 parameters, of the repository
prmc-sensitivity), whose values at random points of the box fill about half of the range that corners attain.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from rpl_agent import solve_region
from rpl_agent.core.errors import RPLWarning
from rpl_agent.formats import prism

ZEROCONF = """
dtmc
const double p;
const double q;
module host
  s : [-2..5] init 0;
  [try] s=0 -> 1-q : (s'=-1) + q : (s'=1);
  [try] s>0 & s<5 -> 1-p : (s'=0) + p : (s'=s+1);
  [use] s=-1 -> (s'=-2);
  [] s=-2 | s=5 -> true;
endmodule
rewards "cost" [try] true : 1; [use] true : 3; endrewards
"""
#: Knuth and Yao's die with two coins by turns
KYDIE = """
dtmc
const double p;
const double q;
module die
  s : [0..7] init 0;
  [] s=0 -> p : (s'=1) + 1-p : (s'=2);
  [] s=1 -> q : (s'=3) + 1-q : (s'=4);
  [] s=2 -> q : (s'=5) + 1-q : (s'=6);
  [] s=3 -> p : (s'=1) + 1-p : (s'=7);
  [] s=5 -> p : (s'=2) + 1-p : (s'=7);
  [] s=4 | s=6 -> (s'=7);
  [] s=7 -> true;
endmodule
rewards "throws" s<7 : 1; endrewards
"""
OWN = {"zeroconf": ZEROCONF, "kydie": KYDIE}
VIRUS = [f"{name}{i}{j}" for name in ("infect", "detect") for i in (1, 2, 3) for j in (1, 2, 3)]
#: file, property, centre, constants
MODELS: dict[str, tuple[str, str, dict[str, float], dict[str, str]]] = {
    "die": ("pdtmc/parametric_die.pm", "P=? [ F s=7&d=2 ]", {"p": 0.5, "q": 0.5}, {}),
    "brp": ("pdtmc/brp16_2.pm", "P=? [ F s=5 ]", {"pL": 0.85, "pK": 0.85}, {"TOMsg": "0", "TOAck": "0"}),
    "crowds": ("pdtmc/crowds3_5.pm", 'P=? [ F "observe0Greater1" ]', {"PF": 0.7, "badC": 0.2}, {}),
    "herman": ("pdtmc/herman5.pm", 'R=? [ F "stable" ]', {"p": 0.4}, {}),
    "zeroconf": ("", 'R{"cost"}=? [ F s=-2|s=5 ]', {"p": 0.5, "q": 0.5}, {}),
    "kydie": ("", 'R{"throws"}=? [ F s=7 ]', {"p": 0.5, "q": 0.5}, {}),
    "two_dice": ("pmdp/two_dice.nm", 'Pmax=? [ F "seven" ]', {"p1": 0.5, "p2": 0.5}, {}),
    "coin": ("pmdp/coin2_2.pm", 'Pmax=? [ F "finished"&"all_coins_equal_1" ]', {"p1": 0.5, "p2": 0.5}, {}),
    "virus": ("virus.pm", 'R{"attacks"}max=? [ F s11=2 ]', dict.fromkeys(VIRUS, 0.2), {}),
    "nand": ("nand-5-2.pm", 'P=? [ F "target" ]', {"perr": 0.2, "prob1": 0.8}, {}),
}
WIDTHS = (0.02, 0.05, 0.1)
#: precision of each bound, as a share of the range of values
PRECISION = 0.025
#: relative precision of Storm's bounds, with which ours are compared
STORM = 1e-4


def rows(smoke: bool = False, full: bool = False, folder: Path | None = None) -> list[dict[str, Any]]:
    """One row per model and box."""
    names = ("zeroconf",) if smoke else tuple(MODELS)
    found = []
    for name in names:
        path = _path(name, folder)
        if path is None:
            continue
        for half in WIDTHS[:1] if smoke else WIDTHS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RPLWarning)
                found.append(_row(name, path, half))
    return found


def _path(name: str, folder: Path | None) -> Path | None:
    """The path of the file, or None if it is missing."""
    file = MODELS[name][0]
    if name in OWN:
        path = Path(tempfile.mkdtemp()) / f"{name}.prism"
        path.write_text(OWN[name])
        return path
    places = [] if folder is None else [folder / Path(file).name, folder / file]
    try:
        import stormpy.examples

        places.append(Path(stormpy.examples.__file__).parent / "files" / file)
    except ImportError:
        pass
    return next((place for place in places if place.is_file()), None)


def _row(name: str, path: Path, half: float) -> dict[str, Any]:
    _, question, center, constants = MODELS[name]
    box = {n: (round(c - half, 6), round(c + half, 6)) for n, c in center.items()}
    used = {n: ends for n, ends in box.items() if n in prism.load(path, constants).parameters}
    query = prism.load(path, constants, used).query(question)
    began = time.process_time()
    found = solve_region(query.pmdp, query.objective, precision=PRECISION)
    seconds = time.process_time() - began
    ends = _storm(path, question, constants, used)
    attained = (found.least.upper, found.most.lower) if ends is None else ends[:2]
    row = {
        "model": name, "±": half, "states": query.pmdp.num_states, "lower": found.lower, "upper": found.upper,
        "ours (asked ≤ 1.05)": (found.upper - found.lower) / (attained[1] - attained[0]), "boxes": found.boxes,
        "CPU s": seconds,
    }  # fmt: skip
    slack = 0.0 if ends is None else STORM * max(1e-3, abs(ends[1]))
    inside = "" if ends is None else found.lower <= ends[0] + slack and ends[1] - slack <= found.upper
    return {**row, "Storm CPU s": "" if ends is None else ends[2], "Storm inside": inside}


def _storm(path: Path, question: str, constants: dict[str, str], box: dict) -> tuple[float, float, float] | None:
    """(least, largest, CPU seconds) of Storm's refinement; None where it has none."""
    if "max" in question:  # an MDP
        return None
    try:
        import stormpy
        from stormpy import pars
    except ImportError:
        return None
    program = stormpy.parse_prism_program(str(path), prism_compatibility=True)
    names = {c.name for c in program.constants if not c.defined}
    given = ",".join(f"{k}={v}" for k, v in constants.items() if k in names)
    if given:
        program, _ = stormpy.instantiate_constants(program, given)
    formula = stormpy.parse_properties(question, program)[0]
    model = stormpy.build_model[stormpy.RationalFunction](program, [formula])
    number, variables = pars.RationalFunctionCoefficient, {v.name: v for v in model.collect_all_parameters()}
    region = pars.create_region({variables[n]: (number(str(lo)), number(str(hi))) for n, (lo, hi) in box.items()})
    directions = (pars.OptimizationDirection.MINIMIZE, pars.OptimizationDirection.MAXIMIZE)

    def ends(precision: float, absolute: bool) -> list[float]:
        return [
            float(pars.compute_extremal_value(
                model, formula, region=region, direction=d, precision=precision, absolute_precision=absolute
            )[0]) for d in directions
        ]  # fmt: skip

    least, largest = ends(STORM, False)
    began = time.process_time()
    ends(PRECISION * (largest - least), True)
    return least, largest, time.process_time() - began


if __name__ == "__main__":
    from rich.console import Console
    from rich.table import Table

    rows_found = rows(folder=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    table = Table(*rows_found[0])
    for found_row in rows_found:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in found_row.values()))
    Console(width=160).print(table)
