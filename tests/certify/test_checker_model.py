"""The checker reads a model, data and claims of the right shape only: each list that does not fit is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from rpl_agent.core.model import Objective, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove
from tests.certify.proved import OBJECTIVES, known, model, sampled

pytestmark = pytest.mark.usefixtures("shared_particles")


@pytest.fixture(scope="module")
def proof() -> dict[str, Any]:
    """Of a chain that is known: 0 → 1 → 2, with costs 1 and 2."""
    pmdp = build(
        0,
        lambda s: {"go": {min(s + 1, 2): 1}},
        domain=[],
        labels={"goal": lambda s: s == 2},
        rewards={"cost": lambda s, a: s + 1.0 if s < 2 else 0.0},
    )
    return known(pmdp, Objective.cost("cost", target="goal"))


def of_model(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda proof: proof["model"].update(changes)


SHAPES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "states in disorder": (of_model(state_ptr=[0, 2, 1, 3]), "states of the model are out of order"),
    "an empty state": (of_model(state_ptr=[0, 1, 1, 3]), "states of the model are out of order"),
    "states that begin late": (of_model(state_ptr=[1, 2, 3]), "out of order"),
    "states that end early": (of_model(state_ptr=[0, 1, 2]), "states of the model are out of order"),
    "no states": (of_model(state_ptr=[]), ""),
    "rows in disorder": (of_model(row_ptr=[0, 2, 1, 3]), "rows of the model are out of order"),
    "rows that begin late": (of_model(row_ptr=[1, 2, 2, 3]), "rows of the model are out of order"),
    "rows that end early": (of_model(row_ptr=[0, 1, 2, 2]), "rows of the model are out of order"),
    "halves of rows": (of_model(row_ptr=[0, 0.5, 2, 3]), "rows of the model are out of order"),
    "too few expressions": (of_model(expression=[0, 0]), "the model's lists differ"),
    "too many actions": (of_model(action=[0, 0, 0, 0]), "the model's lists differ"),
    "a successor beyond the last": (of_model(successor=[1, 2, 3]), "a state does not exist"),
    "a negative successor": (of_model(successor=[1, -1, 2]), "a state does not exist"),
    "a start beyond the last": (of_model(initial=3), "a state does not exist"),
    "a silent state beyond the last": (of_model(silent=[3]), "a state does not exist"),
    "an expression beyond the last": (of_model(expression=[0, 0, 1]), "an expression does not exist"),
    "an expression that is not used": (of_model(expressions=[[[1, []]], [[0, []]]]), "or is not used"),
    "half a probability": (of_model(expressions=[[["1/2", []]]]), "do not sum to 1"),
    "more than a probability": (of_model(expressions=[[["1000001/1000000", []]]]), "do not sum to 1"),
    "another kind": (lambda p: p["objective"].update(kind="steady"), "max steady|min steady"),
    "another sense": (lambda p: p["objective"].update(sense="best"), "best reward is not covered"),
    "another end": (lambda p: p["objective"].update(unreached="zero"), "unreached"),
    "a reward that is not there": (lambda p: p["objective"].update(reward_name="gold"), "no reward 'gold'"),
    "no values": (lambda p: p["upper"].update(values=[]), ""),
    "values of too few states": (lambda p: p["upper"].update(values=[[3.0], [2.0]]), "wrong number of steps or states"),
    "a function without a ball": (
        lambda p: p["upper"].update(values=[[3, 1], [2, 0], [0, 0]]),
        "does not fit its ball",
    ),
    "no bound of the start": (lambda p: p["upper"].update(values=[None, [2.0], [0.0]]), "for the initial state"),
    "no bound of a successor": (lambda p: p["upper"].update(values=[[3.0], None, [0.0]]), "for its successor 1"),
    "a region that is not there": (lambda p: p["upper"].update(region=1), ""),
    "another method": (lambda p: p.update(confidence=3), None),
    "neither evaluated nor not": (lambda p: p.update(evaluated=1), "true or false"),
    "another format": (lambda p: p.update(format="rpl-proof/2"), "not a proof"),
    "counts of nothing": (lambda p: p["data"].update(transitions=[[0, 0]]), "0 counts of transition 0"),
    "negative counts": (lambda p: p["data"].update(transitions=[[0, -1]]), "-1 counts"),
    "counts before the first": (lambda p: p["data"].update(transitions=[[-1, 1]]), "counts of transition -1"),
    "counts twice": (lambda p: p["data"].update(transitions=[[0, 1], [0, 2]]), "counted twice"),
    "another schedule": (lambda p: p["data"].update(schedule="daily"), "schedule of marks 'daily'"),
    "a negative plan": (lambda p: p["data"].update(planned=-1), "-1 transitions were planned"),
    "a silent loop": (of_model(silent=[1, 2]), "leads to a silent one"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit_are_refused(name, proof):
    change, said = SHAPES[name]
    found = copy.deepcopy(proof)
    checker.check(found)
    change(found)
    if said is None:  # a model without parameters has no use for it
        checker.check(found)
        return
    with pytest.raises((checker.Refused, *checker.MALFORMED), match=said):
        checker.check(found)


@pytest.fixture(scope="module")
def learned() -> dict[str, Any]:
    pmdp = model()
    counts = sampled(pmdp, 4000)
    return prove(pmdp, counts, certify(pmdp, counts, OBJECTIVES["Pmax"]))


def test_parts_of_the_likelihood_have_its_size(learned):
    """Of windows, centres and factors, methods and points."""
    part = learned["regions"][0]["likelihood"]
    assert part["ball"] is not None
    changes: list[tuple[dict[str, Any], str]] = [
        ({"parts": [[-1, [[1, 1]]]]}, "no window"),
        ({"parts": [[len(learned["data"]["marks"]) + 1, [[1, 1]]]]}, "no window"),
        ({"parts": [part["parts"][0], part["parts"][0]]}, "windows of the likelihood repeat"),
        ({"parts": []}, "windows of the likelihood repeat"),
        ({"parts": [[mark, [*chosen, chosen[0]]] for mark, chosen in part["parts"]]}, "particles repeat"),
        ({"parts": [[mark, [[10**9, 1]]] for mark, _ in part["parts"]]}, "or do not exist"),
        ({"parts": [[mark, [[i, 0.5] for i, _ in chosen]] for mark, chosen in part["parts"]]}, "particles repeat"),
        ({"ball": part["ball"] | {"center": part["ball"]["center"][:1]}}, "a frame of a wrong size"),
        ({"ball": part["ball"] | {"factor": part["ball"]["factor"][:1]}}, "a frame of a wrong size"),
        ({"ball": part["ball"] | {"factor": [row[:1] for row in part["ball"]["factor"]]}}, "a frame of a wrong size"),
        ({"ball": part["ball"] | {"center": [2.0, 2.0]}}, "not positive at the centre"),
        ({"cuts": [[2.0, 2.0]]}, "not positive at a point"),
        ({"cuts": [0]}, "bets are part of the proof"),
    ]
    for change, said in changes:
        region = learned["regions"][0] | {"likelihood": part | change}
        with pytest.raises(checker.Refused, match=said):
            checker.check(learned | {"regions": [region]})
    with pytest.raises(checker.Refused, match="is not covered"):
        checker.check(learned | {"confidence": "hoeffding"})
    with pytest.raises(checker.Refused, match="belongs to no event"):
        checker.check(learned | {"regions": [learned["regions"][0] | {"ends": {"999": [0.0, 1.0]}}]})


def test_coordinates_have_one_size(learned):
    for name, change in (
        ("terms", lambda rows: [row[:-1] for row in rows]),
        ("domain", lambda rows: [[*row, 0] for row in rows]),
        ("x", lambda rows: rows[:1]),
        ("x", lambda rows: rows * 7),
    ):
        found = copy.deepcopy(learned)
        found["model"]["coordinates"][name] = change(found["model"]["coordinates"][name])
        with pytest.raises(checker.Refused, match="coordinates of a wrong size"):
            checker.check(found)
