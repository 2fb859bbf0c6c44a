"""Rare events: what happens with a probability that 1 minus it does not show is possible all the same."""

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective
from rpl_agent.formats import prism
from rpl_agent.formats.prism.answers import answer
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config

MODEL = """
mdp
const double p; const double q; const double c;
module m
  s : [0..5];
  [] s=0 -> p : (s'=1) + q : (s'=2) + 1-p-q : (s'=3);
  [] s=1 -> c : (s'=4) + 1-c : (s'=5);
  [] s=2 -> 2*c : (s'=4) + 1-2*c : (s'=5);
  [] s=3 -> 4*c : (s'=4) + 1/2-2*c : (s'=0) + 1/2-2*c : (s'=5);
  [] s>3 -> true;
endmodule
label "done" = s=4;
"""


def learned(exponent: int):
    c = Fraction(2) ** exponent
    pmdp = prism.loads(MODEL, {"c": c}, {"p": (0.05, 0.6), "q": (0.05, 0.3)}).pmdp
    counts = Counts(pmdp)
    transitions = np.zeros(pmdp.num_transitions, dtype=np.int64)
    transitions[: pmdp.row_ptr[1]] = 100, 100, 200
    counts.add_batch(transitions)
    return c, pmdp, counts


@pytest.mark.parametrize("relaxation", ["rectangular", "coupled"])
@pytest.mark.parametrize("confidence", ["likelihood", "ellipsoid", "anytime"])
@pytest.mark.parametrize("exponent", [-20, -60, -300, -520, -700])
def test_certificates_of_rare_events_hold_the_truth(exponent, confidence, relaxation):
    c, pmdp, counts = learned(exponent)
    found = certify(pmdp, counts, Objective.reach("done"), Config(confidence, relaxation, delta=0.05))
    quarter, half = Fraction(1, 4), Fraction(1, 2)
    # v = v1/4 + v2/4 + (4c + (1/2 - 2c) v)/2 with v1 = c, v2 = 2c, at p = q = 1/4
    truth = (quarter * c + quarter * 2 * c + half * 4 * c) / (1 - half * (half - 2 * c))
    assert found.checked and 0.0 <= found.lower and Fraction(found.lower) <= truth <= Fraction(found.upper)
    assert found.upper <= 2 * truth + Fraction(1, 10**13)  # not because it says nothing


def test_constants_lie_between_their_floats():
    _, pmdp, _ = learned(-300)
    low, high = pmdp.table.constant_bounds
    assert pmdp.table.is_constant.any()
    for f in np.flatnonzero(pmdp.table.is_constant):
        exact = pmdp.table.polynomial(int(f)).terms.get((), Fraction(0))
        assert Fraction(float(low[f])) <= exact <= Fraction(float(high[f]))
        assert high[f] <= np.nextafter(low[f], np.inf) and (low[f] == high[f]) == (Fraction(float(low[f])) == exact)


#: rows of two and of three: all but the rare outcome has probability 1 in floats
ROWS = {"two": "{c} : (s'=1) + {one}-{c} : (s'=2)", "three": "{c} : (s'=1) + {half} : (s'=2) + {half}-{c} : (s'=3)"}
SOLVED = """
mdp
{constant}
module m
  s : [0..3];
  [] s=0 -> {row};
  [] s>0 -> true;
endmodule
label "done" = s=1;
"""


@pytest.mark.parametrize("question", ["Pmax=?", "Pmin=?"])
@pytest.mark.parametrize("exponent", [-2, -60, -300, -900])
@pytest.mark.parametrize("kind", ["number", "theta", "interval"])
@pytest.mark.parametrize("row", ROWS)
def test_what_is_rare_is_possible_in_known_models_too(row, kind, exponent, question):
    c = Fraction(2) ** exponent
    chances = ROWS[row].format(c="c" if kind == "theta" else f"1/{1 / c}", one="1", half="1/2")
    if kind == "interval":
        parts = (part.split(" : ") for part in chances.split(" + "))
        chances = " + ".join(f"[{chance},{chance}] : {update}" for chance, update in parts)
    text = SOLVED.format(constant="const double c;" if kind == "theta" else "", row=chances)
    theta = np.array([float(c)]) if kind == "theta" else None
    model = prism.loads(text, parameters=None if theta is None else {"c": (0.0, 0.5)})
    for found in answer(model, f'{question} [ F "done" ]', theta):
        assert found.problems == [] and Fraction(found.lower) <= c <= Fraction(found.upper)
        assert found.upper <= 2 * c + Fraction(1, 10**13)
