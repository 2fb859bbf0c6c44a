"""What is wrong or not supported in a PRISM file is refused by name, with line and column."""

from __future__ import annotations

import pytest

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.core.model.building.unknown import hide_parameters
from rpl_agent.formats import prism
from rpl_agent.formats.prism.language.parser import parse_expression, parse_model, parse_properties
from rpl_agent.formats.prism.properties.queries import unparse

HEAD = "mdp\nconst double p;\nconst int N = 3;\n"
BODY = "module m\n  x : [0..N] init 0;\n  [a] x<N -> p : (x'=x+1) + 1-p : true;\n  [b] x=N -> true;\nendmodule\n"


def refused(text: str, reason: str, line: int, column: int, **keywords) -> None:
    with pytest.raises(prism.PrismError, match=reason) as caught:
        prism.loads(text, **keywords)
    assert isinstance(caught.value, ModelError)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert str(caught.value).startswith(f"<text>:{line}:{column}: ")


@pytest.mark.parametrize(
    ("text", "reason", "line", "column"),
    [
        ("ctmc\n", "'ctmc': continuous-time", 1, 1),
        ("  pta\n", "'pta': probabilistic timed", 1, 3),
        ("pomdp\n", "'pomdp': partially observable", 1, 1),
        ("smg\n", "stochastic games", 1, 1),
        ("mdp\nmodule m\n  x : clock;\nendmodule", "clock variables are not supported", 3, 7),
        ("mdp\nmodule m\n x : int;\nendmodule", "unbounded 'int'", 3, 6),
        (HEAD + BODY + "init x=1 endinit", "'x' has an initial value, but the model has init", 5, 3),
        (HEAD + BODY.replace(" init 0", "") + "init x>N endinit", "no state satisfies init", 9, 7),
        (HEAD + BODY.replace("x<N ->", "F x<N ->"), "path operator 'F' may only stand in a property", 6, 7),
        (HEAD + BODY.replace("-> p :", "-> [p,2*p] :").replace("1-p", "[0.1,0.1]"), "bounds leave", 6, 3),
        (HEAD + BODY + "system m endsystem", "system … endsystem", 9, 1),
        (HEAD + BODY + 'label "l" = log(x, 2) > 1;', "'log' is not supported", 9, 13),
        (HEAD + BODY.replace("p :", "q :"), "unknown name 'q'", 6, 14),
        (HEAD + BODY.replace("x'=x+1", "y'=x+1"), "unknown variable 'y'", 6, 19),
        (HEAD + BODY.replace("x<N ->", "x+N ->"), "a guard must be bool, this is int", 6, 8),
        (HEAD + BODY.replace("x<N ->", "x & x<N ->"), "'&' needs booleans, got int, bool", 6, 9),
        (HEAD + BODY.replace("x'=x+1", "x'=x/2"), "'x' is int, its new value is double", 6, 19),
        (HEAD + BODY.replace("x<N ->", "x<p ->"), "a parameter may not occur under '<'", 6, 8),
        (HEAD + BODY.replace("-> p :", "-> 1/p :"), "divides by a parameter", 6, 15),
        (HEAD + BODY.replace("-> p :", "-> pow(p, 65) :"), "integer power", 6, 14),
        (HEAD + BODY.replace("-> p :", "-> pow(p, x/2) :"), "integer power", 6, 14),
        (HEAD + BODY.replace("-> p :", "-> pow(p, x-1) :"), r"a parameter raised to -1: .* at \(x=0\)", 6, 14),
        (HEAD + BODY.replace("x'=x+1", "x'=x+2"), r"'x' would become 4, outside \[0..3\], in state \(x=2\)", 6, 3),
        (
            "mdp\nmodule m\n x : [0..3] init 3;\n [t] true -> (x'=x+1);\nendmodule\n"
            "module n y : [0..99] init 50; [t] true -> (y'=y+7); endmodule",
            r"'x' would become 4, outside",
            4,
            19,
        ),
        (HEAD + BODY.replace("1-p", "0.9-p"), "sum to 0.9, not to 1", 6, 3),
        (HEAD + BODY.replace("-> p :", "-> 2*p*p :").replace("1-p", "1-2*p*p"), "ranges over", 6, 3),
        (HEAD + "formula f = g;\nformula g = f+1;\n" + BODY.replace("x<N ->", "x<f ->"), "f -> g -> f", 5, 13),
        (HEAD + "const int p;\n" + BODY, "the name 'p' is used twice", 4, 11),
        (HEAD + BODY + BODY, "the module 'm' is defined twice", 9, 8),
        (HEAD + "const bool big;\n" + BODY, "'big' of type bool has no value", 4, 12),
        (HEAD + BODY + 'label "init" = x=0;', "defined twice", 9, 7),
        (HEAD + BODY + "module k = m [N=N] endmodule", "variable 'x' must be renamed", 9, 8),
        (HEAD + BODY + "module k y:[0..1]; [c] true -> (x'=0); endmodule", "may not change 'x'", 9, 33),
        (HEAD + "global g : bool;\n" + BODY.replace("x'=x+1)", "x'=x+1) & (g'=true)"), "global variable 'g'", 7, 30),
        (HEAD + BODY + "rewards x=0 : 1/x; endrewards", "division by zero", 9, 16),
        (HEAD + BODY.replace("[0..N]", "[2..1]"), r"empty range \[2..1\]", 5, 3),
        (HEAD + BODY.replace("init 0", "init 9"), r"9 of 'x' is outside \[0..3\]", 5, 3),
        (HEAD + BODY.replace("[0..N]", "[0..99999999999999999999]"), "is too large", 5, 3),
        (HEAD + "// range r 0 1\n" + BODY, "'r' in a range comment", 4, 10),
        (HEAD + "// range p 0 one\n" + BODY, "is not a range", 4, 10),
        (HEAD + "// constraint p*p <= 1\n" + BODY, "must be linear", 4, 15),
        (HEAD + "// constraint p < 1\n" + BODY, "form: expression <= expression", 4, 15),
        (HEAD + "// constraint p + * 2 <= 1\n" + BODY, "unexpected '\\*'", 4, 19),
        (HEAD + "// constraint p >= 2\n" + BODY, "leaves no value", 4, 15),
        (HEAD + BODY[:-2], "unexpected end of the text; expected ':'", 8, 9),
        (HEAD + "const double F;\n" + BODY, "'F' \\(a reserved word", 4, 14),
        (HEAD + BODY + "$", "unexpected character '\\$'", 9, 1),
        (HEAD + "const int k = 1e999;\n" + BODY, "out of range", 4, 15),
        ("mdp\n", "the model has no module", 1, 1),
        ("mdp\nmodule m x : [0..]; endmodule", "unexpected ']'; expected one of", 2, 18),
        ("mdp // comment\r\n\n\tmodule m x\n : [0..]; endmodule", "unexpected ']'; expected one of", 4, 8),
    ],
)
def test_refusals_name_the_place(text, reason, line, column):
    refused(text, reason, line, column)


#: the place that the error must name stands after the mark
MARK = "@"
LOOP = "module m\n  x : [0..3] init 0;\n  [] true -> true;\nendmodule\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mdp\n" + LOOP + "rewards\n  x=0 : @pow(10, 400);\nendrewards", "out of the 62-bit range"),
        ("mdp\n" + LOOP.replace("true -> true", "x = @floor(x, 1) -> true"), "takes 1"),
        ("mdp\n" + LOOP.replace("true -> true", "x < func(@sqrt, 4) -> true"), "unknown function 'sqrt'"),
        ("mdp\n" + LOOP + "@dtmc\n", "the model type is given twice"),
        ("mdp\n" + LOOP.replace(" init 0", "") + "init x=0 endinit\n@init x=1 endinit", "given twice"),
        ("mdp\n" + LOOP.replace("-> true", "-> (x@=1) : true"), "a probability must be a number"),
        ("mdp\n" + LOOP + "rewards\n  x=0 : x@=1;\nendrewards", "a reward must be a number"),
        ("mdp\nconst int k = 2;\n" + LOOP.replace("x :", "@k :"), "the name 'k' is used twice"),
        ("mdp\n" + LOOP + "const int c = @x + 1;", "unknown name 'x'"),
        ("mdp\n" + LOOP + "const int @c = 0.5;", "constant 'c' is int, its value double"),
        ("mdp\n" + LOOP + 'rewards "r" true : 1; endrewards\n@rewards "r" true : 1; endrewards', "defined twice"),
        ("mdp\n" + LOOP + "module @k = n [x=y] endmodule", "unknown module 'n'"),
        ("mdp\n" + LOOP + "module @k = m [x=y, x=z] endmodule", "a name is renamed twice"),
        ("mdp\nmodule m\n  @b : bool init 1+1;\nendmodule", "must be a constant boolean"),
        ("mdp\n" + LOOP.replace("[0..3]", "[0..@true]"), "must be a constant integer"),
        ("mdp\n" + LOOP + 'formula f = @"l";\nlabel "k" = f;', 'unknown label "l"'),
        ("mdp\n" + LOOP.replace("-> true", "-> (x'=1) & (@x'=2)"), "'x' is assigned twice"),
        ("mdp\n" + LOOP.replace("true ->", "mod(x, 0-1) @= 0 ->"), "the divisor must be positive"),
        ("mdp\n" + LOOP.replace("true ->", "x @< pow(2, 0-1) ->"), "negative exponent"),
        ("mdp\n" + LOOP.replace("true ->", "x @< pow(10, 100000) ->"), "number too large in pow"),
        ("mdp\n" + LOOP.replace("-> true", "-> [0.5, 0.5] : (x'=0) + [0.6, 0.7] : (x'=1)").replace("  []", "  @[]"),
         "lower bounds sum to more than 1"),
        ("mdp\n" + LOOP.replace("-> true", "-> [0.1, 0.2] : (x'=0) + [0.6, 0.7] : (x'=1)").replace("  []", "  @[]"),
         "upper bounds sum to less than 1"),
        ("mdp\n" + LOOP.replace("-> true", "-> [0.9, 0.2] : (x'=0) + [0.6, 0.7] : (x'=1)").replace("  []", "  @[]"),
         "bounds"),
    ],
)  # fmt: skip
def test_every_other_refusal_names_its_place_too(text, reason):
    line, column = text[: text.index(MARK)].count("\n") + 1, text.index(MARK) - text.rfind("\n", 0, text.index(MARK))
    refused(text.replace(MARK, ""), reason, line, column)


@pytest.mark.parametrize(
    ("unknown", "text", "reason"),
    [
        ("commands", "mdp\n" + LOOP.replace("[] true -> true", "@[] true -> [0.4, 0.6] : (x'=0) + [0.4, 0.6] : (x'=1)"),
         "an interval command cannot be made unknown"),
        ("commands",
         "mdp\nconst double p;\n" + LOOP.replace("[] true -> true", "@[] true -> p : (x'=0) + 1-p : (x'=1)"),
         "may not depend on a parameter"),
        (["p"], "mdp\nconst double @p;\n" + LOOP.replace("-> true", "-> p : (x'=0) + 1-p : (x'=1)"),
         "it is unknown already"),
    ],
)  # fmt: skip
def test_what_cannot_be_unknown_names_its_place(unknown, text, reason):
    line, column = text[: text.index(MARK)].count("\n") + 1, text.index(MARK) - text.rfind("\n", 0, text.index(MARK))
    refused(text.replace(MARK, ""), reason, line, column, unknown=unknown)


def test_the_offending_line_is_shown():
    with pytest.raises(prism.PrismError) as caught:
        prism.loads(HEAD + BODY.replace("p :", "q :"))
    assert "\n      [a] x<N -> q : (x'=x+1) + 1-q : true;\n                 ^" in str(caught.value)


def test_given_values_are_checked():
    refused(HEAD + BODY, "no constant 'q' to define", 1, 1, constants={"q": 1})
    refused(HEAD + BODY, "'2.5' is not an integer", 3, 11, constants={"N": "2.5"})
    refused(HEAD + BODY, "not a value for the int", 3, 11, constants={"N": "two"})
    refused(HEAD + BODY, "no parameter 'q' \\(parameters: p\\)", 1, 1, parameters={"q": (0, 1)})
    for wrong in ((0.9, 0.1), 0.5, (0.1,), ("a", "b"), (0.0, float("inf"))):
        refused(HEAD + BODY, "is not a range for the parameter 'p'", 1, 1, parameters={"p": wrong})
    refused(HEAD + BODY, "more than 3 states", 1, 1, max_states=3)


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(prism.PrismError, match="cannot read the file"):
        prism.load(tmp_path / "nothing.prism")


@pytest.mark.parametrize(
    ("text", "reason", "column"),
    [
        ('Pmax=? [ G (F "top") ]', "neither co-safe nor safe", 10),
        ('Pmax=? [ X<=2 "top" ]', "'X' takes no bound", 10),
        ("multi(Pmax=? [ F x=1 ])", "multi-objective", 1),
        ("Pmax=? [ F (2 + (F x=1)) ]", "may not stand under", 15),
        ("S=? [ x=1 ]", "steady-state operator", 1),
        ("Pmax=? [ F P>0.3 [ X x=1 ] ]", "the operator P within a formula is not supported: answer it first", 12),
        ("P>=0.5 [ F (x=1 | Rmin>=2 [ F x=1 ]) ]", "the operator R within a formula is not supported", 19),
        ("Pmax=? [ (F x=1) || (G x=0) ]", r"conditional probabilities, .* are not supported: divide", 19),
        ("<<1>> Pmax=? [ F x=1 ]", "coalitions of players, <<…>>, are not supported", 1),
        ("filter(print, Pmax=? [ F x=1 ])", "filter 'print' is not supported", 15),
        ("filter(forall, Pmax=? [ F x=1 ])", "does not fit a property whose answer is a number", 16),
        ("filter(max, Pmax=? [ F x=1 ], x=9)", "do not occur in the model", 13),
        ("P=? [ F x=1 ]", "write Pmax=\\? or Pmin=\\?", 1),
        ('Pmax=? [ F "nowhere" ]', 'unknown label "nowhere"', 12),
        ("Pmax=? [ F x+1 ]", "a state formula must be bool", 13),
        ('Rmax=? [ F "top" ]', "the model has no rewards", 1),
        ("Rmax=? [ S ]", "steady-state reward", 10),
        ("Rmax=? [ G x=1 ]", "F target, Fc target, C", 10),
        ("Pmax=? [ F<=x x=1 ]", "constant integer", 13),
        ("Pmax=? [ F<0 x=1 ]", "allows -1 steps", 12),
        ("Pmax=? [ F x=1", "unexpected end of the text", 15),
        ("", "expected one property, found 0", 1),
        ("Pmax=? [ F x=1 {x=0}{min}{max} ]", "one filter", 22),
        ("Pmaxmin=? [ F x=1 {x=0}{x=1} ]", "one filter", 21),
        ("Rmax=? [ Fx x=1 ]", "unknown path operator 'Fx'", 10),
        ("filter(min, filter(max, Pmax=? [ F x=1 ]))", "unexpected 'filter'", 13),
        ("R{x+1}max=? [ F x=1 ]", "by name or number", 4),
        ("filter(state, Pmax=? [ F x=1 ], x<=1)", "needs one state, but 2 satisfy it", 15),
        ("P>=x [ F x=1 ]", "must be a constant number", 4),
        ('Pmax=? [ F ("top" & X "top") ]', r"'X': a path operator within a formula needs its own .* \(X …\)", 21),
        ('Pmax=? [ G !F "top" ]', r"needs its own brackets, \(F …\)", 13),
        ('Pmax=? [ "top" U "top" U "top" ]', r"put brackets around one of the two .* \(a U b\) U c", 24),
        ("A [ F x=1 ]", "the operator A is not supported", 1),
        ("E [ F x=1 ]", "the operator E is not supported: .* is Pmax>0", 1),
        ("filter(forall, E [ F x=1 ])", "the operator E is not supported", 18),
        ("filter(exists, A [ G x=1 ], x=0)", "the operator A is not supported: .* is P<=0", 18),
        ("Pmax=? [ F x=1 ] + 1", "arithmetic and logic over properties", 18),
        ("1 - Pmax=? [ F x=1 ]", "Pmin=.* G !a", 1),
        ("!(Pmax>=0.5 [ F x=1 ])", "arithmetic and logic over properties", 1),
        ('"one" + 1', "arithmetic and logic over properties", 7),
        ("const int k = 1; Pmax=? [ F<=k x=1 ]", "unexpected 'const'", 1),
        ('"nobody"', 'no property that can be read is called "nobody"; a label .* filter', 1),
        ("multi(Pmax=? [ F x=1 ], P<=0.1 [ F x=0 ])", "give all of it as --property .* to rpl solve", 1),
    ],
)
def test_properties_that_are_not_supported(text, reason, column):
    model = prism.loads(HEAD + BODY + 'label "top" = x=N;')
    with pytest.raises(prism.PrismError, match=reason) as caught:
        model.objective(text)
    assert caught.value.column == column, str(caught.value)


def test_operators_bind_as_in_prism():
    for text, meaning in [
        ("!x=1&y=2|z=3", "((!(x=1)) & y=2) | z=3"),
        ("a=>b<=>c|d", "a => (b <=> (c | d))"),
        ("-x*y+2-3/z", "((-x)*y) + 2 + (-(3/z))"),
        ("a ? b : c ? d : e", "a ? b : (c ? d : e)"),
        ("x<1=true", "(x<1) = true"),
        ("a/b/c", "(a/b)/c"),
        ("a*b/c*d", "((a*b)/c)*d"),
        ("func(mod, x, 2) = 0", "mod(x, 2)=0"),
    ]:
        assert unparse(parse_expression(text)) == unparse(parse_expression(meaning)), text
        assert unparse(parse_expression(unparse(parse_expression(text)))) == unparse(parse_expression(text))


def test_words_are_names_unless_reserved():
    model = parse_model("mdp module m round : [0..5]; pow_1 : bool; [] round<5 -> (round'=round+1); endmodule")
    assert [v.name for v in model.modules[0].variables] == ["round", "pow_1"]
    assert [p.name for p in parse_properties('"one": Pmax=? [F "a"]; Rmin=? [F "b"]')] == ["one", None]


def test_long_flat_expressions_are_read_and_deep_ones_refused():
    many = " | ".join(f"x={k}" for k in range(3000))
    model = prism.loads(HEAD + BODY + f'label "some" = {many};')
    assert model.pmdp.labels["some"].all()
    deep = "(" * 5000 + "x" + ")" * 5000
    assert prism.loads(HEAD + BODY + f'label "deep" = {deep}=0;').pmdp.labels["deep"].sum() == 1
    refused(HEAD + BODY + f'label "deep" = {"-" * 500}x=0;', "nested more than 150 levels", 9, 366)
    chain = "".join(f"formula f{k} = f{k + 1}+1;\n" for k in range(400)) + "formula f400 = x;\n"
    with pytest.raises(prism.PrismError, match="nested"):
        prism.loads(HEAD + BODY + chain + 'label "l" = f0>0;')


def test_numbers_that_explode_are_refused():
    squares = "formula f0 = 3;\n" + "".join(f"formula f{k + 1} = f{k}*f{k};\n" for k in range(100))
    with pytest.raises(prism.PrismError, match="too large"):
        prism.loads(HEAD + squares + BODY + "rewards f100>0 : 1; endrewards")
    powers = "formula g0 = p+0.1;\n" + "".join(f"formula g{k + 1} = g{k}*g{k};\n" for k in range(20))
    with pytest.raises(prism.PrismError, match=r"too large|more than"):
        prism.loads(HEAD + powers + BODY.replace("-> p :", "-> g20 :"))


def test_long_rows_make_no_long_errors():
    updates = " + ".join(f"{k + 1}/20101 : (x'={k})" for k in range(200))
    with pytest.raises(prism.PrismError, match="sum to 20100/20101, not to 1") as caught:
        prism.loads(f"mdp module m x:[0..199]; [a] x<2 -> {updates}; [b] x>1 -> true; endmodule")
    assert max(map(len, str(caught.value).splitlines())) < 500


def test_names_of_operators_are_names_in_a_model():
    model = prism.loads("mdp\nmodule m\n  E : [0..1];\n  [A] E=0 -> (E'=1);\n  [C] E=1 -> true;\nendmodule")
    assert model.pmdp.action_names[:2] == ("A", "C")
    assert prism.answer(model, "Pmin=? [ F E=1 ]")[0].lower == 1.0


def test_probabilities_that_leave_their_range_name_the_option_to_give():
    product = "mdp\nconst double p;\nconst double q;\n" + LOOP.replace(
        "-> true", "-> p*q+0.5 : (x'=0) + 0.5-p*q : (x'=1)"
    )
    with pytest.raises(prism.PrismError, match=r"keep it in \[0, 1\]: --param p=LO:HI --param q=LO:HI\n"):
        prism.loads(product)
    prism.loads(product, parameters={"p": (0, 0.5)})
    interval = "mdp\nconst double e;\n" + LOOP.replace("-> true", "-> [0.5-e,0.5+e] : (x'=0) + [0.5-e,0.5+e] : (x'=1)")
    with pytest.raises(prism.PrismError, match=r"bounds leave .*\ngive ranges .*: --param e=LO:HI\n"):
        prism.loads(interval)
    prism.loads(interval, parameters={"e": (0, 0.25)})


def test_messages_do_not_list_everything():
    many = prism.loads("dtmc\n" + "".join(f"const double p{k};\n" for k in range(500)) + LOOP)
    labels = prism.loads("mdp\n" + LOOP + "".join(f'label "l{k}" = x=0;\n' for k in range(500)))
    for fails in (
        lambda: many.theta({}),
        lambda: prism.loads("dtmc\n" + LOOP, parameters={"q": (0, 1)}),
        lambda: prism.answer(labels, 'Pmax=? [ F "nowhere" ]'),
        lambda: Objective.reach("nowhere").resolve(labels.pmdp),
        lambda: hide_parameters(hide_parameters(build_chain(400)).pmdp),
    ):
        with pytest.raises(ModelError) as caught:
            fails()
        assert len(str(caught.value)) < 400
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, … and 2 more" and listed([]) == "none"


def build_chain(states: int) -> ParametricMDP:
    return prism.loads(
        f"dtmc\nmodule m\n  x : [0..{states}];\n  [] true -> 0.5 : (x'=min(x+1,{states})) + 0.5 : (x'=0);\nendmodule"
    ).pmdp


def test_a_jani_file_is_named():
    with pytest.raises(prism.PrismError, match="this looks like a JANI file; only the PRISM language and DRN are read"):
        prism.loads('{"jani-version": 1, "name": "coin", "type": "dtmc"}')
