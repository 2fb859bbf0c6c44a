"""Questions on which the solver stalled, gave up or decided too much; exact answers by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rpl_agent.core.solver import solve
from rpl_agent.formats import prism

CYCLE = """
mdp
module m
  s : [0..4] init 0;
  [c] s=0 -> (s'=1);
  [b] s=1 -> 2/3 : (s'=4) + 1/3 : (s'=3);
  [c] s=1 -> 1/6 : (s'=0) + 5/6 : (s'=1);
  [b] s=3 -> 1/3 : (s'=0) + 2/3 : (s'=1);
  [c] s=4 -> 7/8 : (s'=3) + 1/8 : (s'=2);
  [d] s=2 -> true;
endmodule
rewards "r" s=0 : 0.1; s=4 : 5; endrewards
"""
#: lower ends sum to 1, so that nothing is left for s=2
INTERVALS = """
mdp
module m
  s : [0..2] init 0;
  [a] s=0 -> [0.1,0.3] : (s'=0) + [0.9,1] : (s'=1) + [0,0.2] : (s'=2);
  [b] s=1 -> (s'=0);
  [c] s=2 -> true;
endmodule
label "bad" = s=2;
"""


def walk(cells: int, chance: str, start: int) -> str:
    return (
        f"mdp module m x:[0..{cells}] init {start}; [a] x>0 & x<{cells} -> {chance}:(x'=x+1) + 1-{chance}:(x'=x-1); "
        f'[e] x=0 | x={cells} -> true; endmodule label "end" = x=0 | x={cells}; label "top" = x={cells}; '
        f'rewards "steps" x>0 & x<{cells} : 1; endrewards'
    )


def test_the_first_rows_of_a_minimiser_end_the_play():
    """Rows that loop and pay were its start: the chain was singular, and the bracket [13.4, inf]."""
    found = prism.answer(prism.loads(CYCLE), "Rmin=? [ C ]")[0]
    exact = Fraction(607, 15)  # 40.4666…: of s=0 by [b] everywhere
    assert found.lower <= exact <= found.upper and found.upper - found.lower < 1e-4


@pytest.mark.parametrize("question", ['P<=0 [ F "bad" ]', 'Pmax>=1 [ G !"bad" ]'])
def test_no_mass_is_left_beside_lower_ends_that_sum_to_one(question):
    """Ends rounded outward left 1e-17, by which a play got everywhere in the end."""
    assert prism.answer(prism.loads(INTERVALS), question)[0].verdict == "yes"


def test_the_most_of_a_state_that_is_never_reached():
    model = prism.loads(INTERVALS)
    found = prism.answer(model, 'Pmax=? [ F "bad" ]')[0]
    assert (found.lower, found.upper) == (0.0, 0.0)


@pytest.mark.parametrize(("chance", "start"), [("0.9", 1_000), ("0.6", 1_000)])
def test_long_narrow_walks_are_factorised(chance, start):
    """Sweeps and BiCGSTAB went on for seconds before they gave up."""
    model = prism.loads(walk(2_000, chance, start))
    query = model.query('R{"steps"}min=? [ F "end" ]')
    found = solve(query.pmdp, query.objective)
    drift = 2 * Fraction(chance) - 1
    assert found.lower <= (2_000 - start) / drift <= found.upper and found.converged
    assert found.iterations < 100
    query = model.query('Pmax=? [ F "top" ]')
    found = solve(query.pmdp, query.objective)
    assert found.upper == pytest.approx(1.0) and found.converged


def test_models_with_many_initial_states(tmp_path):
    """Room for states was doubled, that for their levels was not."""
    ring = " & ".join(f"(b{k} | !b{k})" for k in range(15))
    cells = "\n".join(f"module m{k} b{k} : bool; [] true -> (b{k}' = !b{k}); endmodule" for k in range(15))
    model = prism.loads(f"mdp\n{cells}\ninit {ring} endinit\n", max_states=10**6)
    assert model.pmdp.num_states >= 2**15
