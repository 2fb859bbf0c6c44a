"""PRISM's multi(…) from the shell."""

from __future__ import annotations

import json

import pytest

from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError
from rpl_agent.formats.multi import is_multi, multi_objective
from rpl_agent.formats.prism import load

pytestmark = pytest.mark.short_runs

MODEL = """mdp
const double p; // range p 0.1 0.9
module walk
  s : [0..3] init 0;
  [safe] s=0 -> 0.5:(s'=1) + 0.5:(s'=2);
  [bold] s=0 -> p:(s'=1) + 1-p:(s'=3);
  [stay] s>0 -> true;
endmodule
label "won" = s=1;
label "crash" = s=3;
"""
PROPERTY = 'multi(Pmax=? [ F "won" ], P<=0.05 [ F s=3 ])'


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "walk.prism"
    path.write_text(MODEL)
    return path


def test_a_multi_property_is_an_objective_with_limits(model):
    pmdp, objective = multi_objective(load(str(model), {}, {}), PROPERTY)
    (limit,) = objective.limits
    assert objective.free.describe() == 'Pmax=? [ F "won" ]' and limit.threshold == 0.05 and limit.upward
    assert pmdp.labels[limit.objective.target].sum() == 1
    assert is_multi(PROPERTY) and not is_multi('Pmax=? [ F "won" ]') and not is_multi(None)


@pytest.mark.parametrize(
    "text, message",
    [
        ('multi(Pmax=? [ F "won" ])', "at least two"),
        ('multi(P<=0.1 [ F "won" ], P<=0.05 [ F "crash" ])', "expected one property"),
        ('multi(Pmax=? [ F "won" ], P<0.05 [ F "crash" ])', "not understood"),
        ('multi(Pmax=? [ F "won" ], P<=0.0.5 [ F "crash" ])', "'0.0.5' is not a number"),
        ('multi(Pmax=? [ F "won" ], P<=1e [ F "crash" ])', "'1e' is not a number"),
        ('multi(Pmax=? [ F "won" ], P>=0.95 [ G !"crash" ])', "1 minus another probability"),
    ],
)
def test_others_are_refused_by_name(model, text, message):
    with pytest.raises(ModelError, match=message):
        multi_objective(load(str(model), {}, {}), text)


def test_the_command_certifies_a_multi_property(model, capsys):
    command = ["certify", "--model", str(model), "--theta", "p=0.9", "--episodes", "4000", "--json"]
    assert main([*command, "--property", PROPERTY]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limits"][0]["kept"] and found["limits"][0]["upper"] <= 0.05
    assert 0.5 < found["lower"] <= 0.7 <= found["upper"] < 0.85  # the optimum is .7, half of the plays bold


def test_the_command_learns_a_multi_property(model, tmp_path, capsys):
    command = ["train", "--model", str(model), "--theta", "p=0.9", "--budget", "400", "--log-dir", str(tmp_path)]
    assert main([*command, "--property", PROPERTY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] <= 0.7 <= found["upper"]
    assert [claim["limit"]["threshold"] for claim in found["limits"]] == [0.05]
    assert main(["resume", found["run"], "--budget", "450", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 450


def solved(model, capsys, text, *more):
    assert main(["solve", str(model), "--theta", "p=0.9", "--property", text, "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_solve_answers_a_numerical_query(model, capsys):
    """Safe wins with .5, bold with .9 and crashes with .1: half of the plays may be bold."""
    found = solved(model, capsys, PROPERTY)
    assert found["lower"] <= 0.7 <= found["upper"] + 1e-9 and found["upper"] - found["lower"] < 1e-4
    assert found["keeps_limits"]
    narrow = solved(model, capsys, PROPERTY, "--precision", "1e-10")
    assert narrow["lower"] <= 0.7 <= narrow["upper"] and narrow["upper"] - narrow["lower"] < 1e-10


@pytest.mark.parametrize("least, said", [(0.69, "yes"), (0.71, "no")])
def test_solve_answers_whether_limits_can_be_kept(model, capsys, least, said):
    found = solved(model, capsys, f'multi(P>={least} [ F "won" ], P<=0.05 [ F s=3 ])')
    assert found["answer"] == said
    assert solved(model, capsys, f'multi(P<=0.05 [ F s=3 ], P>={least} [ F "won" ])')["answer"] == said


def test_solve_gives_the_front(model, capsys):
    found = solved(model, capsys, 'multi(Pmax=? [ F "won" ], Pmin=? [ F s=3 ])')
    points = sorted((round(p["lower"][0], 6), round(p["upper"][1], 6)) for p in found["points"])
    assert points == [(0.5, 0.0), (0.9, 0.1)]
    for plane in found["half_planes"]:  # won ≤ .5 + 4 crash, and nothing better
        one, other = plane["weights"]
        assert plane["most"] == pytest.approx(max(one * 0.5, one * 0.9 - other * 0.1), abs=1e-6)


def test_the_front_at_known_parameters_claims_no_probability(model, capsys):
    """It once began with "at once, from 0 transitions"."""
    query = 'multi(Pmax=? [ F "won" ], Pmin=? [ F s=3 ])'
    assert main(["solve", str(model), "--theta", "p=0.9", "--property", query]) == 0
    printed = capsys.readouterr().out
    assert "at these parameters:" in printed and "transitions" not in printed and "probability ≥" not in printed


def test_solve_needs_known_parameters(model, capsys):
    assert main(["solve", str(model), "--property", PROPERTY]) == 2
    assert "known parameters" in capsys.readouterr().err
