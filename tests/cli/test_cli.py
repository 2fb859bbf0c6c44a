"""The command line: bad input is one line and exit status 2, --json is always JSON, help answers without imports."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rpl_agent
from rpl_agent.agent.output.views import tensorboard_command
from rpl_agent.cli import build_parser, main
from rpl_agent.guarantee.certificate import versions

pytestmark = pytest.mark.short_runs

WORLD = "rpl/Glider-11x9-v0"
TRAIN = ("train", WORLD, "--budget", "20", "--quiet")
LONG = "x" * 300
#: command lines that are wrong, and words that the message must contain
WRONG = [
    (("train", WORLD, "--seed", "-1"), "--seed"),
    (("train", WORLD, "--seed", str(2**40)), "--seed"),
    (("train", WORLD, "--seed", "1.5"), "--seed"),
    (("train", WORLD, "--budget", "0"), "--budget"),
    (("train", WORLD, "--budget", "1.5"), "--budget"),
    (("train", WORLD, "--budget", "1e99"), "--budget"),
    (("train", WORLD, "--budget", "nan"), "--budget"),
    (("train", WORLD, "--budget", "many"), "--budget"),
    (("train", WORLD, "--stop-when-gap", "inf"), "--stop-when-gap"),
    (("train", WORLD, "--stop-when-gap", "-1"), "--stop-when-gap"),
    (("train", WORLD, "--stop-when-gap", "nan"), "--stop-when-gap"),
    (("train", WORLD, "--weight", "1.1"), "--weight"),
    (("train", WORLD, "--delta", "0"), "--delta"),
    (("train", WORLD, "--delta", "nan"), "--delta"),
    (("train", WORLD, "--precision", "1"), "--precision"),
    (("train", WORLD, "--max-steps", "0"), "--max-steps"),
    (("train", WORLD, "--checkpoint-every", "0"), "--checkpoint-every"),
    (("train", WORLD, "--name", LONG), "longer than"),
    (("train", WORLD, "--name", "a/b"), "plain folder name"),
    (("train", WORLD, "--name", ""), "plain folder name"),
    (("train", WORLD, "--log-dir", LONG, "--budget", "5"), "name too long"),
    (("train", WORLD, "--schedule", "sometimes"), "schedule"),
    (("train", WORLD, "--schedule", "every:" + "9" * 30), "schedule"),
    (("train", WORLD, "--schedule", "every:0"), "at least 1"),
    (("certify", WORLD), "--episodes"),
    (("certify", WORLD, "--data", "nowhere.csv"), "nowhere.csv"),
    (("solve", WORLD, "--theta", "theta_h=x"), "not a number"),
    (("solve", WORLD, "--theta", "theta_h=nan", "--theta", "theta_v=0.5"), "finite"),
    (("info", "--model", "."), "cannot read"),
    (("train", "rpl/Glider-11x9-v7"), "rpl/Glider-11x9-v0"),
    (("train", "rpl/Aircraft-20x1-v0"), "rpl/Aircraft-20x10-v0"),
    (("info", "aircraft20x10"), "rpl/Aircraft-20x10-v0"),
    (("train", WORLD, "--confidence", "anytme"), "nearest is anytime"),
    (("trian", WORLD), "nearest is train"),
    ((), "COMMAND"),
    (("info", WORLD, "--nonsense"), "--nonsense"),
    (("certify", WORLD, "--episodes", "0"), "--episodes"),
    (("certify", WORLD, "--episodes", "5", "--output", "x.yaml"), ".json"),
    (("certify", WORLD, "--episodes", "5", "--output", "."), "folder"),
    (("certify", WORLD, "--episodes", "5", "--output", "nowhere/x.json"), "nowhere"),
    (("certify", WORLD, "--episodes", "5", "--output", LONG + ".json"), "long"),
    (("plot-region", WORLD, "--output", "x.docx"), ".png"),
    (("export", WORLD, "--episodes", "5", "--uncertain", "x.txt"), ".drn"),
    (("export", WORLD, "--episodes", "5"), "nothing to write"),
    (("evaluate", "run", "--episodes", "0"), "--episodes"),
    (("watch", "run", "--output", "x.avi"), ".gif"),
    (("watch", "run", "--fps", "0"), "--fps"),
    (("watch", "run", "--episodes", "0"), "--episodes"),
    (("watch", "nowhere"), "nowhere"),
    (("resume", "nowhere"), "nowhere"),
    (("resume", LONG), "too long"),
    (("info", "--model", "nowhere.prism"), "nowhere.prism"),
    (("solve", WORLD, "--precision", "-1"), "--precision"),
    (("compare", WORLD, "--seeds", "0"), "--seeds"),
    (("compare", WORLD, "--jobs", "0"), "--jobs"),
    (("report", "--output", "x.pdf"), ".html"),
    (("worlds", "chess"), "chess"),
    (("evaluate", "--policy", "p.zip", "--env", "nope"), "no environment 'nope'"),
    (("train", WORLD, "--budget", "20", "--explore-within-limits"), "(--subject-to)"),
]


@pytest.mark.parametrize("line, words", WRONG, ids=[" ".join(line)[:60] for line, _ in WRONG])
def test_wrong_input_is_one_line(line, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(line) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and words.lower() in printed.err.lower()
    assert printed.err.count("\n") == 1 and printed.err.startswith("rpl") and len(printed.err) < 700
    assert main([*line, "--json"]) == 2
    assert words.lower() in json.loads(capsys.readouterr().out)["error"].lower()
    assert not any(tmp_path.iterdir()), "nothing is left behind"


def test_a_defect_is_json_too(capsys, monkeypatch):
    def broken(arguments):
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr("rpl_agent.cli.inspect.run_worlds", broken)
    assert main(["worlds", "--json"]) == 1
    printed = capsys.readouterr()
    assert "unexpected" in json.loads(printed.out)["error"] and "Traceback" in printed.err


def test_worlds(capsys):
    assert main(["worlds", "--json"]) == 0
    worlds = {world["id"]: world for world in json.loads(capsys.readouterr().out)["worlds"]}
    glider = worlds[WORLD]
    assert glider["parameters"] == ["theta_h", "theta_v"] and "min" in glider["objective"]
    assert main(["info", WORLD, "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert all(info[key] == glider[key] for key in ("states", "transitions", "expressions", "objective"))
    assert main(["worlds", "aircraft"]) == 0
    text = capsys.readouterr().out
    assert "rpl/Aircraft-20x10-v0" in text and "Glider" not in text and "Pmax" in text


def test_a_model_file_is_read_once_and_only_for_a_property_that_can_be_read(tmp_path, monkeypatch, capsys):
    from rpl_agent.formats import prism

    loaded, load = [], prism.load
    monkeypatch.setattr(prism, "load", lambda *a, **k: loaded.append(a) or load(*a, **k))
    path = tmp_path / "coin.prism"
    path.write_text("mdp const double p; module m x:[0..2] init 0; [] x=0 -> p:(x'=1)+1-p:(x'=2); endmodule")
    file = [str(path), "--param", "p=0.1:0.9", "--json"]
    for line, error in ((file, "no property"), ([*file, "--property", "Pmax=? [ F x= ]"], "<property>")):
        assert main(["train", *line]) == 2
        assert error in json.loads(capsys.readouterr().out)["error"]
    assert not loaded
    assert main(["info", *file]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["states"], facts["parameters"], facts["objective"]) == (3, 1, None)
    assert main(["info", *file, "--property", "Pmax=? [ F x=1 ]"]) == 0
    assert "max" in json.loads(capsys.readouterr().out)["objective"]
    assert len(loaded) == 2


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and rpl_agent.__version__ in capsys.readouterr().out
    assert versions()["rpl-agent"] == rpl_agent.__version__  # what rows and certificates record


def test_options_have_the_defaults_of_what_they_set():
    from rpl_agent.guarantee.pipeline import Config

    arguments = build_parser().parse_args(["train", WORLD, "--budget", "1e5"])
    assert arguments.budget == 100_000
    config = Config()
    assert (arguments.confidence, arguments.delta) == (config.confidence, config.delta)
    assert (arguments.relaxation, arguments.precision) == (config.relaxation, config.precision)


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_and_import_load_nothing_heavy():
    loaded = _run(
        "import sys, rpl_agent, rpl_agent.cli\n"
        "rpl_agent.cli.build_parser().format_help()\n"
        "print([m for m in ('numpy', 'scipy', 'rich', 'gymnasium') if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_public_names_are_there_whatever_was_imported_first():
    """But `from_sb3`, which loads torch and has an example of its own."""
    _run(
        "import rpl_agent.guarantee.pipeline\n"
        "from rpl_agent import certify, solve, RPLAgent, __all__\n"
        "import rpl_agent\n"
        "assert callable(certify) and callable(rpl_agent.certify)\n"
        "assert 'from_sb3' in __all__ and set(__all__) <= set(dir(rpl_agent))\n"
        "assert all(getattr(rpl_agent, name) is not None for name in __all__ if name != 'from_sb3')\n"
    )


def test_the_default_path_loads_neither_scipy_stats_nor_torch(tmp_path):
    loaded = _run(
        "import sys, gymnasium, rpl_envs\n"
        "gymnasium.registry['rpl/Aircraft-20x10-v0'].kwargs.update(X=4, Y=3)  # its proof is short\n"
        "from rpl_agent.cli import main\n"
        "line = ['train', 'rpl/Aircraft-20x10-v0', '--budget', '10', '--quiet', '--log-dir']\n"
        f"assert main([*line, {str(tmp_path)!r}]) == 0\n"
        "heavy = ('scipy.stats', 'scipy.optimize', 'torch', 'stable_baselines3', 'rpl_agent.formats', "
        "'rpl_agent.studies.baselines', 'rpl_agent.studies.experiments', 'joblib', 'ray')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert loaded.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "source", [{"id": 5}, {"id": WORLD, "theta": 3}, {"theta": [1]}, {"max_steps": True}, {"model": {}}]
)
def test_a_damaged_run_is_one_line(source, capsys, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"source": source}))
    for command in ("resume", "evaluate", "watch", "certify", "report"):
        assert main([command, str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert ("checkpoint" if command in ("certify", "report") else "run.json") in err and err.count("\n") == 1


def test_a_run_of_a_model_file_lives_on(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("coin.prism").write_text(
        "mdp const double p; module coin s:[0..2] init 0; [toss] s=0 -> p:(s'=1)+(1-p):(s'=2); [stay] s>0 -> true;"
        'endmodule label "goal" = s=1;'
    )
    model = ("--model", "coin.prism", "--property", 'Pmax=? [F "goal"]', "--theta", "p=0.4", "--max-states", "100")
    assert main(["train", *model, "--budget", "1e2", "--name", "coin", "--json"]) == 0
    assert main(["evaluate", "logs/coin", "--episodes", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["exact"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    "agent, words", [("dqn", "pip install stable-baselines3"), ("q-learning", "pip install joblib")]
)
def test_compare_says_what_to_install(agent, words, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("rpl_agent.studies.experiments.tasks.find_spec", lambda name: None)
    monkeypatch.setattr("rpl_agent.studies.experiments.runner.find_spec", lambda name: None)
    assert main(["compare", WORLD, "--agents", agent, "--jobs", "2", "--output", str(tmp_path / "results")]) == 2
    printed = capsys.readouterr().err
    assert words in printed and printed.count("\n") == 1


def test_the_printed_tensorboard_command_runs(tmp_path):
    """The environment of `make train` has the core dependencies only; torch is hidden here as it is absent there."""
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    core, extras = project.split("[project.optional-dependencies]")
    assert '"tensorboard>=' in core and '"tensorboard>=' not in extras
    command = shlex.split(tensorboard_command(tmp_path))
    assert command[-2:] == ["--logdir", str(tmp_path)]
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    shown = subprocess.run(
        [*command, "--inspect"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr


def test_two_interrupts_end_in_one_line(tmp_path, monkeypatch, capsys):
    """The second Ctrl-C stops at once, saves what there is, and says how to go on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rpl_agent.cli", "train", WORLD, "--budget", "1e9", "--no-progress"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("episodes"):
            break
    process.send_signal(signal.SIGINT)  # asks
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)  # stops; unless the first one was enough by then
    out, err = process.communicate(timeout=300)
    # for a shell both are 130; Python ends by the signal itself while it shuts down
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in err, (process.returncode, out, err)
    assert "rpl resume logs/Glider-11x9_1" in (out if "certifying" in out and not err else err)
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "logs/Glider-11x9_1", "--episodes", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 10


def test_a_warning_is_said_once_and_without_source_lines(tmp_path):
    (tmp_path / "m.prism").write_text("mdp\nmodule m\n  x : [0..1];\n  [] true -> (x'=1);\nendmodule")
    command = [sys.executable, "-m", "rpl_agent.cli", "solve", "--model", str(tmp_path / "m.prism")]
    found = subprocess.run([*command, "--property", "Pmax=? [ F x=3 ]"], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "warning: the target label 'x=3' holds in no state\n")


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="pipes close with a signal on POSIX only")
@pytest.mark.parametrize("module", ["checker", "guarantee.checker", "guarantee.open_checker", "cli"])
def test_a_closed_pipe_leaves_no_traceback(module, tmp_path):
    words = ["worlds", "--json"] if module == "cli" else []  # without a file a checker prints its page
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", f"rpl_agent.{module}", *words]
    found = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert found.stderr == ""


def test_no_number_is_broken_at_the_edge_of_a_terminal(monkeypatch, capsys):
    from argparse import Namespace

    from rpl_agent.cli.emit import emit

    bounds, table = "  value and optimum lie in [" + "17.8552, " * 12 + "20.4418]", "| " + "0.125 | " * 20
    aligned = "       1" + "   [0.153940, 0.2095130]" * 4
    text = f"short\n{bounds}\n{aligned}\n{table}"
    emit(Namespace(json=False), {"text": text}, "")
    assert capsys.readouterr().out == text + "\n"  # in a pipe lines stay whole
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    emit(Namespace(json=False), {"text": text}, "")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "short" and lines[-2:] == [aligned, table] and len(lines) == 5
    assert max(map(len, lines[:-2])) <= 80 and lines[2].startswith("    17.8552, ")


def test_a_table_shows_numbers_and_names_as_people_write_them(capsys):
    """An interval was "(np.float64(0.25), np.float64(0.5))", a missing value "None"."""
    from argparse import Namespace

    import numpy as np

    from rpl_agent.cli.emit import emit

    found = {"paths": (np.float64(0.25), np.float64(0.5)), "names": ["p", "q"], "why": None, "decided": np.bool_(True)}
    bounds = {"lower": 0.26631493168, "upper": 0.30374002904, "estimate": 0.28410275187}
    emit(Namespace(json=False), {**found, **bounds, "folder": "[logs]/run"}, "answer")
    shown = [line.split("│")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert {key.strip(): value.strip() for key, value in shown} == {
        "paths": "0.25, 0.5", "names": "p, q", "why": "–", "decided": "yes", "folder": "[logs]/run",
        "lower": "0.266314", "upper": "0.303741", "estimate": "0.284103",
    }  # fmt: skip


def test_stopping_while_a_command_loads_leaves_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("rpl_agent.cli.build_parser", interrupted)
    assert main(["certify", "rpl/Betting-25-v0", "--episodes", "3"]) == 130
    assert capsys.readouterr().err == "rpl: stopped\n"


def test_constants_are_given_one_by_one_or_as_prism_writes_them(tmp_path, capsys):
    """`--const N=2,p=0.25` was one constant of a strange value."""
    text = "mdp const int N; const double p; module m s : [0..N]; [] s<N -> p : (s'=s+1) + 1-p : true; endmodule"
    (tmp_path / "walk.prism").write_text(text + '\nrewards "steps" true : 1; endrewards')
    given = ["solve", "--json", "--model", str(tmp_path / "walk.prism"), "--property", 'R{"steps"}min=? [ F s=N ]']
    for constants in (["--const", "N=2", "--const", "p=0.25"], ["--const", "N=2,p=0.25"]):
        assert main([*given, *constants]) == 0
        assert json.loads(capsys.readouterr().out)["lower"] == pytest.approx(8.0, abs=1e-6)
