"""Bets keep their δ under the worst sampling, and a version that cheats is found out.

`python -m benchmarks bets --full --jobs N` does the same with 10^4 data sets and whole runs.
"""

import pytest
from scipy.stats import binom

from benchmarks import bench_bets
from rpl_agent.guarantee.likelihood.bets import slabs as bets

pytestmark = pytest.mark.short_runs

WORLDS = [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in range(1, len(bench_bets.WORLDS)))]


def _misses(world, sets):
    return sum(bench_bets.misses_slab((world, seed)) for seed in range(sets))


def most(sets):
    """The most misses where a tenth is allowed: P(more) ≤ 0.001."""
    return binom.isf(0.001, sets, 0.1)


@pytest.mark.parametrize("world", WORLDS)
def test_slabs_hold_the_truth(world, sized):
    sets = sized(15, 30)
    assert _misses(world, sets) <= most(sets)


@pytest.mark.parametrize("world", WORLDS)
def test_bets_that_look_one_segment_ahead_are_found_out(world, sized, monkeypatch):
    """Payoffs as they should be, but with the sign that the data up to the next mark will like."""
    following: dict = {}
    honest, slabs = bets._next, bets.slabs

    def cheating(pmdp, line, key, mark, x, last, placed):
        found = honest(pmdp, line, key, mark, x, last, placed)
        successes, trials = bets._since(mark, following[mark], line.free)
        ahead = successes - trials * line.chances(x)
        return found._replace(payoffs=[u if float(u @ ahead) >= 0.0 else -u for u in found.payoffs])

    def marked(pmdp, counts, objective, alpha):
        made = [mark for mark in counts.marks if mark.progress > 0.0]
        following.update(zip(made, [*made[1:], counts]))
        return slabs(pmdp, counts, objective, alpha)

    monkeypatch.setattr(bets, "_next", cheating)
    monkeypatch.setattr(bench_bets, "slabs", marked)
    sets = sized(15, 30)
    assert _misses(world, sets) >= 0.6 * sets > most(sets)


def test_whole_runs_are_right():
    """One of each kind."""
    assert not any(bench_bets.misses_run((0, seed)) for seed in range(len(bench_bets.KINDS)))
