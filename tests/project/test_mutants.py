"""The harness of mutants: it changes what it says, runs the tests that matter, and accepts only names that exist."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from rpl_agent.core.native import core
from tests.mutants import accepted, campaign, changes
from tests.mutants.changes import NEAREST, ROOT, changed_since, mutants_of

CODE = '''
def f(x, y: int = 3) -> int:
    """A text with 1 < 2."""
    need(x < y, "é 1")
    if x and y:
        return max(x + 1, 2)
    return 0
'''


def test_every_kind_of_change_is_made_in_its_place():
    found = changes.python_mutants("a.py", CODE)
    assert {(m.old, m.new) for m in found} >= {
        ("x < y", "(x <= y)"),
        ("x < y", "True"),
        ("x and y", "((x) or (y))"),
        ("x and y", "(not (x and y))"),
        ("max", "min"),
        ("x + 1", "(x)"),
        ("x + 1", "(x - 1)"),
        ("2", "3"),
        ("0", "(-1)"),
    }
    assert {m.place for m in found} == {"f"} and not any("text" in m.old for m in found)
    for mutant in found:
        compile(mutant.applied(CODE), "a.py", "exec")
        assert mutant.applied(CODE) != CODE


def test_changes_keep_lines_and_names_differ():
    code = "def f(a):\n    return (a +\n        1) + g(a + 1, a + 1)\n"
    found = changes.python_mutants("a.py", code)
    assert len({m.name for m in found}) == len(found) and any(m.name.endswith("(2)") for m in found)
    assert {m.applied(code).count("\n") for m in found} == {3}
    assert {m.statement for m in found} == {(2, 3)}


C_CODE = """/* a < b */
#define SIZE(a) (a + 1)
INLINE double worst(double a,
                    double b)
{
    if (a < b) c = fmax(a + 1, b); // a + b
}
"""


def test_c_is_changed_outside_of_comments_line_by_line():
    found = changes.c_mutants("a.c", C_CODE)
    line = "if (a < b) c = fmax(a + 1, b); // a + b"
    expected = [line.replace("<", "<="), line.replace("fmax", "fmin"), line.replace("a + 1", "a - 1")]
    assert {m.name for m in found} == {f"a.c worst: {line} → {new}" for new in expected}
    assert {m.applied(C_CODE) for m in found} == {C_CODE.replace(line, new) for new in expected}
    assert {m.lines for m in found} == {(6, 6)}


def test_accepted_survivors_exist_and_tests_too():
    known = mutants_of()
    assert accepted.stale(known) == []
    for path in {m.path for m in known}:
        assert changes.tests_of(path)
    assert all((ROOT / test).is_file() for tests in NEAREST.values() for test in tests)


def test_all_tests_of_the_checker_are_near_it():
    """Else mutants that only a new file notices would survive."""
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "certify").glob("test_checker*.py")}
    assert written == set(NEAREST["rpl_agent/guarantee/checker.py"])


def test_a_function_that_searches_may_not_lose_a_check():
    inside = [m for m in mutants_of("checker.py") if f"{m.path} {m.place}" in accepted.FUNCTIONS]
    reasons = {m.is_dropped_check: accepted.reason(m) for m in inside if m.name not in accepted.NAMES}
    assert reasons[False] is not None and reasons[True] is None


def test_mutants_of_changed_lines_are_found(tmp_path, monkeypatch):
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a", *words], check=True)

    monkeypatch.setattr(changes, "ROOT", tmp_path)
    place = tmp_path / "a.py"
    place.write_text("x = 1\ny = 2\n")
    git("init", "-q")
    git("add", "a.py")
    git("commit", "-qm", "a")
    assert changed_since("HEAD", changes.python_mutants("a.py", place.read_text())) == []
    place.write_text("x = 1\ny = 3\n")
    found = changed_since("HEAD", changes.python_mutants("a.py", place.read_text()))
    assert [(m.old, m.new) for m in found] == [("3", "(2)"), ("3", "4")]


LOADED = """
import functools
LIMIT = 3
class Thing:
    SIZE = 5
    @property
    def double(self): return 2 * LIMIT
    @classmethod
    def made(cls): return cls.SIZE + 1
@functools.cache
def f(x): return x + LIMIT
"""


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("LIMIT = 3", "LIMIT = 4", (8, 6, 5)),
        ("2 * LIMIT", "3 * LIMIT", (9, 6, 4)),
        ("SIZE + 1", "SIZE + 2", (6, 7, 4)),
        ("SIZE = 5", "SIZE = 6", (6, 7, 4)),
        ("x + LIMIT", "x - LIMIT", (6, 6, -2)),
    ],
)
def test_loaded_code_is_changed_wherever_it_was_imported(old, new, seen, tmp_path, monkeypatch):
    """A property, a class method, a constant of a class, a constant, a function behind a cache."""
    module = types.ModuleType("rpl_agent.loaded")
    module.__file__ = str(tmp_path / "rpl_agent/loaded.py")
    exec(compile(LOADED, module.__file__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    (tmp_path / "rpl_agent").mkdir()
    (tmp_path / "rpl_agent/loaded.py").write_text(LOADED)
    kept, imported = vars(module)["Thing"], vars(module)["f"]
    start = LOADED.index(old)
    span = (1, 1)
    assert campaign.transplant(changes.Mutant("rpl_agent/loaded.py", "", "", "", 0, 0, span, span)) == 0
    mutant = changes.Mutant("rpl_agent/loaded.py", "", old, new, start, start + len(old), span, span)
    assert campaign.transplant(mutant) == 1
    assert (kept().double, kept.made(), imported(1)) == seen


def test_compiled_code_is_changed_for_all_who_call_it():
    path = "rpl_agent/core/native/residual.c"
    sizes = next(m for m in mutants_of(path) if m.place == "wrong_sign" and m.new.strip().startswith("size -="))
    spaces = [getattr(thing, "__globals__", {}) for thing in vars(core).values()]
    functions = [(space, space["function"]) for space in spaces if "function" in space]
    library, call = core._compiled, core.wrong_sign
    given = 1, np.ones(1, bool), 1, 1.0, np.array([0.5]), np.array([1.0])  # 0.5 + y may be negative
    assert call(*given) == 0
    try:
        assert campaign.transplant(replace(sizes, new=sizes.old)) > 50 and call(*given) == 0
        campaign.transplant(sizes)
        assert call(*given) == -1
    finally:
        core._compiled = library
        for space, function in functions:
            space["function"] = function
    assert call(*given) == 0
