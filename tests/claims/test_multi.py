"""PRISM's multi(…) from the shell."""

from __future__ import annotations

import json

import pytest

from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError
from rpl_agent.formats.multi import is_multi, multi_objective
from rpl_agent.formats.prism import load

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
        ('multi(Pmax=? [ F "won" ])', "expected one property"),
        ('multi(P<=0.1 [ F "won" ], P<=0.05 [ F "crash" ])', "expected one property"),
        ('multi(Pmax=? [ F "won" ], P<0.05 [ F "crash" ])', "not understood"),
        ('multi(Pmax=? [ F "won" ], P>=0.95 [ G !"crash" ])', "complement"),
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
    assert main(["train", "--model", str(model), "--theta", "p=0.9", "--budget", "5", "--property", PROPERTY]) == 2
