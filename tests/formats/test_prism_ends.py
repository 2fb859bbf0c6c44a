"""`rpl solve` explores no further than a property needs, and answers the same."""

from __future__ import annotations

import json
import warnings

import pytest

from rpl_agent.cli import main
from rpl_agent.formats import prism

WALK = """
mdp
const int n = 30;
module walk
  x : [0..n] init 5;
  y : [0..9] init 0;
  [left] x > 0 & x < n -> 2/3 : (x' = x - 1) + 1/3 : (x' = x + 1);
  [right] x > 0 & x < n -> 1/2 : (x' = x + 1) + 1/4 : (x' = x - 1) + 1/4 : true;
  [on] x = n -> 1/2 : (y' = mod(y + 1, 10)) + 1/2 : true;
  [on] x = 0 & y < 9 -> (y' = y + 1);
endmodule
module other
  z : [0..1] init 0;
  [left] true -> (z' = 1 - z);
  [right] true -> true;
endmodule
label "far" = x >= 8;
label "home" = x = 0;
rewards "steps" true : 1; [] true : 5; [left] true : 1/2; endrewards
"""
#: properties, and whether part of the model does not matter to them
PROPERTIES = {
    'Pmax=? [ F "far" ]': True,
    "Pmin=? [ F x = 8 ]": True,
    'Pmax=? [ !"home" U x = 9 ]': True,
    'Pmax=? [ F<=12 "far" ]': True,
    "Pmin=? [ G x < 8 ]": True,
    "Pmax=? [ !(F x = 8) ]": True,
    'Pmin=? [ x > 2 W "far" ]': True,
    'R{"steps"}min=? [ F "home" | "far" ]': True,
    'R{"steps"}max=? [ F "home" | "far" ]': True,
    'Pmax>=0.5 [ F "far" ]': True,
    'Pmax=? [ F "deadlock" ]': False,
    'filter(max, Pmin=? [ F "far" ], true)': False,
    'R{"steps"}max=? [ C<=20 ]': False,
    'Pmax=? [ F ("far" & (X "far")) ]': False,
    'Pmax=? [ X "far" ]': False,
}


def answers(text: str, only_for: str | None) -> tuple[int, list]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = prism.loads(WALK, only_for=only_for)
        return model.pmdp.num_states, prism.answer(model, text)


@pytest.mark.parametrize("text", PROPERTIES)
def test_the_answer_is_that_of_the_whole_model(text):
    all_states, whole = answers(text, None)
    states, part = answers(text, text)
    assert (states < all_states) == PROPERTIES[text]
    for one, other in zip(part, whole, strict=True):
        assert one.problems == [] and one.verdict == other.verdict
        assert one.lower <= other.upper and other.lower <= one.upper
        assert one.upper - one.lower <= 1e-5 * max(1.0, one.upper)


def test_a_wrong_property_is_reported_when_it_is_answered():
    with pytest.raises(prism.PrismError, match='unknown label "nowhere"'):
        answers('Pmax=? [ F "nowhere" ]', 'Pmax=? [ F "nowhere" ]')


@pytest.mark.parametrize(
    "props", ['Pmax=? [ F "far" ]\n', 'const int k;\nlabel "there" = x = k;\nPmax=? [ F "there" ]\n']
)
def test_the_first_property_of_a_file_stops_it_too(tmp_path, capsys, props):
    path = tmp_path / "walk.prism"
    path.write_text(WALK.replace("const int n = 30", "const int n = 100000"))
    path.with_suffix(".props").write_text(props + "Pmax=? [ F x = 90000 ]\n")
    given = ["--const", "k=8"] if "const" in props else []
    assert main(["solve", str(path), *given, "--max-states", "40", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"]


def test_the_command_stops_where_the_property_is_decided(tmp_path, capsys):
    path = tmp_path / "walk.prism"
    path.write_text(WALK.replace("const int n = 30", "const int n = 100000"))
    assert main(["solve", str(path), "--property", 'Pmax=? [ F "far" ]', "--max-states", "40", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"]
