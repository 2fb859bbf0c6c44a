"""The checker and time: policies that change, and starts that take no step."""

import copy

import pytest

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove


def walk(start=0):
    """Two steps to the goal, each of which may be the wrong one; "halt" stays for ever."""
    return build(
        start, lambda s: {"on": {s + 1: 1}, "halt": {3: 1}} if s < 2 else {"stay": {s: 1}},
        domain=[], labels={"goal": lambda s: s == 2}, rewards={"none": lambda s, a: 0.0},
    )  # fmt: skip


def proof_of(pmdp, objective):
    counts = Counts(pmdp)
    return prove(pmdp, counts, certify(pmdp, counts, objective))


def test_a_policy_that_changes_after_a_step_is_refused_without_a_horizon():
    """The first rule was taken for the whole policy."""
    pmdp = walk()
    proof = proof_of(pmdp, Objective.reach("goal"))
    assert checker.check(proof)["lower"] == 1
    good = proof["policy"]["rules"][0]
    halts = [pmdp.state_ptr[s + 1] - 1 for s in range(pmdp.num_states)]
    changing = copy.deepcopy(proof)
    changing["policy"]["rules"] = [good, [int(row) for row in halts]]
    with pytest.raises(checker.Refused, match="changes with time"):
        checker.check(changing)
    within = proof_of(pmdp, Objective.reach("goal", horizon=2))  # here it may, and here it fails
    within["policy"]["rules"] = changing["policy"]["rules"]
    with pytest.raises(checker.Refused, match="lower bound misses"):
        checker.check(within)


def test_a_silent_start_that_is_entered_again_is_refused():
    """No discount is paid on the way through it: values could be anything."""
    proof = proof_of(walk({0: 0.5, 1: 0.5}), Objective.discounted("none", 0.9))
    assert abs(checker.check(proof)["lower"]) < 1e-9
    model = proof["model"]
    model["successor"] = [model["initial"]] * len(model["successor"])
    for s in model["silent"]:
        first = model["row_ptr"][model["state_ptr"][s]]
        model["successor"][first : first + 2] = [t for t in range(4) if t not in model["silent"]][:2]
    proof["lower"]["values"] = [[5.0] for _ in proof["lower"]["values"]]
    proof["upper"], proof["claim"] = None, {"lower": 5.0, "upper": None}  # nothing is ever paid
    with pytest.raises(checker.Refused, match="entered again"):
        checker.check(proof)
