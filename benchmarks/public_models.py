"""`python -m benchmarks.public_models FOLDER`: PRISM files that nobody here wrote, against Storm.

Every model file below the folder is read by both, with the same values for its undefined constants; every property of
the files beside it is answered by both. The table says how many files load, where the numbers of states, choices and
transitions differ, which of Storm's exact values (and of those that PRISM's tests publish) lie in our brackets, what
was refused and why, and what reading cost in CPU seconds against Storm's builder, by number of states. A file that
hangs or kills its process is counted as such.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing as mp
import re
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

MODEL_ENDINGS = (".prism", ".nm", ".pm", ".mdp", ".dtmc")
PROPERTY_ENDINGS = (".props", ".pctl", ".prctl", ".prop")
CLASSES = ((0, 500), (500, 5_000), (5_000, 10**9))
#: values of constants that a file leaves open
OPEN = {"int": 3, "bool": "false", "double": "0.5"}
_KIND = re.compile(r"^\s*(mdp|dtmc|imdp|idtmc|nondeterministic|probabilistic)\b", re.MULTILINE)
_OPEN = re.compile(r"^\s*const\s+(?:(int|double|bool)\s+)?(\w+)\s*;", re.MULTILINE)


def model_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in MODEL_ENDINGS and path.is_file():
            text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8", errors="replace"))
            if _KIND.search(text):
                yield path


def property_files(path: Path) -> list[Path]:
    found = {p for ending in PROPERTY_ENDINGS for p in (path.with_suffix(ending), Path(f"{path}{ending}"))}
    return sorted(p for p in found if p.is_file())


def constants_of(text: str) -> dict[str, Any]:
    text = re.sub(r"//[^\n]*", "", text)
    return {name: OPEN[kind or "int"] for kind, name in _OPEN.findall(text)}


def stated(properties: Path) -> dict[str, str]:
    """The constants that PRISM's tests run a properties file with: the first line of NAME.props.args."""
    arguments = properties.with_name(f"{properties.name}.args")
    lines = arguments.read_text(encoding="utf-8", errors="replace").splitlines() if arguments.is_file() else []
    found = re.search(r"-const\s+(\S+)", lines[0]) if lines else None
    items = [item.split("=", 1) for item in found[1].split(",")] if found else []
    return {n: v for n, v in items if ":" not in v}


def judge(path: Path, max_states: int) -> dict[str, Any]:
    """Everything about one file, as a row."""
    from rpl_agent.formats import prism

    row: dict[str, Any] = {"file": str(path)}
    warnings.simplefilter("ignore")
    given = constants_of(path.read_text(encoding="utf-8", errors="replace"))
    for beside in property_files(path)[:1]:
        given |= {n: v for n, v in stated(beside).items() if n in given}
    began = time.process_time()
    try:
        model = prism.load(path, given, max_states=max_states)
    except prism.PrismError as error:
        row["refused"] = error.reason.splitlines()[0]
        model = None
    row["seconds"] = time.process_time() - began
    if model is not None:
        pmdp = model.pmdp
        row["counts"] = [pmdp.num_states, pmdp.num_rows, pmdp.num_transitions]
        row["is_interval"] = model.bounds is not None
    if "raise max_states" in row.get("refused", ""):
        return row  # Storm knows no limit
    storm_program = _storm(path, given, row)
    if model is not None:
        row["properties"] = [p for beside in property_files(path) for p in _properties(model, beside, storm_program)]
    return row


def _storm(path: Path, given: dict[str, Any], row: dict[str, Any]) -> Any:
    import stormpy

    try:
        began = time.process_time()
        program = stormpy.parse_prism_program(str(path), prism_compatibility=True)
        names = {c.name for c in program.constants if not c.defined}
        values = ",".join(f"{n}={v}" for n, v in given.items() if n in names)
        if values:
            program, _ = stormpy.instantiate_constants(program, values)
        model = stormpy.build_model[float](program)
        row["storm_seconds"] = time.process_time() - began
        row["storm_counts"] = [model.nr_states, model.nr_choices, model.nr_transitions]
        return program
    except (RuntimeError, AttributeError, TypeError) as error:
        row["storm_refused"] = str(error).splitlines()[0][:160]
        return None


def _properties(model: Any, beside: Path, program: Any) -> Iterator[dict[str, Any]]:
    from rpl_agent.formats import prism

    text = beside.read_text(encoding="utf-8", errors="replace")
    given = {**constants_of(text), **{n: v for n, v in stated(beside).items() if n in constants_of(text)}}
    try:
        found = prism.load_properties(model, beside, given)
    except prism.PrismError as error:
        yield {"refused": error.reason.splitlines()[0]}
        return
    lines = text.splitlines()
    for k, parsed in enumerate(found):
        row: dict[str, Any] = {"number": k, **_published(lines, parsed.position.line)}
        try:
            answer = prism.answer(model, parsed)[0]
            row |= {"lower": answer.lower, "upper": answer.upper, "verdict": answer.verdict}
            row["checked"] = not answer.problems
        except prism.PrismError as error:
            row["refused"] = error.reason.splitlines()[0]
        except Exception as error:
            row["crashed"] = f"{type(error).__name__}: {error}"[:200]
        if program is not None:
            row |= _storm_value(program, _substituted(lines[parsed.position.line - 1], text, given))
        yield row


def _published(lines: list[str], number: int) -> dict[str, Any]:
    """The value that PRISM's own test files state in a comment above a property."""
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("//"):
            return {}
        if match := re.match(r"\s*//\s*RESULT:\s*([-\w./]+)\s*$", line):
            word = match.group(1)
            if word in ("true", "false"):
                return {"published": word == "true"}
            try:
                return {"published": float(Fraction(word)) if "Inf" not in word else math.inf}
            except (ValueError, ZeroDivisionError):
                return {}
    return {}


def _substituted(line: str, text: str, given: dict[str, Any]) -> str:
    """A property on one line with the values of the file's constants in place of their names."""
    values = {n: str(v) for n, v in given.items()}
    values |= dict(re.findall(r"const\s+(?:int\s+|double\s+)?(\w+)\s*=\s*([\d.]+)\s*;", text))
    line = re.sub(r"//.*", "", line).strip().rstrip(";")
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: values.get(m.group(0), m.group(0)), line)


def _storm_value(program: Any, text: str) -> dict[str, Any]:
    import stormpy

    try:
        wanted = stormpy.parse_properties(text, program)[0]
        built = stormpy.build_model[stormpy.Rational](program, [wanted])
        if built.nr_states > 3_000:
            return {"storm_refused": "too large for exact numbers here"}
        result = stormpy.model_checking(built, wanted)
        if hasattr(result, "get_value"):
            return {"storm": float(result.get_value(built.initial_states[0]))}
        return {"storm": bool(result.get_truth_values()[built.initial_states[0]])}
    except Exception as error:
        return {"storm_refused": (str(error).splitlines() or [type(error).__name__])[0][:160]}


def _worker(pipe: Any, max_states: int) -> None:
    from rpl_agent.formats import prism

    prism.loads("mdp module m x:[0..1]; [] true -> true; endmodule")  # tables of the parser and kernels, made once
    while True:
        pipe.send(judge(Path(pipe.recv()), max_states))


def run(folder: Path, max_states: int, seconds: float) -> Iterator[dict[str, Any]]:
    """One row per file; a process that hangs or dies is replaced."""
    context = mp.get_context("spawn")
    worker, pipe = None, None
    for path in model_files(folder):
        if worker is None or pipe is None:
            pipe, there = context.Pipe()
            worker = context.Process(target=_worker, args=(there, max_states), daemon=True)
            worker.start()
            there.close()
        row: dict[str, Any] = {"file": str(path), "crashed": f"no answer in {seconds:g} s"}
        try:
            pipe.send(str(path))
            if pipe.poll(seconds):
                row = pipe.recv()
        except (EOFError, OSError):
            row["crashed"] = "the process died"
        if "crashed" in row:
            worker.kill()
            worker.join()
            worker = None
        yield row


def inside(row: dict[str, Any], judge: str = "storm") -> bool | None:
    """Whether the judge's value agrees with ours; None where one of the two has none."""
    if judge not in row or "lower" not in row:
        return None
    value = row[judge]
    if isinstance(value, bool) or row["verdict"] is not None:
        return None if row["verdict"] not in ("yes", "no") else (row["verdict"] == "yes") == bool(value)
    if math.isinf(value):
        return row["upper"] == math.inf
    slack = (1e-12 if judge == "storm" else 1e-4) * max(1.0, abs(value))  # published ones are rounded
    return row["lower"] - slack <= value <= row["upper"] + slack


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    loaded = [r for r in rows if "counts" in r]
    both = [r for r in loaded if "storm_counts" in r]
    properties = [p for r in rows for p in r.get("properties", [])]
    judged = [(p, inside(p)) for p in properties]
    result: dict[str, Any] = {
        "files": len(rows),
        "loaded": len(loaded),
        "loaded by both": len(both),
        "equal counts": sum(r["counts"] == r["storm_counts"] for r in both),
        "no answer or crash": sum("crashed" in r for r in rows),
        "properties": len(properties),
        "compared with Storm": sum(v is not None for _, v in judged),
        "inside our bracket": sum(v is True for _, v in judged),
        "outside": sum(v is False for _, v in judged),
        "equal to a published result": sum(inside(p, "published") is True for p in properties),
        "different": sum(inside(p, "published") is False for p in properties),
        "properties that crashed": sum("crashed" in p for p in properties),
        "solutions that failed their check": sum(p.get("checked") is False for p in properties),
    }
    for low, high in CLASSES:
        ratios = [
            r["seconds"] / r["storm_seconds"] for r in both if low <= r["counts"][0] < high and r["storm_seconds"] > 0
        ]
        if ratios:
            name = f"CPU over Storm, {low} to {high if high < 10**9 else '…'} states"
            result[name] = f"median {statistics.median(ratios):.2f}, worst {max(ratios):.2f} ({len(ratios)} files)"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public_models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-states", type=int, default=300_000, help="skip larger models (default 300000)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit per file (default 120)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON object per file")
    arguments = parser.parse_args()
    rows = []
    for row in run(arguments.folder, arguments.max_states, arguments.seconds):
        rows.append(row)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    for name, value in summary(rows).items():
        print(f"{name:45} {value}")
    reasons = Counter(re.sub(r"'[^']*'|\d+", "…", r["refused"]) for r in rows if "refused" in r)
    reasons.update("property: " + re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", p["refused"]) for r in rows
                   for p in r.get("properties", []) if "refused" in p)  # fmt: skip
    for reason, number in reasons.most_common():
        print(f"{number:5}  {reason}")
    for row in rows:
        wrong = [
            p for p in row.get("properties", [])
            if inside(p) is False or inside(p, "published") is False or "crashed" in p
        ]  # fmt: skip
        if (
            "crashed" in row
            or wrong
            or ("storm_counts" in row and row.get("counts", row["storm_counts"]) != row["storm_counts"])
        ):
            print(row["file"], row.get("crashed", ""), row.get("counts", ""), row.get("storm_counts", ""), wrong)


if __name__ == "__main__":
    main()
