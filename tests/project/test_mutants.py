"""The harness of mutants: it changes what it says, and accepts only names that exist."""

from __future__ import annotations

from tests import mutants

CODE = '''
def f(x, y: int = 3) -> int:
    """A text with 1 < 2."""
    need(x < y, "é 1")
    if x and y:
        return max(x + 1, 2)
    return 0
'''


def test_every_kind_of_change_is_made_in_its_place():
    found = mutants.python_mutants("a.py", CODE)
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


def test_c_is_changed_outside_of_comments():
    found = mutants.c_mutants("a.c", "/* a < b */\nif (a < b) c = fmax(a + 1, b); // a + b\n")
    assert [(m.line, m.old, m.new) for m in found] == [(2, "<", " <= "), (2, "fmax", "fmin"), (2, "+", " - ")]


def test_accepted_survivors_exist_and_tests_too():
    known = mutants.mutants_of()
    names = {m.name for m in known} | {f"{m.path} {m.place}" for m in known}
    assert set(mutants.ACCEPTED) <= names
    for path in {m.path for m in known}:
        assert mutants.tests_of(path)
    assert all((mutants.ROOT / test).is_file() for tests in mutants.NEAREST.values() for test in tests)
