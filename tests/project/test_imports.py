"""Every import of our own modules resolves, also those inside functions, which no type checker follows here."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from tests.project import test_shape

ROOT = Path(__file__).resolve().parents[2]
OURS = ("rpl_agent", "rpl_envs", "benchmarks", "tests")
FOLDERS = ("rpl_agent", "envs", "benchmarks", "tests", "docs", "examples")
#: Runs an older release as well, whose modules have other names.
OLDER = ROOT / "benchmarks" / "against_release.py"
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path != OLDER)


@cache
def read(path: Path) -> tuple[set[tuple[str, str | None]], set[tuple[str, str]]]:
    """(`imported`, `asked_of_modules`) of a file, which is parsed once for both."""
    nodes = test_shape.nodes(path)
    return imported(nodes), asked_of_modules(nodes)


def imported(nodes: list[ast.AST]) -> set[tuple[str, str | None]]:
    """(module, name) of each import of ours."""
    found: set[tuple[str, str | None]] = set()
    for node in nodes:
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


def asked_of_modules(nodes: list[ast.AST]) -> set[tuple[str, str]]:
    """(module, name) of each ``module.name`` where the module is ours and nothing else in the file has its name."""
    modules: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OURS:
            for alias in node.names:
                if resolves(node.module, None) and is_module(f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {
        (modules[node.value.id], node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in modules.keys() - bound
    }


@cache
def is_module(name: str) -> bool:
    module, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(module), last, None)  # a function may have the name of its module
    return isinstance(found, ModuleType) or (found is None and find_spec(name) is not None)


def test_what_is_asked_of_our_modules_is_there():
    """A renamed function is found here even in tests, which no type checker reads."""
    everything = {(path, *one) for path in FILES for one in read(path)[1]}
    assert len(everything) > 500
    broken = sorted(f"{path.relative_to(ROOT)}: {m}.{n}" for path, m, n in everything if not resolves(m, n))
    assert not broken, "\n".join(broken)


def test_every_import_of_ours_resolves():
    everything = {(path, *one) for path in FILES for one in read(path)[0]}
    assert len(everything) > 1000
    known = {one: resolves(*one) for one in {(module, name) for _, module, name in everything}}
    broken = sorted(f"{path.relative_to(ROOT)}: {m}.{n}" for path, m, n in everything if not known[m, n])
    assert not broken, "\n".join(broken)
