"""The certificate is about the environment that was run: states by name, and what is seen against what is modelled."""

from __future__ import annotations

from functools import cache

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import DataError, ModelError, Objective, RPLAgent, build
from rpl_agent.agent import EveryN
from rpl_agent.agent.evaluation import optimal_value
from rpl_agent.agent.sampling.experience import Experience
from rpl_agent.agent.sampling.step_checker import StepChecker
from rpl_agent.agent.world.observations import StateReader
from rpl_agent.agent.world.plays import model_rewards
from rpl_agent.core.model import StateIndex
from tests.attach_worlds import FAIL, REPAIR, Broken, Machine, machine_model

pytestmark = pytest.mark.short_runs

THETA = np.array([FAIL, REPAIR])


def agent_for(pmdp, objective, **settings):
    return RPLAgent(pmdp=pmdp, objective=objective, relaxation="expression", seed=1, schedule=EveryN(30), **settings)


# ---------------------------------------------------------------------- names
class TwoStates(gym.Env):
    """Observation 0 is broken, 1 is fine; it starts in 1 and every step that begins fine costs 1."""

    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 1
        return 1, {}

    def step(self, action):
        cost = 0.1 if self.state == 1 else 0.9
        self.state = int(self.np_random.random() >= 0.1)
        return self.state, -cost, self.state == 0, False, {}


def test_observations_are_values_and_not_the_builder_s_numbers():
    """`build` numbers states in order of discovery: 1 first. Taken for numbers, observations meant the other state."""
    pmdp = build(
        1, lambda s: {"go": {0: "p", 1: "1-p"}}, domain=["p"], labels={"broken": lambda s: s == 0},
        rewards={"cost": lambda s, a: 0.1 if s == 1 else 0.9}, name="two",
    )  # fmt: skip
    objective = Objective.cost("cost", target="broken")
    assert pmdp.state_index(1) == 0 and pmdp.state_value(0) == 1
    agent = agent_for(pmdp, objective).learn(TwoStates(), budget=2000, log_interval=5000)
    truth = optimal_value(pmdp, objective, np.array([0.1]))
    assert truth == pytest.approx(1.0, abs=1e-5)  # 0.1 per step, 10 steps on average
    assert agent.certificate.lower <= truth <= agent.certificate.upper < 2.0


NAMES = {
    "arrays": (lambda s, d: (s, d), lambda s, d: np.array([s, d]), None),
    "tuples": (lambda s, d: (s, d), lambda s, d: (s, d), gym.spaces.Tuple([gym.spaces.Discrete(11)] * 2)),
    "numbers": (lambda s, d: 2 * d + s, lambda s, d: np.int64(2 * d + s), gym.spaces.Discrete(30)),
    "strings": (lambda s, d: f"{s} on {d}", lambda s, d: f"{s} on {d}", gym.spaces.Text(20)),
    "single precision": (
        lambda s, d: (s, d / 10), lambda s, d: np.array([s, d / 10], dtype=np.float32), gym.spaces.Box(0, 1, (2,)),
    ),
    "nested": (
        lambda s, d: ((s, s), d), lambda s, d: {"flags": np.array([s, s]), "day": d},
        gym.spaces.Dict(flags=gym.spaces.MultiBinary(2), day=gym.spaces.Discrete(11)),
    ),
}  # fmt: skip


@cache
def plain_certificate():
    return agent_for(*machine_model()).learn(Machine(), budget=60, log_interval=100).certificate


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_of_observation_finds_its_state(kind):
    name, show, space = NAMES[kind]
    keywords = {"variables": ("flags", "day")} if kind == "nested" else {}
    pmdp, objective = machine_model(name, **keywords)
    agent = agent_for(pmdp, objective).learn(Machine(show, space), budget=60, log_interval=100)
    assert agent.num_timesteps == 600 and not agent.certificate.refuted
    assert agent.certificate.lower == pytest.approx(plain_certificate().lower, rel=1e-5)
    assert agent.certificate.upper == pytest.approx(plain_certificate().upper, rel=1e-5)
    action, _ = agent.predict(show(1, 0))
    assert action == 0 and np.ndim(action) == 0


def test_batches_of_every_kind():
    for kind in ("arrays", "tuples", "nested"):
        name, show, space = NAMES[kind]
        keywords = {"variables": ("flags", "day")} if kind == "nested" else {}
        pmdp, objective = machine_model(name, **keywords)
        env = gym.vector.SyncVectorEnv([lambda show=show, space=space: Machine(show, space)] * 3)
        agent = agent_for(pmdp, objective).learn(env, budget=9, log_interval=100)
        assert agent.num_timesteps == 90
        observations, _ = env.reset(seed=0)
        assert agent.predict(observations)[0].tolist() == [0, 0, 0]


def test_numbers_are_indices_only_without_values():
    pmdp, _ = machine_model()
    assert pmdp.state_index((1, 0)) == 0 == pmdp.state_index(StateIndex(0)) and pmdp.state_value(0) == (1, 0)
    for wrong in (0, 1.0, "0", (1, 0.5), (1, 0, 0), (5, 0), None, {"a": 1}, [[1, 0]]):
        with pytest.raises(ModelError, match="is not a state of machine"):
            pmdp.state_index(wrong)
    with pytest.raises(ModelError, match="must be an integer"):
        StateIndex(2.9)
    with pytest.raises(ModelError, match="there is no state 99"):
        pmdp.state_value(99)


def test_numbers_that_are_not_states_are_refused_when_attached():
    pmdp, objective = machine_model()
    with pytest.raises(ModelError, match=r"Discrete\(30\), but the model has the state \(1, 0\)"):
        agent_for(pmdp, objective).set_env(Machine(lambda s, d: 2 * d + s, gym.spaces.Discrete(30)))
    agent = agent_for(pmdp, objective, observation_to_state=lambda o: (o % 2, o // 2))
    agent.learn(Machine(lambda s, d: 2 * d + s, gym.spaces.Discrete(30)), budget=5)
    assert agent.num_timesteps == 50


def test_wrappers_that_change_what_is_seen_or_done_are_refused():
    import rpl_envs  # noqa: F401

    env = gym.make("rpl/Betting-25-v0")
    n = env.observation_space.n
    turned = gym.wrappers.TransformObservation(env, lambda o: n - 1 - o, env.observation_space)
    with pytest.raises(ModelError, match="TransformObservation changes what is observed"):
        RPLAgent().set_env(turned)
    RPLAgent(observation_to_state=lambda o: StateIndex(n - 1 - o), seed=0).learn(turned, budget=3)
    swapped = gym.wrappers.TransformAction(env, lambda a: (a + 1) % 5, env.action_space)
    with pytest.raises(ModelError, match="TransformAction changes what actions mean"):
        RPLAgent().set_env(swapped)


def test_names_are_part_of_what_data_mean():
    one, _ = machine_model()
    same, _ = machine_model()
    other, _ = machine_model(lambda s, d: (1 - s, d))
    assert one.content_hash == same.content_hash != other.content_hash


# ---------------------------------------------------------------------- contradictions
def contradiction(env, message, *, steps=None, **settings):
    pmdp, objective = machine_model()
    agent = agent_for(pmdp, objective, **settings)
    with pytest.raises(DataError, match=message) as error:
        agent.learn(env, budget=1000)
    assert "\n" not in str(error.value)
    assert agent.num_timesteps == agent.counts.total
    if steps is not None:
        assert agent.num_timesteps == steps
    return agent


def test_an_environment_that_starts_elsewhere():
    env = Broken(Machine(), reset=lambda o, i: (np.array([0, 0]), i))
    contradiction(env, r"episode 1, reset: .*\[0, 0\].* has no state|starts in state", steps=0)
    env = Broken(Machine(), reset=lambda o, i: (np.array([1, 1]), i))
    contradiction(env, r"episode 1, reset: the environment starts in state \d+ = \(1, 1\), but the model in .*\(1, 0\)")


def test_rewards_are_compared_by_default():
    for change in (lambda r: 3 * r + 7, lambda r: -r + 1e-3, lambda r: r - 1):
        env = Broken(Machine(), step=lambda o, r, *rest, change=change: (o, change(r), *rest))
        contradiction(env, r"episode 3, step 5: reward .* contradicts the model, which pays -?[01]", steps=24)
    env = Broken(Machine(), step=lambda o, r, *rest: (o, 3 * r + 7, *rest))
    pmdp, objective = machine_model()
    agent_for(pmdp, objective, check_rewards=False).learn(env, budget=5)


def test_ends_are_compared():
    early = Broken(Machine(), step=lambda o, r, end, *rest: (o, r, True, *rest))
    contradiction(early, r"episode 3, step 5: the environment terminated in state .* is not decided", steps=24)


def test_a_step_that_was_seen_before_is_still_compared():
    """Plain observations are looked up, but only with the same reward and end, and only where that end is expected."""
    rewards = {"gain": lambda s, a: 1.0 * (s == 0)}
    pmdp = build(0, lambda s: {"go": {1 - s: "p", s: "1-p"}}, domain=["p"], rewards=rewards)
    paid = np.vstack([model_rewards(pmdp, Objective.total("gain")), np.full(pmdp.num_transitions, 0.01)])
    checker = StepChecker(Experience(pmdp), StateReader(pmdp, None), Objective.total("gain", horizon=3), paid, 1.0)

    def follow(observation=1, reward=1.0, terminated=False, step=1):
        return checker.follow(0, 0, observation, reward, terminated, lambda: "here", step)[0]

    assert [follow(), follow(), follow(np.int64(1)), follow(0), follow(terminated=True, step=2)] == [1, 1, 1, 0, 1]
    for step in (0, 1):
        with pytest.raises(DataError, match="here: the environment terminated in state 1"):
            follow(terminated=True, step=step)
    with pytest.raises(DataError, match=r"here: reward 0\.5 contradicts the model, which pays 1 "):
        follow(reward=0.5)
    with pytest.raises(DataError, match=r"here: observation 1\.5 has no state"):
        follow(1.5)
    assert checker.experience.reward_error == 0.0 and follow(reward=1.0001) == 1
    assert checker.experience.reward_error == pytest.approx(0.01)
    checker.experience.reward_error = 0.0  # as a restored run may set it
    assert follow(reward=1.0001) == 1 and checker.experience.reward_error == pytest.approx(0.01)


def test_the_users_mapping_is_asked_in_every_step():
    turns = iter([0, 1, 0])
    pmdp = build(0, lambda s: {"go": {1: "p", 0: "1-p"}}, domain=["p"], rewards={"gain": lambda s, a: 0.0})
    reader = StateReader(pmdp, lambda seen: next(turns))
    checker = StepChecker(Experience(pmdp), reader, Objective.total("gain", horizon=9), None)
    assert [checker.follow(0, 0, 7, 0.0, False, lambda: "here", 1)[0] for _ in range(3)] == [0, 1, 0]


def test_a_truncation_is_no_end():
    pmdp, objective = machine_model()
    agent = agent_for(pmdp, objective).learn(gym.wrappers.TimeLimit(Machine(), 4), budget=30)
    assert agent.session.cut == 30 and agent.num_timesteps == 120


BAD = {
    "reward None": (lambda o, r, *rest: (o, None, *rest), "reward must be a finite number, not None"),
    "reward text": (lambda o, r, *rest: (o, "1", *rest), "reward must be a finite number, not '1'"),
    "reward array": (lambda o, r, *rest: (o, np.zeros(2), *rest), "reward must be a finite number"),
    "reward nan": (lambda o, r, *rest: (o, float("nan"), *rest), "reward must be a finite number, not nan"),
    "old gym": (lambda o, r, t, u, i: (o, r, t, i), r"but returned 4 values; that is the interface of gym"),
    "terminated None": (lambda o, r, t, u, i: (o, r, None, u, i), "terminated must be True or False, not None"),
    "float observation": (lambda o, *rest: (o + 0.9, *rest), "has no state"),
    "text": (lambda o, *rest: (str(o), *rest), "has no state"),
    "None": (lambda o, *rest: (None, *rest), "observation None has no state"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_one_line_and_keeps_the_data(fault):
    spoil, message = BAD[fault]
    contradiction(Broken(Machine(), step=spoil), rf"episode 3, step 5: .*{message}", steps=24)


def test_reset_without_info():
    contradiction(Broken(Machine(), reset=lambda o, i: o), r"episode 1, reset: reset\(\) must return", steps=0)
    contradiction(Broken(Machine(), reset=lambda o, i: (1, 0)), r"episode 1, reset: reset\(\) must return", steps=0)


def test_vector_environments_are_compared_too():
    bad = lambda: Broken(Machine(), step=lambda o, r, *rest: (o, r - 1, *rest))  # noqa: E731
    pmdp, objective = machine_model()
    agent = agent_for(pmdp, objective)
    with pytest.raises(DataError, match=r"sub-environment 0, step 5: reward .* contradicts"):
        agent.learn(gym.vector.SyncVectorEnv([bad] * 2), budget=1000)
    assert agent.num_timesteps == agent.counts.total > 40
