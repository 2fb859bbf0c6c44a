"""The vector environment: Gymnasium's autoreset, the true law, lanes that do not disturb each other."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rpl_agent.core.errors import ModelError
from rpl_envs import INSTANCES, PMDPVectorEnv, benchmark

pytestmark = pytest.mark.short_runs

SMALL = [i.id for i in INSTANCES.values() if i.online]


def enabled(masks, rng):
    """(N,) one enabled action per lane."""
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])


@pytest.mark.parametrize("id", SMALL)
def test_make_vec_uses_the_compiled_lanes(id):
    envs = gym.make_vec(id, num_envs=5)
    assert isinstance(envs, PMDPVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.max_episode_steps == gym.spec(id).max_episode_steps
    observations, info = envs.reset(seed=3)
    assert observations in envs.observation_space
    assert info["action_mask"].shape == (5, envs.pmdp.num_actions) and info["_action_mask"].all()
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions = enabled(info["action_mask"], rng)
        assert actions in envs.action_space
        observations, rewards, terminated, truncated, info = envs.step(actions)
        assert observations in envs.observation_space
        assert rewards.dtype == np.float64 and terminated.dtype == truncated.dtype == bool
        assert np.array_equal(info["state"], observations)
        assert set(info) == {"action_mask", "_action_mask", "state", "_state"}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_same_protocol_as_gymnasiums_own_vector_env(mode):
    """In a world without chance (always bet 0) our lanes and SyncVectorEnv must say exactly the same."""
    ours = gym.make_vec("rpl/Betting-v0", num_envs=3, n=4, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gym.make("rpl/Betting-v0", n=4)] * 3, autoreset_mode=mode)
    ours.reset(seed=0), theirs.reset(seed=0)
    for _ in range(14):
        a, b = ours.step(np.zeros(3, dtype=int)), theirs.step(np.zeros(3, dtype=int))
        for x, y in zip(a[:4], b[:4]):
            assert np.array_equal(x, y)
        for key in b[4]:
            assert key in a[4], key
            if key == "final_info":
                assert {k for k in a[4][key]} == {k for k in b[4][key]}
                assert np.array_equal(a[4][key]["state"], b[4][key]["state"])
            else:
                assert np.array_equal(a[4][key], b[4][key]), key
        assert set(a[4]) == set(b[4])


def test_next_step_reset_is_no_transition():
    envs = PMDPVectorEnv(2, "ParallelBetting-6")
    envs.reset(seed=0)
    for _ in range(7):
        _, rewards, terminated, truncated, _ = envs.step(np.zeros(2, dtype=int))
    assert terminated.all() and rewards.tolist() == [20.0, 20.0]
    # actions of lanes that reset are ignored, even impossible ones
    observations, rewards, terminated, truncated, info = envs.step(np.array([4, 99]))
    assert observations.tolist() == [0, 0] and rewards.tolist() == [0.0, 0.0]
    assert not terminated.any() and not truncated.any()
    assert info["action_mask"].all()


def test_same_step_shows_the_last_observation():
    envs = PMDPVectorEnv(2, "ParallelBetting-6", autoreset_mode="SameStep", observation="features")
    envs.reset(seed=0)
    for _ in range(7):
        observations, rewards, terminated, _, info = envs.step(np.zeros(2, dtype=int))
    assert terminated.all() and rewards.tolist() == [20.0, 20.0]
    assert observations[0][2] == 0.0  # the step of a new episode
    assert info["final_obs"][0][2] == 1.0 and info["_final_obs"].all()
    assert envs.pmdp.labels["done"][info["final_info"]["state"]].all()
    _, _, _, _, info = envs.step(np.zeros(2, dtype=int))
    assert "final_obs" not in info


def test_disabled_mode_and_reset_masks():
    envs = PMDPVectorEnv(3, "Betting-25", autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=2)
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros(3, dtype=int))
    envs.reset(seed=0)
    envs.step(np.zeros(3, dtype=int))
    observations, _ = envs.reset(options={"reset_mask": np.array([True, False, False])})
    assert observations[0] == 0 and observations[1] != 0
    _, _, _, truncated, _ = envs.step(np.zeros(3, dtype=int))
    assert truncated.tolist() == [False, True, True]
    with pytest.raises(ResetNeeded, match="lane 1"):
        envs.step(np.zeros(3, dtype=int))
    with pytest.raises(ModelError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.zeros(3, dtype=bool)})


def test_a_disabled_action_moves_no_lane():
    envs = PMDPVectorEnv(4, "Engagement-50")
    envs.reset(seed=0)
    first, *_ = envs.step(np.array([0, 1, 2, 0]))
    with pytest.raises(ModelError, match=r"action 1 .* is not enabled in state"):
        envs.step(np.array([0, 0, 1, 0]))
    after, *_ = envs.step(np.zeros(4, dtype=int))
    assert not np.array_equal(first, after)
    with pytest.raises(ModelError, match="shape"):
        envs.step(np.zeros(3, dtype=int))


def trace(lanes, seed, steps=40):
    envs = PMDPVectorEnv(lanes, "Glider-11x9")
    envs.reset(seed=seed)
    actions = np.random.default_rng(1).integers(4, size=steps)
    return np.array([envs.step(np.full(lanes, a))[0] for a in actions])


def test_seeds_decide_and_lanes_are_independent():
    assert np.array_equal(trace(6, 10), trace(6, 10))
    assert np.array_equal(trace(6, 10)[:, :3], trace(3, 10))  # lane i does not depend on the number of lanes
    assert np.array_equal(trace(6, 10)[:, 2:], trace(4, 12))  # lane i has the seed 10 + i
    assert not np.array_equal(trace(6, 10), trace(6, 99))
    assert len(np.unique(trace(64, 0)[-1])) > 5
    listed = PMDPVectorEnv(2, "Glider-11x9")
    listed.reset(seed=[5, 5])
    pairs = np.array([listed.step(np.array([1, 1]))[0] for _ in range(30)])
    assert np.array_equal(pairs[:, 0], pairs[:, 1])
    with pytest.raises(ModelError, match="2 lanes"):
        listed.reset(seed=[1, 2, 3])
    unseeded = [PMDPVectorEnv(1, "Glider-11x9") for _ in range(2)]
    runs = []
    for envs in unseeded:
        envs.reset()
        runs.append([int(envs.step(np.array([1]))[0][0]) for _ in range(60)])
    assert runs[0] != runs[1]


@pytest.mark.parametrize("id", SMALL)
def test_lanes_have_the_true_probabilities(id):
    """Every step is a transition of the model, with its frequency; the resets of NEXT_STEP are none."""
    made = benchmark(id)
    pmdp, lanes = made.pmdp, 500
    envs = gym.make_vec(id, num_envs=lanes)
    rng = np.random.default_rng(4)
    before, info = envs.reset(seed=4)
    keys = pmdp.transition_row.astype(np.int64) * pmdp.num_states + pmdp.successor  # increasing
    pairs = pmdp.row_state.astype(np.int64) * pmdp.num_actions + pmdp.action
    by_pair = np.argsort(pairs)
    counts, fresh = np.zeros(pmdp.num_transitions), np.zeros(lanes, dtype=bool)
    returns, totals = [], np.zeros(lanes)
    for _ in range(120):
        actions = (rng.random(info["action_mask"].shape) * info["action_mask"]).argmax(axis=1)
        after, rewards, terminated, truncated, info = envs.step(actions)
        assert (after[fresh] == pmdp.initial_state).all() and (rewards[fresh] == 0).all()
        rows = np.searchsorted(pairs, before[~fresh] * pmdp.num_actions + actions[~fresh], sorter=by_pair)
        rows = by_pair[rows]
        wanted = rows * pmdp.num_states + after[~fresh]
        where = np.searchsorted(keys, wanted)
        assert np.array_equal(keys[where], wanted)
        np.add.at(counts, where, 1)
        totals += rewards
        fresh = terminated | truncated
        returns += totals[fresh].tolist()
        totals[fresh] = 0.0
        before = after
    trials = np.add.reduceat(counts, pmdp.row_ptr[:-1])[pmdp.transition_row]
    p = pmdp.instantiate(made.theta).probability
    often = trials * p * (1 - p) > 9
    z = (counts - trials * p)[often] / np.sqrt(trials * p * (1 - p))[often]
    assert len(z) > 10 and np.abs(z).max() < 6 and 0.7 < z.std() < 1.3
    assert len(returns) > lanes / 2


def test_renders_every_lane():
    envs = gym.make_vec("rpl/Glider-11x9-v0", num_envs=3, render_mode="rgb_array")
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 3 and all(f.dtype == np.uint8 for f in frames)
    texts = PMDPVectorEnv(2, "Betting-25", render_mode="ansi")
    texts.reset(seed=0)
    assert "step 0 of 25" in texts.render()[0]
    assert PMDPVectorEnv(1, "Betting-25").render() is None
    with pytest.raises(ModelError, match="human"):
        PMDPVectorEnv(1, "Betting-25", render_mode="human")
    with pytest.raises(ModelError, match="num_envs"):
        PMDPVectorEnv(0, "Betting-25")


def test_hidden_parameters_are_shared_by_lanes_only():
    envs = gym.make_vec("rpl/Betting-25-v0", num_envs=2, theta=[0.9])
    assert not hasattr(envs, "theta")
    envs.reset(seed=0)
    assert envs._world._mdp.theta.tolist() == [0.9]
