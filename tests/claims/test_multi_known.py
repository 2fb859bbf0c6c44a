"""Several objectives at known parameters: widths follow the precision, small cases by hand, and edges."""

from __future__ import annotations

import itertools
import math
import random
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy

from rpl_agent.core.errors import ModelError, PrecisionWarning
from rpl_agent.core.model import Limit, Policy, Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.multi import multi_query
from rpl_agent.guarantee.claims import known

#: wait as long as you like, win with .5 by a step that costs 1, or give up; a third of the wins are also seen
CHOICE = """mdp
module choice
  s : [0..4] init 0;
  [wait] s=0 -> true;
  [try] s=0 -> 0.25:(s'=1) + 0.25:(s'=2) + 0.5:(s'=0);
  [quit] s=0 -> (s'=3);
  [pay] s=3 -> (s'=4);
  [stay] s>0 & s!=3 -> true;
endmodule
label "won" = s=1;
label "lost" = s=2;
label "out" = s=4;
label "end" = s=1 | s=2 | s=4;
rewards "effort"
  [try] true : 1;
endrewards
rewards "fee"
  [pay] true : 3;
endrewards
"""


def within(text, *, source=CHOICE, precision=1e-6):
    query = multi_query(prism.loads(source), text)
    theta = np.zeros(0)
    if not query.goals:
        return known.achievable(query.pmdp, theta, query.limits, precision)
    return known.best_within(query.pmdp, theta, query.goals[0].subject_to(*query.limits), precision)


@pytest.mark.parametrize("precision", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('multi(Pmax=? [ F "won" ], P<=0.125 [ F "lost" ])', 0.125),  # as many wins as losses; wait for the rest
        ('multi(Pmin=? [ F "lost" ], P>=0.3 [ F "won" ])', 0.3),
        ('multi(Pmax=? [ F "won" ], P<=0 [ F "lost" ])', 0.0),
        ('multi(R{"effort"}min=? [ C ], P>=0.25 [ F "won" ])', 1.0),  # half of the plays try, two steps each
        ('multi(R{"effort"}min=? [ F "end" ], R{"fee"}<=0.75 [ C ])', 1.5),  # a quarter of the plays may quit
        ('multi(R{"effort"}min=? [ C ], P>=1 [ F "end" ])', 0.0),
        ('multi(R{"fee"}max=? [ C ], P>=0.1 [ F "won" ])', 2.4),
        ('multi(Pmax=? [ F "won" ], R{"effort"}<=2 [ C ], P<=0 [ F "out" ])', 0.5),  # all who try: just these limits
        ('multi(R{"effort"}min=? [ F "end" ], P<=0.125 [ F "lost" ], P<=0.9 [ F "out" ])', 0.2),
    ],
)
def test_hand_checked_values(text, value, precision):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        found = within(text, precision=precision)
    assert found.keeps_limits
    assert found.lower <= value <= found.upper <= found.lower + precision * max(1.0, value)


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        ('multi(P>=0.4 [ F "won" ], P<=0.45 [ F "lost" ])', "yes", "keeps"),
        ('multi(P>=0.4 [ F "won" ], P<=0.39 [ F "lost" ])', "no", "no policy keeps P>=0.4 .* and P<=0.39"),
        ('multi(P>=0.6 [ F "won" ], P<=0.9 [ F "lost" ])', "no", "every one has at most 0.5"),
        ('multi(P>=0.4 [ F "won" ], R{"effort"}<=1.7 [ C ])', "yes", "keeps"),
        ('multi(P>=0.4 [ F "won" ], R{"effort"}<=1.5 [ C ])', "no", "and R"),
        ('multi(P>=1 [ F "end" ], R{"effort"}<=0 [ C ])', "yes", "at least 1"),
    ],
)
def test_whether_limits_can_be_kept(text, verdict, reason):
    found = within(text)
    assert found.verdict == verdict and re.search(reason, "; ".join(found.sentences))
    assert "yet" not in "; ".join(found.sentences)


def test_limits_on_the_edge_are_said_to_be():
    """A third of a third is no double, so no bracket shows that this limit can be kept."""
    thirds = """mdp module m s:[0..2];
      [a] s=0 -> 1/3:(s'=1) + 1/3:(s'=0) + 1/3:(s'=2);
      [b] s=0 -> 0.9:(s'=1) + 0.1:(s'=2);
      [c] s>0 -> true;
    endmodule"""
    with pytest.warns(PrecisionWarning, match="edge"):
        found = within("multi(P>=0.5 [ F s=2 ], P<=0.5 [ F s=1 ])", source=thirds)
    assert found.verdict == "not decided at this precision" and "not decided" in found.sentences[0]
    with pytest.warns(PrecisionWarning, match="whether the limits can be kept at all is not decided"):
        found = within("multi(Pmax=? [ F s=1 ], P>=0.5 [ F s=2 ])", source=thirds)
    assert found.lower <= 0.5 <= found.upper and found.verdict == "not decided at this precision"


def test_nobody_who_keeps_the_limits_has_a_best_value():
    found = within('multi(Pmax=? [ F "won" ], P>=0.6 [ F "lost" ])')
    assert found.verdict == "no" and math.isnan(found.lower) and math.isnan(found.upper)


def test_infinite_values_are_exact():
    """Whoever may hardly come to an end has to wait forever; work that is free goes on forever."""
    found = within('multi(R{"effort"}min=? [ F "end" ], P<=0.1 [ F "end" ])')
    assert found.keeps_limits and found.lower == found.upper == math.inf
    source = CHOICE.replace("[try] true : 1;", "[wait] true : 1;")
    found = within('multi(R{"effort"}max=? [ C ], P>=0.3 [ F "lost" ])', source=source)
    assert found.keeps_limits and found.lower == found.upper == math.inf
    with pytest.raises(ModelError, match="again and again at no cost"):
        within('multi(R{"effort"}max=? [ C ], R{"fee"}<=2 [ C ])', source=source)


def random_model(seed, states):
    """A model of two ends and random rows in which plays may come back, with one reward."""
    draw, rows, rewards = random.Random(seed), [], []
    for s in range(states - 2):
        for a in range(draw.choice([2, 2, 3])):
            after = draw.sample(range(states), draw.choice([1, 2, 3]))
            weights = [draw.choice([1, 1, 2, 3, 5, 7]) for _ in after]
            parts = (f"{Fraction(w, sum(weights))}:(s'={t})" for w, t in zip(weights, after))
            rows.append(f"[a{s}_{a}] s={s} -> {' + '.join(parts)};")
            rewards.append(f"[a{s}_{a}] true : {draw.choice([0, 1, 2, 0.5])};")
    body = "\n".join([*rows, f"[stay] s>={states - 2} -> true;"])
    labels = f'label "t" = s={states - 1}; label "u" = s={states - 2};'
    return "\n".join(
        [f"mdp module m s:[0..{states - 1}] init 0;", body, "endmodule", labels, 'rewards "r"', *rewards, "endrewards"]
    )


@pytest.mark.parametrize("seed, states", [(1, 6), (2, 7), (3, 8), (4, 30), (5, 120)])
def test_random_models_are_as_narrow_as_asked(seed, states):
    source = random_model(seed, states)
    for limit in (0.1, 0.4):
        for goal in ('Pmin=? [ F "t" ]', 'R{"r"}min=? [ C ]'):
            text = f'multi({goal}, P>={limit} [ F "u" ])'
            with warnings.catch_warnings():
                warnings.simplefilter("error", PrecisionWarning)
                found = within(text, source=source, precision=1e-6)
            assert found.verdict in ("yes", "no"), (seed, text)
            if found.verdict == "yes":
                assert found.upper - found.lower <= 1e-6 * max(1.0, found.upper), (seed, text)


def test_a_mixture_has_the_values_that_are_said():
    """Shares are exact, sum to 1, and its costs are the averages of single policies."""
    found = within('multi(Pmax=? [ F "won" ], P<=0.125 [ F "lost" ])')
    shares = [share for share, _ in found.mixture.shares]
    assert sum(shares) == 1 and len(shares) == 2 and found.mixture.costs[0] <= 0.125
    assert -found.mixture.costs[1] >= found.lower


def best_mixture(pmdp, objectives, drawn):
    """(a limit that two drawn policies keep on average, the best value of a mixture within it)."""
    rules = itertools.product(*(range(*pmdp.state_ptr[s : s + 2]) for s in range(pmdp.num_states)))
    values = []
    for rule in rules:
        policy = Policy.deterministic(np.array(rule))
        values.append([solve_at(pmdp, np.zeros(0), one, policy=policy, precision=1e-12).middle for one in objectives])
    finite = np.array([pair for pair in values if np.isfinite(pair).all()])
    limit = float(finite[drawn.sample(range(len(finite)), 2), 1].mean())
    signs = np.array([1.0 if one.sense is Sense.MIN else -1.0 for one in objectives])
    costs = finite * signs
    found = scipy.optimize.linprog(
        costs[:, 0], A_ub=costs[:, 1:].T, b_ub=[signs[1] * limit], A_eq=np.ones((1, len(costs))), b_eq=[1.0]
    )
    return limit, signs[0] * found.fun


@pytest.mark.parametrize("seed", range(8))
def test_every_deterministic_policy_is_a_point_of_the_answer(seed):
    """The best mixture of all of them, by enumeration, where limits are on edges of what they reach."""
    model, drawn = prism.loads(random_model(seed, 6)), random.Random(seed)
    for goal, other in [('Pmin=? [ F "t" ]', 'Pmax=? [ F "u" ]'), ('Pmax=? [ F "t" ]', 'R{"r"}min=? [ C ]')]:
        pmdp, first = model.objective(goal)
        limited = model.objective(other)[1]
        limit, value = best_mixture(pmdp, (first, limited), drawn)
        found = known.best_within(pmdp, np.zeros(0), first.subject_to(Limit(limited, limit)), 1e-6)
        if found.verdict == "not decided at this precision":  # the limit is the edge of what can be kept
            continue
        assert found.lower - 1e-7 <= value <= found.upper + 1e-7, (seed, goal, limit)
        assert found.upper - found.lower <= 1e-6, (seed, goal, limit)


#: work as often as the battery allows, in one of two ways, before the end
BATTERY = """mdp module battery s : [0..2] init 0;
  [work] s=0 -> 0.5:(s'=0) + 0.5:(s'=1);
  [haste] s=0 -> (s'=0);
  [back] s=1 -> (s'=0);
  [stop] s=0 -> (s'=2);
  [stay] s=2 -> true;
endmodule
label "end" = s=2;
rewards "done" [work] true : 2; [haste] true : 3; endrewards
rewards "used" [work] true : 0.5; [back] true : 1; [haste] true : 2; endrewards
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('multi(R{"done"}max=? [ C ], R{"used"}<=5 [ F "end" ])', 10.0),  # of two per unit and of 1.5 per unit
        ('multi(R{"used"}min=? [ F "end" ], R{"done"}>=3 [ C ])', 1.5),
        ('multi(R{"done"}max=? [ C ], R{"used"}<=5 [ F "end" ], P>=1 [ F "end" ])', 10.0),
    ],
)
def test_gains_that_cost_are_gained_as_long_as_limits_allow(text, value):
    found = within(text, source=BATTERY)
    assert found.keeps_limits
    assert found.lower <= value <= found.upper <= found.lower + 1e-6 * value


@pytest.mark.parametrize(("done", "verdict"), [(9.9, "yes"), (10.1, "no")])
def test_whether_gains_are_within_reach(done, verdict):
    assert within(f'multi(R{{"done"}}>={done} [ C ], R{{"used"}}<=5 [ F "end" ])', source=BATTERY).verdict == verdict
