"""Models that used to end a certificate or an improvement with an error of arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent import Counts, Policy, build, certify, improve
from rpl_agent.core.solver import solve_at


@pytest.mark.parametrize("domain", [(1.0 - 1e-6, 1.0), (0.5, 0.5 + 1e-8)])
def test_polynomials_on_a_domain_that_is_too_narrow_for_estimates(domain):
    rows = {"a": {1: "p*p", 2: "1 - p*p"}, "b": {1: "p", 2: "1 - p"}}
    pmdp = build(
        0, lambda s: rows if s == 0 else {"stay": {s: 1}}, domain={"p": domain}, labels={"goal": lambda s: s == 1}
    )
    counts = Counts(pmdp)
    counts.add_transitions(np.array([0, 0, 0, 0, 1]))
    found = certify(pmdp, counts, "maximise probability of goal")
    assert found.lower <= sum(domain) / 2 <= found.upper  # b is the better one


def test_seven_unknowns_with_a_sink_that_no_label_names():
    """Plays that end there made the search for functions over cuts singular."""

    def actions(state):
        if state in ("goal", "bad"):
            return {"stay": {state: 1}}
        after, other = state + 1 if state < 6 else "goal", f"p{(state + 3) % 7}"
        return {
            "a": {after: f"p{state}", "bad": f"1 - p{state}"},
            "b": {after: f"0.5*{other} + 0.25", "bad": f"0.75 - 0.5*{other}"},
        }

    pmdp = build(0, actions, domain={f"p{k}": (0, 1) for k in range(7)}, labels={"goal": lambda s: s == "goal"})
    rng = np.random.default_rng(0)
    theta = rng.uniform(0.6, 0.9, 7)
    chances, counts = pmdp.instantiate(theta).probability, Counts(pmdp, schedule="split", planned=300)
    for row in rng.choice(np.flatnonzero(np.diff(pmdp.row_ptr) == 2), 300):
        first = int(pmdp.row_ptr[row])
        counts.add_transitions(np.array([first + int(rng.random() >= chances[first])]))
    found = certify(pmdp, counts, "maximise probability of goal")
    assert found.lower <= solve_at(pmdp, theta, found.objective).middle <= found.upper


def test_improvement_where_every_parameter_is_known():
    rows = {"a": {0: "q*r", 1: "1 - r", 2: "r - q*r"}, "b": {1: "1 - p*q", 2: "p*q"}}
    pmdp = build(
        0, lambda s: rows if s == 0 else {"a": {s: 1}}, domain={"p": (0, 0), "q": (1, 1), "r": (0, 0)},
        labels={"goal": lambda s: s == 1},
    )  # fmt: skip
    one, other = (Policy.from_table(pmdp, [(0, name, 1)]) for name in "ab")
    found = improve(pmdp, Counts(pmdp), "maximise probability of goal", one, other)
    assert found.lower <= 0.0 <= found.upper
