"""`python -m benchmarks.public_models FOLDER`: third-party PRISM files, against Storm and published results.

Every model file below the folder is read by both, with the constants of its published runs (`public_files`). A constant
of type double that no run gives stays a parameter: the model is built as a parametric one, and its properties are
answered at two points. The table says how many files load, where the numbers of states, choices and transitions
differ, which of Storm's exact values (and of those that PRISM's tests publish) lie in our brackets, what was refused
and why, and what reading cost in CPU seconds against Storm's builder, by number of states. A file that hangs or kills
its process is counted as such.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing as mp
import os
import re
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import public_files as files
from benchmarks.public_files import Values

CLASSES = ((0, 500), (500, 5_000), (5_000, 10**9))
#: the most states for which Storm's exact values are computed
EXACT_STATES = 3_000
#: relative tolerance for results published in PRISM's tests, as in PRISM
PUBLISHED = 1e-5
#: the most runs of one file, and of each of its properties files
MOST_RUNS = 6


def judge(path: Path, max_states: int) -> list[dict[str, Any]]:
    """Everything about one file: a row for each run."""
    warnings.simplefilter("ignore")
    text, beside = files.read(path), files.property_files(path)
    kinds = files.open_constants(text)
    stated = [{**own, **run} for own in files.runs(path) or [{}] for p in beside for run in files.stated(p)]
    chosen = files.fullest(stated or [{}], kinds)
    return [_row(path, values, max_states, beside) for values in chosen[:MOST_RUNS]]


def _row(path: Path, given: Values, max_states: int, beside: list[Path]) -> dict[str, Any]:
    from rpl_agent.formats import prism

    doubles = [n for n, k in files.open_constants(files.read(path)).items() if k == "double" and n not in given]
    row: dict[str, Any] = {"file": str(path), "constants": given}
    model = None
    for fixed in (None, "0.5", "0.1")[: 3 if doubles else 1]:  # constants that cannot be parameters
        values = given if fixed is None else {**given, **dict.fromkeys(doubles, fixed)}
        began = time.process_time()
        try:
            model = prism.load(path, values, max_states=max_states)
        except prism.PrismError as error:
            row.setdefault("refused", error.reason.splitlines()[0][:200])
        row["seconds"] = time.process_time() - began
        if model is not None:
            row.pop("refused", None)
            row["constants"] = given = values
            break
    if model is not None:
        if model.parameters and model.bounds is None:
            row["parameters"] = list(model.parameters)
        pmdp = model.pmdp
        row["counts"] = [pmdp.num_states, pmdp.num_rows, pmdp.num_transitions]
        row["is_interval"] = model.bounds is not None
    if "raise max_states" in row.get("refused", ""):
        return row  # Storm has no such limit
    program = _storm(path, given, row)
    if model is None:
        return row
    row["properties"] = []
    for properties in beside:
        for values in _points(model, given):
            row["properties"] += _properties(model, properties, program, values)
    return row


def _points(model: Any, given: Values) -> list[Values]:
    """The constants of a run, with up to two points of the parameters where there are any."""
    if not model.parameters:
        return [given]
    number = len(model.parameters)
    candidates = [[0.5] * number, [0.3 + 0.4 * (k + 0.3) / number for k in range(number)], [0.1] * number]
    candidates += [[1 / (number + 1)] * number, [0.9] * number, [0.01] * number]
    found = []
    for point in candidates:
        values = dict(zip(model.parameters, point, strict=True))
        theta = model.theta(values)
        domain = model.pmdp.domain if model.bounds is None else model.bounds.domain
        if domain.contains(theta, tol=0.0):
            found.append({**given, **{name: repr(value) for name, value in values.items()}})
    return found[:2]


def _storm(path: Path, given: Values, row: dict[str, Any]) -> Any:
    import stormpy

    try:
        began = time.process_time()
        program = stormpy.parse_prism_program(str(path), prism_compatibility=True)
        program = _defined(program, given)
        number = stormpy.RationalFunction if program.has_undefined_constants else float
        model = stormpy.build_model[number](program)
        row["storm_seconds"] = time.process_time() - began
        row["storm_counts"] = [model.nr_states, model.nr_choices, model.nr_transitions]
        return program
    except (RuntimeError, AttributeError, TypeError) as error:
        row["storm_refused"] = str(error).splitlines()[0][:160]
        return None


def _defined(program: Any, values: Values) -> Any:
    import stormpy

    names = {c.name for c in program.constants if not c.defined}
    text = ",".join(f"{n}={v}" for n, v in values.items() if n in names)
    return stormpy.instantiate_constants(program, text)[0] if text else program


def _properties(model: Any, beside: Path, program: Any, values: Values) -> Iterator[dict[str, Any]]:
    """Rows of the properties of one file, for each of its runs that agrees with the model's constants."""
    text = files.read(beside)
    kinds = files.open_constants(text)
    stated = [r for r in files.stated(beside) if all(values.get(n, v) == v for n, v in r.items())]
    for own in files.fullest(stated or [{}], kinds)[:MOST_RUNS]:
        own |= {n: files.OPEN[k] for n, k in kinds.items() if n not in own}
        yield from _answers(model, beside, text, program, values, own, bool(stated))


def _answers(
    model: Any, beside: Path, text: str, program: Any, values: Values, own: Values, is_plain: bool
) -> Iterator[dict[str, Any]]:
    from rpl_agent.formats import prism
    from rpl_agent.formats.prism.language.parser import statements

    try:
        found = prism.load_properties(model, beside, own)
    except prism.PrismError as error:
        yield {"refused": error.reason.splitlines()[0][:200]}
        return
    theta = model.theta({n: float(values[n]) for n in model.parameters}) if model.parameters else None
    texts = [s for s in statements(text) if not s.is_declaration]
    if len(texts) != len(found):
        yield {"refused": f"{len(texts)} properties by their text, {len(found)} read"}
        return
    program = None if program is None else _defined(program, values)
    constants = {**dict(re.findall(r"const\s+(?:int\s+|double\s+)?(\w+)\s*=\s*([\d.]+)\s*;", text)), **own}
    for parsed, statement in zip(found, texts, strict=True):
        row: dict[str, Any] = {"property": statement.text, "constants": {**values, **own}}
        result = files.published(files.comment_before(text, statement.start), {**constants, **values})
        if result is not None and is_plain:
            row["result"] = result
            row["published"] = files.number(result, {**constants, **values})
        try:
            answer = prism.answer(model, parsed, theta)[0]
            row |= {"lower": answer.lower, "upper": answer.upper, "verdict": answer.verdict}
            row |= {"checked": not answer.problems, "filter": answer.query.filter}
        except prism.PrismError as error:
            row["refused"] = error.reason.splitlines()[0][:200]
        except Exception as error:
            row["crashed"] = f"{type(error).__name__}: {error}"[:200]
        if program is not None and model.pmdp.num_states <= EXACT_STATES and "lower" in row:
            row |= _storm_value(program, _substituted(statement.text, constants))
        yield row


def _substituted(statement: str, constants: Mapping[str, str]) -> str:
    """A property with the values of its file's constants in place of their names."""
    line = " ".join(files.without_comments(statement).split()).rstrip("; ")
    return re.sub(r"(?<![\"\w])[A-Za-z_]\w*(?![\"\w])", lambda m: constants.get(m[0], m[0]), line)


def _storm_value(program: Any, text: str) -> dict[str, Any]:
    import stormpy

    if re.match(r'("\w+"\s*:\s*)?filter\b', text) or re.search(r"\{[^\"}]*\}(\{\w+\})?\s*\]$", text):
        return {}  # Storm's default states of a filter differ from PRISM's: the published results decide
    try:
        wanted = stormpy.parse_properties(text, program)[0]
        built = stormpy.build_model[stormpy.Rational](program, [wanted])
        if len(built.initial_states) > 1:
            return {}
        result = stormpy.model_checking(built, wanted)
        at = built.initial_states[0]
        if hasattr(result, "get_value"):
            return {"storm": float(result.get_value(at))}
        return {"storm": bool(result.get_truth_values_vector()[at])}
    except Exception as error:
        return {"storm_refused": (str(error).splitlines() or [type(error).__name__])[0][:160]}


def _worker(pipe: Any, max_states: int) -> None:
    from rpl_agent.formats import prism

    prism.loads("mdp module m x:[0..1]; [] true -> true; endmodule")  # warm-up: builds the parser's tables
    for stream in (1, 2):  # silence Storm's messages: the rows have them
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    pipe.send([])  # ready: the start-up is not counted
    while (path := pipe.recv()) is not None:
        try:
            rows = judge(Path(path), max_states)
        except Exception as error:
            rows = [{"file": path, "constants": {}, "crashed": f"{type(error).__name__}: {error}"[:200]}]
        pipe.send(rows)


def run(folder: Path, max_states: int, seconds: float, only: str = "") -> Iterator[dict[str, Any]]:
    """Rows of every file; a process that hangs or dies is replaced."""
    context = mp.get_context("spawn")
    worker, pipe = None, None
    for path in files.model_files(folder):
        if not re.search(only, str(path)):
            continue
        if worker is None or pipe is None:
            pipe, there = context.Pipe()
            worker = context.Process(target=_worker, args=(there, max_states), daemon=True)
            worker.start()
            there.close()
            pipe.recv()
        rows: list[dict[str, Any]] = [{"file": str(path), "constants": {}, "crashed": f"no answer in {seconds:g} s"}]
        try:
            pipe.send(str(path))
            if pipe.poll(seconds):
                rows = pipe.recv()
        except (EOFError, OSError):
            rows[0]["crashed"] = "the process died"
        if any("crashed" in row for row in rows):
            worker.kill()
            worker.join()
            worker = None
        yield from rows
    if worker is not None and pipe is not None:
        pipe.send(None)
        worker.join()


def agrees(row: dict[str, Any], judge: str = "storm") -> bool | None:
    """Whether the judge's value agrees with ours; None where one of the two has none."""
    value = row.get(judge)
    if value is None or "lower" not in row:
        return None
    if isinstance(value, bool) or row["verdict"] is not None:
        return None if row["verdict"] not in ("yes", "no") else (row["verdict"] == "yes") == bool(value)
    if isinstance(value, tuple | list):  # an interval: the range over states, or bounds of one value
        slack = PUBLISHED * max(map(abs, value))
        return row["lower"] <= value[1] + slack and value[0] - slack <= row["upper"]
    if math.isinf(value):
        return row["upper"] == math.inf
    slack = 1e-12 * max(1.0, abs(value)) if judge == "storm" else PUBLISHED * abs(value) + 1e-12
    return row["lower"] - slack <= value <= row["upper"] + slack


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    loaded = [r for r in rows if "counts" in r]
    both = [r for r in loaded if "storm_counts" in r]
    properties = [p for r in rows for p in r.get("properties", [])]
    judged, results = [agrees(p) for p in properties], [agrees(p, "published") for p in properties]
    result: dict[str, Any] = {
        "files": len({r["file"] for r in rows}),
        "runs": len(rows),
        "loaded": len(loaded),
        "of them with parameters": sum("parameters" in r for r in loaded),
        "loaded by both": len(both),
        "equal counts": sum(r["counts"] == r["storm_counts"] for r in both),
        "no answer or crash": sum("crashed" in r for r in rows),
        "properties": len(properties),
        "answered": sum("lower" in p for p in properties),
        "answered not decided": sum(str(p.get("verdict")).startswith("not") for p in properties),
        "compared with Storm": sum(v is not None for v in judged),
        "equal": judged.count(True),
        "different": judged.count(False),
        "published results": sum("result" in p for p in properties),
        "of them compared": sum(v is not None for v in results),
        "equal to a published result": results.count(True),
        "different from a published result": results.count(False),
        "properties that crashed": sum("crashed" in p for p in properties),
        "solutions that failed their check": sum(p.get("checked") is False for p in properties),
    }
    for low, high in CLASSES:
        ratios = [
            r["seconds"] / r["storm_seconds"] for r in both if low <= r["counts"][0] < high and r["storm_seconds"] > 0
        ]
        if ratios:
            name = f"CPU over Storm, {low} to {high if high < 10**9 else '…'} states"
            result[name] = f"median {statistics.median(ratios):.2f}, worst {max(ratios):.2f} ({len(ratios)} runs)"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public_models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-states", type=int, default=300_000, help="skip larger models (default 300000)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit per file (default 120)")
    parser.add_argument("--only", default="", metavar="REGEX", help="files whose path matches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON object per run")
    arguments = parser.parse_args()
    rows = []
    for row in run(arguments.folder, arguments.max_states, arguments.seconds, arguments.only):
        rows.append(row)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    for name, value in summary(rows).items():
        print(f"{name:45} {value}")
    reasons = Counter(re.sub(r"'[^']*'|\d+", "…", r["refused"]) for r in rows if "refused" in r)
    reasons.update("property: " + re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", p["refused"]) for r in rows
                   for p in r.get("properties", []) if "refused" in p)  # fmt: skip
    for reason, count in reasons.most_common():
        print(f"{count:5}  {reason}")
    for row in rows:
        wrong = [
            p for p in row.get("properties", [])
            if agrees(p) is False or agrees(p, "published") is False or "crashed" in p or p.get("checked") is False
        ]  # fmt: skip
        differs = "counts" in row and row["counts"] != row.get("storm_counts", row["counts"])
        if "crashed" in row or differs:
            print(row["file"], row["constants"], row.get("crashed", ""), row.get("counts"), row.get("storm_counts"))
        for found in wrong:
            print(row["file"], json.dumps(found))


if __name__ == "__main__":
    main()
