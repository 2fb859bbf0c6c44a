"""Whatever the text: a model, or a PrismError with a place in it. No crash, no hang, nothing evaluated as code."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.formats import prism
from rpl_agent.formats.prism.explore.code import column_of
from rpl_agent.formats.prism.language.parser import parse_expression, parse_model
from rpl_agent.formats.prism.language.scope import link
from rpl_agent.formats.prism.language.typed import interpret

MODELS = Path(__file__).parents[2] / "examples" / "models"
FILES = [path.read_text() for path in sorted(MODELS.glob("*.prism"))]
SMALL = """mdp
const double p; const int N = 2;
formula f = p*x/4;
module m
  x : [0..N]; b : bool init true;
  [a] x<N & b -> f : (x'=x+1) + 1-f : (b'=!b);
  [a] !b | x=N -> true;
endmodule
module k = m [x=y, b=c] endmodule
label "l" = x=N;
rewards "r" x>0 : 1/x; [a] true : 2; endrewards
"""
RICH = """mdp
const double p;
module m
  x : [0..3]; b : bool;
  [a] x<3 & b -> [0.1,0.5]:(x'=x+1) + [0.5,p]:(b'=!b);
  [a] !b | x=3 -> true;
endmodule
init x<=1 & (b | x^2=1) endinit
rewards "r" x>0 : 1; [a] true : 2; endrewards
"""
PROPERTIES = [
    "Pmax=? [ F<=3 x=2 ]", "Pmin=? [ G (x<2 | (X b)) ]", "P>=0.5 [ x<2 U[1,4] (x=2 & !b) ]", "R{\"r\"}max=? [ F x=2 ]",
    "filter(max, Pmax=? [ b W x=2 ], \"init\")", "Rmin=? [ C<=4 ]", "Rmax=? [ I=2 ]",
    "Pmaxmin=? [ b R x<3 {x=0}{min} ]",
]  # fmt: skip
WORDS = (
    "mdp dtmc ctmc const int double bool formula label module endmodule rewards endrewards init global true false"
    " min max pow mod floor ceil P Pmax Pmin R Rmax F U G X W C I filter init endinit clock"
    " x y p N 0 1 2 0.5 1e3 .. [ ] ( ) { } -> =>"
    " <=> <= >= < > = != ! & | + - * / ? : ; , ' x' (x'=1) \"l\" // é \x00 \n"
).split(" ")


def try_to_load(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = prism.loads(text, max_states=3000)
        except prism.PrismError as error:
            lines = text.splitlines() or [""]
            assert 1 <= error.line <= len(lines) + 1
            assert error.column >= 1
            assert error.reason
        else:
            assert model.pmdp.num_states >= 1


@given(st.text(max_size=200))
def test_any_text(text):
    try_to_load(text)


@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_words(words):
    try_to_load(" ".join(words))


@given(st.data())
def test_damaged_models(data):
    text = data.draw(st.sampled_from([SMALL] * 4 + [RICH] * 4 + FILES))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        piece = data.draw(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)))
        text = text[:at] + piece + text[at + length :]
    try_to_load(text)


@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_property(words):
    model = prism.loads(SMALL, parameters={"p": (0, 1)})
    try:
        model.pmdp, objective = model.objective(" ".join(words))
    except prism.PrismError as error:
        assert error.line >= 1
        assert error.column >= 1
    else:
        objective.resolve(model.pmdp)


@given(st.data())
def test_damaged_properties_are_answered_or_refused(data):
    text = data.draw(st.sampled_from(PROPERTIES))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 5))
        text = text[:at] + data.draw(st.sampled_from(WORDS)) + text[at + length :]
    model = prism.loads(RICH if data.draw(st.booleans()) else SMALL.replace("1/x", "x"), parameters={"p": (0.5, 0.9)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = prism.answer(model, text, np.array([0.75]))
        except prism.PrismError as error:
            assert error.line >= 1 and error.reason
        else:
            assert all(a.lower <= a.upper for a in answers)


def test_texts_cannot_run_code(tmp_path):
    marker = tmp_path / "ran"
    for text in (f'__import__("os").mkdir("{marker}")', "().__class__", "exec(1)", "x.__class__"):
        try_to_load(SMALL.replace("p*x/4", text))
    assert not marker.exists()


# -- compiled expressions against the plain evaluator -----------------------------------------------------------------
numbers = st.sampled_from(["0", "1", "2", "3", "0.5", "0.25", "1.125", "7", "N", "x", "y", "z"])


def compound(inner):
    pair = st.tuples(inner, inner)
    patterns = ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "min({}, {})", "max({}, {})"]
    patterns.append("mod(floor({}), ceil({}))")
    number = [pair.map(lambda t, p=p: p.format(*t)) for p in patterns]
    number += [inner.map(p.format) for p in ("floor({})", "ceil({})", "round({})", "-{}", "pow({}, 2)")]
    number.append(st.tuples(conditions(inner), inner, inner).map(lambda t: "({} ? {} : {})".format(*t)))
    return st.one_of(number)


def conditions(inner):
    compared = st.tuples(inner, st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), inner).map(
        lambda t: f"{t[0]} {t[1]} {t[2]}"
    )
    return st.one_of(
        compared,
        st.just("b"),
        st.tuples(compared, compared).map(lambda t: f"({t[0]} & {t[1]})"),
        *(compared.map(p.format) for p in ("!({})", "({} | b)", "({} => b)", "({} <=> b)")),
    )


terms = st.recursive(numbers, compound, max_leaves=8)
PROGRAM = link(
    parse_model("mdp const int N = 5; module m x:[0..5]; y:[-3..3]; z:[1..4]; b:bool; [] true -> true; endmodule"), {}
)
GRID = np.array([(x, y, z, b) for x in range(6) for y in range(-3, 4) for z in range(1, 5) for b in range(2)])


@given(terms)
def test_compiled_numbers_are_exact(text):
    node = PROGRAM.scope.resolve(parse_expression(text))
    columns = list(GRID.T.astype(np.int64))
    exact, failed = [], []
    for k, state in enumerate(GRID.tolist()):
        try:
            exact.append(interpret(node, state))
        except prism.PrismError:
            failed.append(k)
            exact.append(None)
    try:
        got = column_of(node, PROGRAM.variables, columns, len(GRID))
    except prism.PrismError:
        assert failed, "only partial operations may fail"
        return
    for value, found in zip(exact, got.tolist(), strict=True):
        if value is not None:
            assert float(value) == found


@given(conditions(terms))
def test_compiled_conditions_are_exact(text):
    node = PROGRAM.scope.resolve(parse_expression(text))
    expected = []
    for state in GRID.tolist():
        try:
            expected.append(interpret(node, state))
        except prism.PrismError:
            return
    got = column_of(node, PROGRAM.variables, list(GRID.T.astype(np.int64)), len(GRID))
    assert got.tolist() == expected
