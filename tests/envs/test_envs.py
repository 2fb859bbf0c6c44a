"""One battery over every registered id, and what our environments promise beyond Gymnasium's interface."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

import rpl_envs
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Objective, Policy, build
from rpl_envs import FAMILIES, INSTANCES, Benchmark, PMDPEnv

IDS = [f"rpl/{family}-v0" for family in FAMILIES] + [instance.id for instance in INSTANCES.values()]
SMALL = [f"rpl/{i.name}-v0" for i in INSTANCES.values() if i.online]
#: By day one instance of each family and the sizes that are learned online.
EVERY_ID = [
    i
    if i in SMALL or i.removeprefix("rpl/").removesuffix("-v0") in FAMILIES
    else pytest.param(i, marks=pytest.mark.nightly)
    for i in IDS
]


def test_the_ids_are_those_promised():
    sizes = {
        "Aircraft": "20x10 50x10 100x20 200x40", "Betting": "25 50 100 135 140", "Engagement": "50 100 300 1000",
        "MarsRover": "10x10 50x50 75x75 125x125", "Glider": "11x9 21x17 51x47 51x47-region 69x67 71x67",
        "ParallelBetting": "5 6 10 20",
    }  # fmt: skip
    expected = {f"rpl/{family}-v0" for family in sizes}
    expected |= {f"rpl/{family}-{size}-v0" for family, words in sizes.items() for size in words.split()}
    registered = {i for i in gym.registry if i.startswith("rpl/") and i.removeprefix("rpl/").split("-")[0] in FAMILIES}
    assert registered == expected


@pytest.mark.parametrize("id", EVERY_ID)
def test_check_env_is_clean_with_all_render_modes(id, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(id)
        check_env(env.unwrapped, skip_render_check=False)
    assert env.spec.max_episode_steps == env.get_wrapper_attr("max_episode_steps")
    assert set(env.metadata["render_modes"]) == {"human", "rgb_array", "ansi"}
    assert "step" in capsys.readouterr().out  # human rendering without a display prints the text


@pytest.mark.parametrize("id", IDS)
def test_specs_survive_json(id):
    spec = gym.spec(id)
    assert EnvSpec.from_json(spec.to_json()) == spec


def test_a_made_env_can_be_made_again_from_its_spec():
    env = gym.make("rpl/Aircraft-v0", X=8, Y=4, theta=[0.3, 0.3, 0.3])
    spec = EnvSpec.from_json(env.spec.to_json())
    again = gym.make(spec)
    assert spec.max_episode_steps == 9
    assert again.get_wrapper_attr("pmdp") is env.get_wrapper_attr("pmdp")
    assert again.unwrapped._world is env.unwrapped._world


def rollout(env, seed, steps=60):
    rng, seen = np.random.default_rng(seed), []
    observation, info = env.reset(seed=seed)
    for _ in range(steps):
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            observation, info = env.reset()
    return seen


@pytest.mark.parametrize("id", SMALL)
def test_seeds_decide_everything(id):
    first, second = rollout(gym.make(id), 7), rollout(gym.make(id), 7)
    assert first == second
    assert rollout(gym.make(id), 8) != first


@pytest.mark.parametrize("id", SMALL)
def test_masks_agree_and_plain_samples_are_enabled(id):
    env = gym.make(id)
    _, info = env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(200):
        masks = env.get_wrapper_attr("action_masks")()
        assert info["action_mask"].dtype == np.int8
        assert np.array_equal(info["action_mask"], masks)
        action = env.action_space.sample()
        assert masks[action] == 1
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            _, info = env.reset()


def test_a_disabled_action_is_named():
    env = gym.make("rpl/Engagement-50-v0")
    env.reset(seed=0)
    env.step(2)
    message = r"action 2 \('aggressive'\) is not enabled in state \d+ = \(e=2, .*phase=1"
    with pytest.raises(ModelError, match=message) as error:
        env.step(2)
    assert isinstance(error.value, InvalidAction)
    with pytest.raises(InvalidAction, match="action 17 is not enabled"):
        env.step(17)
    env.step(0)  # the errors changed nothing


def test_a_step_after_the_end_asks_for_a_reset():
    env = gym.make("rpl/ParallelBetting-6-v0")
    env.reset(seed=0)
    for _ in range(7):
        _, _, terminated, _, _ = env.step(0)
    assert terminated
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(0)


def test_rewards_follow_the_objective():
    money = gym.make("rpl/Betting-25-v0")
    money.reset(seed=0)
    rewards = [money.step(0)[1] for _ in range(26)]
    assert rewards == [0.0] * 25 + [10.0]
    cost = gym.make("rpl/Engagement-50-v0")
    cost.reset(seed=0)
    assert [cost.step(2)[1], cost.step(0)[1]] == [-1.0, -0.3]
    time = gym.make("rpl/Glider-11x9-v0")
    time.reset(seed=0)
    assert time.step(1)[1] == -1.0
    reach = gym.make("rpl/Aircraft-20x10-v0")
    reach.action_space.seed(0)
    total, ends = 0.0, set()
    for seed in range(40):
        reach.reset(seed=seed)
        while True:
            _, reward, terminated, truncated, info = reach.step(reach.action_space.sample())
            total += reward
            if terminated or truncated:
                labels = reach.get_wrapper_attr("pmdp").labels
                ends.add((reward, bool(labels["arrived"][info["state"]]), bool(labels["collision"][info["state"]])))
                break
    assert ends == {(1.0, True, False), (0.0, False, True)}
    assert total > 0


def test_time_limits_cut_as_gymnasium_does():
    env = gym.make("rpl/Glider-11x9-v0")
    env.reset(seed=0)
    for step in range(1, 102):
        _, _, terminated, truncated, _ = env.step(0)  # west, into the wall
        assert truncated == (step == 101) and not terminated
    short = gym.make("rpl/Glider-11x9-v0", max_episode_steps=3)
    short.reset(seed=0)
    assert [short.step(0)[3] for _ in range(3)] == [False, False, True]
    sized = gym.make("rpl/Betting-v0", n=40)
    assert sized.spec.max_episode_steps == 41


def test_features_are_the_variables_scaled():
    env = gym.make("rpl/Aircraft-20x10-v0", observation="features")
    features, info = env.reset(seed=0)
    assert env.observation_space == gym.spaces.Box(0.0, 1.0, (4,), np.float32)
    assert np.allclose(features, [0.0, 0.1, 1.0, 0.1])
    pmdp = env.get_wrapper_attr("pmdp")
    for _ in range(10):
        features, _, over, _, info = env.step(0)
        x, y, ax, ay = (pmdp.variables[v][info["state"]] for v in ("x", "y", "ax", "ay"))
        assert features.dtype == np.float32
        assert np.allclose(features, [x / 20, y / 10, ax / 20, ay / 10])
        if over:
            break
    with pytest.raises(ModelError, match="pixels"):
        gym.make("rpl/Aircraft-20x10-v0", observation="pixels")


# ---------------------------------------------------------------------- hidden parameters
@pytest.mark.parametrize("id", SMALL)
def test_the_true_parameters_are_hidden(id):
    env = gym.make(id, theta=None)
    theta = rpl_envs.benchmark(id).theta
    _, info = env.reset(seed=0)
    infos = [info] + [env.step(env.action_space.sample())[4] for _ in range(3)]
    assert all(set(i) == {"action_mask", "state"} for i in infos)
    for public in (n for n in dir(env.unwrapped) if not n.startswith("_")):
        value = getattr(env.unwrapped, public)
        same_shape = isinstance(value, (tuple, list, np.ndarray)) and np.shape(value) == np.shape(theta)
        assert not (same_shape and np.allclose(value, theta)), public
    assert not hasattr(env.unwrapped, "theta") and not hasattr(env.unwrapped, "P")
    simulator = env.get_wrapper_attr("simulator")(3)
    assert not any(hasattr(simulator, name) for name in ("mdp", "theta", "probability"))
    assert json.loads(env.spec.to_json())["kwargs"].get("theta") is None


def test_theta_can_be_set_and_is_checked():
    lucky = gym.make("rpl/Betting-v0", n=5, theta={"p": 0.95})
    assert lucky.unwrapped._world._mdp.theta.tolist() == [0.95]
    lucky.reset(seed=0)
    assert lucky.step(1)[4]["state"] in range(1, 10)
    with pytest.raises(ModelError, match="outside the domain"):
        gym.make("rpl/Aircraft-20x10-v0", theta=[0.5, 0.5, 0.5])
    with pytest.raises(ModelError, match="q"):
        gym.make("rpl/Betting-25-v0", theta={"q": 0.5})
    with pytest.raises(ModelError, match="3 finite numbers"):
        gym.make("rpl/Aircraft-20x10-v0", theta=[0.5])


@pytest.mark.parametrize("id", SMALL)
def test_simulator_has_the_law_of_the_environment(id, sized):
    env = gym.make(id)
    pmdp = env.get_wrapper_attr("pmdp")
    policy, rng = Policy.uniform(pmdp), np.random.default_rng(2)
    returns, lengths = [], []
    for episode in range(sized(120, 300)):
        state, _ = env.reset(seed=episode)
        total, steps = 0.0, 0
        while True:
            state, reward, terminated, truncated, _ = env.step(policy.action(pmdp, state, rng))
            total, steps = total + reward, steps + 1
            if terminated or truncated:
                break
        returns.append(total)
        lengths.append(steps)
    batch = env.get_wrapper_attr("simulator")(5).run(policy, 20_000)
    for ours, theirs in ((returns, batch.returns), (lengths, batch.lengths)):
        error = np.std(theirs) * np.sqrt(1 / len(ours) + 1 / len(theirs))
        assert abs(np.mean(ours) - np.mean(theirs)) <= 4.5 * error + 1e-9


# ---------------------------------------------------------------------- one's own models, copies, imports
def coin(state):
    return {"toss": {1: "p", 2: "1 - p"}} if state == 0 else {"toss": {state: 1}}


def test_a_model_of_ones_own():
    pmdp = build(0, coin, domain=["p"], labels={"head": lambda s: s == 1})
    world = Benchmark(pmdp, Objective.reach("head"), (0.25,), 5)
    env = PMDPEnv(world, render_mode="ansi")
    heads = 0
    for seed in range(400):
        env.reset(seed=seed)
        _, reward, terminated, _, _ = env.step(0)
        assert terminated  # heads is the target, tails is absorbing
        heads += reward
    assert 70 <= heads <= 130
    assert "state" in env.render()
    frame = PMDPEnv(world, render_mode="rgb_array").render()
    assert frame.dtype == np.uint8 and frame.shape[2] == 3 and frame.std() > 0
    with pytest.raises(ModelError, match="features"):
        PMDPEnv(world, observation="features")
    with pytest.raises(ModelError, match="size keywords"):
        PMDPEnv(world, X=3)


def test_environments_can_be_copied():
    env = gym.make("rpl/Glider-11x9-v0")
    env.reset(seed=0)
    env.step(1)
    twin = copy.deepcopy(env)
    assert [env.step(1)[0] for _ in range(20)] == [twin.step(1)[0] for _ in range(20)]


def test_import_is_light_and_make_can_import():
    program = (
        "import sys, gymnasium as gym; env = gym.make('rpl_envs:rpl/Glider-11x9-v0', render_mode='ansi'); "
        "env.reset(seed=0); env.render(); "
        "print(sorted({'torch', 'matplotlib', 'PIL', 'pygame'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
