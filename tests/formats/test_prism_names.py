"""Names that a file or a caller can get wrong: refused or warned of, never taken for nothing; and properties files."""

from __future__ import annotations

import json

import pytest

from rpl_agent.cli import main
from rpl_agent.core.errors import RPLWarning
from rpl_agent.formats import prism
from rpl_agent.formats.prism.language.parser import statements

CHAIN = """dtmc
const double p = 0.5;
formula done = x=3;
module a
  x : [0..3];
  [go] x<3 -> p:(x'=x+1) + 1-p:(x'=0);
  [] x=3 -> true;
endmodule
label "done" = x=1;
label "top" = x=3;
"""


def bracket(model: prism.PrismModel, text: str) -> tuple[float, float]:
    found = prism.answer(model, text)[0]
    assert found.problems == []
    return found.lower, found.upper


# -- filters ----------------------------------------------------------------------------------------------------------
def test_a_filter_without_states_is_about_all_states():
    # after one step each state is in x=0 with probability 1/2, the last one never: as PRISM's own tests publish it
    model = prism.loads(CHAIN)
    for text, wanted in [
        ("filter(sum, P=? [ X x=0 ])", 1.5),
        ("filter(avg, P=? [ X x=0 ])", 0.375),
        ("filter(min, P=? [ X x=0 ])", 0.0),
        ("filter(max, P=? [ X x=0 ])", 0.5),
        ('filter(sum, P=? [ X x=0 ], "init")', 0.5),
        ("filter(sum, P=? [ X x=0 ], x>=2)", 0.5),
        ("filter(count, P>=0.4 [ X x=0 ])", 3),
    ]:
        low, high = bracket(model, text)
        assert low <= wanted <= high and high - low < 1e-9, (text, low, high)
    assert prism.answer(model, "filter(forall, P>=0.4 [ X x=0 ])")[0].verdict == "no"
    assert prism.answer(model, 'filter(forall, P>=0.4 [ X x=0 ], "init")')[0].verdict == "yes"
    assert prism.answer(model, "filter(exists, P>=1 [ X x=3 ])")[0].verdict == "yes"
    with pytest.raises(prism.PrismError, match="needs one state, but 4 satisfy it"):
        prism.answer(model, "filter(state, P=? [ X x=0 ])")


def test_the_first_state_is_the_one_with_the_least_values():
    model = prism.loads("dtmc\nmodule m\n  x : [0..3] init 2;\n  [] true -> 0.25:(x'=0) + 0.75:(x'=x);\nendmodule")
    assert bracket(model, "filter(first, P=? [ X x=0 ])")[0] == 1.0  # x=0, not the initial x=2


def test_a_filter_is_no_objective():
    with pytest.raises(prism.PrismError, match="the filter 'max' is answered by rpl solve"):
        prism.loads(CHAIN).objective('filter(max, P=? [ F "top" ])')


# -- names ------------------------------------------------------------------------------------------------------------
def test_a_formula_and_a_label_of_one_name_are_two_things():
    model = prism.loads(CHAIN)
    assert bracket(model, "P=? [ F<=3 done ]") == pytest.approx((0.125, 0.125))
    assert bracket(model, 'P=? [ X "done" ]') == pytest.approx((0.5, 0.5))
    model.pmdp, _ = model.objective("P=? [ F done ]")
    assert bracket(model, 'P=? [ X "done" ]') == pytest.approx((0.5, 0.5))


def test_a_reward_for_an_action_that_no_command_has_is_refused():
    reason = r"no command has the action 'goo' of this reward \(known: go\)"
    with pytest.raises(prism.PrismError, match=reason) as caught:
        prism.loads(CHAIN + 'rewards "r" [goo] true : 1; endrewards')
    assert (caught.value.line, caught.value.column) == (11, 13)
    # an action that a renaming makes is one, and so is the base's
    copied = CHAIN + "module b = a [x=y, go=run] endmodule\n"
    for action in ("go", "run", ""):
        prism.loads(copied + f'rewards "r" [{action}] true : 1; endrewards')


def test_a_renaming_of_a_name_that_nothing_has_is_told():
    with pytest.warns(RPLWarning, match="11:8: module 'b' renames 'oops', a name that the model does not have"):
        prism.loads(CHAIN + "module b = a [x=y, oops=q] endmodule")


# -- properties files -------------------------------------------------------------------------------------------------
FILE = """
const int k;  // steps
// RESULT: 1/8
"first": P=? [ F<=k
    x=3 ]
P=? [ F & ]  // no formula
label "high" = x>=2;
S=? [ x=3 ];
P>=0.1 [ F "high" & F x=3 ]; P=? [ X "high" ]
"""


def load(folder, text: str, **keywords) -> prism.PrismModel:
    (folder / "chain.prism").write_text(CHAIN)
    (folder / "chain.props").write_text(text)
    return prism.load(folder / "chain.prism", **keywords)


def test_a_property_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    model = load(tmp_path, FILE, constants={"k": 3})
    kinds = [isinstance(p, prism.PrismError) for p in model.properties]
    assert kinds == [False, True, True, True, False]
    assert prism.answer(model)[0].upper == pytest.approx(0.125)
    assert bracket(model, model.properties[4])[1] == 0.0
    with pytest.raises(prism.PrismError, match="unexpected '&'") as caught:
        model.query(model.properties[1])
    assert (caught.value.line, caught.value.column, caught.value.source) == (6, 9, "chain.props")


def test_a_name_in_quotes_stands_for_its_property(tmp_path, capsys):
    model = load(tmp_path, 'P=? [ X "deadlock" ];' + FILE.replace("P=? [ F & ]", ""), constants={"k": 3})
    assert prism.answer(model, '"first"')[0].upper == prism.answer(model, ' "first"; ')[0].upper == pytest.approx(0.125)
    with pytest.raises(prism.PrismError, match=r'called "second" \(known: first\); a label is asked by filter'):
        model.query('"second"')
    (met,) = prism.answer(model, 'filter(state, "high", "init")')
    assert met.verdict == "no"
    asked = ["solve", str(tmp_path / "chain.prism"), "--const", "k=3", "--property", '"first"', "--json"]
    assert main(asked) == 0 and json.loads(capsys.readouterr().out)["upper"] == pytest.approx(0.125)


def test_a_first_property_that_cannot_be_read_is_not_skipped(tmp_path):
    with pytest.raises(prism.PrismError, match="steady-state operator"):
        load(tmp_path, "S=? [ x=3 ];\nP=? [ F x=3 ];").query()


def test_names_of_a_properties_file_are_its_own(tmp_path):
    model = load(tmp_path, "const int k = 2;\nP=? [ F<=k x=3 ]")
    (tmp_path / "other.props").write_text('const int k = 3;\nlabel "here" = x=k;\nP=? [ F<=k x=k ]')
    prism.load_properties(model, tmp_path / "other.props")
    assert prism.answer(model)[0].upper == pytest.approx(0.125)
    for text, constants, reason in [
        ('label "top" = x=0;\nP=? [ F "top" ]', {}, 'the label "top" is defined twice'),
        ('label "init" = x=0;\nP=? [ F "init" ]', {}, 'the label "init" is defined twice'),
        ("const int p = 3;\nP=? [ F x=p ]", {}, "the name 'p' is used twice"),
        ("const int k;\nP=? [ F x=k ]", {"j": 1}, "the properties have no constant 'j' to define"),
        ("const int k = ;\nP=? [ F x=3 ]", {}, "unexpected ';'"),
    ]:
        (tmp_path / "bad.props").write_text(text)
        with pytest.raises(prism.PrismError, match=reason):
            prism.load_properties(model, tmp_path / "bad.props", constants)
    with pytest.raises(prism.PrismError, match="the model has no constant 'j' to define"):
        load(tmp_path, "const int k;\nP=? [ F x=k ]", constants={"j": 1})


def test_statements_are_split_at_semicolons_and_at_lines_that_begin_one():
    texts = [s.text for s in statements(FILE)]
    assert texts == [
        "const int k;", '"first": P=? [ F<=k\n    x=3 ]', "P=? [ F & ]", 'label "high" = x>=2;', "S=? [ x=3 ];",
        'P>=0.1 [ F "high" & F x=3 ];', 'P=? [ X "high" ]',
    ]  # fmt: skip
    assert [s.text for s in statements("P=? [ F a ] +\nP=? [ F b ]\nR{2}min=? [ C ]\nPmax [ ( ; E [ F a ]")] == [
        "P=? [ F a ] +\nP=? [ F b ]", "R{2}min=? [ C ]", "Pmax [ ( ;", "E [ F a ]",
    ]  # fmt: skip
