"""The ledger of δ and the registry of confidence sets."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent import Config, Counts, Objective, build, certify
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence import ledger
from rpl_agent.core.evidence.ledger import LEAST_DELTA, Ledger, per_event, split_main
from rpl_agent.core.regions.base import Box
from rpl_agent.guarantee import confidence


@given(st.floats(min_value=LEAST_DELTA, max_value=1.0, exclude_max=True))
def test_the_parts_of_delta_sum_to_at_most_delta(delta):
    """In exact arithmetic, for every δ that is taken."""
    book = Ledger.of(delta)
    parts = [Fraction(getattr(book, field.name)) for field in fields(book) if field.name != "delta"]
    assert sum(parts) <= Fraction(delta)
    assert Fraction(book.main) + Fraction(book.fallback) + Fraction(book.refutation) <= Fraction(delta)
    for shares in (ledger.WITH_BETS, ledger.WITHOUT_BETS, ledger.OF_A_TABLE):
        assert sum(map(Fraction, split_main(book.main, shares))) <= Fraction(book.main)


@given(st.floats(min_value=1e-12, max_value=1.0, exclude_max=True), st.integers(1, 10**9))
def test_a_union_over_events_stays_within_delta_with_the_ledgers_rest(delta, events):
    """γ may round up; what the ledger leaves over is more than that."""
    book = Ledger.of(delta)
    spent = events * (Fraction(per_event(book.main, events)) + Fraction(per_event(book.fallback, events)))
    assert spent + Fraction(book.refutation) <= Fraction(delta)


def test_an_overspent_delta_is_refused(monkeypatch):
    monkeypatch.setattr(ledger, "FALLBACK_SHARE", 0.2)
    with pytest.raises(DataError, match="shares"):
        Ledger.of(0.01)
    with pytest.raises(DataError, match="shares"):
        split_main(0.01, ledger.WITH_BETS._replace(bets=0.9))


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, np.nan, "0.1"])
def test_delta_is_a_probability(delta):
    with pytest.raises(DataError, match="between 0 and 1"):
        Ledger.of(delta)


class _Everything:
    """A set that knows nothing: all of the domain."""

    name, anytime, region_of_intervals, untied = "everything", True, False, "anytime"

    def intervals(self, pmdp, counts, delta):
        return np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)

    def region(self, pmdp, counts, delta, warm, bounds, objective=None):
        self.seen = delta
        return Box(pmdp.domain.lower, pmdp.domain.upper)


def test_a_new_set_gets_every_relaxation(monkeypatch):
    monkeypatch.setattr(confidence, "_registry", confidence._registry.copy())
    own = _Everything()
    confidence.register(own)
    row = {1: "p", 2: "1-p"}
    pmdp = build(0, lambda s: {"go": {s: "1"} if s else row}, domain=["p"], labels={"won": lambda s: s == 1})
    counts = Counts(pmdp)
    counts.add_many([0] * 40, [0] * 40, [1] * 30 + [2] * 10)
    for relaxation in ("tied", "parameter", "expression", "rectangular"):
        found = certify(pmdp, counts, Objective.reach("won"), Config("everything", relaxation, delta=0.1))
        assert (found.lower, found.upper) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert own.seen == Ledger.of(0.1).main
    with pytest.raises(ModelError, match="already"):
        confidence.register(own)


def test_an_unknown_set_is_named():
    with pytest.raises(ModelError, match="'bayes' is not one of"):
        Config(confidence="bayes")
