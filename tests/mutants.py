"""`python -m tests.mutants`: small changes of the code that certificates rest on, each of which a test must notice.

One change at a time: a comparison or a condition turned, a constant moved, min for max, a term or a check dropped. The
change is made in a copy of the package, and the nearest tests run on it, the fastest first. What they do not notice
survives. Survivors that cannot make a bound false are accepted by name, with a reason (`ACCEPTED`); any other one
makes the command fail. For the nightly lane: a mutant takes from seconds to the time of all nearest tests.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CERTIFY = tuple(f"tests/certify/test_{name}.py" for name in ("certify", "certify_exact", "certify_signed", "verify"))
STORED = tuple(f"tests/agent/test_{name}.py" for name in ("agent_checkpoint", "agent_resume", "faults"))
SOLVED = tuple(f"tests/solver/test_solver_{name}.py" for name in ("check", "rounding", "signed"))
BETS = ("tests/likelihood/test_bets.py", "tests/likelihood/test_bets_coverage.py")
#: Files that are changed (a folder: all in it), and the nearest tests, the fastest first.
NEAREST: dict[str, tuple[str, ...]] = {
    "rpl_agent/guarantee/checker.py": tuple(
        f"tests/certify/test_checker{name}.py" for name in ("_model", "_thresholds", "_parts", "_files", "_time", "")
    ),
    "rpl_agent/guarantee/pipeline.py": (*CERTIFY, "tests/evidence/test_refutation.py"),
    "rpl_agent/core/evidence/ledger.py": ("tests/evidence/test_refutation.py", *CERTIFY, *BETS),
    "rpl_agent/guarantee/likelihood/bets": BETS,
    "rpl_agent/core/solver/check.py": SOLVED,
    "rpl_agent/core/native/residual.c": ("tests/coupled/test_coupled.py",),
    "rpl_agent/agent/storage": STORED,
}
SEARCH = "any numbers are valid here: they only decide how tight a bound is"
WORDS = "only the words of a message"
#: Names of mutants, or of all in a function (path, function), that may survive, and why.
ACCEPTED: dict[str, str] = {
    "rpl_agent/guarantee/checker.py Coordinates.fit": SEARCH,
    "rpl_agent/guarantee/checker.py Coordinates.next_fit": SEARCH,
    "rpl_agent/guarantee/checker.py Coordinates.spread": SEARCH,
    "rpl_agent/guarantee/checker.py Coordinates.particles": SEARCH,
    "rpl_agent/guarantee/checker.py Coordinates.information": SEARCH,
    "rpl_agent/guarantee/checker.py stake": SEARCH,
    "rpl_agent/guarantee/checker.py Bets._aim": SEARCH,
    "rpl_agent/guarantee/checker.py Bets._slope": SEARCH,
    "rpl_agent/guarantee/checker.py Bets._plan": SEARCH,
    "rpl_agent/guarantee/checker.py Data.fits": SEARCH,
    "rpl_agent/guarantee/checker.py shortened": WORDS,
}
#: Tests chosen on the command line.
CHOSEN: list[str] = []
#: Seconds after which a mutant counts as noticed: it does not end.
SECONDS = 900
TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in"}
TURNED |= {"is": "is not", "is not": "is"}
COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in"}
COMPARED |= {ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}


@dataclass(frozen=True)
class Mutant:
    """A change of one piece of one file."""

    path: str  # in the repository
    place: str  # the function, "" for the module
    line: int
    old: str
    new: str
    start: int  # characters of the file
    end: int

    @property
    def name(self) -> str:
        return f"{self.path} {self.place}: {self.old} → {self.new}"

    @property
    def reason(self) -> str | None:
        """Why it may survive."""
        return ACCEPTED.get(self.name) or ACCEPTED.get(f"{self.path} {self.place}")

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


# ---------------------------------------------------------------------- changes
def python_mutants(path: str, text: str) -> list[Mutant]:
    """All changes of a Python file, by place."""
    lines, begins, found = text.splitlines(keepends=True), [0], list[Mutant]()
    for line in lines:
        begins.append(begins[-1] + len(line))

    def place(row: int, column: int) -> int:
        """Characters before a place, whose column Python counts in bytes."""
        return begins[row - 1] + len(lines[row - 1].encode()[:column].decode())

    def visit(node: ast.AST, scope: tuple[str, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            scope = (*scope, node.name)
        for old, new in changes(node):
            start, end = place(old.lineno, old.col_offset), place(old.end_lineno or 0, old.end_col_offset or 0)
            before = " ".join(text[start:end].split())
            found.append(Mutant(path, ".".join(scope), old.lineno, before, new(text[start:end]), start, end))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.arguments) and not is_annotation(node, child):
                visit(child, scope)

    visit(ast.parse(text), ())
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.new))


def is_annotation(node: ast.AST, child: ast.AST) -> bool:
    return child in (getattr(node, "annotation", None), getattr(node, "returns", None)) or (
        isinstance(node, ast.JoinedStr)  # a text
    )


def changes(node: ast.AST) -> Iterator[tuple[ast.expr, Callable[[str], str]]]:
    """(piece, function from its text to the new one)."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right, sign = ast.unparse(node.left), ast.unparse(node.comparators[0]), COMPARED[type(node.ops[0])]
        yield node, lambda _: f"({left} {TURNED[sign]} {right})"
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        yield node, lambda _: repr(node.value + 1)
        yield node, lambda _: f"({node.value - 1!r})"
    if isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all", "up", "down"):
        other = {"min": "max", "max": "min", "any": "all", "all": "any", "up": "down", "down": "up"}[node.id]
        yield node, lambda _: other
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield node, lambda _: f"({ast.unparse(node.left)})"
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        yield node, lambda _: f"({ast.unparse(node.left)} {sign} {ast.unparse(node.right)})"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, lambda _: "(" + word.join(f"({ast.unparse(value)})" for value in node.values) + ")"
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, lambda text: f"(not ({text}))"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "need":
        yield node.args[0], lambda _: "True"


#: In C: pieces of code, and what takes their place.
PIECES = {
    r" <= ": " < ", r" >= ": " > ", r" < ": " <= ", r" > ": " >= ", r" \+ ": " - ", r" - ": " + ", r"\bfmax\b": "fmin",
    r"\bfmin\b": "fmax", r" \+= ": " -= ", r"\b0\.5\b": "1.5", r"\b2\.0\b": "1.0",
}  # fmt: skip


def c_mutants(path: str, text: str) -> list[Mutant]:
    """Textual changes of a C file, outside of comments."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*|#[^\n]*", lambda comment: " " * len(comment[0]), text, flags=re.DOTALL)
    found = []
    for piece, new in PIECES.items():
        for match in re.finditer(piece, code):
            row = text.count("\n", 0, match.start())
            line = " ".join(text.splitlines()[row].split())
            found.append(Mutant(path, line, row + 1, match[0].strip(), new, match.start(), match.end()))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.new))


def mutants_of(only: str | None = None) -> list[Mutant]:
    """The mutants of all files, or of those whose path contains ``only``."""
    found = []
    for place in NEAREST:
        paths = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).glob("*.py"))
        for path in paths:
            name = path.relative_to(ROOT).as_posix()
            if only is None or only in name:
                found += (c_mutants if path.suffix == ".c" else python_mutants)(name, path.read_text())
    return found


def tests_of(path: str) -> list[str]:
    nearest = CHOSEN or next(tests for place, tests in NEAREST.items() if path.startswith(place))
    return [test for test in nearest if (ROOT / test).is_file()]


# ---------------------------------------------------------------------- runs
def survives(mutant: Mutant, copy: Path) -> bool:
    """Whether the nearest tests pass on the mutant. A child inherits imported libraries, which saves time."""
    place, text = copy / mutant.path, (ROOT / mutant.path).read_text()
    place.write_text(mutant.applied(text))
    try:
        child = os.fork()
        if child == 0:
            _run(copy, tests_of(mutant.path))
        return os.waitpid(child, 0)[1] == 0
    finally:
        place.write_text(text)


def _run(copy: Path, tests: list[str]) -> None:
    """The tests, in a copy of the repository; ends this process with status 0 if all pass."""
    import pytest

    signal.alarm(SECONDS)
    os.chdir(copy)
    sys.path[:0] = [str(copy), str(copy / "envs")]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "rpl_agent", "rpl_envs")]:
        del sys.modules[name]  # of the original
    os.environ["PYTHONPATH"] = f"{copy}:{copy / 'envs'}"
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    status = 1
    try:
        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    finally:
        os._exit(status)


def copied(folder: Path) -> Path:
    """The parts of the repository that tests need."""
    for name in ("rpl_agent", "envs", "tests", "benchmarks", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="FILE", help="mutants of files whose path contains this")
    parser.add_argument("--place", metavar="NAME", help="mutants of functions whose name contains this")
    parser.add_argument("--sample", type=int, metavar="N", help="this many of them, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--minutes", type=float, help="start none after this time")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="run these tests in place of the nearest ones")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    parser.add_argument("--json", metavar="FILE", help="write a summary")
    arguments = parser.parse_args()
    CHOSEN[:] = arguments.tests or []
    mutants = [m for m in mutants_of(arguments.only) if arguments.place is None or arguments.place in m.place]
    if arguments.sample is not None:
        mutants = random.Random(arguments.seed).sample(mutants, min(arguments.sample, len(mutants)))
    if arguments.list:
        print("\n".join(f"{m.path}:{m.line} {m.place}: {m.old} → {m.new}" for m in mutants))
        return
    import gymnasium  # noqa: F401  (inherited by the children)
    import hypothesis  # noqa: F401
    import scipy.optimize
    import scipy.stats  # noqa: F401

    start, lived, done = time.monotonic(), list[Mutant](), 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder) / "copy")
        for path in dict.fromkeys(mutant.path for mutant in mutants):
            if not survives(Mutant(path, "", 0, "", "", 0, 0), copy):
                raise SystemExit(f"{path}: the nearest tests fail without a change: {' '.join(tests_of(path))}")
        for mutant in mutants:
            if arguments.minutes is not None and time.monotonic() - start > 60 * arguments.minutes:
                break
            begun = time.monotonic()
            alive = mutant.reason is None and survives(mutant, copy)
            done += 1
            lived += [mutant] if alive else []
            word = "accepted" if mutant.reason else "SURVIVES" if alive else "killed"
            taken = time.monotonic() - begun
            print(f"{done}/{len(mutants)} {word} {taken:.0f} s  {mutant.path}:{mutant.line} {mutant.name}", flush=True)
    accepted = sum(mutant.reason is not None for mutant in mutants[:done])
    summary = {"tried": done, "of": len(mutants), "accepted": accepted, "killed": done - accepted - len(lived)}
    print(", ".join(f"{number} {name}" for name, number in summary.items()), f"{len(lived)} survive", sep=", ")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(summary | {"survivors": [asdict(m) for m in lived]}, indent=1))
    raise SystemExit("\n".join(f"{m.path}:{m.line} {m.name}" for m in lived) or 0)


if __name__ == "__main__":
    main()
