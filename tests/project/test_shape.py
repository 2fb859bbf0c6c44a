"""The shape of the code: small functions and files, unique names, layers, and a guide whose paths exist.

Every limit is a ratchet: an exemption that is no longer needed fails, so the lists can only become shorter.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "rpl_agent").rglob("*.py"), *(ROOT / "envs").rglob("*.py")])
LINES, KERNEL_LINES, ARGUMENTS, FILE_LINES = 60, 90, 10, 450

#: What a user calls with named options, one per choice: an object to hold them would be one more thing to learn.
MANY_OPTIONS = {"RPLAgent.__init__", "RPLAgent.learn", "train", "build_vectorized"}


def functions() -> Iterator[tuple[str, str, ast.FunctionDef, bool]]:
    """(file, qualified name, node, whether it is a compiled kernel) of every function."""
    for path in SOURCES:
        parents: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text()), "")]
        while parents:
            node, prefix = parents.pop()
            for child in ast.iter_child_nodes(node):
                name = prefix
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    name = f"{prefix}.{child.name}" if prefix else child.name
                if isinstance(child, ast.FunctionDef):
                    kernel = any("njit" in ast.unparse(d) for d in child.decorator_list)
                    yield str(path.relative_to(ROOT)), name, child, kernel
                parents.append((child, name))


def beyond(found: set[str], exempt: set[str]) -> None:
    assert found <= exempt, f"above the limit: {sorted(found - exempt)}"
    assert exempt <= found, f"no longer above the limit, take it off the list: {sorted(exempt - found)}"


def length(node: ast.FunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def test_functions_are_short():
    assert not [f"{file}: {name}" for file, name, node, kernel in functions() if not kernel and length(node) > LINES]


def test_kernels_are_short():
    assert not [f"{file}: {name}" for file, name, node, kernel in functions() if kernel and length(node) > KERNEL_LINES]


def test_functions_have_few_arguments():
    many = set()
    for _, name, node, kernel in functions():
        a = node.args
        if not kernel and len([*a.posonlyargs, *a.args, *a.kwonlyargs]) > ARGUMENTS:
            many.add(name)
    beyond(many, MANY_OPTIONS)


def test_files_are_short():
    assert not [str(p.relative_to(ROOT)) for p in SOURCES if p.read_text().count("\n") > FILE_LINES]


def test_class_names_are_unique():
    """A noun can be searched for; private ones too, because they are read in the same traces."""
    homes = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_every_module_is_in_the_layers():
    """`make lint` checks the imports; a module that no layer names would not be checked."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    with open(ROOT / "pyproject.toml", "rb") as file:
        contract = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]
    assert contract["exhaustive"] and contract["containers"] == ["rpl_agent"]
    named = {name.strip() for layer in contract["layers"] for name in re.split(r"[|:]", layer)}
    children = (p for p in (ROOT / "rpl_agent").iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file())
    assert named == {p.stem for p in children} - {"__init__"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_paths_in_the_guide_exist(page):
    quoted = set(re.findall(r"`([\w./-]+)`", (ROOT / page).read_text()))
    folders = {p.name for p in ROOT.iterdir() if p.is_dir()} | {p.name for p in (ROOT / "rpl_agent").iterdir()}
    for path in sorted(quoted):
        if "/" in path and path.split("/")[0] in folders:
            places = [ROOT / path, ROOT / "rpl_agent" / path]
            assert any(p.exists() or list(p.parent.glob(f"{p.name}.py")) for p in places), f"{page} names {path}"


def test_the_fast_lane_names_tests_of_every_file():
    """A name that no longer exists would silently leave the lane."""
    names = (ROOT / "tests" / "fast.txt").read_text().split()
    assert names == sorted(set(names))
    found = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[str(path.relative_to(ROOT / "tests"))].add(node.name)
    listed = defaultdict(set)
    for name in names:
        file, _, test = name.partition("::")
        listed[file].add(test)
    assert {file: tests - found[file] for file, tests in listed.items() if tests - found[file]} == {}
    folders = {file.partition("/")[0] for file in found}
    assert {file.partition("/")[0] for file in listed} == folders
