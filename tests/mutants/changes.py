"""The mutants: one small change each of the code that certificates rest on, and the tests nearest to it."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORED = tuple(
    f"tests/agent/test_{name}.py" for name in ("storage_parts", "open_state", "session_state", "agent_checkpoint")
)
SOLVED = tuple(f"tests/solver/test_solver_{name}.py" for name in ("check_edges", "check", "rounding", "signed"))
BETS = tuple(f"tests/likelihood/test_{name}.py" for name in ("mean", "aims", "bets", "bets_coverage"))
CHECKED = tuple(
    f"tests/certify/test_checker{name}.py"
    for name in (
        "_edges",
        "_unions",
        "_claims_edges",
        "_words",
        "_thresholds",
        "_model",
        "_files",
        "_parts",
        "_time",
        "_blocks",
        "_slabs",
        "_boxes",
        "_optimal",
        "_rivals",
        "_products",
        "_cuts",
        "_pieces",
        "_events",
        "_plays",
        "_claims",
        "",
    )
)
#: Files that are changed (a folder: all in it), and the nearest tests, the fastest first.
NEAREST: dict[str, tuple[str, ...]] = {
    "rpl_agent/guarantee/checker.py": CHECKED,
    "rpl_agent/guarantee/open_checker.py": (
        "tests/open_world/test_open_checker_numbers.py",
        "tests/open_world/test_open_checker_words.py",
        "tests/open_world/test_open_checker.py",
    ),
    "rpl_agent/guarantee/pipeline.py": ("tests/certify/test_pipeline.py",),
    "rpl_agent/core/evidence/ledger.py": ("tests/evidence/test_ledger.py",),
    "rpl_agent/guarantee/likelihood/bets": BETS,
    "rpl_agent/core/solver/check.py": SOLVED,
    "rpl_agent/core/native/residual.c": (
        "tests/coupled/test_residual_twins.py",
        "tests/coupled/test_residual_rounding.py",
    ),
    "rpl_agent/agent/storage": STORED,
}
TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in"}
TURNED |= {"is": "is not", "is not": "is"}
COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in"}
COMPARED |= {ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}


@dataclass(frozen=True)
class Mutant:
    """A change of one piece of one file."""

    path: str  # in the repository
    place: str  # the function, or the constants of a module; "" for other code of it
    old: str  # in C the line
    new: str
    start: int  # characters of the file
    end: int
    lines: tuple[int, int]  # of the piece
    statement: tuple[int, int]  # the lines that run with it
    number: int = 1  # of those that are otherwise the same

    @property
    def name(self) -> str:
        """Lines may move without changing it."""
        more = f" ({self.number})" if self.number > 1 else ""
        return f"{self.path} {self.place}: {self.old} → {self.new.strip()}{more}"

    @property
    def is_of_module(self) -> bool:
        """Whether any test may notice it: what functions read, and compiled code, is not traced."""
        return self.place == "" or self.place.isupper() or self.path.endswith(".c")

    @property
    def is_dropped_check(self) -> bool:
        return self.new == "True"

    def applied(self, text: str) -> str:
        """The changed file, with as many lines as before."""
        new, missing = self.new, text.count("\n", self.start, self.end)
        if missing and new.endswith(")"):
            new = new[:-1] + missing * "\n" + ")"
        return text[: self.start] + new + text[self.end :]


# ---------------------------------------------------------------------- changes
def python_mutants(path: str, text: str) -> list[Mutant]:
    """All changes of a Python file, by place. Texts, annotations and arguments' defaults stay."""
    lines, begins, found = text.splitlines(keepends=True), [0], list[Mutant]()
    for line in lines:
        begins.append(begins[-1] + len(line))

    def place(row: int, column: int) -> int:
        """Characters before a place, whose column Python counts in bytes."""
        return begins[row - 1] + len(lines[row - 1].encode()[:column].decode())

    def visit(node: ast.AST, scope: tuple[str, ...], statement: tuple[int, int]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            scope = (*scope, node.name)
        if isinstance(node, ast.Assign | ast.AugAssign) and not scope:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            scope = (", ".join(ast.unparse(target).strip("()") for target in targets),)
        if isinstance(node, ast.stmt):
            statement = lines_of(node)
        for old, new in changes(node):
            start, end = place(old.lineno, old.col_offset), place(old.end_lineno or 0, old.end_col_offset or 0)
            before = " ".join(text[start:end].split())
            spans = (old.lineno, old.end_lineno or old.lineno), statement
            found.append(Mutant(path, ".".join(scope), before, new(text[start:end]), start, end, *spans))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.arguments) and not is_annotation(node, child):
                visit(child, scope, statement)

    visit(ast.parse(text), (), (1, 1))
    return numbered(sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.new)))


def lines_of(statement: ast.stmt) -> tuple[int, int]:
    """Of a statement; of one with a body those before it."""
    body: list[ast.stmt] = getattr(statement, "body", [])
    last = body[0].lineno - 1 if body else statement.end_lineno or 0
    return statement.lineno, max(statement.lineno, last)


def numbered(mutants: list[Mutant]) -> list[Mutant]:
    """The same with names that differ."""
    seen: Counter[str] = Counter()
    found = []
    for mutant in mutants:
        seen[mutant.name] += 1
        found.append(replace(mutant, number=seen[mutant.name]))
    return found


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
    is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    if is_read and node.id in ("min", "max", "any", "all", "up", "down"):
        other = {"min": "max", "max": "min", "any": "all", "all": "any", "up": "down", "down": "up"}[node.id]
        yield node, lambda _: other
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield node, lambda _: f"({ast.unparse(node.left)})"
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        yield node, lambda _: f"({ast.unparse(node.left)} {sign} {ast.unparse(node.right)})"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, lambda _: "(" + word.join(f"({ast.unparse(value)})" for value in node.values) + ")"
    if isinstance(node, ast.If | ast.IfExp | ast.While) and ast.unparse(node.test) != "TYPE_CHECKING":
        yield node.test, lambda text: f"(not ({text}))"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "need":
        yield node.args[0], lambda _: "True"


#: In C: pieces of code, and what takes their place.
PIECES = {
    r" <= ": " < ", r" >= ": " > ", r" < ": " <= ", r" > ": " >= ", r" \+ ": " - ", r" - ": " + ", r"\bfmax\b": "fmin",
    r"\bfmin\b": "fmax", r" \+= ": " -= ", r"\b0\.5\b": "1.5", r"\b2\.0\b": "1.0",
}  # fmt: skip


def c_mutants(path: str, text: str) -> list[Mutant]:
    """Textual changes of lines of a C file, outside of comments."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*|#[^\n]*", lambda comment: " " * len(comment[0]), text, flags=re.DOTALL)
    begins = [(m.start(), m[1]) for m in re.finditer(r"^[A-Za-z][^;{=\n]*?\b(\w+)\(", code, flags=re.MULTILINE)]
    found = []
    for piece, new in PIECES.items():
        for match in re.finditer(piece, code):
            start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            old, changed = text[start:end], text[start : match.start()] + new + text[match.end() : end]
            place = [name for begin, name in begins if begin <= match.start()][-1]
            row = text.count("\n", 0, start) + 1
            spans = start, end, (row, row), (row, row)
            found.append(Mutant(path, place, " ".join(old.split()), changed, *spans))
    return numbered(sorted(found, key=lambda mutant: (mutant.start, mutant.new)))


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
    """The nearest tests of a file."""
    nearest = next(tests for place, tests in NEAREST.items() if path.startswith(place))
    return [test for test in nearest if (ROOT / test).is_file()]


def changed_since(reference: str, mutants: list[Mutant]) -> list[Mutant]:
    """The mutants of lines that differ from a commit of git."""
    changed: dict[str, set[int]] = {}
    for path in {mutant.path for mutant in mutants}:
        command = ["git", "-C", str(ROOT), "diff", "-U0", reference, "--", path]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", text, flags=re.MULTILINE)
        changed[path] = {int(first) + k for first, size in hunks for k in range(int(size or 1))}
    return [m for m in mutants if changed[m.path] & set(range(m.lines[0], m.lines[1] + 1))]
