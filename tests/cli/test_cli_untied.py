"""Logs and models whose rows are unknowns of their own, from the shell: which bound made the number, and its check."""

from __future__ import annotations

import json

import pytest

from rpl_agent.cli import main
from rpl_agent.core.model import Policy
from rpl_agent.formats import prism
from rpl_agent.formats.export import write_policy
from rpl_agent.formats.logs import simulate_log

WARD = """mdp
module ward
  x : [0..4] init 0;
  [rest] x<3 -> 0.3:(x'=0) + 0.3:(x'=x+1) + 0.4:(x'=4);
  [treat] x<3 -> 0.2:(x'=0) + 0.6:(x'=x+1) + 0.2:(x'=4);
  [end] x>=3 -> true;
endmodule
label "well" = x=3;
label "ill" = x=4;
"""
GOAL = 'Pmax=? [ F "well" ]'


@pytest.fixture
def ward(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward.prism").write_text(WARD)
    known = prism.load(tmp_path / "ward.prism", unknown="rows")
    pmdp, _ = known.objective(GOAL)
    stop = pmdp.labels["well"] | pmdp.labels["ill"]
    simulate_log("log.csv", pmdp, known.truth, episodes=3_000, max_steps=40, stop=stop)
    write_policy("uniform.csv", pmdp, Policy.uniform(pmdp))
    capsys.readouterr()

    def certify(*line: str) -> tuple[int, str]:
        model = ["--model", "ward.prism", "--unknown", "rows", "--property", GOAL, "--data", "log.csv"]
        status = main(["certify", *model, "--delta", "0.1", *line])
        found = capsys.readouterr()
        return status, found.out + found.err

    return certify


def test_the_certificate_says_which_bound_made_the_number_and_is_verified(ward, capsys):
    status, text = ward("--fixed-length", "--output", "c.json")
    assert status == 0 and "later visits of its rows" in text
    found = json.loads(ward("--fixed-length", "--json")[1])
    assert found["basis"] == "rows" and found["visits"]["visits"] > 1_000 and not found["visits"]["given"]
    assert main(["certify", "c.json", "--verify"]) == 0
    assert "verified" in capsys.readouterr().out


def test_a_policy_that_was_fixed_before_the_log_is_bounded_on_both_sides(ward):
    plain, fixed = (
        json.loads(ward("--fixed-length", "--policy", "uniform.csv", "--json", *more)[1])
        for more in ((), ("--fixed-policy",))
    )
    assert plain["visits"] is None and fixed["visits"]["given"] and fixed["gap"] < plain["gap"]
    status, text = ward("--fixed-policy")
    assert status == 2 and "give it with --policy FILE" in text
