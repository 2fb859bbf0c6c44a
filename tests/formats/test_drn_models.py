"""DRN files with parameters and with rounded numbers; rounded numbers in PRISM files."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.formats import prism
from rpl_agent.formats.drn import load_drn
from rpl_agent.formats.export import write_uncertain

# two coins of one kind until they agree: heads with p
COINS = """// by hand
@type: DTMC
@value_type: parametric
@parameters
p q
@placeholders
$0 : (-1)*p+1
@reward_models

@nr_states
5
@model
state 0 [q] init
	action 0
		1 : p
		2 : $0
state 1 [(q)/(1)]
	action 0
		0 : $0
		3 : p
state 2
	action 0
		0 : p
		4 : 1 - p
state 3 heads [0]
	action 0 [1]
		3 : 1
state 4 tails
	action 0
		4 : 1/1
"""
SAME = """dtmc
const double p;
const double q;
module coins
  s : [0..4];
  [] s=0 -> p:(s'=1) + 1-p:(s'=2);
  [] s=1 -> p:(s'=3) + 1-p:(s'=0);
  [] s=2 -> p:(s'=0) + 1-p:(s'=4);
  [] s>2 -> true;
endmodule
label "heads" = s=3;
rewards s<2 : q; [] s=3 : 1; endrewards
"""


def written(folder, text: str, name: str = "coins.drn"):
    (folder / name).write_text(text)
    return folder / name


def test_a_parametric_drn_file_is_the_prism_model(tmp_path):
    drn, same = load_drn(written(tmp_path, COINS)), prism.loads(SAME)
    assert drn.parameters == ("p", "q") and drn.pmdp.table.degree == 1
    theta = np.array([0.3, 0.7])
    for text in ('P=? [ F "heads" ]', 'P=? [ F<=5 "heads" ]', 'R=? [ F ("heads" | "tails") ]', "R=? [ C<=9 ]"):
        ours = prism.answer(drn, text, theta)[0]
        theirs = prism.answer(same, text.replace('"tails"', "s=4"), theta)[0]
        assert not ours.problems and (ours.lower, ours.upper) == pytest.approx((theirs.lower, theirs.upper)), text
    heads = 0.09 / (0.09 + 0.49)
    assert prism.answer(drn, 'P=? [ F "heads" ]', theta)[0].lower == pytest.approx(heads, abs=1e-6)


def test_storm_reads_the_same_numbers(tmp_path):
    stormpy = pytest.importorskip("stormpy")
    plain = COINS.replace("@placeholders\n$0 : (-1)*p+1\n", "").replace("$0", "1-p").replace("heads [0]", "[0] heads")
    path = written(tmp_path, plain.replace("@value_type: parametric\n", ""))
    theirs = stormpy.build_model_from_drn[stormpy.RationalFunction](str(path))
    ours = load_drn(path).pmdp
    assert (ours.num_states, ours.num_transitions) == (theirs.nr_states, theirs.nr_transitions)
    pars = pytest.importorskip("stormpy.pars")
    values = {v: pars.RationalFunctionCoefficient("0.25") for v in theirs.collect_all_parameters()}
    point = pars.ModelInstantiator(theirs).instantiate(values)
    for text in ('P=? [ F "heads" ]', "R=? [ C<=12 ]"):
        found = prism.answer(load_drn(path), text, np.array([0.25, 0.25]))[0]
        value = stormpy.model_checking(point, stormpy.parse_properties(text)[0]).get_value(0)
        assert found.lower - 1e-6 <= value <= found.upper + 1e-6, text


@pytest.mark.parametrize("precision", [0.1, pytest.param(0.02, marks=pytest.mark.nightly)])
def test_questions_about_a_region_of_a_drn_file(tmp_path, capsys, precision):
    """Against the formula of the value, p²/(p² + (1 − p)²); the reward contains a parameter and is refused."""
    path, box = written(tmp_path, COINS), {"p": (0.3, 0.6), "q": (0.2, 0.7)}
    least, most = 0.09 / 0.58, 0.36 / 0.52
    found = prism.answer_region(load_drn(path, box), 'P=? [ F "heads" ]', precision=precision).solution
    assert found.lower <= least <= found.least.upper and found.most.lower <= most <= found.upper
    assert found.converged and found.upper - found.lower <= (1.0 + 2.05 * precision) * (most - least)
    with pytest.raises(prism.PrismError, match="contains a parameter: give the parameters values"):
        prism.answer_region(load_drn(path, box), 'R=? [ F ("heads" | "tails") ]')
    words = [f"--param={name}={low}:{high}" for name, (low, high) in box.items()]
    for limit, verdict in (("0.7", "everywhere"), ("0.1", "nowhere"), ("0.4", "in parts")):
        question = ["--property", f'P<={limit} [ F "heads" ]', "--precision", str(precision), "--json"]
        assert main(["solve", "--model", str(path), *words, *question]) == 0
        assert json.loads(capsys.readouterr().out)["answer"] == verdict


def test_storm_bounds_the_same_region_of_a_drn_file(tmp_path):
    stormpy = pytest.importorskip("stormpy")
    pars = pytest.importorskip("stormpy.pars")
    plain = COINS.replace("@placeholders\n$0 : (-1)*p+1\n", "").replace("$0", "1-p").replace("heads [0]", "[0] heads")
    path = written(tmp_path, plain.replace("@value_type: parametric\n", ""))
    model = stormpy.build_model_from_drn[stormpy.RationalFunction](str(path))
    question = stormpy.parse_properties('P=? [ F "heads" ]')[0]
    number, box = pars.RationalFunctionCoefficient, {v: ("0.3", "0.6") for v in model.collect_all_parameters()}
    region = pars.create_region({v: (number(low), number(high)) for v, (low, high) in box.items()})
    found = prism.answer_region(load_drn(path, {"p": (0.3, 0.6), "q": (0.3, 0.6)}), 'P=? [ F "heads" ]').solution
    for direction, ours in (
        (pars.OptimizationDirection.MINIMIZE, found.lower),
        (pars.OptimizationDirection.MAXIMIZE, found.upper),
    ):
        theirs = pars.compute_extremal_value(
            model, question, region=region, direction=direction, precision=1e-4, absolute_precision=True
        )[0]
        assert ours == pytest.approx(float(theirs), abs=0.01)


def test_parameters_of_a_drn_file_have_ranges_and_bad_ones_are_named(tmp_path):
    path = written(tmp_path, COINS)
    domain = load_drn(path, {"p": (0.2, 0.4)}).pmdp.domain
    assert (domain.lower.tolist(), domain.upper.tolist()) == ([0.2, 0.0], [0.4, 1.0])
    half = load_drn(written(tmp_path, COINS.replace("$0 : (-1)*p+1", "$0 : 1-2*p").replace(": p\n", ": 2*p\n")
                            .replace("1 - p", "1-2*p")))  # fmt: skip
    assert half.pmdp.domain.contains(np.array([0.5, 0.5])) and not half.pmdp.domain.contains(np.array([0.6, 0.5]))
    for old, new, words in [
        ("1 : p\n", "1 : r\n", "coins.drn:15: r contains r, not a parameter"),
        ("1 : p\n", "1 : p/q\n", "coins.drn:15: .*divi"),
        ("1 : p\n", "1 : p*p\n", "row-sum|sum to"),
        ("$0 : (-1)", "$0 = (-1)", "coins.drn:7: cannot read"),
        ("p q\n", "p q\n", "no parameter 'x' \\(parameters: p, q\\)"),
        ("heads [0]", "heads [r]", "coins.drn: the reward 'r': r contains r, not a parameter"),
        ("heads [0]", "heads [1/0]", "coins.drn: the reward '1/0': division by zero"),
        ("heads [0]", "heads [0, 1]", "coins.drn: 2 rewards in one line, but the file names rewards_1"),
    ]:
        path = written(tmp_path, COINS.replace(old, new, 1))
        with pytest.raises(ModelError, match=words):
            load_drn(path, {"x": (0, 1)} if "'x'" in words else None)


def test_a_known_drn_file_has_no_parameters_and_can_be_hidden(tmp_path):
    plain = COINS.replace("p q\n", "\n").replace("$0 : (-1)*p+1", "$0 : 0.7").replace(": p\n", ": 0.3\n")
    path = written(tmp_path, plain.replace("1 - p", "7/10").replace("[q]", "[1]").replace("(q)/(1)", "1"))
    model = load_drn(path)
    assert model.parameters == () and model.bounds is None and model.pmdp.num_parameters == 0
    assert prism.answer(model, 'P=? [ F "heads" ]')[0].lower == pytest.approx(0.09 / 0.58, abs=1e-6)
    hidden = load_drn(path, hide_rows=True)
    assert hidden.pmdp.num_parameters == 3 and hidden.truth == pytest.approx([0.3, 0.7, 0.3])
    bounds = model.pmdp.table.at(np.zeros(0))
    write_uncertain(tmp_path / "again.drn", model.pmdp, bounds, bounds)
    again = load_drn(tmp_path / "again.drn").pmdp
    assert again.table.at(np.zeros(0))[again.expression] == pytest.approx(bounds[model.pmdp.expression])


# -- rounded numbers --------------------------------------------------------------------------------------------------
ROUNDED = """mdp
module m
  x : [0..3];
  [go] x=0 -> .333333:(x'=1) + .333333:(x'=2) + .333333:(x'=3);
  [on] x=1 -> 0.4999999:(x'=2) + 0.5:(x'=3);
  [done] x>1 -> true;
endmodule
"""


@pytest.mark.parametrize("unknown", [None, "commands", "rows"])
def test_rounded_probabilities_are_refused_or_scaled_on_request(unknown):
    with pytest.raises(prism.PrismError, match=r"sum to 0.999999, not to 1\n(.*\n)*rounded in the file\? --normalise"):
        prism.loads(ROUNDED, unknown=unknown)
    with pytest.warns(RPLWarning, match=r"2 row\(s\) scaled to sum to 1; the worst summed to 0.999999$"):
        model = prism.loads(ROUNDED, unknown=unknown, normalise=True)
    if unknown is None:
        polynomials = [model.pmdp.table.polynomial(f) for f in range(model.pmdp.num_expressions)]
        assert Fraction(1, 3) in {p.constant_value() for p in polynomials}
        assert prism.answer(model, "Pmax=? [ F x=2 ]")[0].upper == pytest.approx(0.5, abs=1e-6)
    else:
        assert model.truth[:2] == pytest.approx([1 / 3, 1 / 3])


def test_what_is_far_off_is_refused_in_any_case():
    for text in (ROUNDED.replace(".333333:(x'=1)", ".3333:(x'=1)"), ROUNDED.replace("0.4999999", "0.6")):
        with pytest.raises(prism.PrismError, match="not to 1"):
            prism.loads(text, normalise=True)
    with pytest.raises(prism.PrismError) as caught:
        prism.loads(ROUNDED.replace("0.4999999", "0.6"))
    assert "--normalise" not in str(caught.value)  # it would not help


def test_rows_that_sum_to_one_stay_as_they_are():
    text = ROUNDED.replace(".333333:(x'=3)", ".333334:(x'=3)").replace("0.4999999", "0.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prism.loads(text, normalise=True).pmdp.content_hash == prism.loads(text).pmdp.content_hash


def test_normalise_on_the_command_line(tmp_path, capsys):
    (tmp_path / "m.prism").write_text(ROUNDED)
    drn = COINS.replace("p q\n", "\n").replace("$0 : (-1)*p+1", "$0 : 0.666667").replace(": p\n", ": 0.333332\n")
    (tmp_path / "m.drn").write_text(drn.replace("1 - p", "2/3").replace("[q]", "[1]").replace("(q)/(1)", "1"))
    for name, text in (("m.prism", "Pmax=? [ F x=2 ]"), ("m.drn", 'P=? [ F "heads" ]')):
        command = ["solve", "--model", str(tmp_path / name), "--property", text, "--json"]
        assert main(command) == 2
        assert "--normalise" in json.loads(capsys.readouterr().out)["error"]
        with pytest.warns(RPLWarning, match="scaled to sum to 1"):
            assert main([*command, "--normalise"]) == 0
        assert json.loads(capsys.readouterr().out)["checked"]


def test_doubles_may_be_off_by_their_rounding(tmp_path):
    plain = COINS.replace("@value_type: parametric", "@value_type: double").replace("p q\n", "\n")
    plain = plain.replace("$0 : (-1)*p+1", "$0 : 0.7000000000000001").replace(": p\n", ": 0.3\n")
    path = written(tmp_path, plain.replace("1 - p", "0.7").replace("[q]", "[1]").replace("(q)/(1)", "1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_drn(path).pmdp.num_parameters == 0
