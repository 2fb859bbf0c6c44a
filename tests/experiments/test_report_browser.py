"""The report in a real browser: charts are drawn, switches work, tables sort and filter, nothing is fetched."""

from __future__ import annotations

import pytest

from rpl_agent.cli import main
from rpl_agent.studies.experiments.api import compare, report
from tests.browser import browser, open_page  # noqa: F401

pytestmark = pytest.mark.short_runs


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    worlds, agents = ["rpl/Glider-11x9-v0", "rpl/Betting-25-v0"], ["rpl", "q-learning"]
    compare(worlds, agents=agents, seeds=1, budget=10, output=folder, jobs=1)
    report(folder, folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize(("width", "dark"), [pytest.param(1280, False, marks=pytest.mark.nightly), (390, True)])
def test_charts_tables_and_switches(sweep, browser, width, dark):  # noqa: F811
    with open_page(browser, sweep.as_uri(), width, dark) as (page, errors):
        page.wait_for_selector("#agents .main-svg")
        assert page.eval_on_selector_all(".chart .main-svg", "found => found.length") >= 2
        lines = "document.querySelectorAll('#agents .scatterlayer .trace').length"
        before = page.evaluate(lines)
        shown = "document.querySelector('#agents .chart')._fullLayout.xaxis.range"
        low, high = page.evaluate(shown)
        assert high - low < 3.0  # decades around the only point of 10 episodes; it was 0.1 to 10^6
        page.uncheck("#agents input[value=guarantee]")
        page.wait_for_function(f"{lines} < {before}")
        page.select_option("#agents select", "Betting-25")
        page.wait_for_function("document.querySelector('#agents .panel-note').textContent.startsWith('Higher')")
        rows = "[...document.querySelectorAll('#compare tbody tr')].filter(row => !row.hidden)"
        assert page.evaluate(f"{rows}.length") == 4
        page.fill("#compare input[type=search]", "q-learning glider")
        assert page.evaluate(f"{rows}.length") == 1
        page.fill("#compare input[type=search]", "")
        page.click("#compare th:nth-child(2)")
        names = page.evaluate(f"{rows}.map(row => row.cells[1].textContent)")
        assert names == sorted(names)
        theme = page.evaluate("document.documentElement.dataset.theme")
        assert theme == ("dark" if dark else "light")
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") != theme
        low, high = page.evaluate(shown)
        assert high - low < 3.0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert errors == []


def test_the_page_of_a_single_run(browser, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    assert main(["train", "rpl/Glider-11x9-v0", "--budget", "10", "--name", "run", "--quiet"]) == 0
    assert main(["report", "logs/run"]) == 0
    with open_page(browser, (tmp_path / "logs" / "run" / "report.html").as_uri()) as (page, errors):
        page.wait_for_selector("#policies .main-svg")
        assert page.evaluate("document.querySelectorAll('#policies .textpoint').length") > 20  # arrows on the grid
        assert page.inner_text("#headline .answer").startswith("at most ")
        assert "the expected time until “goal” is at most" in page.inner_text("#headline")
        assert page.evaluate("document.querySelectorAll('a[download]').length") == 2
        assert errors == []
