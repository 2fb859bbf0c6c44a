"""Bounds as texts are bounds."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import rpl_envs
from rpl_agent import Counts, Objective, certify
from rpl_agent.cli import main
from rpl_agent.core.model import Limit, Sense
from rpl_agent.core.printed import ceil_text, chance_text, floor_text, interval_text
from rpl_agent.guarantee.claims import known
from rpl_agent.guarantee.open_world.certificate import OpenCertificate


@pytest.mark.parametrize("digits", [3, 4, 6])
def test_texts_are_on_the_safe_side_and_close(digits):
    rng = np.random.default_rng(0)
    for value in (rng.normal(size=300) * 10.0 ** rng.integers(-9, 9, size=300)).tolist():
        low, high = floor_text(value, digits), ceil_text(value, digits)
        stored = Fraction(repr(value))
        assert Fraction(low) <= stored <= Fraction(high)
        assert Fraction(high) - Fraction(low) <= abs(stored) * Fraction(10) ** (1 - digits)


def test_short_numbers_stay_as_they_are():
    for text in ("0.1", "0.3", "-0.7", "20", "0", "1e-07", "inf", "-inf"):
        assert floor_text(float(text)) == ceil_text(float(text)) == text


@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-3, 0.12345678, 1e-6, 4e-7, 1.5e-9, 2e-16, 1e-300])
def test_probabilities_are_rounded_down_and_never_1(delta):
    """ "with probability ≥ 1" was printed at δ = 1e-7."""
    text = chance_text(delta)
    assert Fraction(text) <= 1 - Fraction(repr(delta)) < 1
    assert 1 - Fraction(text) <= Fraction(repr(delta)) * Fraction(11, 10) + Fraction(1, 10**15)


def test_no_certificate_is_certain():
    world = rpl_envs.benchmark("Betting-25")
    found = certify(world.pmdp, Counts(world.pmdp), world.objective, delta=1e-9)
    assert "with probability ≥ 0.999999999:" in str(found)
    assert "≥ 0.9999999:" in str(OpenCertificate(0.1, 0.2, 1e-7, "lake", "R max", ()))


def test_no_certificate_claims_more_in_words_than_in_numbers():
    """ "achieves at least 10.8855" was printed of a lower bound of 10.885493."""
    world = rpl_envs.benchmark("Betting-25")
    found = replace(
        certify(world.pmdp, Counts(world.pmdp), world.objective), lower=10.885493, upper=11.630653, regret=0.0166832
    )
    assert "[10.8854, 11.6307]" in str(found)
    assert "achieves at least 10.8854 and is within 0.01669 of the best possible" in found.sentence
    text = str(OpenCertificate(0.67377948, 0.890836004, 1e-3, "lake", "R max", ()))
    assert "at least 0.673779 " in text and "more than 0.890837" in text


THIRDS = """mdp
const double p; const double q;
module m
 s : [0..4] init 0;
 [a] s=0 -> p:(s'=1) + 1-p:(s'=2);
 [b] s=0 -> q:(s'=1) + 1-q:(s'=3);
 [] s=1 -> p*q:(s'=4) + 1-p*q:(s'=2);
 [] s>1 -> true;
endmodule
label "done" = s=4;
"""
INTERVALS = """mdp
module m
 s : [0..2] init 0;
 [] s=0 -> [0.1234567, 0.2345678]:(s'=1) + [0.5, 0.9]:(s'=2);
 [] s>0 -> true;
endmodule
label "done" = s=1;
"""
RANGES = ("--param", "p=0.3:0.3333333", "--param", "q=0.31:0.3777777")


@pytest.mark.parametrize("best, own", [("min", ceil_text), ("max", floor_text)])
def test_tables_of_properties_round_outward(best, own, tmp_path, capsys, monkeypatch):
    """Only "lower", "upper" and "regret" did: neither bounds of intervals nor guarantees in a region."""
    monkeypatch.setenv("COLUMNS", "200")
    asked = ("--property", f'P{best}=? [ F "done" ]')
    (path := tmp_path / "thirds.prism").write_text(THIRDS)
    (intervals := tmp_path / "intervals.prism").write_text(INTERVALS)
    every = floor_text if own is ceil_text else ceil_text
    sides = {"policy_guarantee": own, "best_possible_guarantee": every}
    sides |= {"lower": floor_text, "upper": ceil_text, "least_attained": ceil_text, "most_attained": floor_text}
    sides |= {f"{nature}_{side}": sides[side] for nature in ("robust", "optimistic") for side in ("lower", "upper")}
    seen = set()
    for line in (("solve", str(path), *RANGES, *asked), ("solve", str(intervals), *asked)):
        assert main([*line, "--json"]) == 0
        stored = json.loads(capsys.readouterr().out)
        assert main([*line]) == 0
        rows = [row.split("│")[1:3] for row in capsys.readouterr().out.splitlines() if row.startswith("│")]
        shown = {name.strip().replace(" ", "_"): value.strip() for name, value in rows}
        for name in sides.keys() & stored.keys():
            assert shown[name] == sides[name](stored[name])
            seen.add(name)
    assert seen == sides.keys()


COIN = """dtmc
module m
 s : [0..2] init 0;
 [] s=0 -> 0.3:(s'=1) + 0.7:(s'=2);
 [] s>0 -> true;
endmodule
label "done" = s=1;
"""


def test_the_table_of_whole_paths_rounds_outward(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (path := tmp_path / "coin.prism").write_text(COIN)
    line = ["smc", str(path), "--property", 'P=? [ F "done" ]', "--epsilon", "0.4", "--delta", "0.1"]
    assert main([*line, "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert main(line) == 0
    shown = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("│ paths"))
    assert shown.split("│")[2].strip() == interval_text(*paths)


def test_sentences_about_limits_round_outward():
    limit = Limit(Objective.reach("goal", sense=Sense.MIN), 0.2)
    over = SimpleNamespace(costs=[0.1234564], keeps=lambda thresholds: True)
    search = SimpleNamespace(thresholds=np.array([0.2]), least=[0.2345678])
    assert known._said(search, [limit], over, False)[1][0].endswith(": at most 0.123457")
    assert known._said(search, [limit], None, True)[1][0].endswith("at least 0.234567")
