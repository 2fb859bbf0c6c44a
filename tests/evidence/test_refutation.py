"""A refuted model stays refuted, and the e-value's denominator is a bound wherever the search for it ended."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from rpl_agent.agent import RPLAgent
from rpl_agent.agent.planner import Planner
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, Polynomial, build
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.likelihood.chart import Observations, likelihood_above
from rpl_agent.guarantee.likelihood.refutation.misspecification import _box_chart
from rpl_agent.guarantee.pipeline import Config


def two_coins():
    """The model says that both coins are the same."""

    def actions(s):
        if s in ("won", "lost"):
            return {"stay": {s: "1"}}
        return {"toss": {"second" if s == "first" else "won": "p", "lost": "1 - p"}}

    return build("first", actions, domain=["p"], labels={"won": lambda s: s == "won"}, name="two coins")


def toss(counts, first, second):
    """Add (heads, tails) of both coins."""
    pmdp = counts.pmdp
    batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
    for row, tosses in zip(np.flatnonzero(np.diff(pmdp.row_ptr) == 2), (first, second)):
        low = pmdp.row_ptr[row]
        heads = pmdp.expression[low : low + 2] == pmdp.expression[pmdp.row_ptr[0]]
        batch[low : low + 2] = np.where(heads, tosses[0], tosses[1])
    counts.add_batch(batch)


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
def test_refutation_is_latched_and_stored(tmp_path):
    pmdp = two_coins()
    agent = RPLAgent(pmdp=pmdp, objective=Objective.reach("won"), seed=0)
    agent.session.start(pmdp, Objective.reach("won"))
    counts = agent.counts
    toss(counts, (90, 10), (10, 90))
    first = agent.certify()
    assert first.refuted and first.fallback
    toss(counts, (50_000, 50_000), (50_000, 50_000))  # now the coins look alike: the present e-value is harmless
    fresh = Planner(pmdp, agent.objective, Config()).certificate(counts)
    assert not fresh.refuted
    later = agent.certify()
    assert later.refuted and later.fallback and later.log_e_value == first.log_e_value
    agent.save(tmp_path / "c.zip")
    loaded = RPLAgent.load(tmp_path / "c.zip", pmdp=pmdp)
    assert loaded.certify().refuted


def test_likelihood_is_bounded_from_any_point():
    pmdp = two_coins()
    counts = Counts(pmdp)
    toss(counts, (700, 300), (690, 310))
    free = np.flatnonzero((counts.successes > 0) & ~pmdp.table.is_constant)
    seen, chart = Observations.of(pmdp, free, counts.successes[free]), _box_chart(pmdp.table, pmdp.domain)
    grid = pmdp.table.reduction.coordinates(np.linspace(1e-6, 1 - 1e-6, 20_001)[:, None])
    largest = max(float(seen.counts @ np.log(seen.values(x))) for x in grid[::10])
    bounds = [likelihood_above(seen, x, chart) for x in grid[50:-50:500]]
    assert min(bounds) >= largest
    best = grid[np.argmax([float(seen.counts @ np.log(seen.values(x))) for x in grid])]
    assert likelihood_above(seen, best, chart) <= largest + 0.2


def test_monomials_that_cancel_are_not_asked():
    """45 coins at once: at p = 0.9 the sum of the monomials of a probability is negative in floats."""
    p = Polynomial.parameter("p")
    row = {k: comb(45, k) * p**k * (1 - p) ** (45 - k) for k in range(46)}
    pmdp = build("s", lambda s: {"toss": row} if s == "s" else {"stay": {s: 1}}, domain={"p": (0.05, 0.95)},
                 labels={"many": lambda s: s != "s" and s >= 40})  # fmt: skip
    objective = Objective.reach("many")
    counts = uniform_counts(pmdp, objective, np.array([0.9]), 400, 3, 1)
    found = certify(pmdp, counts, objective, Config())
    assert not found.refuted and found.lower <= binom.sf(39, 45, 0.9) <= found.upper < found.lower + 0.2
