"""The ledger of δ and the registry of confidence sets."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent import Config, Counts, Objective, ParametricMDP, build, certify
from rpl_agent.agent.world.named_env import load_named
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence import ledger
from rpl_agent.core.evidence.intervals import untied_intervals as untied
from rpl_agent.core.evidence.ledger import LEAST_DELTA, Ledger, per_event, split_main
from rpl_agent.core.regions.base import Box
from rpl_agent.guarantee import confidence, pipeline
from rpl_agent.guarantee.checker import SHARES
from rpl_agent.guarantee.likelihood.refutation.alternatives import Doubt
from rpl_agent.guarantee.likelihood.shares import OF_A_TABLE, WITH_BETS, WITHOUT_BETS
from rpl_agent.guarantee.pipeline import ConfidenceData, uncertainty_from


@given(st.floats(min_value=LEAST_DELTA, max_value=1.0, exclude_max=True))
def test_the_parts_of_delta_sum_to_at_most_delta(delta):
    """In exact arithmetic, for every δ that is taken."""
    book = Ledger.of(delta)
    main, fallback, refutation = (book.take(name) for name in ("main", "fallback", "refutation"))
    assert Fraction(main) + Fraction(fallback) + Fraction(refutation) <= Fraction(delta)
    for method, shares in (
        ("likelihood with bets", WITH_BETS),
        ("likelihood", WITHOUT_BETS),
        ("likelihood of a table", OF_A_TABLE),
    ):
        amounts = [Fraction(part) for part in split_main(main, shares)]
        assert sum(amounts) <= Fraction(main)
        allowed = [Fraction(delta) * Fraction(part, 10_000) for part in SHARES[method]]  # what the checker spends
        assert all(own <= most < own * Fraction(1001, 1000) or most == 0 for own, most in zip(amounts, allowed))


@pytest.mark.parametrize("name", ["main", "fallback", "refutation"])
def test_a_share_is_taken_once(name):
    """Two statements on one share would fail twice as often as the certificate says."""
    book = Ledger.of(0.1)
    book.take(name)
    with pytest.raises(DataError, match=f"the share '{name}' of delta is spent"):
        book.take(name)
    with pytest.raises(DataError, match="the share 'half' of delta is spent"):
        Ledger.of(0.1).take("half")


@given(st.floats(min_value=1e-12, max_value=1.0, exclude_max=True), st.integers(1, 10**9))
def test_a_union_over_events_stays_within_delta_with_the_ledgers_rest(delta, events):
    """γ may round up; what the ledger leaves over is more than that."""
    book = Ledger.of(delta)
    spent = events * sum(Fraction(per_event(book.take(name), events)) for name in ("main", "fallback"))
    assert spent + Fraction(book.take("refutation")) <= Fraction(delta)


def test_an_overspent_delta_is_refused(monkeypatch):
    monkeypatch.setattr(ledger, "FALLBACK_SHARE", 0.2)
    with pytest.raises(DataError, match="shares"):
        Ledger.of(0.01)
    with pytest.raises(DataError, match="shares"):
        split_main(0.01, WITH_BETS._replace(bets=0.9))


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, np.nan, "0.1"])
def test_delta_is_a_probability(delta):
    with pytest.raises(DataError, match="between 0 and 1"):
        Ledger.of(delta)


def _one_coin() -> tuple[ParametricMDP, Counts]:
    row = {1: "p", 2: "1-p"}
    pmdp = build(0, lambda s: {"go": {s: "1"} if s else row}, domain=["p"], labels={"won": lambda s: s == 1})
    counts = Counts(pmdp)
    counts.add_many([0] * 40, [0] * 40, [1] * 30 + [2] * 10)
    return pmdp, counts


@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-6])
def test_a_model_is_refuted_at_the_share_of_refutation(delta):
    """At 1/δ it would be refuted 25 times as often as the ledger allows."""
    pmdp, counts = _one_coin()
    level = -math.log(delta * ledger.REFUTATION_SHARE)
    below, at = (
        uncertainty_from(pmdp, counts, Config(delta=delta), evidence=Doubt(value))
        for value in (math.nextafter(level, 0.0), level + 1e-12)
    )
    assert not below.refuted
    assert at.refuted


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RefutedWarning")
def test_every_part_of_a_certificate_spends_its_own_share(monkeypatch):
    """The configured set the main one; the intervals used when the model is refuted, that of the fallback."""
    pmdp, counts = _one_coin()
    spent = {}
    monkeypatch.setattr(
        pipeline,
        "untied_intervals",
        lambda p, c, kind, delta: spent.update(fallback=delta) or untied(p, c, kind, delta),
    )
    monkeypatch.setattr(
        pipeline,
        "ConfidenceData",
        lambda p, c, kind, delta, *rest: spent.update(main=delta) or ConfidenceData(p, c, kind, delta, *rest),
    )
    found = uncertainty_from(pmdp, counts, Config(delta=0.1), evidence=Doubt(1e3))
    assert found.refuted
    assert spent == {"main": 0.1 * ledger.MAIN_SHARE, "fallback": 0.1 * ledger.FALLBACK_SHARE}


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
    pmdp, counts = _one_coin()
    for relaxation in ("tied", "parameter", "expression", "rectangular"):
        found = certify(pmdp, counts, Objective.reach("won"), Config("everything", relaxation, delta=0.1))
        assert (found.lower, found.upper) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert own.seen == Ledger.of(0.1).take("main")
    with pytest.raises(ModelError, match="already"):
        confidence.register(own)


def test_a_file_that_registers_a_set_may_be_run_again(monkeypatch, tmp_path):
    """`rpl train my_env.py:make` makes the environment more than once; the set of another class keeps its name."""
    monkeypatch.setattr(confidence, "_registry", confidence._registry.copy())
    path = tmp_path / "registers_a_set.py"
    path.write_text(
        "from rpl_agent.guarantee.confidence import IntervalSet, register\n"
        "class Mine(IntervalSet): ...\n"
        "register(Mine('mine'))\n"
        "def make(): return 1\n"
    )
    for _ in range(2):
        assert load_named(f"{path}:make")() == 1
    assert type(confidence.confidence_set("mine")).__name__ == "Mine"
    with pytest.raises(ModelError, match="already"):
        confidence.register(confidence.IntervalSet("mine"))


def test_an_unknown_set_is_named():
    with pytest.raises(ModelError, match="'bayes' is not one of"):
        Config(confidence="bayes")
