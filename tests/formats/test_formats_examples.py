"""The examples of this layer run, and what they claim holds."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.short_runs

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str, monkeypatch, capsys) -> str:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_own_model(monkeypatch, capsys):
    out = run("own_model.py", "--episodes", "200", monkeypatch=monkeypatch, capsys=capsys)
    bounds = [tuple(map(float, pair)) for pair in re.findall(r"between ([\d.]+) and ([\d.]+)", out)]
    (low, high), (low_untied, high_untied) = bounds
    assert low_untied <= low < high < high_untied, "shared parameters say more"
    assert "2 parameters" in out
    assert "120 parameters" in out


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
def test_gymnasium_worlds(monkeypatch, capsys):
    out = run("gymnasium_worlds.py", "--episodes", "10", monkeypatch=monkeypatch, capsys=capsys)
    found = re.findall(r"certificate  ([\d.]+) \.\. ([\d.]+)\n.*policy ([\d.]+), optimum ([\d.]+)", out)
    assert len(found) == 2
    for low, high, value, optimum in ((float(v) for v in line) for line in found):
        assert low - 1e-3 <= value <= high + 1e-3
        assert low - 1e-3 <= optimum <= high + 1e-3
