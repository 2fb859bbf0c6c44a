"""The agent without a model: discovery, guarantees, files, and facts that steps contradict."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rpl_agent import BaseCallback, CertificateLog, Config, DataError, ModelError, Never, RPLAgent, RPLWarning
from rpl_agent.agent.discovery.repeats import RepetitionWatch
from rpl_agent.agent.discovery.source import OpenSource
from rpl_agent.agent.discovery.world import list_actions
from rpl_agent.agent.sampling.experience import Request, SampledBatch
from rpl_agent.agent.sampling.stepping import EnvSource
from rpl_agent.agent.schedule import NEVER, Limits
from rpl_agent.core.evidence.repetition import RepeatedChanceError
from rpl_agent.core.model.states import canonical
from rpl_agent.core.printed import floor_text
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.estimate import FrequencyModel
from rpl_agent.guarantee.open_world.played import OpenPolicy


class Corridor(gym.Env):
    """Walk right to the end of a corridor, which pays; a step may slip. ``shown`` makes observations of places."""

    def __init__(self, length=3, slip=0.2, shown=int, space=None, actions=None, pay=1.0, starts=(0,)):
        self.length, self.slip, self.shown, self.pay, self.starts = length, slip, shown, pay, starts
        self.observation_space = Discrete(length + 1) if space is None else space
        self.action_space = Discrete(2) if actions is None else actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.choice(self.starts))
        return self.shown(self.at), {}

    def right(self, action):
        return int(action) == 1

    def step(self, action):
        ahead = self.right(action) != (self.np_random.random() < self.slip)
        self.at = min(self.at + 1, self.length) if ahead else max(self.at - 1, 0)
        over = self.at == self.length
        return self.shown(self.at), self.pay * over, over, False, {}


def corridor(limit=20, **options):
    return gym.wrappers.TimeLimit(Corridor(**options), limit)


def best_value(length, slip, discount):
    """V*(0): walk right."""
    v = np.zeros(length + 1)
    for _ in range(2_000):
        for s in range(length):
            after = s + 1 == length
            v[s] = (1 - slip) * (1.0 if after else discount * v[s + 1]) + slip * discount * v[max(s - 1, 0)]
    return v[0]


def agent_of(env, **options):
    return RPLAgent(env, **{"returns": (0, 1), "discount": 0.9, "delta": 0.1, "seed": 0, **options})


def test_bounds_close_in_on_the_truth_and_say_what_they_assume():
    agent = agent_of(corridor()).learn(1_500)
    found, truth = agent.certificate, best_value(3, 0.2, 0.9)
    assert found.lower <= truth <= found.upper
    assert found.gap < 0.25 and found.regret == found.gap
    text = str(found)
    played = f"(it was played {found.plays:,} times)"
    assert f"this policy returns at least {floor_text(found.lower)} {played}, no policy" in text
    assert "Assumed: observations are a Markov state, returns lie in [0, 1]." in text
    assert "Nothing was assumed about which states exist or follow which: 3 states were seen" in text
    assert not found.proved  # that needs a file beside it
    assert agent.num_episodes == 1_500 and found.samples == agent.num_timesteps


def test_bounds_hold_in_many_short_runs():
    truth = best_value(3, 0.2, 0.9)
    for seed in range(12):
        log = CertificateLog()
        agent_of(corridor(), seed=seed).learn(120, callback=log, log_interval=20)
        assert all(point["lower"] <= truth <= point["upper"] for point in log.history)


def test_a_policy_is_not_given_up_for_less_than_a_new_bound_costs(monkeypatch):
    """What plays earned says how open the bound is, and what the policy is worth, whatever the model thinks of it."""
    session = agent_of(corridor()).learn(400).session
    fixed, policy = session.fixed, session.experience.played.policy
    other = OpenPolicy(policy.actions, policy.unseen)
    monkeypatch.setattr(FrequencyModel, "best", lambda model: other)
    for present, looks, times in ((0.9, 0.901, 0), (-5.0, -3.0, 0), (-5.0, 3.0, 1)):
        monkeypatch.setattr(
            FrequencyModel, "value", lambda model, p, present=present, looks=looks: looks if p is other else present
        )
        session._consider()
        assert session.fixed == fixed + times


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.array])
def test_rewards_of_many_kinds_are_numbers(kind):
    """Sums of float32 would be float32, and rounded."""
    env = corridor(pay=float(np.float32(0.3)))
    plain = agent_of(env).learn(60)
    other = agent_of(gym.wrappers.TransformReward(env, kind)).learn(60)
    assert (other.certificate.lower, other.certificate.upper) == (plain.certificate.lower, plain.certificate.upper)
    assert other.session.experience.played.mean == plain.session.experience.played.mean


@pytest.mark.parametrize("deterministic, best", [(True, 1), (False, 0)])
def test_there_is_no_doubt_about_a_row_with_one_outcome(deterministic, best):
    """Action 1 pays more, and was tried once; somewhere else there is far less to get."""
    data = OpenData(actions=2)
    for state in range(2):
        data.state(state)
    data.starts[0] = 1
    for row, reward, visits in ((0, -1.0, 100), (1, -0.5, 1), (2, -10.0, 1), (3, -10.0, 1)):
        for _ in range(visits):
            data.add(row, reward, END)
    model = FrequencyModel(Assumptions(discount=0.5, returns=(-20, 0), deterministic=deterministic), data)
    found = model.best()
    assert found.action(0, 0) == best and model.value(found) == (-1.0, -0.5)[best]


def test_doubt_does_not_grow_with_itself():
    """A walk of ten steps, each seen ten times, beats waiting, though a step in a corner pays −100.

    Nobody has to take that step, so no state is bad. It must not become what every step of the walk is doubted for.
    """
    data = OpenData(actions=2)
    for state in range(11):
        data.state(state)
    data.starts[0] = 1
    corner = 10
    for state in range(10):
        for _ in range(1_000):  # wait
            data.add(2 * state, -1.0, state)
        for _ in range(10):  # walk on
            data.add(2 * state + 1, 10.0 if state == 9 else -1.0, END if state == 9 else state + 1)
    data.add(2 * corner, -100.0, corner)
    data.add(2 * corner + 1, -1.0, END)
    found = FrequencyModel(Assumptions(discount=0.95, returns=(-2000, 20)), data).best()
    assert [found.action(state, 0) for state in range(10)] == [1] * 10


def test_the_first_policy_is_fixed_after_an_eighth_of_the_budget():
    """Certificates before show what looks best, and fix nothing: every policy that is fixed costs δ."""
    log, fixed = [], []

    class Watch(BaseCallback):
        def _on_certificate(self, certificate):
            session = self.agent.session
            log.append((session.episodes, certificate.policies, certificate.lower))
            fixed.append(session.policy.action(0, 0))
            return True

    agent = agent_of(corridor()).learn(160, callback=Watch(), log_interval=4)
    early = [entry for entry in log if entry[0] < 20]
    assert early and all(policies == 0 and lower == 0.0 for _, policies, lower in early)
    assert agent.certificate.policies >= 1 and agent.certificate.plays > 60 and agent.certificate.lower > 0.0


def test_rows_never_tried_count_as_the_most():
    agent = agent_of(corridor(actions=Discrete(50)), delta=0.001).learn(3)
    assert agent.certificate.untried > 40
    assert f"{agent.certificate.untried} rows never tried count as 1" in str(agent.certificate)


def test_the_time_limit_is_the_horizon_without_a_discount():
    agent = agent_of(corridor(limit=6), discount=None).learn(800)
    assert agent.objective.horizon == 6
    assert agent.certificate.upper < 1.0 and agent.session.cut == 0
    policy = agent.as_policy()
    policy.reset()
    assert policy(0) == 1 and policy(1) == 1
    with pytest.warns(RPLWarning, match="depends on the step"):
        agent.predict(0)


def test_rewards_bound_returns_with_a_discount_or_a_horizon():
    agent = agent_of(corridor(), returns=None, rewards=(0, 1), discount=0.5).learn(20)
    assert agent.session.assumptions.overall == pytest.approx((0.0, 2.0))
    with pytest.raises(ModelError, match="discount below 1 or a horizon"):
        agent_of(Corridor(), returns=None, rewards=(0, 1), discount=None)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_count_every_step_and_every_start_once(mode):
    copies = SyncVectorEnv([corridor for _ in range(3)], autoreset_mode=mode)
    agent = agent_of(copies).learn(60)
    data = agent.session.experience.data
    assert sum(data.starts) == agent.session.experience.begun == 60
    assert data.total == agent.num_timesteps == sum(data.counts) == sum(data.visits)
    played = agent.session.experience.played
    assert 0 < len(played.complete()) == len(played.given_up())
    assert agent.certificate.lower <= best_value(3, 0.2, 0.9) <= agent.certificate.upper


SHOWN = {
    "text": (Text(3), "abc{}".format),
    "sequence": (Sequence(Discrete(9)), lambda at: (at, 7, 7)),
    "tuple": (Tuple([Discrete(9), Text(9)]), lambda at: (at, f"place {at}")),
    "dict": (Dict(place=Tuple([Text(9), Discrete(9)])), lambda at: {"place": (f"place {at}", at)}),
}


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", SHOWN)
def test_copies_show_the_states_that_one_environment_shows(kind, mode):
    """Gymnasium batches tuples part by part, but texts, sequences and the like by environment."""
    space, shown = SHOWN[kind]
    copies = SyncVectorEnv([lambda: Corridor(space=space, shown=shown) for _ in range(3)], autoreset_mode=mode)
    agent = agent_of(copies).learn(20)
    assert set(agent.session.experience.data.states) <= {canonical(shown(at)) for at in range(4)}


def test_a_budget_in_steps_cuts_the_last_episode_which_still_counts():
    agent = agent_of(corridor(), seed=3)
    for _ in range(80):
        agent.learn(budget=7, unit="steps")
    assert agent.num_timesteps == 560
    played = agent.session.experience.played
    assert (played.complete().cut_in >= 0).any()
    assert len(played.given_up()) - len(played.complete()) <= 1


@pytest.mark.parametrize(
    "space, shown",
    [
        (Box(0, 9, (1,), np.int64), lambda s: np.array([s])),
        (Tuple([Discrete(4), Discrete(2)]), lambda s: (s, 0)),
        (Dict(x=Discrete(4)), lambda s: {"x": np.int64(s)}),
        (Text(1), str),
        (Box(0, 9, (2, 2)), lambda s: np.full((2, 2), s, dtype=np.float32)),
    ],
)
def test_observations_of_many_kinds_are_states(space, shown):
    agent = agent_of(corridor(space=space, shown=shown)).learn(30)
    assert agent.certificate.states == 3
    assert agent.predict(shown(0))[0] in (0, 1)


def test_parts_of_actions_are_combined():
    class Levers(Corridor):
        def right(self, action):
            return int(np.sum(action)) == 2

    agent = agent_of(gym.wrappers.TimeLimit(Levers(actions=MultiDiscrete([2, 3])), 20)).learn(60)
    assert agent.session.experience.data.actions == 6
    action, _ = agent.predict(0)
    assert action.shape == (2,)
    assert len(list_actions(Dict(a=Discrete(2), b=Tuple([Discrete(3, start=1), MultiBinary(2)])), "x")) == 24
    assert list_actions(Discrete(2, start=5), "x") == [5, 6]
    with pytest.raises(ModelError, match="made of discrete parts"):
        list_actions(Box(0, 1, (1,)), "x")
    with pytest.raises(ModelError, match="actions, at most"):
        list_actions(MultiDiscrete([100, 100]), "x")


def test_observations_that_are_no_states_are_errors():
    with pytest.raises(DataError, match="not hashable"):
        agent_of(corridor(shown=lambda s: {1, 2}, space=Text(1))).learn(3)
    with pytest.raises(DataError, match="outside the space"):
        agent_of(corridor(space=Discrete(2))).learn(50)
    mapped = agent_of(corridor(shown=lambda s: {1, 2, s}, space=Text(1)), observation_to_state=len).learn(3)
    assert mapped.certificate.states >= 1


# ---------------------------------------------------------------------- facts
def test_a_reward_outside_its_range_refutes_it_and_no_certificate_is_left():
    agent = agent_of(corridor(pay=3.0), returns=None, rewards=(0, 1))
    agent.session.certificate = (
        agent_of(corridor(), returns=None, rewards=(0, 1)).learn(3).certificate
    )  # an earlier one
    with pytest.raises(DataError, match=r"reward 3 refutes rewards=\(0, 1\)"):
        agent.learn(50)
    assert agent.certificate is None
    with pytest.raises(DataError, match="no certificate"):
        agent.certify()


def test_a_refuted_assumption_takes_the_certificate_off_the_disk(tmp_path):
    agent = agent_of(corridor(), returns=None, rewards=(0, 1), tensorboard_log=tmp_path)
    agent.learn(20)
    path = agent.run_folder / "certificate.json"
    assert path.is_file()
    agent.session.experience.refuted = "a step that contradicts what is assumed"
    with pytest.raises(DataError, match="no certificate"):
        agent.learn(20, reset_num_timesteps=False)
    assert not path.exists()


def test_bounds_that_contradict_each_other_refute_what_is_assumed(tmp_path):
    """The certificate of an earlier moment stayed beside the run, and the run could be continued."""
    agent = agent_of(corridor(), tensorboard_log=tmp_path).learn(40)
    files = [agent.run_folder / name for name in ("certificate.json", "proof.json.gz")]
    assert all(path.is_file() for path in files)
    agent.session.lowest = agent.certificate.lower - 0.01
    with pytest.raises(DataError, match=r"a policy returns at least .* Markov state"):
        agent.learn(40)
    assert agent.certificate is None and not any(path.exists() for path in files)
    steps = agent.num_timesteps
    for one in (agent, RPLAgent.load(agent.run_folder / "checkpoint.zip", corridor())):
        with pytest.raises(DataError, match=r"what was assumed is refuted .*start a new run"):
            one.learn(40)
        assert one.num_timesteps == steps


def test_a_return_outside_its_range_refutes_it():
    with pytest.raises(DataError, match=r"reward 3 in state 2 refutes its range of returns \[0, 1\]"):
        agent_of(corridor(pay=3.0)).learn(50)
    with pytest.raises(DataError, match=r"a return of .* refutes the range of returns \[-3, 0\]"):
        agent_of(gym.wrappers.TimeLimit(Costly(length=9), 30), returns=(-3, 0)).learn(50)


def test_a_range_of_one_state_is_refuted_by_a_step_from_it():
    def returns(state):
        return (0, 0.5) if state == 2 else (0, 1)

    with pytest.raises(DataError, match=r"reward 1 in state 2 refutes its range of returns \[0, 0.5\]"):
        agent_of(corridor(), returns=returns).learn(50)


def test_without_chance_only_best_rows_are_explored():
    """An old bound of another row may equal the best one; no such row is tried again."""
    walk = gym.wrappers.TimeLimit(gym.make("CliffWalking-v1").unwrapped, 60)
    agent = agent_of(walk, returns=(-2000, 0), deterministic=True).learn(60)
    seen, discount = agent.session.experience, agent.session.assumptions.discount
    for state in range(len(seen.data.states)):
        bounds = []
        for row in range(4 * state, 4 * state + 4):
            entry = seen.data.rows.index(row) if row in seen.data.rows else None
            after = END if entry is None else seen.data.successors[entry]
            rest = 0.0 if after == END else discount * seen.upper.values[0][after]
            bounds.append(0.0 if entry is None else seen.data.rewards[entry] + rest)
        assert all(bounds[action] >= max(bounds) - 0.01 for action in seen._best(0, state))


def test_deterministic_worlds_need_each_row_once():
    agent = agent_of(corridor(slip=0.0, length=5), deterministic=True).learn(60)
    assert agent.certificate.upper < 0.9  # the start is a row of its own, and may be random
    assert agent.session.experience.upper.values[0][0] == pytest.approx(0.9**4, abs=1e-6)
    assert "every action has one outcome" in str(agent.certificate)
    with pytest.raises(DataError, match="refutes deterministic=True"):
        agent_of(corridor(), deterministic=True).learn(50)


def test_successors_that_are_missing_are_refuted():
    def near(state, action):
        return [max(state - 1, 0), state + 1 if state < 2 else None]

    assert agent_of(corridor(), rewards=(0, 1), successors=near).learn(40).certificate.states == 3
    with pytest.raises(DataError, match=r"follows action \d in state \d, which refutes successors"):
        agent_of(corridor(), rewards=(0, 1), successors=lambda state, action: [state + 1]).learn(40)
    with pytest.raises(ModelError, match="needs rewards"):
        agent_of(corridor(), successors=near)


class Costly(Corridor):
    """Every step costs 1."""

    def step(self, action):
        observation, _, over, cut, info = super().step(action)
        return observation, -1.0, over, cut, info


@pytest.mark.parametrize("discount", [0.9, None])
def test_known_successors_bound_rows_that_were_never_tried(discount):
    """Behind the states that were visited, one more step is known to be needed, whatever was tried."""

    def near(state, action):
        return [max(state - 1, 0), state + 1 if state < 9 else None]

    env = gym.wrappers.TimeLimit(Costly(length=10), 12)
    given = {"returns": None, "rewards": (-1.5, -1), "discount": discount}
    blind = agent_of(env, **given).learn(2).session.experience
    told = agent_of(env, **given, successors=near).learn(2).session.experience
    needed = len(told.data.states) + 1
    cheapest = -sum((discount or 1.0) ** k for k in range(needed))
    assert 3 < needed < 10 and told.upper.values[-1][told.data.find(0)] == pytest.approx(cheapest, abs=1e-3)
    assert blind.upper.values[-1][blind.data.find(0)] > cheapest + 1.0
    with pytest.raises(DataError, match="the end follows action"):
        agent_of(env, **given, successors=lambda s, a: range(12)).learn(200)


def test_returns_per_state_narrow_the_bounds():
    wide = agent_of(corridor(), returns=(-50, 50)).learn(200).certificate
    near = agent_of(corridor(), returns=lambda s: (0, 1)).learn(200).certificate
    assert near.gap < wide.gap / 10


def test_options_with_and_without_a_model_do_not_mix():
    with pytest.raises(ModelError, match="schedule needs a model"):
        agent_of(corridor(), schedule=Never())
    with pytest.raises(ModelError, match=r"discount is for environments without a model.*write the objective"):
        RPLAgent("rpl/Betting-25-v0", discount=0.9)
    with pytest.raises(ModelError, match="subject_to needs a model"):
        agent_of(corridor(), subject_to=["probability of fallen <= 0.05"])
    with pytest.raises(ModelError, match="has no model"):
        agent_of(corridor()).value_bounds()
    with pytest.raises(ModelError, match="finite numbers with low < high"):
        agent_of(corridor(), returns=(1, 0))


@pytest.mark.parametrize(
    "setting",
    [
        {"exploration": "regret"},
        {"weight": 0.5},
        {"confidence": "anytime"},
        {"relaxation": "tied"},
        {"precision": 0.1},
        {"prefer": "regret"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_without_an_effect_are_refused(setting):
    name = next(iter(setting))
    given = {"config": Config(**setting)} if name == "prefer" else setting
    with pytest.raises(ModelError, match=f"^{name} needs a model, but returns or rewards are given"):
        RPLAgent(corridor(), returns=(0, 1), discount=0.9, **given)
    assert RPLAgent(corridor(), returns=(0, 1), discount=0.9, config=Config(delta=0.2)).config.delta == 0.2


@pytest.mark.parametrize("seeds", [1, 3])
def test_an_environment_that_repeats_its_chance_is_refused(seeds):
    class Seeded(Corridor):
        resets = 0

        def reset(self, *, seed=None, options=None):
            self.resets += 1
            return super().reset(seed=7 + self.resets % seeds)

    agent = agent_of(gym.wrappers.TimeLimit(Seeded(), 20))
    with pytest.raises(RepeatedChanceError, match="seeds itself in reset"):
        agent.learn(20)
    with pytest.raises(DataError, match="no certificate: what was assumed is refuted"):
        agent.certify()


def test_steps_without_chance_are_not_compared(monkeypatch):
    compared = []
    monkeypatch.setattr(RepetitionWatch, "add_alone", lambda watch, *step: compared.append(step))
    agent_of(corridor(slip=0.0)).learn(700)
    by_chance = len(compared)
    compared.clear()
    agent_of(corridor(slip=0.0), deterministic=True).learn(700)
    assert by_chance > 0 and not compared


def test_chance_that_repeats_itself_later_is_refused_soon():
    """Of the resets after the first ones, only some are looked at."""

    class Seeded(Corridor):
        resets = 0

        def reset(self, *, seed=None, options=None):
            self.resets += 1
            return super().reset(seed=None if self.resets < 300 else self.resets % 3)

    env = Seeded(length=1)
    with pytest.raises(RepeatedChanceError, match="seeds itself in reset"):
        agent_of(gym.wrappers.TimeLimit(env, 20)).learn(600)
    assert 300 < env.resets <= 300 + 5 * 16


def test_a_run_ends_once_the_regret_is_small():
    agent = agent_of(corridor()).learn(4_000, stop_when_regret=0.5, log_interval=50)
    assert agent.num_episodes < 4_000 and agent.certificate.regret <= 0.5


def test_the_regret_is_rounded_up():
    found = OpenCertificate(0.2, 0.9, 0.1, "queue", "R max", ())
    assert Fraction(found.regret) >= Fraction(0.9) - Fraction(0.2) > Fraction(0.9 - 0.2)


def test_episodes_of_a_vector_stand_in_the_order_of_their_starts():
    lengths = iter([4, 2, 1])

    class Timed(Corridor):
        """The k-th episode to start ends after the k-th length, which it returns in tenths."""

        def reset(self, *, seed=None, options=None):
            self.left = self.long = next(lengths, 1)
            return super().reset(seed=seed)

        def step(self, action):
            self.left -= 1
            return 0, float(self.left == 0) * self.long / 10, self.left == 0, False, {}

    copies = SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Timed(), 20) for _ in range(2)])
    agent, done = agent_of(copies), SampledBatch()
    agent.session.experience.update_at = NEVER
    stream = agent.session.open_stream(agent.world)
    stream.collect(Request(None, Limits(), 3, 3, NEVER, lambda: False), done)
    assert done.returns == [0.4, 0.2, 0.1]  # the second was the first to end


def test_copies_and_episodes_that_repeat_each_other_are_refused():
    class Own(Corridor):
        """A generator of its own, which reset does not seed."""

        def __init__(self, reseeds):
            super().__init__(slip=0.4)
            self.reseeds, self.rng = reseeds, np.random.default_rng(1)

        def reset(self, *, seed=None, options=None):
            self.at = 0
            self.rng = np.random.default_rng(1) if self.reseeds else self.rng
            return 0, {}

        def step(self, action):
            ahead = self.right(action) != (self.rng.random() < self.slip)
            self.at = min(self.at + 1, self.length) if ahead else max(self.at - 1, 0)
            return self.at, float(self.at == self.length), self.at == self.length, False, {}

    copies = SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Own(False), 20) for _ in range(2)])
    with pytest.raises(DataError, match="copies of the environment repeat the same chance"):
        agent_of(copies).learn(400)
    with pytest.raises(DataError, match="episodes of the environment repeat the same chance"):
        agent_of(gym.wrappers.TimeLimit(Own(True), 20)).learn(400)
    agent_of(gym.wrappers.TimeLimit(Own(False), 20)).learn(400)
    fair = SyncVectorEnv([corridor for _ in range(2)])
    agent_of(fair).learn(400)


def test_with_a_horizon_little_may_be_left_to_earn():
    """Every whole episode returns −6, but the last step of one returns −1."""
    env = gym.wrappers.TimeLimit(Costly(length=99), 6)
    agent = agent_of(env, returns=(-6.5, -5.5), discount=None).learn(300)
    assert agent.certificate.lower <= -6.0 <= agent.certificate.upper
    assert (agent.session.experience.upper.values[0] >= -1.0).all()


# ---------------------------------------------------------------------- files, logs, callbacks
def test_a_saved_agent_goes_on_with_everything_it_knew(tmp_path):
    agent = agent_of(corridor()).learn(200)
    agent.save(tmp_path / "agent.zip")
    with pytest.raises(ModelError, match="pass it"):
        RPLAgent.load(tmp_path / "agent.zip")
    again = RPLAgent.load(tmp_path / "agent.zip", corridor())
    assert again.certificate == agent.certificate and again.predict(0)[0] == agent.predict(0)[0]
    assert again.certify() == agent.certify()
    with pytest.warns(RPLWarning, match="fresh seed"):
        again.learn(200)
    assert again.num_episodes == 400 and again.certificate.gap <= agent.certificate.gap


def test_functions_are_given_again_when_loading(tmp_path):
    agent = agent_of(corridor(), returns=lambda s: (0, 1)).learn(20)
    agent.save(tmp_path / "agent.zip")
    with pytest.raises(ModelError, match="returns as a function"):
        RPLAgent.load(tmp_path / "agent.zip", corridor())
    again = RPLAgent.load(tmp_path / "agent.zip", corridor(), facts={"returns": lambda s: (0, 1)})
    assert again.certificate == agent.certificate


def test_certificates_are_json(tmp_path):
    found = agent_of(corridor()).learn(30).certificate
    text = found.to_json(tmp_path / "certificate.json")
    again = OpenCertificate.from_json(tmp_path / "certificate.json")
    assert (again.lower, again.upper, again.sentence) == (found.lower, found.upper, found.sentence)
    assert json.loads(text)["assumptions"] == found.assumptions
    with pytest.raises(DataError, match="not a certificate without a model"):
        OpenCertificate.from_json('{"format": "other"}')


def test_runs_have_folders_logs_and_callbacks(tmp_path, capsys):
    updates = []

    class Count(BaseCallback):
        def _on_update(self):
            updates.append(self.agent.num_episodes)

    agent = agent_of(corridor(), tensorboard_log=tmp_path, verbose=1)
    agent.learn(5_000, stop_when_gap=0.4, callback=Count())
    assert agent.num_episodes < 5_000 and agent.certificate.gap <= 0.4 and updates
    header = (agent.run_folder / "progress.csv").read_text().partition("\n")[0]
    assert "discovered/states" in header and "guarantee/upper" in header and "discovered/rows_unbounded" in header
    assert (agent.run_folder / "certificate.json").is_file() and (agent.run_folder / "proof.json.gz").is_file()
    assert agent.certificate.proved
    assert "episodes 1/5,000" in capsys.readouterr().out


def test_counters_that_are_reset_do_not_stop_policies_from_improving():
    agent = agent_of(corridor(length=6)).learn(70)
    before = agent.session.mark
    agent.learn(budget=before + 10, reset_num_timesteps=True)
    assert agent.num_episodes == before + 10 and agent.session.mark > before


def test_the_same_seed_gives_the_same_run():
    first, second = (agent_of(corridor(), seed=5).learn(100).certificate for _ in range(2))
    assert first == second


def test_the_policy_is_evaluated_with_the_range_of_returns():
    agent = agent_of(corridor(limit=60)).learn(300)
    found = agent.evaluate(corridor(limit=60), 200)
    assert found.lower <= best_value(3, 0.2, 0.9) <= found.upper


def test_playing_on_in_one_environment_is_the_same_run(monkeypatch):
    """The short way of single environments counts what the general one does."""
    fast = agent_of(corridor()).learn(400)
    monkeypatch.setattr(OpenSource, "_step", EnvSource._step)
    slow = agent_of(corridor()).learn(400)
    assert fast.certificate == slow.certificate and fast.num_timesteps == slow.num_timesteps
    data = [agent.session.experience.data for agent in (fast, slow)]
    assert data[0].counts == data[1].counts and data[0].visits == data[1].visits


def test_whole_numbers_are_observations_before_they_are_states():
    """Observations 2 and 3 are state 1, though there are states 2 and 3: playing on must not take them for these."""
    env = corridor(length=7, starts=(0, 2, 4, 6))
    data = agent_of(env, observation_to_state=lambda place: place // 2).learn(60).session.experience.data
    assert sorted(data.states) == [0, 1, 2, 3]
    for row, after in zip(data.rows, data.successors):
        assert after < 0 or abs(data.states[after] - data.states[row // 2]) <= 1  # places are neighbours


def test_a_second_outcome_after_loading_refutes_deterministic(tmp_path):
    agent = agent_of(corridor(slip=0.0), deterministic=True).learn(30)
    agent.save(tmp_path / "a")
    again = RPLAgent.load(tmp_path / "a", corridor(slip=1.0))
    with pytest.raises(DataError, match="refutes deterministic=True"):
        again.learn(5)


def test_continuous_observations_are_said():
    with pytest.warns(RPLWarning, match="observations of CartPole-v1 are declared continuous"):
        RPLAgent(gym.make("CartPole-v1"), returns=(0, 500))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RPLAgent(gym.make("CartPole-v1"), returns=(0, 500), observation_to_state=lambda seen: int(seen[0] > 0))
