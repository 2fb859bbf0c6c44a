"""What a folder of public PRISM files contains: models, their properties, and the results published with them.

As PRISM's own test scripts read it: NAME.args holds one run per line (``-const N=3,K=1:2:5``), a comment
``RESULT: v`` or ``RESULT (N=3): v`` before a property says its value, alone or where the constants have these values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from pathlib import Path

MODEL_ENDINGS = (".prism", ".nm", ".pm", ".mdp", ".dtmc")
#: kinds of models that are not supported
OTHER_MODELS = (".sm", ".ctmc", ".pta", ".ma", ".smg", ".pomdp", ".tra", ".jani", ".drn")
PROPERTY_ENDINGS = (".props", ".pctl", ".prctl", ".prop")
#: switches that make PRISM answer a different question
OTHER_QUESTIONS = ("-param", "-fair", "-mdp", "-dtmc", "-ctmc", "-sim", "-ptamethod")
#: values of undefined constants that no run sets
OPEN = {"int": "3", "bool": "false", "double": "0.5"}
_KIND = re.compile(r"^\s*(mdp|dtmc|imdp|idtmc|nondeterministic|probabilistic)\b", re.MULTILINE)
_OPEN = re.compile(r"^\s*const\s+(?:(int|double|bool)\s+)?(\w+)\s*;", re.MULTILINE)
_RESULT = re.compile(r"RESULT[ \t]*(?:\(([^)]+)\))?[ \t]*:[ \t]*(\S+)")
Values = dict[str, str]


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def model_files(folder: Path) -> Iterator[Path]:
    """Models below a folder; copies with the same properties are listed once."""
    seen = set()
    for path in sorted(folder.rglob("*")):
        if path.suffix in MODEL_ENDINGS and path.is_file() and _KIND.search(without_comments(read(path))):
            content = (read(path), *(read(beside) for beside in property_files(path)), str(runs(path)))
            if content not in seen:
                seen.add(content)
                yield path


def property_files(path: Path) -> list[Path]:
    """Properties files named after a model; files of its folder that are named after no model belong to all."""
    here = sorted(p for p in path.parent.iterdir() if p.is_file())
    models = [p for p in here if p.suffix in (*MODEL_ENDINGS, *OTHER_MODELS)]

    def owners(properties: Path) -> list[Path]:
        named = [m for m in models if properties.name.startswith(f"{m.name}.") or properties.stem == m.stem]
        return named or models

    return [p for p in here if p.suffix in PROPERTY_ENDINGS and path in owners(p)]


def open_constants(text: str) -> Values:
    """Names and types of constants without a value."""
    return {name: kind or "int" for kind, name in _OPEN.findall(without_comments(text))}


def runs(path: Path) -> list[Values]:
    """The values of constants in each line of PATH.args that asks the plain question; [{}] without a file."""
    arguments = path.with_name(f"{path.name}.args")
    if not arguments.is_file():
        return [{}]
    found: list[Values] = []
    for line in read(arguments).splitlines():
        if line.strip() and not line.startswith("#") and not set(line.split()) & set(OTHER_QUESTIONS):
            items = [i for group in re.findall(r"-const\s+(\S+)", line) for i in group.split(",") if "=" in i]
            spans = {name: _span(value) for name, value in (item.split("=", 1) for item in items)}
            found += [dict(zip(spans, choice, strict=True)) for choice in product(*spans.values())]
    return found


def _span(text: str) -> list[str]:
    """``2``, ``1:3``, ``0:0.1:1`` or ``0:1/3:1``."""
    parts = text.split(":")
    if len(parts) == 1:
        return parts
    first, last, step = Fraction(parts[0]), Fraction(parts[-1]), Fraction(parts[1] if len(parts) == 3 else "1")
    return [str(first + k * step) for k in range(min(int((last - first) / step), 20) + 1)]


def stated(properties: Path) -> list[Values]:
    """The runs of a properties file, or where it has none the values that its results are published for."""
    found = runs(properties)
    return found if found != [{}] else conditions(read(properties)) or [{}]


def fullest(found: list[Values], kinds: Mapping[str, str]) -> list[Values]:
    """Distinct values of these constants from the runs that set most of them; the rest from OPEN, except doubles."""
    counts = [len(run.keys() & kinds.keys()) for run in found]
    chosen: list[Values] = []
    for run, count in zip(found, counts, strict=True):
        values = {n: run.get(n, OPEN[k]) for n, k in kinds.items() if n in run or k != "double"}
        if count == max(counts) and values not in chosen:
            chosen.append(values)
    return chosen


def conditions(text: str) -> list[Values]:
    """The values of constants that results are published for."""
    found = [dict(item.split("=", 1) for item in _items(given)) for given, _ in _RESULT.findall(text) if given]
    return [dict(c) for c in dict.fromkeys(tuple(f.items()) for f in found)]


def _items(given: str) -> list[str]:
    return [re.sub(r"\s", "", item) for item in given.split(",") if "=" in item]


def published(comment: str, values: Mapping[str, str]) -> str | None:
    """The first result in a comment whose conditions hold."""
    for given, result in _RESULT.findall(comment):
        pairs = [item.split("=", 1) for item in _items(given)]
        if all(name in values and _same(values[name], value) for name, value in pairs):
            return str(result)
    return None


def _same(a: str, b: str) -> bool:
    try:
        return Fraction(a) == Fraction(b)
    except ValueError:
        return a == b


def number(text: str, values: Mapping[str, str]) -> float | bool | tuple[float, float] | None:
    """A published result as a number, yes or no, or an interval; None for anything else."""
    text = text.removeprefix("~").rstrip(";")
    if text in ("true", "false"):
        return text == "true"
    if match := re.fullmatch(r"\[([^,()]+),([^,()]+)\]", text):
        return float(match[1]), float(match[2])
    if text in ("Infinity", "Inf"):
        return math.inf
    if not re.fullmatch(r"[\w.+*/()^-]+", text):
        return None
    text = re.sub(r"\b[A-Za-z_]\w*", lambda m: f"({values.get(m[0], m[0])})", text).replace("^", "**")
    if re.search(r"(?<!\d)[A-DF-Za-df-z_]", text):
        return None
    try:
        return float(eval(re.sub(r"(?<![\w.])([\d.]+(?:[eE][+-]?\d+)?)", r'F("\1")', text), {"F": Fraction}))
    except (SyntaxError, NameError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None


def comment_before(text: str, start: int) -> str:
    """The comment lines just above a position in a file, and the text before it on its line."""
    lines = text[:start].splitlines()
    kept: list[str] = []
    for line in reversed(lines):
        stripped = line.strip()
        if stripped.startswith("//") or (not kept and not stripped):
            kept.append(stripped)
        elif stripped:
            break
    return "\n".join(reversed(kept))
