"""Rewards that no double is: state and action rewards that cancel leave an error far above the last digit.

Every claim that compares or combines values has to count it, as bounds on a value do.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent import Counts, Objective, Policy, certify, curve, improve, load_prism, log_returns

TEXT = """
mdp
const double p;
module m
  s : [0..4] init 0;
  [a] s=0 -> (s'=1);
  [b] s=0 -> p : (s'=2) + (1-p) : (s'=3);
  [c] s>=1 & s<=3 -> (s'=4);
  [d] s=4 -> true;
endmodule
rewards "g"
{rewards}
endrewards
label "end" = s=4;
label "one" = s=1;
"""
#: a earns 100000.06 more than b, by a gain and a loss of 10^9
SIGNED = "s=1 : 1000000000; [c] s=1 : -999999999.94; [c] s=2 | s=3 : -100000;"
#: a earns 0.38, and b 5e-8 more
POSITIVE = (
    "s=0 | s=1 : 1000000000; [a] true : -999999999.81; [b] true : -1000000000; [c] s=1 : -999999999.81; "
    "s=2 | s=3 : 0.38000005;"
)
#: a and b earn 0.06 and 0
SMALL = "s=0 : 1000000000; [a] true : -999999999.94; [b] true : -1000000000;"


@pytest.fixture
def load(tmp_path):
    def loaded(rewards):
        path = tmp_path / "m.prism"
        path.write_text(TEXT.replace("{rewards}", rewards))
        pmdp = load_prism(path).pmdp
        return pmdp, [Policy.deterministic(np.array([k, *range(2, pmdp.num_rows)])) for k in (0, 1)]

    return loaded


def gain(pmdp, objective, policy, baseline):
    return improve(pmdp, Counts(pmdp), objective, baseline, policy, delta=0.01)


def test_gains_of_totals_of_both_signs(load):
    pmdp, (a, b) = load(SIGNED)
    true = Fraction("100000.06")
    for goal, one, other, exact in (
        ("maximise g until end", a, b, true),
        ("maximise g until end", b, a, -true),
        ("minimise g until end", b, a, true),
    ):
        found = gain(pmdp, goal, one, other)
        assert found.lower <= exact <= found.upper


@pytest.mark.parametrize(
    "objective",
    [
        Objective.reward("g", target="end"),
        Objective.reward("g", target="end", horizon=6),
        Objective.discounted("g", 0.9999999999, target="end"),
    ],
    ids=["total", "horizon", "discounted"],
)
def test_gains_of_rewards(load, objective):
    pmdp, (a, b) = load(POSITIVE)
    found, exact = gain(pmdp, objective, a, b), Fraction("0.38") - Fraction("0.38000005")
    assert not found.improves and found.lower <= float(exact) + 1e-9 and found.upper >= float(exact) - 1e-9


def test_the_best_within_limits(load):
    """A fair mixture of a and b keeps the limit, and earns 0.03."""
    pmdp, _ = load(SMALL)
    limited = certify(pmdp, Counts(pmdp), "maximise g until end", subject_to=["probability of one <= 0.5"])
    assert Fraction(limited.upper) >= Fraction("0.03")


def test_half_planes_of_curves(load):
    pmdp, _ = load(POSITIVE)
    found = curve(pmdp, Counts(pmdp), ["maximise g until end", "minimise g until end"], points=3)
    assert found.half_planes
    for plane in found.half_planes:
        for value in (Fraction("0.38"), Fraction("0.38000005")):
            gains = (value, -value)  # a smaller value is a gain for the second
            assert sum(Fraction(w) * gain for w, gain in zip(plane.weights, gains)) <= Fraction(plane.most)


def test_what_a_log_returns(load, tmp_path):
    pmdp, _ = load(SMALL)
    path = tmp_path / "log.csv"
    rows = [f"{step},{k}" for k in range(20) for step in ("0,a,1", "1,c,4")]
    path.write_text("\n".join(["s,action,next_s,episode", *rows]) + "\n")
    found = log_returns(pmdp, path, "maximise g until end")
    assert Fraction(found.bounds[1]) >= Fraction("0.06") and (found.most >= 0.06).all() and (found.least <= 0.06).all()
