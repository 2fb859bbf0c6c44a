"""Divisions by parameters: exact ones are polynomials, every other one is refused with what to write instead."""

import pytest

from rpl_agent.formats import prism
from rpl_agent.formats.prism import PrismError


def text(first: str, second: str) -> str:
    return f"""mdp
const double p;
const double q;
module m
  x : [0..2];
  [go] x=0 -> {first}:(x'=1) + {second}:(x'=2);
  [e]  x>0 -> true;
endmodule
"""


BOX = {"p": (0.1, 0.9), "q": (0.2, 0.8)}


@pytest.mark.parametrize(
    ("divided", "rest"), [("p*q/q", "1-p"), ("(p^2-q^2)/(p-q)/2", "1-p/2-q/2"), ("p/0.5/2", "1-p"), ("p/p", "1-1")]
)
def test_an_exact_division_is_a_polynomial(divided, rest):
    model = prism.loads(text(divided, rest), parameters=BOX)
    assert model.pmdp.table.is_affine
    row = model.pmdp.find_row(model.pmdp.initial_state, model.pmdp.action_names.index("go"))
    first = model.pmdp.table.polynomial(int(model.pmdp.expression[model.pmdp.row_ptr[row]]))
    point = {"p": 0.3, "q": 0.7}
    wanted = eval(divided.replace("^", "**"), {}, point)
    assert float(first.at({name: point[name] for name in first.parameters})) == pytest.approx(wanted)


@pytest.mark.parametrize(("first", "second"), [("p/(p+q)", "q/(p+q)"), ("1/(1+p)", "p/(1+p)"), ("p/q", "1-p/q")])
def test_any_other_division_is_refused_with_what_to_write_instead(first, second):
    with pytest.raises(PrismError, match=r"divides by a parameter.*declare the quotient as an unknown of its own") as e:
        prism.loads(text(first, second), parameters=BOX)
    assert "line 6" in str(e.value) or ":6:" in str(e.value)
    assert e.value.reason.endswith("and write r")  # no state is named where no variable matters


def test_a_division_by_zero_is_named():
    with pytest.raises(PrismError, match="division by zero"):
        prism.loads(text("p/(q-q)", "1-p"), parameters=BOX)
