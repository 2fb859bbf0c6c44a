"""The shape of the code: small functions and files, unique names, layers, and a guide whose paths exist.

Every limit is a ratchet: an exemption that is no longer needed fails, so the lists can only become shorter.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import rpl_agent

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "rpl_agent" / "guarantee" / "checker.py"
OPEN_CHECKER = CHECKER.with_name("open_checker.py")
SOURCES = sorted(
    path
    for folder in ("rpl_agent", "envs")
    for path in (ROOT / folder).rglob("*.py")
    if not path.name.startswith("bindings_")  # made when the core is compiled
    and path not in (CHECKER, OPEN_CHECKER)  # share nothing with the package, names included; have their own limits
)
LINES, ARGUMENTS, FILE_LINES = 80, 10, 500
#: The same of C.
C_LINES, C_ARGUMENTS, C_FILE_LINES = 70, 13, 600

#: Files a folder may have, and folders that have more, with how many.
FILES = 12
CROWDED: dict[str, int] = {}
#: Private names of other libraries, by file; none may be added.
PRIVATE = {
    "rpl_agent/agent/world/observations.py": {"_max_episode_steps"},  # TimeLimit without a spec tells it nowhere else
    "rpl_agent/studies/baselines/sb3.py": {
        "_num_timesteps_at_start",
        "_total_timesteps",
    },  # schedules for budgets in episodes
}
#: Modules that their libraries do not document for use by others.
INTERNAL = ("lark.parsers", "lark.lexer")
#: What may be used of TensorBoard: the messages that its files consist of, and what writes them.
OF_TENSORBOARD = re.compile(r"tensorboard\.(summary\.writer\.|[\w.]+_pb2\b)")

#: What a user calls with named options, one per choice: an object to hold them would be one more thing to learn.
MANY_OPTIONS = {"AttachedAgent.__init__", "RPLAgent.learn", "train", "build_vectorized"}


#: Words that were once names of many things: everything in the package, the checker included, that is called so.
ONE_MEANING = {
    "certify": {
        "guarantee/claims/limits.py certify",
        "agent/attached.py AttachedAgent.certify",
        "agent/callbacks.py Observed.certify",  # the same, as callbacks see it
    },
    "check": {"guarantee/checker.py check", "core/solver/solution.py Solution.check"},
    "evaluate": {"agent/queries.py QueriedAgent.evaluate"},
    "play": set(),
    "Play": set(),
    "Plays": set(),
    "Frame": {"core/regions/frame.py Frame"},
    "Region": {"core/regions/base.py Region"},
    "slabs": {"guarantee/likelihood/bets/slabs.py slabs"},
    "Slab": set(),
    "Slabs": {"guarantee/likelihood/bets/slabs.py Slabs"},
}

#: Constants with the name and value of an unrelated one: general words for how close is enough, how often to try.
SAME_BY_CHANCE = {"CLOSE", "MAX_STEPS", "NEGLIGIBLE", "OVER", "ROUNDING", "ROUNDS", "SETTLED", "TOLERANCE"}

#: Nodes that can hold a definition or an import: expressions do not.
STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a file but the leaves that say how a name is used or what an operator is."""
    found: list[ast.AST] = [parsed(path)]
    for node in found:  # grows while it is walked
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                if value._fields:
                    found.append(value)
            elif isinstance(value, list):
                found.extend(item for item in value if isinstance(item, ast.AST) and item._fields)
    return found


@cache
def functions() -> list[tuple[str, str, ast.FunctionDef]]:
    """(file, qualified name, node) of every function."""
    found = []
    for path in SOURCES:
        parents: list[tuple[ast.AST, str]] = [(parsed(path), "")]
        while parents:
            node, prefix = parents.pop()
            for child in ast.iter_child_nodes(node):
                name = prefix
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    name = f"{prefix}.{child.name}" if prefix else child.name
                if isinstance(child, ast.FunctionDef):
                    found.append((str(path.relative_to(ROOT)), name, child))
                if isinstance(child, STATEMENTS):
                    parents.append((child, name))
    return found


def beyond(found: set[str], exempt: set[str]) -> None:
    assert found <= exempt, f"above the limit: {sorted(found - exempt)}"
    assert exempt <= found, f"no longer above the limit, take it off the list: {sorted(exempt - found)}"


def example(node: ast.AST) -> int:
    """Lines of the example in a docstring, which are documentation that is run: no limit counts them."""
    text = (ast.get_docstring(node) or "").partition(">>>")[2]  # type: ignore[arg-type]
    return text.count("\n") + 2 if text else 0


@cache
def lines_of(path: Path) -> int:
    examples = sum(example(node) for node in nodes(path) if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return path.read_text().count("\n") - examples


def length(node: ast.FunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1 - example(node)


def test_functions_are_short():
    assert not [f"{file}: {name}" for file, name, node in functions() if length(node) > LINES]


def test_functions_in_c_are_short_and_have_few_arguments():
    found, above = 0, []
    for path in sorted((ROOT / "rpl_agent" / "core" / "native").glob("*.[ch]")):
        text = path.read_text()
        if path.name != "core.h" and text.count("\n") > C_FILE_LINES:
            above.append(path.name)
        for match in re.finditer(r"^[\w *]*?(\w+)\(([^{};]*)\)\n\{\n.*?^\}", text, re.MULTILINE | re.DOTALL):
            found += 1
            if match[0].count("\n") >= C_LINES or match[2].count(",") >= C_ARGUMENTS:
                above.append(f"{path.name}: {match[1]}")
    assert found > 100 and not above


def test_functions_have_few_arguments():
    many = set()
    for _, name, node in functions():
        a = node.args
        if len([*a.posonlyargs, *a.args, *a.kwonlyargs]) > ARGUMENTS:
            many.add(name)
    beyond(many, MANY_OPTIONS)


def test_files_are_short():
    assert not [str(p.relative_to(ROOT)) for p in SOURCES if lines_of(p) > FILE_LINES]


@pytest.mark.parametrize("path, most", [(CHECKER, 1_800), (OPEN_CHECKER, 600)])
def test_a_checker_is_one_file_that_can_be_read_in_an_evening(path, most):
    """Its readers trust nothing else: Python's standard library, few lines, and the other one beside it."""
    text = path.read_text()
    assert text.count("\n") <= most
    nodes = list(ast.walk(ast.parse(text)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    neighbours = {"rpl_agent.guarantee", "checker"} if path == OPEN_CHECKER else set()
    assert {name.partition(".")[0] for name in imported - neighbours} <= sys.stdlib_module_names
    assert all(length(node) <= LINES for node in nodes if isinstance(node, ast.FunctionDef))


def test_class_names_are_unique():
    """A noun can be searched for; private ones too, because they are read in the same traces."""
    homes = defaultdict(list)
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_one_word_means_one_thing():
    """At most a function and the method of the same purpose, both of which users call."""
    found: dict[str, set[str]] = {name: set() for name in ONE_MEANING}

    def look(node: ast.AST, file: str, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                if child.name in found:
                    found[child.name].add(f"{file} {inside}{child.name}")
                look(child, file, f"{inside}{child.name}.")
            elif isinstance(child, STATEMENTS):
                look(child, file, inside)

    for path in (*SOURCES, CHECKER):
        look(parsed(path), path.relative_to(ROOT).as_posix().removeprefix("rpl_agent/"), "")
    assert found == ONE_MEANING


def constants(path: Path) -> list[tuple[str, str]]:
    """(name, value as written) of every constant of a module, those of ``A, B = 1, 2`` one by one."""
    found = []
    for node in parsed(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts))
            named = [(name.id, value) for name, value in pairs if isinstance(name, ast.Name)]
            found += [(name, ast.unparse(value)) for name, value in named if name.isupper()]
    return found


def test_a_constant_stands_once():
    """Two constants of the same name and value are one that somebody will change in one place only."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in SOURCES:
        for name, value in constants(path):
            if name not in SAME_BY_CHANCE:
                places[name, value].append(path.relative_to(ROOT).as_posix())
    assert not {f"{name} = {value}": where for (name, value), where in places.items() if len(where) > 1}


def test_every_module_is_in_the_layers():
    """`make lint` checks the imports; a module that no layer names would not be checked."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    with open(ROOT / "pyproject.toml", "rb") as file:
        contract = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]
    assert contract["exhaustive"] and contract["containers"] == ["rpl_agent"]
    named = {name.strip() for layer in contract["layers"] for name in re.split(r"[|:]", layer)}
    children = (p for p in (ROOT / "rpl_agent").iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file())
    assert named == {p.stem for p in children} - {"__init__"}


def test_no_line_is_packed_by_hand():
    """The formatter lays code out; what it cannot lay out well is better written in another way."""
    assert not [str(path.relative_to(ROOT)) for path in SOURCES if "# fmt:" in path.read_text()]


def test_folders_are_not_crowded():
    count: dict[str, int] = defaultdict(int)
    for path in SOURCES:
        count[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    crowded = {folder: files for folder, files in count.items() if files > FILES}
    beyond(set(crowded), set(CROWDED))
    assert {folder: files for folder, files in crowded.items() if files > CROWDED[folder]} == {}


@cache
def imports(path: Path, for_types: bool) -> list[str]:
    """Dotted names of what a file imports, late imports included, and, if asked, what it imports for types only."""
    found, todo = list[str](), list[ast.AST]([parsed(path)])
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not for_types:
            todo.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found += (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            found += (f"{node.module}.{name.name}" for name in node.names)
        todo.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS))
    return found


def test_no_import_cycles():
    """Neither between packages nor inside one; a late import hides a cycle, one for types hides it from the reader."""
    modules = {}
    for path in SOURCES:
        parts = path.relative_to(ROOT).with_suffix("").parts[path.parts[len(ROOT.parts)] == "envs" :]
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {
        name: {
            m
            for i in imports(path, name != "rpl_agent")
            if (m := i if i in modules else i.rpartition(".")[0]) in modules
        }
        for name, path in modules.items()
    }
    while leaves := {name for name, targets in graph.items() if not targets & graph.keys() - {name}}:
        graph = {name: targets - leaves for name, targets in graph.items() if name not in leaves}
    while roots := graph.keys() - set().union(*graph.values(), ()):  # what is left only leads to a cycle
        graph = {name: targets for name, targets in graph.items() if name not in roots}
    assert not graph, f"modules in import cycles: {sorted(graph)}"


def test_the_index_of_public_names_tells_type_checkers_the_same():
    (told,) = (node for node in parsed(ROOT / "rpl_agent" / "__init__.py").body if isinstance(node, ast.If))
    said = {
        str(alias.asname): (node.module, alias.name)
        for node in told.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    places = ((name, *place.partition(":")[::2]) for name, place in rpl_agent._INDEX.items())
    assert said == {name: (f"rpl_agent.{module}", other or name) for name, module, other in places}


def test_no_private_names_of_other_libraries():
    """They move without notice. An attribute is another library's if nothing here defines its name."""
    own = {"_replace", "_asdict", "_fields", "_make"}  # what named tuples document
    used: list[tuple[str, str]] = []  # (file, private name of anything)
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.Attribute):
                if re.match("_[^_]", node.attr):
                    used.append((str(path.relative_to(ROOT)), node.attr))
                if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self":
                    own.add(node.attr)
            elif isinstance(node, ast.Name):
                own.add(node.id)
            else:
                own.update(name for key in ("name", "arg") if isinstance(name := getattr(node, key, None), str))
    found: dict[str, set[str]] = defaultdict(set)
    for file, name in used:
        if name not in own:
            found[file].add(name)
    for path in SOURCES:
        for name in imports(path, False):
            parts = name.split(".")
            is_ours = parts[0] in ("rpl_agent", "rpl_envs", "__future__")
            is_inner = name.startswith("tensorboard") and not OF_TENSORBOARD.match(name)
            is_inner = is_inner or name.startswith(INTERNAL) or any(part.startswith("_") for part in parts)
            if not is_ours and is_inner:
                found[str(path.relative_to(ROOT))].add(name)
    assert dict(found) == PRIVATE


@pytest.mark.parametrize("room", ["core", "formats", "guarantee", "agent", "studies"])
def test_each_room_has_a_page_whose_paths_exist(room):
    quoted = set(re.findall(r"`([\w./]+(?:\.py|/))`", (ROOT / "docs" / "rooms" / f"{room}.md").read_text()))
    places = [ROOT, ROOT / "rpl_agent" / room]
    assert len(quoted) >= 3 and [path for path in sorted(quoted) if not any((p / path).exists() for p in places)] == []


@pytest.mark.parametrize("path", [CHECKER, OPEN_CHECKER])
def test_the_page_of_theorems_names_what_the_checkers_have(path):
    page = (ROOT / "docs" / "guarantees.md").read_text().partition("## The statement")[0]
    named = set(re.findall(rf"`{path.stem}\.(\w+)`", page)) - {"py"}
    text = path.read_text()
    assert re.search(r'FORMAT = "(.+)"', text)[1] in page  # type: ignore[index]
    assert len(named) >= 4 and [x for x in sorted(named) if not re.search(rf"^(class |def )?{x}\b", text, re.M)] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_paths_in_the_guide_exist(page):
    quoted = set(re.findall(r"`([\w./-]+)`", (ROOT / page).read_text()))
    folders = {p.name for p in ROOT.iterdir() if p.is_dir()} | {p.name for p in (ROOT / "rpl_agent").iterdir()}
    named = sorted(path for path in quoted if "/" in path and path.split("/")[0] in folders)
    assert named or page == "README.md"
    for path in named:
        places = [ROOT / path, ROOT / "rpl_agent" / path]
        assert any(p.exists() or list(p.parent.glob(f"{p.name}.py")) for p in places), f"{page} names {path}"


def test_the_changelog_is_short_and_starts_with_what_breaks():
    """At most twelve words a line, so that what breaks can be found."""
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1:]
    assert len(releases) >= 4
    for release in releases:
        lines = re.findall(r"^- .*(?:\n  .*)*", release, flags=re.M)
        assert [line for line in lines if len(line.split()) > 13] == []  # the dash is one of them
        headings = re.findall(r"^### (\w+)", release, flags=re.M)
        assert "Breaking" not in headings[1:]
