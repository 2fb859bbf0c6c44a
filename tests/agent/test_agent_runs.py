"""Runs in folders, as the command line uses them; the example and the notebook; TensorBoard in a real browser."""

from __future__ import annotations

import csv
import json
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent.agent import runs
from rpl_agent.agent.output.views import LinesView, LiveView, View, duration, line, make_view, render, sparkline
from rpl_agent.agent.schedule import Target
from rpl_agent.agent.session import Session
from rpl_agent.cli import main
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Objective
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.pipeline import Config
from tests.attach_worlds import machine_model

pytestmark = pytest.mark.short_runs

ROOT = Path(__file__).resolve().parents[2]
#: small, because every run ends with a proof in exact fractions
ID, SIZE = "rpl/Betting-v0", {"n": 3}
SOURCE = {"id": ID, "kwargs": SIZE}
WORLD = rpl_envs.benchmark("Betting", **SIZE)


def world(render_mode=None):
    return gym.make(ID, render_mode=render_mode, **SIZE)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One small run, shared."""
    result = runs.train(
        world(), source=SOURCE, log_dir=tmp_path_factory.mktemp("logs"), name="shared", budget=400, seed=0,
        schedule="expression", oracle_theta=WORLD.theta, quiet=True, log_interval=100,
    )  # fmt: skip
    return result


def test_train_leaves_everything_behind(run):
    folder = Path(run["run"])
    names = {p.name.split(".")[0] if p.name.startswith("events") else p.name for p in folder.iterdir()}
    assert {"run.json", "checkpoint.zip", "certificate.json", "progress.csv", "events"} <= names
    json.dumps(run)
    best = solve_at(WORLD.pmdp, WORLD.theta, WORLD.objective).middle
    assert run["lower"] <= best <= run["upper"] and run["episodes"] == 400 and not run["interrupted"]
    assert run["lower"] <= run["oracle_value"] <= best + 1e-4
    assert "with probability ≥ 0.999" in run["text"] and "tensorboard --logdir" in run["text"]
    assert runs.read_source(folder) == SOURCE
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(r["episodes"]) for r in rows] == [100, 200, 300, 400]
    assert all(float(r["guarantee/lower"]) <= float(r["oracle/value"]) for r in rows)


def test_figures_and_hyperparameters_are_logged(run):
    pytest.importorskip("matplotlib")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(run["run"], size_guidance={"images": 0, "scalars": 0, "tensors": 0}).Reload()
    assert events.Tags()["images"] == []  # a short run spent a fifth of its time on pictures
    assert [point.step for point in events.Scalars("guarantee_by_steps/gap")] == [400, 800, 1200, 1600]
    assert sum(path.name.startswith("events") for path in Path(run["run"]).rglob("*")) == 1  # one run on the board
    assert min(events.Tags()["scalars"]).startswith("guarantee/")  # which the board, sorted by name, opens on
    words = events.Tensors("guarantee/text_summary")[-1].tensor_proto.string_val[0].decode()
    stored = Certificate.from_json(Path(run["run"]) / "certificate.json")
    assert "δ = 0.001" in words and "achieves at least" in words and repr(stored.lower) in words
    from tensorboard.plugins.hparams.metadata import EXPERIMENT_TAG, parse_experiment_plugin_data

    stored = parse_experiment_plugin_data(events.SummaryMetadata(EXPERIMENT_TAG).plugin_data.content)
    shown = [f"guarantee/{name}" for name in ("gap", "regret", "lower", "upper")]
    assert [m.name.tag for m in stored.metric_infos] == shown
    types = {info.name: info.type for info in stored.hparam_infos}
    assert (types["model"], types["delta"], types["seed"]) == (1, 3, 3)  # text, number
    assert sorted(types)[:5] == ["confidence", "delta", "exploration", "model", "relaxation"]  # what the table shows


def test_the_report_shows_what_logging_and_the_proof_took(run, tmp_path):
    from rpl_agent.studies.experiments.api import report_run

    page = Path(report_run(run["run"], tmp_path / "page.html")["page"]).read_text()
    bars = json.loads(re.search(r'"x": (\["sampling".*?\])', page)[1])
    assert {"solve", "proof", "logging"} <= set(bars) and run["stages"]["proof"] > 0 and run["stages"]["logging"] > 0


def test_resume_goes_on_to_a_new_total(run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(run["run"], folder)
    more = runs.resume(folder, world(), budget=600, quiet=True)
    whole = runs.train(
        world(), source=SOURCE, log_dir=tmp_path, name="whole", budget=600, seed=0, schedule="expression", quiet=True,
        log_interval=100,
    )  # fmt: skip
    data = [runs.load_run(path, world()).counts for path in (folder, tmp_path / "whole")]
    assert np.array_equal(data[0].transitions, data[1].transitions) and more["steps"] == whole["steps"]
    # bets were sized for another end before the budget was extended
    gaps = [result["upper"] - result["lower"] for result in (more, whole)]
    assert gaps[1] < gaps[0] < 1.2 * gaps[1]
    with (folder / "progress.csv").open() as file:
        assert [int(r["episodes"]) for r in csv.DictReader(file)] == [100, 200, 300, 400, 500, 600]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    for tag, size in (("guarantee/gap", 100), ("guarantee_by_steps/gap", 400)):
        assert [point.step for point in events.Scalars(tag)] == [size * k for k in range(1, 7)]


def test_what_is_shown_of_a_run_is_what_is_proved(run, capsys):
    stored = Certificate.from_json(Path(run["run"]) / "certificate.json")
    assert stored.proved
    agent = runs.load_run(Path(run["run"]), world())
    assert (agent.certificate.lower, agent.certificate.upper) == (stored.lower, stored.upper)
    shown = runs.evaluate_run(run["run"], world(), episodes=20)
    assert main(["info", run["run"], "--json"]) == 0
    for found in (run, shown, json.loads(capsys.readouterr().out)):
        assert (found["lower"], found["upper"]) == (stored.lower, stored.upper)


def test_runs_continued_in_the_same_second_keep_their_events(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from rpl_agent.agent.output.events import TensorBoardWriter

    for clock, step in ((2e9, 100), (2e9, 200), (2e9 - 3600, 300)):  # the clock may also be set back
        monkeypatch.setattr("rpl_agent.agent.output.events.time.time", lambda clock=clock: clock)
        TensorBoardWriter(tmp_path, resume_at=step - 100).write({"guarantee/gap": 1.0, "samples/steps": step}, step)
    assert [point.step for point in EventAccumulator(str(tmp_path)).Reload().Scalars("guarantee/gap")] == [
        100,
        200,
        300,
    ]


def test_resumed_logs_hide_what_came_after_the_checkpoint(run, tmp_path):
    from rpl_agent.agent.output.logger import CSVWriter

    path = tmp_path / "progress.csv"
    shutil.copy(Path(run["run"]) / "progress.csv", path)
    writer = CSVWriter(path, resume_at=200)
    writer.write({"guarantee/lower": 1.5, "new/tag": 3.0}, 250)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(r["episodes"]) for r in rows] == [100, 200, 250] and rows[-1]["new/tag"] == "3"


def test_evaluate_by_sampling_and_exactly(run):
    result = runs.evaluate_run(run["run"], world(), episodes=4000, theta=WORLD.theta, seed=3)
    assert abs(result["monte_carlo"] - result["exact"]) < 5 * result["standard_error"]
    assert (
        result["exact"] <= result["optimum"] + 1e-6
        and abs(result["optimum"] - solve_at(WORLD.pmdp, WORLD.theta, WORLD.objective).middle) < 1e-3
    )
    json.dumps(result)


def test_certify_run_computes_the_certificate_anew(run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(run["run"], folder)
    (folder / "certificate.json").unlink()
    result = runs.certify_run(folder)
    assert abs(result["lower"] - run["lower"]) < 1e-5 and (folder / "certificate.json").is_file()


def test_names_and_folders(run, tmp_path):
    quick = {"source": SOURCE, "log_dir": tmp_path, "budget": 2, "quiet": True, "config": Config("anytime", "tied")}
    with pytest.raises(ModelError, match="plain folder name"):
        runs.train(world(), name="../outside", **quick)
    runs.train(world(), name="once", **quick)
    with pytest.raises(ModelError, match="rpl resume"):
        runs.train(world(), name="once", **quick)
    first, second = (Path(runs.train(world(), **quick)["run"]).name for _ in range(2))
    assert (first, second) == ("Betting-3_1", "Betting-3_2")
    with pytest.raises(FileNotFoundError):
        runs.resume(tmp_path / "nowhere", world())
    with pytest.raises(FileNotFoundError):
        runs.read_source(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        runs.read_source(tmp_path)
    with pytest.raises(ModelError, match="schedule 'sometimes'"):
        runs.parse_schedule("sometimes")
    assert runs.parse_schedule("every:7").n == 7


# ---------------------------------------------------------------------- what people see
def session(**certificate):
    """A run after 50 of 100 episodes."""
    figures = {"lower": 0.25, "upper": 0.5, "gap": 0.25, "regret": 0.125, "sentence": ""}
    shown = SimpleNamespace(**figures | certificate)
    made = Session(0, Config(delta=0.001))
    made.certificate, made.target = shown, Target("episodes", 100)
    pmdp, objective = machine_model()
    made.start(pmdp, objective)
    made.episodes, made.steps, made.updates, made.returns = 50, 500, 7, [-0.1]
    made.planner.seconds.update(solve=3.0, region=1.0)
    return made


def test_the_panel_ends_with_an_empty_line():
    """Rows are as wide as the terminal: behind the last one the echo of Ctrl-C began a line that nobody erased."""
    from rich.console import Console

    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    console.print(render(session(sentence="at least 0.25, " * 9), [0.5]), end="")
    lines = console.export_text().split("\n")
    assert max(map(len, lines)) == 80 and not lines[-1].strip() and not lines[-2].strip()


def test_lines_and_panel_show_the_figures(capsys):
    text = line(session(), 10.0)
    assert "50/100" in text and "lower 0.25" in text and "gap 0.25" in text and "left 0:10" in text
    assert "regret 0.125" in text
    from rich.console import Console

    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    promise = "this policy achieves at least 0.25; no policy achieves more than 0.5"
    console.print(render(session(sentence=promise), [0.5, 0.3, 0.25]))
    panel = console.export_text()
    assert "\nepisodes   50 of 100  " in panel and "mean cost of the exploring policy 0.1" in panel
    assert promise in " ".join(panel.split()) and "δ = 0.001" in panel
    assert "0.25 ≤ V ≤ 0.5" in panel and "solve 75%" in panel and "updates" in panel
    assert "not yet certified" not in panel and "at most 0.125: no policy is better by more" in panel
    limited = session(sentence=promise)
    limited.objective = Objective.parse("maximise probability of a subject to probability of b <= 0.1")
    console.print(render(limited, [0.5]))
    assert "no policy within the limits is better by more" in console.export_text()
    view = LiveView(Console(force_terminal=True, width=90))
    view.start()
    view.certified(session())
    view.stop()
    assert "≤ V ≤" in capsys.readouterr().out


def test_sparkline_and_durations():
    assert sparkline([8, 4, 2, 1]) == "█▆▃▁" and sparkline([]) == "" and sparkline([3.0]) == "█"
    assert duration(65) == "1:05" and duration(3661) == "1:01:01" and duration(float("nan")) == "–"


def test_views_by_verbosity():
    assert type(make_view(False, 0)) is View
    assert isinstance(make_view(True, 0), LinesView) and isinstance(make_view(False, 1), LinesView)  # no terminal here


# ---------------------------------------------------------------------- examples
def test_the_example_trains_and_resumes(tmp_path, capsys, monkeypatch):
    for more in ([], ["--resume", str(tmp_path / "aircraft_1")]):
        monkeypatch.setattr(sys, "argv", ["train_aircraft.py", "--budget", "30", "--log-dir", str(tmp_path), *more])
        runpy.run_path(str(ROOT / "examples" / "train_aircraft.py"), run_name="__main__")
        said = capsys.readouterr().out
        assert "with probability ≥ 0.999" in said and (more or "arrive" in said)


def test_the_cells_of_an_own_environment_run(monkeypatch, capsys):
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    cells = json.loads((ROOT / "examples" / "own_env.ipynb").read_text())["cells"]
    namespace: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("budget=1000", "budget=100"), namespace)
    said = capsys.readouterr().out
    assert "nothing looks wrong" in said and "with probability ≥ 0.999" in said and "seal 2, hour 7: fast" in said


def test_wandb_is_told_of_the_run_folder(monkeypatch, tmp_path):
    """`wandb.init(sync_tensorboard=True)` patches TensorBoard's writer and watches where one is made, not ours."""
    from rpl_agent.agent.output.events import TensorBoardWriter

    made = []

    class Writer:
        def __init__(self, logdir):
            made.append(logdir)

        def close(self):
            pass

    monkeypatch.setattr("tensorboard.summary.writer.event_file_writer.EventFileWriter", Writer)
    TensorBoardWriter(tmp_path / "alone")
    monkeypatch.setitem(sys.modules, "wandb", object())
    TensorBoardWriter(tmp_path / "watched")
    assert made == [str(tmp_path / "watched")]


# ---------------------------------------------------------------------- TensorBoard, in a browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_the_margin_chart_is_seen_in_a_browser(run, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, picture = f"http://127.0.0.1:{port}", tmp_path / "board.png"
    board = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", run["run"], "--port", str(port), "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(f"{address}/data/plugin/custom_scalars/layout", b"guarantee/upper")
        subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={tmp_path / 'profile'}",
             "--window-size=1100,700", "--virtual-time-budget=30000", f"--screenshot={picture}",
             f"{address}/#custom_scalars"],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
    finally:
        board.terminate()
        board.wait(timeout=20)
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    # TensorBoard's first run colour is orange; the band of the margin chart is the same at a fraction of its opacity
    band = (np.abs(pixels - np.array([255, 211, 199])) <= 12).all(axis=2)
    assert band.sum() > 500


def wait_until(url, content, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if content in urllib.request.urlopen(url, timeout=5).read():
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"{url} did not answer with {content!r}")


def test_polygons_are_clipped():
    from rpl_agent.agent.output.plotting.region import clip

    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    half = clip(square, np.array([1.0, 0.0]), 0.5)
    assert np.isclose(half[:, 0].max(), 0.5) and len(half) == 4
    assert len(clip(square, np.array([1.0, 0.0]), -1.0)) == 0


def test_a_longer_run_ends_with_pictures(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from rpl_agent.agent.output import tensorboard

    monkeypatch.setattr(tensorboard, "PICTURE_SECONDS", 0.0)
    found = runs.train(world(), source=SOURCE, log_dir=tmp_path, budget=40, seed=0, quiet=True, log_interval=20)
    events = EventAccumulator(found["run"], size_guidance={"images": 0}).Reload()
    assert set(events.Tags()["images"]) == {"region/outline", "policy/map"}
    assert [picture.step for picture in events.Images("region/outline")] == [40]


def test_no_picture_ends_a_run(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from rpl_agent.agent.output import tensorboard
    from rpl_agent.core.errors import RPLWarning

    def fails(*_):
        raise IndexError("too many indices")

    monkeypatch.setattr(tensorboard, "PICTURE_SECONDS", 0.0)
    monkeypatch.setattr(tensorboard, "region_figure", fails)
    with pytest.warns(RPLWarning, match="a picture for TensorBoard is left out: IndexError"):
        found = runs.train(world(), source=SOURCE, log_dir=tmp_path, budget=40, seed=0, quiet=True, log_interval=20)
    assert found["episodes"] == 40


def test_what_takes_long_is_written_rarely(monkeypatch):
    from rpl_agent.agent.storage import pace

    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    files = pace.Pace(least=5.0)
    assert files.is_due()
    for took, rest in ((0.001, 5.0), (3.0, 100.0)):
        with files.measured():
            now[0] += took
        now[0] += rest - 0.1
        assert not files.is_due()
        now[0] += 0.2
        assert files.is_due()


def test_the_last_certificate_is_written_however_slow_files_are(tmp_path, monkeypatch):
    from rpl_agent.agent import loop

    written = []
    original = loop.write_certificate
    monkeypatch.setattr(loop, "write_certificate", lambda *given: written.append(given) or original(*given))
    monkeypatch.setattr(loop.Pace, "is_due", lambda self: False)
    runs.train(world(), source=SOURCE, log_dir=tmp_path, budget=40, seed=0, quiet=True, log_interval=10)
    assert len(written) == 1 and written[0][1].samples > 0
