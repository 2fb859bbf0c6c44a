"""Exploration that keeps the limits once a policy is proved to; and one that is said to break them before."""

from __future__ import annotations

import json
import warnings

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from benchmarks.improvement_worlds import TRUTH, cliff_grid
from rpl_agent import RPLAgent
from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.exploration.within_limits import MAY_BREAK, allowed_policy
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Limit, Objective, Policy, build
from rpl_agent.guarantee.claims.limits import LimitSearch
from rpl_agent.guarantee.pipeline import Config, uncertainty_from
from rpl_agent.guarantee.shown import true_value

pytestmark = pytest.mark.short_runs
STEPS = "minimise steps until done"
FALLEN = Limit.parse("probability of fallen <= 0.3")


@pytest.fixture(scope="module")
def grid():
    pmdp = cliff_grid()
    return pmdp, np.array([TRUTH[name] for name in pmdp.table.parameters])


CRASH = Limit.parse("probability of crash <= 0.3")


def crossing():
    """Safe crashes seldom, which data have to show, risky often: two unknowns, one choice."""

    def rows(s):
        if s != 0:
            return {"stay": {s: 1}}
        return {
            "safe": {"won": "0.8 - 0.8*q", "lost": "0.2 - 0.2*q", "crash": "q"},
            "risky": {"won": "p", "crash": "1 - p"},
        }

    labels = {name: (lambda s, name=name: s == name) for name in ("won", "lost", "crash")}
    pmdp = build(0, rows, domain=["p", "q"], labels=labels)
    goal = Objective.parse("maximise probability of won")
    return rpl_envs.make_own(pmdp, goal, {"p": 0.4, "q": 0.02}, max_episode_steps=10)


def agent_of(grid, **settings):
    pmdp, theta = grid
    goal = Objective.parse(STEPS)
    env = rpl_envs.make_own(pmdp, goal, theta.tolist(), max_episode_steps=1000)
    return RPLAgent(env, subject_to=[FALLEN], seed=3, **settings)


class Named(gym.Wrapper):
    """Says what it is about, with limits."""

    def __init__(self, env, objective):
        super().__init__(env)
        self.objective = objective


class Played(BaseCallback):
    """Remembers every policy that is about to be played."""

    every_episodes = 1

    def __init__(self):
        super().__init__()
        self.found = []

    def _on_rollout_start(self):
        session = self.agent.session
        self.found.append((session.episodes, session.next_policy()[0]))

    def _on_step(self):
        return True


def test_after_the_first_proof_no_policy_breaks_the_limit(grid):
    pmdp, theta = grid
    played = Played()
    with pytest.warns(RPLWarning, match="exploration may break them"):
        agent = agent_of(grid, explore_within_limits=True).learn(budget=100, callback=played)
    since = agent.session.within.since
    assert since is not None and 0 < since < 100
    falls = {id(p): true_value(pmdp, FALLEN.objective, p, theta) for _, p in played.found}
    before = [falls[id(p)] for n, p in played.found if n < since]
    after = [falls[id(p)] for n, p in played.found if n >= since]
    assert max(before) > 0.3 >= max(after) and len(after) >= 4
    certified = agent.certificate.policy.as_weights(pmdp)
    assert not np.array_equal(played.found[-1][1].as_weights(pmdp), certified)  # it explores


def test_exploring_within_limits_survives_a_file(tmp_path):
    agent = RPLAgent(crossing(), subject_to=[CRASH], explore_within_limits=True, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent.learn(budget=200)
        agent.save(tmp_path / "agent")
        again = RPLAgent.load(tmp_path / "agent.zip", agent.env)
    one, other = agent.session.within, again.session.within
    assert other.since == one.since and other.policy is not None
    np.testing.assert_array_equal(one.policy.as_weights(agent.pmdp), other.policy.as_weights(agent.pmdp))
    assert again.session.next_policy()[0] is other.policy


def test_the_allowed_policy_is_as_far_as_bounds_prove(grid):
    pmdp, theta = grid
    counts = uniform_counts(pmdp, Objective.parse(STEPS), theta, 500, 1000, 0)
    goal = Objective.parse(STEPS).subject_to(FALLEN)
    config = Config(bets=False)
    search = LimitSearch(pmdp, counts, uncertainty_from(pmdp, counts, config, None), goal, config)
    safe = search.with_room()
    assert allowed_policy(search, safe, None) is safe
    assert allowed_policy(search, safe, safe).as_weights(pmdp) == pytest.approx(safe.as_weights(pmdp))
    uniform = Policy.uniform(pmdp)
    between = allowed_policy(search, safe, uniform)
    assert true_value(pmdp, FALLEN.objective, uniform, theta) > 0.3
    assert (search.limits_of(between)[1] <= 0.0).all()
    bounds = search.limits_of(between)[0][0]
    assert search.limits_of(safe)[0][0][1] <= 0.15 + 1e-9 < bounds[1] <= 0.3
    assert bounds[0] <= true_value(pmdp, FALLEN.objective, between, theta) <= bounds[1]


def test_what_every_parameter_allows_is_kept_from_the_first_episode():
    """Safe never crashes: no data are needed to know it."""

    def rows(s):
        if s != 0:
            return {"stay": {s: 1}}
        return {"safe": {"won": "0.5 * q", "lost": "1 - 0.5 * q"}, "risky": {"won": "p", "crash": "1 - p"}}

    labels = {name: (lambda s, name=name: s == name) for name in ("won", "lost", "crash")}
    pmdp = build(0, rows, domain=["p", "q"], labels=labels)
    goal, limit = Objective.parse("maximise probability of won"), Limit.parse("probability of crash <= 0.05")
    env = rpl_envs.make_own(pmdp, goal, {"p": 0.8, "q": 0.9}, max_episode_steps=10)
    played = Played()
    agent = RPLAgent(env, subject_to=[limit], explore_within_limits=True, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RPLWarning)
        agent.learn(budget=60, callback=played)
    assert agent.session.within.since == 0
    theta = np.array([0.8, 0.9])
    assert all(true_value(pmdp, limit.objective, p, theta) <= 0.05 for _, p in played.found)


def test_what_makes_no_sense_is_refused(grid):
    pmdp, theta = grid
    env = rpl_envs.make_own(pmdp, STEPS, theta.tolist(), max_episode_steps=1000)
    with pytest.raises(ModelError, match="needs limits"):
        RPLAgent(env, explore_within_limits=True)
    with pytest.raises(ModelError, match="exploring within limits is not allowed"):
        agent_of(grid, explore_within_limits=True, confidence="clopper-pearson", relaxation="rectangular")
    with pytest.raises(ModelError, match="needs a model"):
        RPLAgent(returns=(0, 1), explore_within_limits=True)


def test_an_environment_may_name_its_limits(grid):
    pmdp, theta = grid
    goal = Objective.parse(STEPS).subject_to(FALLEN)
    env = rpl_envs.make_own(pmdp, goal.free, theta.tolist(), max_episode_steps=1000)
    agent = RPLAgent(Named(env, goal))
    assert agent.session.subject_to == (FALLEN,) and agent.objective == goal.free


def test_the_shell_explores_within_limits(tmp_path, capsys):
    (tmp_path / "crossing.py").write_text("from tests.agent.test_within_limits import crossing as make\n")
    line = ["train", f"{tmp_path}/crossing.py:make", "--budget", "200", "--subject-to", "probability of crash <= 0.3"]
    line += ["--explore-within-limits", "--log-dir", str(tmp_path / "logs"), "--name"]
    with pytest.warns(RPLWarning, match="may break"):
        assert main([*line, "one", "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["within_limits_since"] < 200
    with pytest.warns(RPLWarning, match="may break"):
        assert main([*line, "two", "--quiet", "--budget", "2"]) == 1
    assert MAY_BREAK in capsys.readouterr().out


def test_the_exit_status_says_whether_limits_are_certified(tmp_path, capsys):
    """As that of `rpl certify` does."""
    (tmp_path / "crossing.py").write_text("from tests.agent.test_within_limits import crossing as make\n")
    world, run = f"{tmp_path}/crossing.py:make", str(tmp_path / "logs" / "one")
    line = ["train", world, "--budget", "2", "--log-dir", str(tmp_path / "logs"), "--quiet", "--name"]
    assert main([*line, "free"]) == 0
    assert main([*line, "one", "--subject-to", "probability of crash <= 0.3"]) == 1
    assert "crash" in capsys.readouterr().out
    assert main(["certify", run]) == 1
    assert main(["resume", run, "--env", world, "--budget", "200", "--quiet"]) == 0
    assert main(["certify", run]) == 0
