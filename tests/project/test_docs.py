"""Everything shown in the README and in docs/ runs.

```python blocks of a page run in order, in one namespace, in an empty folder; lines of ```bash blocks that start with
`rpl ` or `python -m rpl_agent` run through the command line. A block preceded by `<!-- not run: reason -->` is skipped.
By day with a tenth of the episodes, eight times the gap, a third of the points of a curve, one simulated data set per
forecast, small worlds, few looks, few pieces of a region and short proofs; by night as written.
"""

import ast
import importlib.util
import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from rpl_agent.agent import forecast
from rpl_agent.agent.loop import PROVED
from rpl_agent.cli import main
from rpl_agent.guarantee import confidence
from rpl_agent.guarantee.claims import improvement
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+-->\s*\n)?^```(?P<language>python|bash)\n(?P<body>.*?)^```", re.S | re.M
)
EPISODES = re.compile(r"(?P<what>budget=|--budget |--episodes |episodes=)(?P<number>\d[\d_]*)\b")
POINTS = re.compile(r"(?P<what>--points )(?P<number>\d+)\b")
GAP = re.compile(r"(?P<what>\bgap=|--gap )(?P<number>[\d.]+)")
LINK = re.compile(r"\]\((?!https?:|mailto:)([\w./-]+)(?:#[\w-]*)?\)")


def blocks(page: Path):
    return [(m["language"], m["body"]) for m in BLOCK.finditer(page.read_text()) if not m["skip"]]


def shortened(body: str) -> str:
    """The same lines with a tenth of the episodes, at least ten where there were as many; fewer points, wider gaps."""

    def fewer(match: re.Match) -> str:
        number = int(match["number"])
        return f"{match['what']}{max(min(number, 10), number // 10)}"

    body = POINTS.sub(lambda match: f"{match['what']}{max(3, int(match['number']) // 3)}", EPISODES.sub(fewer, body))
    return GAP.sub(lambda match: f"{match['what']}{8 * float(match['number'])}", body)


def make_searches_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast of one data set that is roughly the one asked for, and improvements over few pieces of a region."""
    for module, name, value in (
        (forecast, "FEWEST_DRAWS", 1), (forecast, "MOST_DRAWS", 1), (forecast, "CLOSE", 0.5),
        (improvement, "PIECES", 1), (improvement, "MORE_PIECES", 1),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("as_written", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("page", [
    # the index is the README
    pytest.param(p, id=p.name, marks=pytest.mark.nightly if p.name == "index.md" else ())
    for p in PAGES if blocks(p)
])  # fmt: skip
def test_snippets_run(page, as_written, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    if as_written:
        monkeypatch.setattr("rpl_agent.agent.loop.PROVED", PROVED)
    else:
        make_worlds_small(monkeypatch)
        make_searches_short(monkeypatch)
    monkeypatch.setattr(confidence, "_registry", confidence._registry.copy())  # what a page registers
    namespace: dict = {"__name__": "__main__"}
    ran = 0
    for language, written in blocks(page):
        body = written if as_written else shortened(written)
        if language == "python":
            exec(compile(body, str(page), "exec"), namespace)
            ran += 1
            continue
        for line in body.replace("\\\n", " ").splitlines():
            if line.startswith("rpl "):
                status = main(shlex.split(line, comments=True)[1:])
                assert status == 0, f"{page.name}: {line!r} ended with {status}: {capsys.readouterr().err}"
                ran += 1
    assert ran or all(language == "bash" for language, _ in blocks(page))


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda p: p.stem)
def test_imports_of_notebooks_exist(notebook):
    """By day; they are executed by night."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    code = "\n".join(line for cell in cells for line in "".join(cell["source"]).splitlines() if line[:1] not in "%!")
    taken = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert taken
    for node in taken:
        exec(compile(ast.Module([node], []), str(notebook), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing, f"{page.name} links to missing {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_formulas_are_not_read_as_links(page):
    """P[u](s, a) would be shown as a link named u: the brackets need a backslash."""
    prose = re.sub(r"^```.*?^```|`[^`\n]+`|^    .*?$", "", page.read_text(), flags=re.S | re.M)
    targets = re.findall(r"(?<!\\)\]\(([^)]*)\)", prose)
    assert [target for target in targets if re.search(r"[\s,]", target)] == []


def test_generated_pages_are_up_to_date(monkeypatch, capsys):
    """docs/cli.md and the result tables follow from the code and from results/rows.jsonl.gz."""
    monkeypatch.setenv("COLUMNS", "80")  # which it sets itself, and which is put back
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "docs" / "generate.py"), run_name="__main__")
    assert end.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_commands_of_benchmarks_and_tests_exist(page):
    named = re.findall(r"python -m (benchmarks|tests)([ .])([a-z_.]+)", page.read_text())
    prefix = {("benchmarks", " "): "benchmarks.bench_", ("benchmarks", "."): "benchmarks.", ("tests", "."): "tests."}
    wanted = {prefix[kind, sign] + name.rstrip(".") for kind, sign, name in named}
    assert [name for name in sorted(wanted) if importlib.util.find_spec(name) is None] == []


def test_messages_of_the_page_on_errors_are_those_of_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = [part for line in re.findall(r'^### "(.+)"', page, re.M) for part in re.split(r" … |'[\w-]+'|\[.*", line)]
    code = "".join(path.read_text() for path in (ROOT / "rpl_agent").rglob("*.py"))
    assert len(quoted) >= 7 and [part for part in quoted if part.strip() not in code] == []
