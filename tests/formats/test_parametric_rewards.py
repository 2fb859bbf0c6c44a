"""Rewards that contain parameters: numbers at a point, refused where the parameters are unknown."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.cli import main
from rpl_agent.formats import prism

pytestmark = pytest.mark.short_runs

#: c stands in rewards only: no data say anything about it
TEXT = """mdp
const double p; // range p 0.1 0.9
const double q; // range q 0.2 0.8
const double c; // range c 1 3
module m
  x : [0..3];
  [a] x=0 -> p:(x'=1) + 1-p:(x'=2);
  [b] x=0 -> q:(x'=2) + 1-q:(x'=1);
  [g] x=1 | x=2 -> (x'=3);
  [e] x=3 -> true;
endmodule
rewards "r"
  x=0 : 2*p+1;
  x=1 : c*q;
  [a] true : 3*p*q - p + 2;
  x=2 : 1.5;
  [g] x=2 : q*q/2;
endrewards
"""
PROPERTIES = ("Rmin=? [F x=3]", "Rmax=? [F x=3]", "Rmin=? [C<=2]", "Rmax=? [I=1]", "Rmax=? [C<=1]")
THETA = {"p": 0.4, "q": 0.5, "c": 2.0}


def values(p: Fraction, q: Fraction, c: Fraction) -> dict[str, Fraction]:
    """The properties' values by hand."""
    first, second = c * q, Fraction(3, 2) + q * q / 2
    begin, extra = 2 * p + 1, 3 * p * q - p + 2
    plays = [begin + extra + p * first + (1 - p) * second, begin + q * second + (1 - q) * first]
    instant = [p * first + (1 - p) * Fraction(3, 2), q * Fraction(3, 2) + (1 - q) * first]
    return {
        PROPERTIES[0]: min(plays), PROPERTIES[1]: max(plays), PROPERTIES[2]: min(plays), PROPERTIES[3]: max(instant),
        PROPERTIES[4]: max(begin + extra, begin),
    }  # fmt: skip


def test_a_point_has_numbers():
    model = prism.loads(TEXT)
    exact = values(Fraction(2, 5), Fraction(1, 2), Fraction(2))
    for text in PROPERTIES:
        (found,) = prism.answer(model, text, model.theta(THETA), precision=1e-9)
        assert found.lower - 1e-12 <= exact[text] <= found.upper + 1e-12 and not found.problems


@pytest.mark.parametrize("text", PROPERTIES)
def test_a_learner_is_told_what_to_write_instead(text):
    with pytest.raises(prism.PrismError, match=r'"r" contains a parameter: give .* or pay a fixed amount in a state'):
        prism.loads(TEXT).objective(text)


def test_what_the_refusal_says_to_write_has_the_same_value():
    """2p + 1 as a fixed 1, and 2 in a state that is entered with probability p, or p has a value."""
    module = "x:[0..2]; [a] x=0 -> p:(x'=1)+1-p:(x'=2); [g] x=1 -> (x'=2); [e] x=2 -> true;"
    chain = f"mdp const double p; module m {module} endmodule"
    paid = chain + ' rewards "r" x=0 : 1; x=1 : 2; endrewards'
    asked = chain + ' rewards "r" x=0 : 2*p+1; endrewards'
    found = [prism.answer(prism.loads(text), "Rmax=? [F x=2]", np.array([0.4]))[0] for text in (paid, asked)]
    assert found[0].lower == pytest.approx(found[1].lower) == pytest.approx(1.8)
    assert prism.loads(paid).objective("Rmax=? [F x=2]")[0].num_parameters == 1
    assert "r" in prism.loads(asked, constants={"p": 0.4}).pmdp.rewards


def test_other_questions_about_the_file_are_answered():
    model = prism.loads(TEXT)
    assert model.objective("Pmax=? [F x=1]")[0].rewards == {}


def test_a_chain_takes_the_mean_over_its_commands():
    model = prism.loads(TEXT.replace("mdp", "dtmc", 1))
    (found,) = prism.answer(model, "R=? [C<=1]", model.theta(THETA))
    assert found.lower == pytest.approx(1.8 + (3 * 0.4 * 0.5 - 0.4 + 2) / 2)


def test_the_command_line_solves_and_refuses_to_learn(tmp_path, capsys):
    file = tmp_path / "paid.prism"
    file.write_text(TEXT)
    truth = [item for name, value in THETA.items() for item in ("--theta", f"{name}={value}")]
    common = [str(file), "--property", PROPERTIES[0], *truth, "--json"]
    assert main(["solve", *common]) == 0
    exact = values(Fraction(2, 5), Fraction(1, 2), Fraction(2))[PROPERTIES[0]]
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(float(exact))
    assert main(["certify", *common, "--episodes", "500"]) != 0
    assert "pay a fixed amount" in capsys.readouterr().out
