"""`make artifact` prints a line for every headline number, and fails if one of them cannot be measured."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from benchmarks import artifact, bench_readme

ROOT = bench_readme.README.parent


def test_a_claim_is_read_off_its_benchmark(capsys):
    assert artifact.main(["--smoke", "--only", "range of returns"]) == 0
    said = capsys.readouterr()
    assert "python -m benchmarks no_model" in said.out and "0 of 1 missed" in said.err


def test_a_claim_that_cannot_be_measured_fails_the_command(capsys, monkeypatch):
    broken = replace(artifact.CLAIMS[0], measured=lambda rows: rows[0]["no such column"])
    monkeypatch.setattr(artifact, "rows_of", lambda benchmark, smoke: [{}])
    monkeypatch.setattr(artifact, "CLAIMS", (broken,))
    assert artifact.main(["--smoke"]) == 1
    assert "FAILED" in capsys.readouterr().out


@cache
def first_program():
    return bench_readme.pump()


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_page_says_what_its_program_prints(page):
    found, text = first_program(), (ROOT / page).read_text()
    lower, upper = math.floor(100 * found["lower"]) / 100, math.ceil(100 * found["upper"]) / 100
    assert f"lie in [{lower:.2f}, {upper:.2f}]" in text
    assert f"is within {found['regret']:.3g} of the best possible" in text
