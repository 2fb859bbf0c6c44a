"""The checker and time: policies that change, and starts that take no step."""

import copy

import pytest

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove
from tests.certify.proved import content


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


def times(rows, silent, paid=None, horizon=3, **parts):
    """The objective "what is paid within the horizon" of a known model."""
    model = checker.Model(content(rows, paid, silent=silent, **parts))
    asked = {"kind": "reward", "sense": "max", "reward_name": "r", "horizon": horizon}
    return checker.Objective(model, asked)


ONE = "1/1"
HALF = "1/2"
THROUGH = [{1: ONE}]  # from 0 to the silent 1, and back


def test_two_steps_of_the_checker_are_one_where_silent_states_stand_between():
    found = times([THROUGH, [{0: ONE}]], [1])
    assert found.horizon == 6 and found.visible == [True, False] and found.undiscounted not in (0, 1)
    assert times([THROUGH, [{0: ONE}]], []).horizon == 3
    start = times([[{1: ONE}], [{1: ONE}]], [0])
    assert start.horizon == 4 and start.undiscounted == 0


@pytest.mark.parametrize(
    ("rows", "silent", "paid", "said"),
    [
        # 1 leads to the silent 2, with probability 1/2
        ([THROUGH, [{0: HALF, 2: HALF}], [{0: ONE}]], [1, 2], None, "leads to a silent one"),
        ([THROUGH, [{0: ONE}, {2: ONE}], [{0: ONE}]], [1, 2], None, "leads to a silent one"),
        # 0 leads past the silent state, with probability 1/2, or by its second row
        ([[{1: HALF, 2: HALF}], [{0: ONE}], [{1: ONE}]], [1], None, "passes no silent state"),
        ([[{1: ONE}, {2: ONE}], [{0: ONE}], [{1: ONE}]], [1], None, "passes no silent state"),
        # 2 rests, or goes back to 0 in no time
        ([THROUGH, [{2: ONE}], [{2: ONE}, {0: ONE}]], [1], None, "passes no silent state"),
        ([THROUGH, [{2: ONE}], [{2: HALF, 0: HALF}]], [1], None, "passes no silent state"),
        # 2 is paid for resting, by one of its rows
        ([THROUGH, [{2: ONE}], [{2: ONE}]], [1], {2: 1.0}, "passes no silent state"),
        ([THROUGH, [{2: ONE}], [{2: ONE}, {2: ONE}]], [1], {3: -1.0}, "passes no silent state"),
        ([THROUGH, [{2: ONE}], [{2: ONE}, {2: ONE}]], [1], {0: 5.0, 1: 5.0}, None),
    ],
)
def test_every_way_takes_the_same_time(rows, silent, paid, said):
    if said is None:
        assert times(rows, silent, paid).horizon == 6
        return
    with pytest.raises(checker.Refused, match=said):
        times(rows, silent, paid)


def test_the_work_of_a_horizon_is_bounded(monkeypatch):
    monkeypatch.setattr(checker, "MOST_WORK", 6)
    assert times([[{1: ONE}], [{0: ONE}]], [], horizon=3).horizon == 3
    with pytest.raises(checker.Refused, match="steps times transitions"):
        times([[{1: ONE}], [{0: ONE}]], [], horizon=4)
