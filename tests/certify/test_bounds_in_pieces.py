"""Certificates from few data: their bounds and regret come from pieces of the region, and so do their proofs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, build
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove, write
from rpl_agent.guarantee.verify import verify
from rpl_envs.toy_text import frozen_lake
from tests.certify.proved import OBJECTIVES, model, sampled

EPISODES, SEED = 100, 1


@cache
def lake() -> tuple[Certificate, Certificate, dict[str, Any]]:
    """(certificate of the whole region, of its pieces, proof of the latter) of FrozenLake."""
    world = frozen_lake()
    counts = uniform_counts(world.pmdp, world.objective, np.full(1, 1 / 3), EPISODES, 100, SEED)
    whole, found = (certify(world.pmdp, counts, world.objective, pieces=n) for n in (1, 8))
    return whole, found, json.loads(json.dumps(prove(world.pmdp, counts, found)))


def test_pieces_certify_more_and_are_proved():
    whole, found, proof = lake()
    assert found.gap < 0.8 * whole.gap and found.regret < 0.1 * whole.regret
    assert all("split" in proof[name] for name in ("lower", "upper", "regret"))
    proved = checker.check(proof)
    width = proved["upper"] - proved["lower"]
    assert found.gap <= width < 1.001 * found.gap and found.regret <= proved["regret"] < 1.001 * found.regret
    world = frozen_lake()
    best = solve_at(world.pmdp, np.full(1, 1 / 3), world.objective, precision=1e-9).middle
    assert proved["lower"] < best < proved["upper"]


def leaf(part: dict[str, Any]) -> dict[str, Any]:
    """A piece with functions."""
    while "split" in part:
        part = next(piece for piece in part["pieces"] if "empty" not in piece)
    return part


def moved(part: dict[str, Any]) -> None:
    part["split"][1] += 0.01


def higher(part: dict[str, Any]) -> None:
    for value in leaf(part)["values"]:
        value[0] += 0.01


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a piece is missing": lambda part: part["pieces"].pop(),
    "a piece stands twice": lambda part: part["pieces"].append(part["pieces"][0]),
    "pieces are exchanged": lambda part: part["pieces"].reverse(),
    "another coordinate": lambda part: part.update(split=[1, part["split"][1]]),
    "a split outside": lambda part: part.update(split=[0, 2.0]),
    "a full piece is empty": lambda part: leaf(part).update(empty=[]),
    "a split elsewhere": moved,
    "larger values": higher,
}


@pytest.mark.parametrize("name", FORGED)
def test_pieces_that_do_not_prove_the_bound_are_refused(name):
    proof = copy.deepcopy(lake()[2])
    FORGED[name](proof["lower"])
    with pytest.raises((checker.Refused, *checker.MALFORMED)):
        checker.check(proof)


def test_a_proof_of_more_than_was_computed_takes_no_pieces(monkeypatch):
    pmdp, counts, tried = model(), sampled(model(), 4000), []
    found = certify(pmdp, counts, OBJECTIVES["Pmax"], pieces=1)
    in_pieces = write.proved_in_pieces
    monkeypatch.setattr(write, "proved_in_pieces", lambda *given: tried.append(given) or in_pieces(*given))
    asked = replace(found, lower=found.lower - 0.1, upper=found.upper + 0.1, regret=found.regret + 0.2)
    assert "refused" not in prove(pmdp, counts, asked) and not tried


def test_certificates_from_more_pieces_are_verified():
    """A certificate did not say how many pieces it took, and was compared with bounds from fewer."""
    rows = {0: {1: "p", 2: "1 - p"}, 1: {3: "1 - q", 5: "q"}, 2: {3: "q", 5: "1 - q"}, 3: {4: "p", 5: "1 - p"}}
    pmdp = build(0, lambda s: {"go": rows.get(s, {s: 1})}, domain=["p", "q"], labels={"goal": lambda state: state == 4})
    data, objective = Counts(pmdp), Objective.reach("goal")
    for state, (likely, other) in enumerate([(1, 2), (3, 5), (3, 5), (4, 5)]):
        for successor in (likely, likely, other) * 3:
            data.add(state, 0, pmdp.state_index(successor))
    found, usual = (certify(pmdp, data, objective, pieces=pieces) for pieces in (64, 8))
    assert found.gap < usual.gap - 1e-3, "more pieces prove more here"
    again = Certificate.from_json(found.to_json())
    assert verify(again, pmdp, data).problems == []
    assert verify(replace(again, pieces=8), pmdp, data).problems != []
