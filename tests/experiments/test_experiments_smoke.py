"""`reproduce`, `compare` and `report` from end to end, at smoke size; tables and figures from rows alone."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.api import compare, report, reproduce
from rpl_agent.studies.experiments.report.charts import compare_chart
from rpl_agent.studies.experiments.report.sweep import headline
from rpl_agent.studies.experiments.runner import Store
from rpl_agent.studies.experiments.tables import short, tables, uniform_table

pytestmark = pytest.mark.short_runs


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """One small sweep for all tests of this file."""
    folder = tmp_path_factory.mktemp("results")
    arguments = {"output": folder, "quick": True, "jobs": 1}
    reproduce(suite=["sizes", "Betting-25", "Glider-11x9"], **arguments)
    reproduce(suite=["uniform", "Betting-25", "Glider-11x9"], budget=300, **arguments)
    reproduce(suite=["online", "Betting-25"], budget=30, **arguments)
    agents = ["rpl", "q-learning", "ce-structured"]
    compare(["rpl/Betting-25-v0"], agents=agents, seeds=2, budget=30, output=folder, jobs=1)
    return folder


def test_every_set_bounds_the_optimum(results):
    rows = Store(results).all("uniform")
    assert len(rows) == 2 * len(suites.UNIFORM_SETS)
    for row in rows:
        result = row["result"]
        assert result["covered"] and not result["refuted"], row["task"]
        assert row["timing"]["build"] >= 0 and row["timing"]["solve"] > 0
    gap = {
        (r["task"]["instance"], r["task"]["confidence"], r["task"]["relaxation"]): float(r["result"]["relative_gap"])
        for r in rows
    }
    for name in ("Betting-25", "Glider-11x9"):  # the inclusion hierarchy of Theorem 2
        tied, expression, rectangular = (gap[name, "clopper-pearson", r] for r in ("tied", "expression", "rectangular"))
        assert rectangular <= expression + 1e-6 <= tied + 2e-6
        assert gap[name, "likelihood", "rectangular"] < rectangular


def test_sizes_are_the_published_ones(results):
    (table,) = [t for t in tables(Store(results).all()) if t.name == "table1_sizes"]
    assert {row[0] for row in table.rows} == {"Betting-25", "Glider-11x9"}
    assert all(row[8] == "yes" for row in table.rows)


def test_learning_curves_are_whole(results):
    for row in Store(results).all("online") + Store(results).all("compare"):
        curve = row["result"]["curve"]
        assert curve[-1]["episodes"] == 30 and len(row["timing"]["curve"]) == len(curve)
        assert [p["episodes"] for p in curve] == suites.checkpoints(30)
        for point in curve:
            assert float(point["true"]) <= row["result"]["value"] + 1e-5  # nobody beats the optimum
            if point["certified"] is not None:
                assert point["certified"] <= point["true"] + 1e-5  # a guarantee is never above the truth here
    agents = {r["task"]["agent"]: r["result"]["curve"][-1]["certified"] for r in Store(results).all("compare")}
    assert agents["rpl"] is not None and agents["q-learning"] is None


def test_asking_again_runs_nothing(results, monkeypatch):
    def forbidden(kind):
        raise AssertionError("was run again")

    monkeypatch.setattr("rpl_agent.studies.experiments.runner.resolve", forbidden)
    again = reproduce(suite=["uniform", "Betting-25"], quick=True, budget=300, output=results, jobs=1)
    assert again["runs"] == len(suites.UNIFORM_SETS) and "Betting-25" in again["text"]
    json.dumps(again)  # what --json prints


def test_one_page_without_the_network(results):
    made = report(results, results / "report.html")
    page = (results / "report.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=['\"]?(https?:)?//", page)
    assert page.count("src='data:image/png;base64,") == 2  # two worlds are pictured
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', page, re.S)[1])
    assert [chart["id"] for chart in charts] == ["agents", "online", "gap", "shares", "seconds", "gaps", "policies"]
    assert len(charts) == made["charts"] and set(charts[-1]["panels"]) == {"Betting-25", "Glider-11x9"}
    assert "Comparison of agents" in page and "P_Λ(U)" in page and "versions" in page
    for name in ("table1_sizes", "table2_uniform", "table2_gaps", "table3_seconds", "figure4_online", "compare"):
        text = (results / "tables" / f"{name}.csv").read_text()
        assert len(text.splitlines()) >= 2
    for name in ("figure4.png", "gaps.png", "agents.png", "seconds.png", "worlds/Betting-25.png"):
        assert (results / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_a_comparison_opens_on_ppo_dqn_and_ours_over_steps():
    chart = compare_chart(Store(Path(__file__).resolve().parents[2] / "results").all("compare"))
    for panel in chart.panels.values():
        assert panel["layout"]["xaxis"]["title"]["text"] == "steps"
        lines = [trace for trace in panel["traces"] if trace.get("showlegend", True)]
        assert {t["name"] for t in lines if "visible" not in t} == {"ours (rpl)", "PPO", "DQN", "the best policy (V*)"}
        assert {"q-learning", "maskable-ppo"} <= {t["name"] for t in lines if t.get("visible") == "legendonly"}
    ours = [t for t in chart.panels["Betting-25"]["traces"] if t.get("legendgroup") == "ours (rpl)" and "fill" not in t]
    true, guarantee = (next(t for t in ours if t["meta"]["kind"] == kind) for kind in ("true", "guarantee"))
    assert true["x"][-1] == 3000 * 26 and all(g <= v for g, v in zip(guarantee["y"], true["y"]))


def test_a_sweep_of_one_run_is_spoken_of_in_the_singular():
    """It was "1 runs on 1 worlds", and a curve without a finite point was a name in the legend and no more."""
    rows = Store(Path(__file__).resolve().parents[2] / "results").all("compare")
    row = copy.deepcopy(next(r for r in rows if r["task"]["agent"] == "q-learning" and r["result"]["sense"] == "min"))
    row["result"]["curve"][-1]["true"] = "inf"
    what, agents = headline([row])
    assert what.startswith("1 run on 1 world, ") and "1 cores" not in what
    assert agents == "1 agent ran with at least 1 seed each; without any guarantee at the end: 1."
    (panel,) = compare_chart([row]).panels.values()
    assert "No finite cost at the end: q-learning." in panel["note"]


def test_the_papers_figures_stand_beside_ours():
    task = suites.uniform(["Aircraft-50x10"], [("clopper-pearson", "rectangular")])[0]
    result = {
        "lower": 0.72, "upper": 0.76, "value": 0.746, "relative_gap": 0.054, "covered": True, "fallback": None,
        "slack": 0.0,
    }  # fmt: skip
    row = {"task": task, "result": result, "timing": {"build": 0.1, "solve": 0.2}}
    (line,) = uniform_table([row]).rows
    assert line[2:9] == ["[0.72, 0.76]", "0.054", "0.1", "0.2", "[0.725, 0.761]", "0.05", "47.1"]
    missed = row | {"result": result | {"covered": False, "fallback": "because"}}
    assert uniform_table([missed]).rows[0][-1] == "fallback to untied intervals; V* outside in 1 of 1"


def test_numbers_are_printed_as_in_the_paper():
    printed = [short(x) for x in (0.0904, 5422.3, float("inf"), float("nan"), 12.345)]
    assert printed == ["0.0904", "5422", "∞", "–", "12.3"]


def test_wrong_names_are_refused(tmp_path):
    with pytest.raises(ModelError, match="no part or instance"):
        reproduce(suite=["Atlantis"], output=tmp_path)
    with pytest.raises(ModelError, match="no agent"):
        compare(["rpl/Betting-25-v0"], agents=["oracle"], output=tmp_path)
    with pytest.raises(ModelError, match="no world"):
        compare(["rpl/Atlantis-v0"], output=tmp_path)


def test_every_agent_can_be_made_and_has_the_surface():
    from rpl_agent.studies.experiments.tasks import AGENTS, make

    for name in AGENTS:
        agent = make(name, seed=3)
        assert agent.num_episodes == 0 and agent.certificate is None
        for method in ("learn", "predict", "save", "load", "set_env"):
            assert callable(getattr(agent, method)), (name, method)
    with pytest.raises(ModelError, match="no agent"):
        make("oracle", seed=0)
