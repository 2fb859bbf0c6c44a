"""Every import of our own modules resolves, also those inside functions, which no type checker follows here."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("rpl_agent", "rpl_envs", "benchmarks", "tests")
FOLDERS = ("rpl_agent", "envs", "benchmarks", "tests", "docs", "examples")
#: Runs an older release as well, whose modules have other names.
OLDER = ROOT / "benchmarks" / "against_release.py"
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path != OLDER)


def imported(path: Path) -> set[tuple[str, str | None]]:
    """(module, name) of each import of ours."""
    found: set[tuple[str, str | None]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, None) for alias in node.names}
    return {(module, name) for module, name in found if module.partition(".")[0] in OURS}


def resolves(module: str, name: str | None) -> bool:
    try:
        found = importlib.import_module(module)
    except pytest.skip.Exception:  # tests of packages that are not installed
        return True
    except ImportError as error:
        return error.name is not None and error.name.partition(".")[0] not in OURS
    return name is None or hasattr(found, name) or find_spec(f"{module}.{name}") is not None


def test_every_import_of_ours_resolves():
    everything = {(path, *one) for path in FILES for one in imported(path)}
    assert len(everything) > 1000
    known = {one: resolves(*one) for one in {(module, name) for _, module, name in everything}}
    broken = sorted(f"{path.relative_to(ROOT)}: {m}.{n}" for path, m, n in everything if not known[m, n])
    assert not broken, "\n".join(broken)
