"""The package as a whole: light imports, a wheel that works, commands that explain themselves."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rpl_agent.cli import build_parser, main

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "matplotlib", "stable_baselines3", "ray", "stormpy", "pyarrow", "minari")


def run_python(code: str, *, python: str = sys.executable, cwd: Path | None = None) -> str:
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_agent_loads_what_it_needs_to_be_imported():
    """Parts of scipy and rich take longer to import than the agent: they are loaded where they are used.

    So are parts of the standard library that import many others, and what few runs need.
    """
    heavy = ["scipy.sparse", "scipy.special", "scipy.linalg", "rich", "lark", "highspy", "gymnasium", "cffi"]
    heavy += ["importlib.metadata", "email", "socket", "logging", "concurrent.futures", "numpy.polynomial"]
    code = f"import sys; from rpl_agent import RPLAgent; print([m for m in {heavy!r} if m in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_import_loads_nothing_heavy():
    code = f"import sys, rpl_agent, rpl_envs; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_wheel_works_in_a_clean_environment(tmp_path, monkeypatch):
    """Build the wheel, install it into a new environment, and run it away from the checkout.

    Dependencies are lent by a path file; path files are not followed recursively, so the editable
    install of this checkout is not visible there and only the wheel can provide the packages.
    """
    monkeypatch.delenv("PYTHONPATH", raising=False)  # which could show the checkout all the same
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True, timeout=120)
    python = str(tmp_path / "env" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]  # one less to install, which takes longer than the wheel
    subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(wheel)], check=True, timeout=120
    )
    site = run_python("import sysconfig; print(sysconfig.get_path('purelib'))", python=python).strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = (
        "import rpl_agent, rpl_envs, json, gymnasium as gym\n"
        "from rpl_agent.formats import prism\n"
        "env = gym.make('rpl/Glider-11x9-v0'); env.reset(seed=0)\n"
        "print(json.dumps([rpl_agent.__file__, env.get_wrapper_attr('pmdp').num_states]))"
    )
    where, states = json.loads(run_python(code, python=python, cwd=tmp_path))
    assert where.startswith(str(tmp_path / "env"))
    assert states == 99
    shown = subprocess.run(
        [str(tmp_path / "env" / "bin" / "rpl"), "info", "rpl/Glider-11x9-v0", "--json"],
        capture_output=True, text=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert json.loads(shown.stdout)["transitions"] == 1317


def test_every_command_has_help_and_json(capsys):
    parser = build_parser()
    commands = next(a for a in parser._actions if a.dest == "command").choices
    assert {
        "info",
        "solve",
        "certify",
        "train",
        "resume",
        "evaluate",
        "watch",
        "reproduce",
        "compare",
        "report",
    } <= set(commands)
    for name, command in commands.items():
        options = {o for action in command._actions for o in action.option_strings}
        assert "--json" in options, f"rpl {name} has no --json"
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0
        assert "usage: rpl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info"], "either a registered ID or --model"),
        (["info", "rpl/Nowhere-v0"], "Nowhere"),
        (["solve", "--model", "/nonexistent.prism"], "nonexistent"),
        (["certify", "rpl/Glider-11x9-v0"], "--episodes"),
        (["certify", "rpl/Glider-11x9-v0", "--episodes", "10", "--delta", "2"], "delta"),
        (["train", "rpl/Glider-11x9-v0", "--budget", "0"], "budget"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and len(err.strip().splitlines()) == 1
