"""The agent's behaviour: certificates that hold, exact budgets, modes, callbacks, errors that keep what was learned."""

from __future__ import annotations

import csv
import itertools
import math
import subprocess
import sys
import warnings
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent.agent import (
    BaseCallback,
    CertificateLog,
    Doubling,
    EvalCallback,
    EveryN,
    Limits,
    OracleCallback,
    RPLAgent,
    StopOnGap,
)
from rpl_agent.agent.evaluation import monte_carlo, optimal_value
from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from rpl_agent.core.model import Objective, StateIndex
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.shown import true_value
from tests.agent.test_agent_sampling import PATHS, Teleport
from tests.agent_worlds import TRUE_P, CorridorEnv, FastCorridorEnv, corridor, corridor_law

pytestmark = pytest.mark.short_runs

THETA = np.array([TRUE_P])


def test_the_snippet_of_the_issue(tmp_path, capsys):
    import rpl_envs  # noqa: F401

    env = gym.make("rpl/Aircraft-20x10-v0")
    agent = RPLAgent(confidence="likelihood", relaxation="rectangular", delta=1e-3, tensorboard_log=tmp_path, seed=0)
    agent.learn(env, budget=60, progress_bar=True)
    assert 0.0 <= agent.certificate.lower <= 0.288353 <= agent.certificate.upper <= 1.0
    assert agent.certificate.anytime and agent.num_episodes == 60
    obs, _ = env.reset(seed=0)
    action, _ = agent.predict(obs)
    assert env.action_space.contains(int(action))
    assert "with probability ≥ 0.999" in str(agent.certificate)
    assert "lower" in capsys.readouterr().out  # plain lines: there is no terminal here


@pytest.mark.parametrize("path", PATHS)
def test_the_certificate_holds_on_every_path(path):
    pmdp, objective = corridor()
    agent = RPLAgent(seed=1).learn(PATHS[path](), budget=150, log_interval=150)
    certificate = agent.certificate
    assert agent.num_episodes == 150 and certificate.samples == agent.num_timesteps == agent.counts.total
    assert certificate.lower <= true_value(pmdp, objective, certificate.policy, THETA) + 1e-9
    assert optimal_value(pmdp, objective, THETA) <= certificate.upper + 1e-9
    assert certificate.gap < 0.5


@pytest.mark.parametrize("path", PATHS)
def test_budgets_in_steps_are_exact(path):
    agent = RPLAgent(seed=1).learn(PATHS[path](), budget=77, unit="steps")
    assert agent.num_timesteps == agent.counts.total == 77
    agent.learn(budget=23, unit="steps")
    assert agent.num_timesteps == agent.counts.total == 100


def test_learning_again_continues():
    env = FastCorridorEnv()
    agent = RPLAgent(seed=1).learn(env, budget=40)
    first = agent.certificate
    agent.learn(budget=60)
    assert agent.num_episodes == 100 and agent.certificate.samples > first.samples
    agent.learn(budget=5, reset_num_timesteps=True)
    assert agent.num_episodes == 5 and agent.certificate.samples > agent.num_timesteps  # knowledge stays


def test_cost_objectives_and_other_models_of_an_environment():
    pmdp, _ = corridor()
    objective = Objective.cost("time", target="done")
    pmdp = replace(pmdp, labels={**pmdp.labels, "done": pmdp.labels["goal"] | pmdp.labels["lost"]})
    # this environment pays 1 at the goal and shows numbers of states: both have to be said
    settings = {"observation_to_state": StateIndex, "check_rewards": False}
    agent = RPLAgent(seed=0, pmdp=pmdp, objective=objective, **settings).learn(
        CorridorEnv(own_model=False), budget=100, log_interval=99
    )
    assert agent.certificate.lower <= optimal_value(pmdp, objective, THETA) <= agent.certificate.upper
    assert true_value(pmdp, objective, agent.certificate.policy, THETA) <= agent.certificate.upper + 1e-9


# ---------------------------------------------------------------------- schedules
def test_pooled_doubling_updates_far_less_often():
    by_pair = RPLAgent(seed=0, schedule=Doubling()).learn(FastCorridorEnv(), budget=200, log_interval=1000)
    pooled = RPLAgent(seed=0, schedule=Doubling(of="expression")).learn(
        FastCorridorEnv(), budget=200, log_interval=1000
    )
    assert 5 < pooled.num_updates < by_pair.num_updates


def test_own_schedules_and_every_n():
    class Squares:
        def limits(self, progress):
            return Limits(episodes=(progress.updates + 1) ** 2)

    assert RPLAgent(seed=0, schedule=Squares()).learn(FastCorridorEnv(), budget=100, log_interval=100).num_updates == 9
    assert (
        RPLAgent(seed=0, schedule=EveryN(10)).learn(FastCorridorEnv(), budget=100, log_interval=100).num_updates == 10
    )


def test_updates_happen_at_episode_boundaries_and_follow_the_doubling_rule(all_looks):
    class Watch(BaseCallback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def _on_update(self):
            self.seen.append(self.agent.session.experience.rows.copy())

    watch = Watch()
    RPLAgent(seed=0, compiled=False).learn(CorridorEnv(), budget=60, callback=watch)
    pmdp, objective = corridor()
    unknown = ~objective.resolve(pmdp).decided[pmdp.row_state]
    assert len(watch.seen) > 5
    for before, after in itertools.pairwise(watch.seen):
        assert (after >= np.maximum(2 * before, 1))[unknown].any()


# ---------------------------------------------------------------------- the guarantee's conditions
@pytest.mark.parametrize("confidence", ["clopper-pearson", "hoeffding"])
def test_stopping_on_the_gap_is_refused_for_fixed_n(confidence):
    agent = RPLAgent(confidence=confidence, seed=0)
    with pytest.raises(ModelError, match=r"stop_when_gap is not allowed with .*fixed in advance"):
        agent.learn(FastCorridorEnv(), budget=100, stop_when_gap=0.1)
    with pytest.raises(ModelError, match="not allowed"):
        agent.learn(FastCorridorEnv(), budget=100, callback=StopOnGap(0.1))
    assert agent.num_episodes == 0


def test_stop_when_gap_ends_early():
    agent = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=100_000, stop_when_gap=0.3)
    assert agent.certificate.gap <= 0.3 and agent.num_episodes < 20_000


def test_the_agent_never_reads_the_truth():
    """The corridor raises when P, theta or an info entry is touched; a poisoned subclass also hides its attributes."""

    class Poisoned(CorridorEnv):
        def __getattribute__(self, name):
            if name in ("P", "theta", "prob", "true_theta"):
                raise AssertionError(f"the agent read {name!r}")
            return super().__getattribute__(name)

    agent = RPLAgent(seed=0).learn(Poisoned(), budget=50)
    assert agent.num_episodes == 50
    with pytest.raises(AssertionError):
        Poisoned().P  # noqa: B018


def test_a_refuted_model_is_said_once_and_in_the_certificate():
    class Drifting(CorridorEnv):
        """Every cell has a parameter of its own: no single p explains it."""

        def step(self, action):
            self._mdp, self._cumulated = corridor_law(0.9 if self.state % 2 else 0.2)
            return super().step(action)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent = RPLAgent(seed=0).learn(Drifting(), budget=300, log_interval=100)
    said = [str(w.message) for w in caught if issubclass(w.category, RPLWarning) and "refuted" in str(w.message)]
    assert len(said) == 1
    assert agent.certificate.refuted and "untied" in agent.certificate.fallback
    assert agent.num_episodes == 300


# ---------------------------------------------------------------------- errors keep what was learned
def test_contradictions_are_saved_before_they_are_raised(tmp_path):
    agent = RPLAgent(seed=0, tensorboard_log=tmp_path)
    with pytest.raises(DataError, match=r"episode \d+, step \d+"):
        agent.learn(Teleport(CorridorEnv(), after=150, state=5), budget=10_000)
    assert agent.counts.total == agent.num_timesteps == 149
    again = RPLAgent.load(tmp_path / "RPL_1" / "checkpoint.zip", CorridorEnv())
    assert np.array_equal(again.counts.transitions, agent.counts.transitions)
    assert again.certify().lower >= 0.0


def test_environment_errors_are_passed_on_and_the_data_saved(tmp_path):
    class Breaks(CorridorEnv):
        calls = 0

        def step(self, action):
            self.calls += 1
            if self.calls > 90:
                raise OSError("the robot is out of power")
            return super().step(action)

    agent = RPLAgent(seed=0, tensorboard_log=tmp_path)
    with pytest.raises(OSError, match="out of power"):
        agent.learn(Breaks(), budget=10_000)
    assert RPLAgent.load(tmp_path / "RPL_1" / "checkpoint.zip", CorridorEnv()).num_timesteps == 90


def test_no_environment_and_other_models_are_refused():
    with pytest.raises(ModelError, match="no environment yet"):
        RPLAgent().learn(budget=10)
    agent = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=5)
    with pytest.raises(ModelError, match="not the one learned so far"):
        agent.learn(CorridorEnv(length=7), budget=5)


@pytest.mark.parametrize("arguments", [{"weight": 1.5}, {"confidence": "no"}, {"relaxation": "no"}, {"delta": 0.0}])
def test_senseless_settings_are_refused(arguments):
    with pytest.raises((ModelError, DataError)):
        RPLAgent(**arguments)


# ---------------------------------------------------------------------- surface
def test_predict_modes_shapes_and_states():
    agent = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=50, log_interval=50)
    assert agent.mode == "robust"
    action, _ = agent.predict(1)
    assert np.ndim(action) == 0
    actions, _ = agent.predict(np.array([0, 1, 2]), state=None, episode_start=np.ones(3, bool))
    assert actions.shape == (3,) and actions[1] == agent.predict(1)[0]
    agent.mode = "optimistic"
    drawn = [int(agent.predict(1)[0]) for _ in range(200)]
    fixed = int(agent.predict(1, deterministic=True)[0])
    assert 0.7 < np.mean(np.array(drawn) == fixed) < 1.0  # 0.9 on the optimistic action
    with pytest.raises(ModelError, match="mode"):
        agent.mode = "reckless"
    with pytest.raises(ModelError, match="not a state"):
        agent.predict(99)


def test_predicting_does_not_change_what_is_learned():
    plain = RPLAgent(seed=0, compiled=False).learn(CorridorEnv(), budget=20, log_interval=99)
    plain.learn(budget=30)
    asked = RPLAgent(seed=0, compiled=False).learn(CorridorEnv(), budget=20, log_interval=99)
    asked.mode = "optimistic"
    for _ in range(50):
        asked.predict(1)
    asked.learn(budget=30)
    assert np.array_equal(plain.counts.transitions, asked.counts.transitions)


def test_sb3_evaluate_policy_and_sb3_callbacks():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.callbacks import BaseCallback as SB3Callback
    from stable_baselines3.common.evaluation import evaluate_policy

    class Stop(SB3Callback):
        def _on_step(self):
            return self.num_timesteps < 500

    agent = RPLAgent(seed=0).learn(CorridorEnv(), budget=10_000, callback=Stop())
    assert 500 <= agent.num_timesteps < 2_000
    env = CorridorEnv()
    env.reset(seed=1)
    mean, deviation = evaluate_policy(agent, env, n_eval_episodes=200, warn=False)
    exact = true_value(*corridor(), agent.certificate.policy, THETA)
    assert abs(mean - exact) < 0.12 and deviation > 0


def test_callbacks_see_everything_and_can_stop(tmp_path):
    log, calls = CertificateLog(), []
    evaluation = EvalCallback(FastCorridorEnv(), n_eval_episodes=50)
    agent = RPLAgent(seed=0, tensorboard_log=tmp_path)
    agent.learn(
        FastCorridorEnv(), budget=80, log_interval=20,
        callback=[log, evaluation, OracleCallback(THETA), lambda local, _: calls.append(local["self"].num_episodes)],
    )  # fmt: skip
    assert [row["episodes"] for row in log.history] == list(range(20, 81, 20))
    assert [n for n, _ in evaluation.history] == list(range(20, 81, 20))
    assert calls and calls == sorted(calls)
    stopped = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=10_000, callback=lambda a, b: False)
    assert stopped.num_episodes < 100 and stopped.certificate is not None
    with pytest.raises(ModelError, match="neither a callback"):
        RPLAgent(seed=0).learn(FastCorridorEnv(), budget=10, callback=3)


def test_exact_and_monte_carlo_values_agree(sized):
    agent = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=60, log_interval=60)
    sampled = monte_carlo(agent, FastCorridorEnv(), 20_000, seed=1)
    stepped = monte_carlo(agent, CorridorEnv(), sized(150, 400), seed=1)
    exact = true_value(*corridor(), agent.certificate.policy, THETA)
    assert abs(sampled.mean - exact) < 5 * sampled.standard_error
    assert abs(stepped.mean - exact) < 5 * stepped.standard_error


# ---------------------------------------------------------------------- logs
def test_tensorboard_csv_and_certificate(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    agent = RPLAgent(seed=0, tensorboard_log=tmp_path).learn(
        FastCorridorEnv(), budget=150, callback=OracleCallback(THETA), tb_log_name="run"
    )
    folder = tmp_path / "run_1"
    assert agent.run_folder == folder
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    tags = set(events.Tags()["scalars"])
    wanted = {f"guarantee/{k}" for k in ("lower", "upper", "gap", "estimate")} | {"oracle/value", "oracle/optimum"}
    wanted |= {f"time/{k}" for k in ("sampling", "intervals", "region", "relaxation", "solve", "logging")}
    wanted |= {"rollout/ep_rew_mean", "rollout/ep_len_mean", "samples/transitions", "samples/updates"}
    wanted |= {"region/width_mean", "region/width_max", "region/log_e_value", "region/empty", "region/box_log10_volume"}
    assert wanted <= tags
    last = events.Scalars("guarantee/lower")[-1]
    assert last.step == 150 and abs(last.value - agent.certificate.lower) < 1e-6
    stored = Certificate.from_json(folder / "certificate.json")
    own = agent.certificate
    assert stored.proved and own.proved and (stored.lower, stored.upper) == (own.lower, own.upper)  # one number
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["episodes"]) == 150 and float(rows[-1]["guarantee/lower"]) == agent.certificate.lower
    from tensorboard.plugins.custom_scalar import layout_pb2

    tensor = events.Tensors("custom_scalars__config__")[0].tensor_proto
    layout = layout_pb2.Layout.FromString(tensor.string_val[0])
    margins = [chart.margin.series[0] for chart in layout.category[0].chart]
    assert [m.value for m in margins] == ["oracle/optimum", "guarantee/estimate"]  # V* is known here
    assert all((m.lower, m.upper) == ("guarantee/lower", "guarantee/upper") for m in margins)


def test_looking_more_often_does_not_change_what_is_sampled():
    rare = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=50, log_interval=1000)
    often = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=50, log_interval=7)
    assert np.array_equal(rare.counts.transitions, often.counts.transitions)


def test_importing_loads_neither_torch_nor_matplotlib():
    heavy = ("torch", "matplotlib", "stable_baselines3", "tensorboard")
    code = f"import sys, rpl_agent.agent; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_settings_survive_a_file(tmp_path):
    agent = RPLAgent(
        confidence="anytime",
        relaxation="expression",
        delta=0.01,
        seed=4,
        schedule=EveryN(9),
        weight=0.7,
        precision=1e-5,
    )
    agent.learn(FastCorridorEnv(), budget=20)
    agent.save(tmp_path / "a.zip")
    again = RPLAgent.load(tmp_path / "a.zip", FastCorridorEnv())
    assert again.config == agent.config and again.schedule == EveryN(9) and again.weight == 0.7 and again.seed == 4
    without_env = RPLAgent.load(tmp_path / "a.zip", pmdp=corridor()[0])
    assert without_env.predict(1)[0] == agent.predict(1)[0]
    assert RPLAgent.load(tmp_path / "a.zip").predict(1)[0] == agent.predict(1)[0]  # the model is in the file
    with pytest.raises(ModelError, match="is not the one learned so far"):
        RPLAgent.load(tmp_path / "a.zip", CorridorEnv(length=6))


# ---------------------------------------------------------------------- worlds that others wrote
def test_frozen_lake_as_gymnasium_wrote_it():
    from rpl_envs.toy_text import frozen_lake

    env = frozen_lake(desc=["SFF", "FHF", "FFG"], success_rate=0.7)
    agent = RPLAgent(seed=0, schedule=EveryN(50)).learn(env, budget=100, log_interval=100)
    assert agent.num_episodes == 100 and not agent.certificate.refuted
    assert (
        agent.certificate.lower == agent.certificate.upper == 1.0
    )  # who pushes against the border never slips inwards
    value = monte_carlo(agent, frozen_lake(desc=["SFF", "FHF", "FFG"], success_rate=0.7), 100, seed=1)
    assert value.mean >= agent.certificate.lower - 4 * value.standard_error


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_lanes_of_our_own_worlds(mode):
    import rpl_envs  # noqa: F401

    env = gym.make_vec("rpl/Betting-25-v0", num_envs=8, autoreset_mode=mode)
    agent = RPLAgent(seed=0, schedule=EveryN(40)).learn(env, budget=100, log_interval=100)
    assert agent.num_episodes == 100 and agent.num_timesteps == agent.counts.total
    assert set(agent.session.lengths) <= set(range(20, 28))
    assert agent.certificate.lower <= 19.0429 <= agent.certificate.upper


@pytest.mark.parametrize("regret", [0.5, "2%"])
def test_stop_when_regret_ends_early(regret):
    agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=20_000, stop_when_regret=regret)
    found = agent.certificate
    assert found.regret <= (0.5 if regret == 0.5 else 0.02 * found.lower) and agent.num_episodes < 20_000
    assert found.gap > 5 * found.regret


@pytest.mark.parametrize("regret", [0.0, -1, "nothing", "0%", math.nan])
def test_a_regret_to_stop_at_is_a_positive_number_or_a_share(regret):
    with pytest.raises(ModelError, match="must be a positive number, or a share of the value like '1%'"):
        RPLAgent(seed=0).learn(FastCorridorEnv(), budget=100, stop_when_regret=regret)
