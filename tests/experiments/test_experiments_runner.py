"""The runner: resume, retry, executors that agree, rows that tell their own story."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.studies.experiments.runner import ROWS, Store, append, number, read, require_rows, run_group, run_sweep
from rpl_agent.studies.experiments.suites import key, uniform

pytestmark = pytest.mark.short_runs

KIND = "tests.experiment_kinds:"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Workers are new processes: they must find the tests' own kinds."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def tasks(kind, seeds, **more):
    return [{"kind": KIND + kind, "seed": seed, **more} for seed in seeds]


def results(rows):
    return [row["result"] for row in rows]


def test_a_row_tells_its_whole_story(tmp_path):
    (row,) = run_sweep(tasks("draw", [3]), tmp_path, jobs=1)
    assert row["task"]["seed"] == 3 and row["key"] == key(row["task"])
    assert set(row["run"]) == {"commit", "modified", "versions", "machine", "finished"}
    assert set(row["run"]["machine"]) == {"system", "architecture", "cpus"}  # a class of machine, never its name
    assert row["run"]["versions"]["python"] and row["timing"]["total"] >= 0
    stored = json.loads((tmp_path / ROWS).read_text())
    assert stored == row


def test_without_joblib_one_task_runs_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("rpl_agent.studies.experiments.runner.find_spec", lambda name: None)
    assert len(run_sweep(tasks("draw", range(2)), tmp_path)) == 2
    with pytest.raises(ModelError, match="joblib is not installed"):
        run_sweep(tasks("draw", range(2)), tmp_path, jobs=2)


def test_a_folder_that_cannot_be_made_is_an_error_before_any_run(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr("rpl_agent.studies.experiments.runner.run_group", lambda *_: pytest.fail("a task was run"))
    for output in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ModelError, match="is no folder that can be written to"):
            run_sweep(tasks("draw", [1]), output, jobs=1)


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    first = run_sweep(tasks("draw", range(3)), tmp_path, jobs=1)
    with open(tmp_path / ROWS, "a") as file:
        file.write('{"key": "torn')  # killed while writing
    both = run_sweep(tasks("draw", range(5)), tmp_path, jobs=1)
    assert both[:3] == first and [r["task"]["seed"] for r in both] == list(range(5))
    assert len(read(tmp_path / ROWS)) == 5  # nothing twice, nothing lost
    before = (tmp_path / ROWS).read_bytes()
    assert run_sweep(tasks("draw", range(5)), tmp_path, jobs=1) == both
    assert (tmp_path / ROWS).read_bytes() == before


def test_the_same_task_asked_twice_is_run_once(tmp_path):
    rows = run_sweep(tasks("draw", [1, 1]), tmp_path, jobs=1)
    assert len(rows) == 2 and rows[0] == rows[1] and len(read(tmp_path / ROWS)) == 1


@pytest.mark.parametrize("executor", ["joblib", pytest.param("ray", marks=pytest.mark.nightly)])  # ray starts in 10 s
def test_executors_agree_and_a_dead_worker_is_replaced(tmp_path, executor):
    """Same results as the serial run, although one worker dies on the way; nothing is lost or counted twice."""
    pytest.importorskip(executor)
    asked = tasks("draw", range(4)) + tasks("die_once", [10], folder=str(tmp_path))
    asked += uniform(["Betting-25"], [("clopper-pearson", "tied"), ("clopper-pearson", "expression")], episodes=200)
    rows = run_sweep(asked, tmp_path / "out", jobs=2, executor=executor)
    assert (tmp_path / "died-10").exists()
    assert results(rows) == results(run_sweep(asked, tmp_path / "serial", jobs=1))
    assert sorted(row["key"] for row in read(tmp_path / "out" / ROWS)) == sorted(map(key, asked))


def test_a_task_that_kills_every_worker_is_named_and_the_others_are_kept(tmp_path):
    asked = tasks("draw", range(3)) + tasks("die_always", [99])
    with pytest.raises(DataError, match="1 of 4 runs failed") as caught:
        run_sweep(asked, tmp_path, jobs=2, retries=1)
    assert "worker died" in str(caught.value)
    assert sorted(r["task"]["seed"] for r in read(tmp_path / ROWS)) == [0, 1, 2]


def test_a_failing_task_is_reported_not_stored_and_tried_again(tmp_path):
    asked = tasks("complain_once", [1], folder=str(tmp_path)) + tasks("draw", [2])
    with pytest.raises(DataError, match="ValueError: not yet"):
        run_sweep(asked, tmp_path / "out", jobs=1)
    assert [r["task"]["seed"] for r in read(tmp_path / "out" / ROWS)] == [2]
    assert len(run_sweep(asked, tmp_path / "out", jobs=1)) == 2


def test_a_killed_sweep_keeps_what_its_workers_had_finished(tmp_path):
    """SIGKILL of the driver while a group is half done: the finished tasks are not run again."""
    script = textwrap.dedent("""
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        from rpl_agent.studies.experiments import runner
        from rpl_agent.studies.experiments.runner import append, make_row
        from rpl_agent.studies.experiments.suites import key
        from pathlib import Path
        tasks = [{"kind": "tests.experiment_kinds:draw", "seed": s} for s in range(3)]
        runner.run_group(tasks[:2], str(Path(sys.argv[2]) / ".spool"))
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", script, str(ROOT), str(tmp_path)], capture_output=True)
    assert done.returncode == -9
    store = Store(tmp_path)
    assert store.absorb_spool() == 2 and not store.spool.exists()
    rows = run_sweep(tasks("draw", range(3)), tmp_path, jobs=1)
    assert len(rows) == 3 and len(read(tmp_path / ROWS)) == 3


def test_infinities_survive_json(tmp_path):
    (row,) = run_sweep(tasks("infinite", [0]), tmp_path, jobs=1)
    assert number(row["result"]["bound"]) == float("inf") and number(row["result"]["list"][1]) == float("-inf")
    assert "Infinity" not in (tmp_path / ROWS).read_text()


def test_bad_requests_are_refused(tmp_path):
    with pytest.raises(ModelError, match="executor"):
        run_sweep([], tmp_path, executor="threads")
    with pytest.raises(ModelError, match="jobs 0"):
        run_sweep([], tmp_path, jobs=0)
    (row,) = run_group([{"kind": "dance", "seed": 1}])
    assert "no kind of task 'dance'" in row["error"]
    with pytest.raises(DataError, match="no rows"):
        require_rows(tmp_path / "empty")


def test_rows_are_appended_after_a_torn_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"torn": ')
    append(path, [{"key": "a", "task": {}, "result": {}}])
    assert [r["key"] for r in read(path)] == ["a"]
