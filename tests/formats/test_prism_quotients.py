"""Quotients of parameters in probabilities: exact, tied, over a domain that holds every point of the file's."""

from __future__ import annotations

import json
import re
import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.prism.language.derived import DerivedParameters, Reciprocal, quotient_range
from rpl_agent.formats.prism.language.grammar import NOWHERE
from rpl_agent.formats.prism.language.parser import parse_expression, parse_model
from rpl_agent.formats.prism.language.scope import link
from rpl_agent.formats.prism.language.typed import evaluate
from rpl_agent.guarantee.pipeline import Config, certify, true_value

BOX = {"p": (0.1, 0.9), "q": (0.2, 0.8)}
#: the first two updates of a command; the third gets the rest
PAIRS = [
    ("p/(p+q)", "q/(p+q)"),
    ("1/(p+q)*p", "1/(1+p/q)"),
    ("p^2/(p^2+q^2)", "0.5*q*q/(p*p+q*q)"),
    ("p*q/((p+q)*(p+q))", "p/(p+q)*p/(p+q)"),
    ("p/(p+q+0.5)", "q/(p+q+1/2)"),
    ("p*p/(p+q)", "(q-p*q)/(p+q)"),
    ("1/(1/p+1/q)/4", "(1-p)/(2-p)"),
    ("(p+1)/(p+q+2)", "(1-q)/(2*p+2*q+4)"),
    ("p*q/(p*(1+q))", "(p^2-q^2+2*p+1)/(8*(p+1+q))"),
    ("p/(p+x+1)", "q/(q+2*x+p)/4"),
    ("(p/(p+q))/(2-q/(p+q))", "(1-p/(p+q))/(2-q/(p+q))"),
    ("pow(p/(p+q), 3)", "x/(4*p+x+1)/4"),
    ("1/(2*(p/p))", "x/(9*(p+q)/(p+q))"),
]


def text(first: str, second: str, kind: str = "mdp") -> str:
    return f"""{kind}
const double p;
const double q;
module m
  x : [0..3];
  [a] x<2 -> {first}:(x'=x+1) + {second}:(x'=3) + 1-({first})-({second}):(x'=2);
  [b] x<2 -> 0.3:(x'=3) + 0.7:(x'=2);
  [e] x>1 -> true;
endmodule
rewards "steps" x<2 : 1; endrewards
"""


def meaning(expression: str, point: dict[str, Fraction], x: int) -> Fraction:
    """A second reader of the same expression: Python's own arithmetic."""
    python = expression.replace("^", "**").replace("0.5", "Fraction(1, 2)").replace("1/2", "Fraction(1, 2)")
    return eval(python, {"Fraction": Fraction, "pow": pow, "x": x, **point})


def exactly(model: prism.PrismModel, point: dict[str, Fraction]) -> np.ndarray:
    values = {**point, **model.derived.values(point)}
    table = model.pmdp.table
    found = [table.polynomial(f).evaluate({n: values[n] for n in table.parameters}) for f in model.pmdp.expression]
    return np.array(found, dtype=object)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_quotient_means_what_it_says(first, second):
    model = prism.loads(text(first, second), parameters=BOX)
    pmdp = model.pmdp
    for p, q in product(
        (Fraction(1, 10), Fraction(2, 7), Fraction(9, 10)), (Fraction(1, 5), Fraction(3, 7), Fraction(4, 5))
    ):
        point = {"p": p, "q": q}
        values = exactly(model, point)
        for x in (0, 1):
            row = pmdp.find_row(pmdp.state_index((x,)), pmdp.action_names.index("a"))
            span = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
            assert sum(values[span]) == 1
            wanted = {3: meaning(second, point, x)}
            wanted[x + 1] = meaning(first, point, x)
            wanted[2] = 1 - wanted[3] - (0 if x == 1 else wanted[x + 1])
            found = {pmdp.state_value(s)[0]: v for s, v in zip(pmdp.successor[span], values[span])}
            assert found == {x: v for x, v in wanted.items() if v or x in found}
        theta = model.theta({"p": float(p), "q": float(q)})
        assert pmdp.domain.contains(theta, tol=1e-15)


def test_storm_finds_the_same_values(tmp_path):
    stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")
    instantiators = pytest.importorskip("stormpy.pars")
    rng, file = np.random.default_rng(5), tmp_path / "model.prism"
    for first, second in PAIRS:
        model = prism.loads(text(first, second, "dtmc"), parameters=BOX)
        file.write_text(text(first, second, "dtmc"))
        program = stormpy.parse_prism_program(str(file))
        wanted = stormpy.parse_properties("P=? [F x=3]", program)
        built = stormpy.build_model[stormpy.RationalFunction](program, wanted)
        names = {v.name: v for v in built.collect_probability_parameters()}
        instantiator = instantiators.ModelInstantiator(built)
        for p, q in rng.uniform((0.1, 0.2), (0.9, 0.8), (4, 2)).round(3).tolist():
            values = {names[n]: stormpy.RationalFunctionCoefficient(v) for n, v in (("p", p), ("q", q)) if n in names}
            instance = instantiator.instantiate(values)
            value = stormpy.model_checking(instance, wanted[0]).get_value(instance.initial_states[0])
            theta = model.theta({"p": p, "q": q})
            (ours,) = prism.answer(model, "P=? [F x=3]", theta, precision=1e-9)
            assert ours.lower - 1e-6 <= value <= ours.upper + 1e-6
            assert not ours.problems


def test_parameters_that_stand_in_quotients_only_are_no_parameters_of_the_model():
    model = prism.loads(text("p/(p+q)", "q/(p+q)"), parameters=BOX)
    assert model.pmdp.table.parameters == ("p/(p+q)",)
    assert model.parameters == ("p", "q")
    assert model.pmdp.domain.lower[0] <= Fraction(1, 9) <= model.pmdp.domain.lower[0] + 1e-15
    assert model.pmdp.domain.upper[0] - 1e-15 <= Fraction(9, 11) <= model.pmdp.domain.upper[0]
    assert model.pmdp.num_expressions == 5  # r, 1 - r, 0.3, 0.7, 1: what is equal is tied
    assert model.theta({"p": 0.3, "q": 0.6}) == pytest.approx([1 / 3], abs=1e-16)
    assert model.theta({"p/(p+q)": 0.25}) == [0.25]
    for wrong in ({"p": 0.3}, {"p": 0.3, "q": 0.6, "r": 0.1}, {}):
        with pytest.raises(ModelError, match=r"each parameter \(p, q\), and for no other"):
            model.theta(wrong)


def test_constraints_of_the_file_and_parameters_elsewhere_stay():
    source = text("p/(p+q)", "q/(p+q)").replace("0.3:", "p:").replace("0.7:", "1-p:") + "// constraint p + q <= 1.2\n"
    model = prism.loads(source, parameters=BOX)
    assert model.pmdp.table.parameters == ("p", "p/(p+q)")
    # p + q <= 1.2 with q >= 0.2, projected on p
    assert model.pmdp.domain.contains(np.array([0.9, 0.6]))
    with pytest.warns(RPLWarning, match=r"p/\(p\+q\): learned as separate unknowns.* to p elsewhere"):
        model.objective("Pmax=? [F x=3]")


@pytest.mark.parametrize(
    ("first", "second", "is_loose"),
    [PAIRS[0] + (False,), PAIRS[4] + (False,), PAIRS[3] + (False,), PAIRS[5] + (True,), PAIRS[9] + (True,)],
)
def test_a_lost_connection_is_said_once_and_only_then(first, second, is_loose):
    model = prism.loads(text(first, second), parameters=BOX)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.objective("Pmax=? [F x=3]")
    assert [("separate unknowns" in str(w.message)) for w in caught] == [True] * is_loose


def test_the_range_of_a_quotient_is_sound_and_exact_at_corners():
    rng = np.random.default_rng(8)
    names, box = ("p", "q", "r"), {n: (Fraction(1, 10), Fraction(9, 10)) for n in ("p", "q", "r")}
    for _ in range(40):

        def random() -> Polynomial:
            terms = [(int(rng.integers(-3, 4)), rng.integers(0, 3, 3)) for _ in range(4)]
            return Polynomial({tuple((n, int(k)) for n, k in zip(names, e) if k): Fraction(c) for c, e in terms})

        top, bottom = random(), random() * Fraction(1, 10) + 3
        try:
            low, high = quotient_range(top, bottom, box, NOWHERE)
        except prism.PrismError:
            assert any(bottom.evaluate(dict(zip(names, v))) < 1 for v in rng.uniform(0.1, 0.9, (50, 3)).tolist())
            continue
        values = [
            top.evaluate(point) / bottom.evaluate(point)
            for point in (dict(zip(names, map(Fraction, v))) for v in rng.uniform(0.1, 0.9, (30, 3)).tolist())
        ]
        assert low <= min(values) and max(values) <= high
    p, q = Polynomial.parameter("p"), Polynomial.parameter("q")
    assert quotient_range(p, p + q, box, NOWHERE) == (Fraction(1, 10), Fraction(9, 10))


@pytest.mark.parametrize(
    ("first", "second", "ranges", "reason"),
    [
        ("p/(p+q)", "q/(p+q)", {}, r"the divisor p \+ q may be 0 for p in \[0, 1\], q in \[0, 1\]: give ranges"),
        ("p/(p-q)", "0.1", BOX, r"the divisor -p \+ q may be 0|the divisor p - q may be 0"),
        ("p/(p+q)", "p/(p+q)", {"p": (0.5, 0.9), "q": (0.5, 0.9)}, None),
        ("p/q", "0.1", BOX, r"the divisor|ranges over|leaves"),
    ],
)
def test_refusals(first, second, ranges, reason):
    if reason is None:  # linear: the domain is cut to where all is a probability
        pmdp = prism.loads(text(first, second), parameters=ranges).pmdp
        assert pmdp.domain.upper[0] == 0.5
        return
    with pytest.raises(prism.PrismError, match=reason) as caught:
        prism.loads(text(first, second), parameters=ranges)
    assert caught.value.line == 6


def test_a_row_of_quotients_must_sum_to_one():
    wrong = text("p/(p+q)", "q/(p+q)").replace("1-(p/(p+q))-(q/(p+q))", "q/(p+q+1)")
    with pytest.raises(prism.PrismError, match="sum to") as caught:
        prism.loads(wrong, parameters=BOX)
    assert caught.value.line == 6


def test_explosions_of_quotients_are_refused():
    deep = "p"
    for _ in range(40):
        deep = f"1/(1+q+{deep}*p)"
    for first in (deep, "pow(1/p+1/q+1/(p+q)+1/(p+2*q), 30)/9999999"):
        with pytest.raises(prism.PrismError, match=r"too large|too high|larger than"):
            prism.loads(text(first, "0.1"), parameters=BOX)


def test_constants_may_lose_their_value_into_quotients():
    source = text("p/(p+q)", "q/(p+q)").replace("double p;", "double p = 0.3;").replace("double q;", "double q = 0.6;")
    source += "// range p 0.1 0.9\n// range q 0.2 0.8\n"
    known = prism.loads(source)
    assert known.pmdp.num_parameters == 0
    model = prism.loads(source, unknown=["p", "q"])
    assert model.pmdp.table.parameters == ("p/(p+q)",)
    assert model.truth == pytest.approx([1 / 3], abs=1e-16)
    half = prism.loads(source, unknown="p")
    assert half.pmdp.table.parameters == ("3/(3+5*p)",) and half.truth == pytest.approx([2 / 3], abs=1e-15)


def test_quotients_may_bound_intervals_and_stand_in_rewards():
    source = text("p/(p+q)", "q/(p+q)").replace("0.3:", "[p/(p+q)/2, 0.6]:").replace("0.7:", "[0.1, 1]:")
    model = prism.loads(source, parameters=BOX)
    lower, _ = model.uncertain(model.theta({"p": 0.3, "q": 0.6})).relaxation().bounds()
    assert 1 / 6 == pytest.approx(lower[lower > 0.1].min(), abs=1e-12)
    paid = text("p/(p+q)", "q/(p+q)").replace("x<2 : 1;", "x<2 : p/(p+q) + 1/(4*p);")
    model = prism.loads(paid, parameters=BOX)
    assert model.pmdp.table.parameters == ("p/(p+q)", "1/p")
    (found,) = prism.answer(model, 'R{"steps"}min=? [C<=1]', model.theta({"p": 0.3, "q": 0.6}))
    assert found.lower == pytest.approx(1 / 3 + 1 / 1.2, abs=1e-12)


@pytest.mark.parametrize(("first", "second"), [PAIRS[0], PAIRS[4], PAIRS[5]])
def test_certificates_of_quotients_hold(first, second):
    truth = {"p": 0.3, "q": 0.6}
    model = prism.loads(text(first, second), parameters=BOX)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        pmdp, objective = model.objective("Pmax=? [F x=3]")
    theta = model.theta(truth)
    best = solve_at(pmdp, theta, objective).upper
    for seed in range(4):
        counts = uniform_counts(pmdp, objective, theta, 400, 20, seed)
        for bets, gap in ((False, 0.35), (True, 0.38)):  # with so few data bets cost more than they bring
            certificate = certify(pmdp, counts, objective, Config(delta=0.01, bets=bets))
            assert certificate.lower <= true_value(pmdp, objective, certificate.policy, theta, 1e-9) + 1e-9
            assert best <= certificate.upper + 1e-9
            assert certificate.upper - certificate.lower < gap


def test_the_command_line_takes_the_files_parameters(tmp_path, capsys):
    file = tmp_path / "quotient.prism"
    file.write_text(text("p/(p+q)", "q/(p+q)"))
    ranges = ["--param", "p=0.1:0.9", "--param", "q=0.2:0.8"]
    common = [str(file), *ranges, "--property", "Pmax=? [F x=3]", "--theta", "p=0.3", "--theta", "q=0.6", "--json"]
    assert main(["solve", *common]) == 0
    solved = json.loads(capsys.readouterr().out)
    assert solved["lower"] <= 2 / 3 + 1 / 3 * 2 / 3 <= solved["upper"]
    assert main(["certify", *common, "--episodes", "300"]) == 0
    certificate = json.loads(capsys.readouterr().out)
    assert certificate["lower"] <= certificate["value"] <= certificate["upper"]
    assert main(["solve", str(file), *ranges, "--property", "Pmax=? [F x=3]", "--theta", "p=0.3", "--json"]) != 0
    assert "(p, q)" in json.loads(capsys.readouterr().out)["error"]
    assert main(["certify", str(file), *ranges, "--property", "Pmax=? [F x=3]", "--episodes", "9", "--json"]) != 0
    assert "each of p, q" in json.loads(capsys.readouterr().out)["error"]


def random_expression(rng: np.random.Generator, depth: int) -> str:
    """Sums, products, quotients and powers of three parameters and small numbers."""
    if depth == 0 or rng.random() < 0.15:
        return str(rng.choice(["p", "q", "r", "1", "2", "1/3"]))
    left, right = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    return str(
        rng.choice([f"({left})+({right})", f"({left})*({right})", f"({left})/({right})", f"({left})-({right})/2",
                    f"pow({left}, 2)"])
    )  # fmt: skip


def test_random_quotients_keep_their_values():
    rng, compared = np.random.default_rng(11), 0
    names = {"p": Fraction(1, 3), "q": Fraction(5, 7), "r": Fraction(11, 13)}
    scope = link(parse_model("mdp const double p; const double q; const double r; module m endmodule"), {}).scope
    for _ in range(300):
        text = random_expression(rng, 4)
        try:
            exact = eval(re.sub(r"\b(\d)\b", r"Fraction(\1)", text).replace(", Fraction(2))", ", 2)"),
                         {"Fraction": Fraction, "pow": pow, **names})  # fmt: skip
            value = evaluate(scope.resolve(parse_expression(text)), [])
        except (ZeroDivisionError, prism.PrismError):
            continue
        derived = DerivedParameters()
        if isinstance(value, Polynomial):
            named = derived.named(value)
            assert not any(isinstance(name, Reciprocal) for name in named.parameters)
            value = named.evaluate({**names, **derived.values(names)})
        assert value == exact, text
        compared += bool(derived.found)
    assert compared > 60
