"""Interval learning: certificates that hold, tying that pools, the optimal policy of small worlds."""

from __future__ import annotations

import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.studies.baselines import IntervalLearning
from tests.toy_worlds import WORLDS, exact_value, ladder, risk

pytestmark = pytest.mark.short_runs


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("world", WORLDS)
def test_the_certificate_holds_and_the_policy_is_optimal(world, tied):
    env, optimum = WORLDS[world]()
    learner = IntervalLearning(tied=tied, seed=1).learn(env, 3000)
    found = learner.certificate
    assert found.lower <= optimum <= found.upper
    assert found.upper - found.lower < 0.8 * optimum
    assert exact_value(env, learner.policy) == pytest.approx(optimum)
    assert learner.num_episodes == 3000


def test_tying_pools_equal_expressions():
    """On the ladder every rung has the same expression: one interval for four rungs."""
    env, _ = ladder()
    widths = {}
    for tied in (True, False):
        found = IntervalLearning(tied=tied, seed=1).learn(env, 2000).certificate
        widths[tied] = found.gap
    assert widths[True] < 0.6 * widths[False]


def test_methods_and_files(tmp_path):
    env, _ = risk()
    with pytest.raises(ModelError, match="not one of"):
        IntervalLearning(method="guess")
    learner = IntervalLearning(method="clopper-pearson", seed=2)
    assert learner.certificate is None
    with pytest.raises(ModelError, match="nothing learned"):
        _ = learner.policy
    learner.learn(env, 100)
    assert not learner.certificate.anytime
    learner.save(tmp_path / "a.zip")
    again = IntervalLearning.load(tmp_path / "a.zip", env)
    assert again.certificate.lower == pytest.approx(learner.certificate.lower)
    assert again.learn(env, 50).num_episodes == 150
