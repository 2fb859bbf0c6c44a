"""Stopping and going on: a simulated run bit for bit, after a save, an interrupt, or kill -9 of a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rpl_agent.agent import BaseCallback, CheckpointCallback, Doubling, Never, RPLAgent
from rpl_agent.agent.storage.checkpoint import previous_path
from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from tests.agent_worlds import CorridorEnv, FastCorridorEnv
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs


def fingerprint(agent):
    """Everything that must be equal, to the last bit."""
    certificate = agent.certificate
    return (
        agent.num_episodes, agent.num_timesteps, agent.num_updates, agent.counts.transitions.tolist(),
        [m.total for m in agent.counts.marks], certificate.lower, certificate.upper,
        certificate.policy.rows.tolist(), list(agent.session.returns), agent.session.rng.bit_generator.state,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", [Doubling(), Doubling(of="expression", spacing=0.05)])
@pytest.mark.parametrize("stop_at", [3, pytest.param(61, marks=pytest.mark.nightly)])
def test_resuming_from_a_checkpoint_is_bit_exact(tmp_path, schedule, stop_at):
    path = tmp_path / "c.zip"
    whole = RPLAgent(seed=7, schedule=schedule).learn(FastCorridorEnv(), budget=100, log_interval=40)

    def stop(local, _):
        agent = local["self"]
        if agent.num_episodes >= stop_at:
            agent.save(path)
            return False

    RPLAgent(seed=7, schedule=schedule).learn(FastCorridorEnv(), budget=100, log_interval=40, callback=stop)
    resumed = RPLAgent.load(path, FastCorridorEnv()).resume()
    assert fingerprint(resumed) == fingerprint(whole)


def test_a_run_can_be_resumed_from_its_first_moment(tmp_path):
    path = tmp_path / "c.zip"

    class Dies(BaseCallback):
        def _on_rollout_start(self):
            raise SystemExit  # before the first step

    callbacks = [CheckpointCallback(save_path=path), Dies()]
    with pytest.raises(SystemExit):
        RPLAgent(seed=5).learn(FastCorridorEnv(), budget=30, log_interval=30, callback=callbacks)
    whole = RPLAgent(seed=5).learn(FastCorridorEnv(), budget=30, log_interval=30)
    assert fingerprint(RPLAgent.load(path, FastCorridorEnv()).resume()) == fingerprint(whole)


def test_saving_often_changes_nothing(tmp_path):
    plain = RPLAgent(seed=2).learn(CorridorEnv(), budget=25, log_interval=25)
    saving = CheckpointCallback(1, tmp_path / "c.zip")
    saved = RPLAgent(seed=2).learn(CorridorEnv(), budget=25, log_interval=25, callback=saving)
    assert fingerprint(plain) == fingerprint(saved)


def test_registered_worlds_resume_without_being_given_an_environment(tmp_path, monkeypatch):
    import gymnasium as gym

    import rpl_envs  # noqa: F401

    make_worlds_small(monkeypatch)
    path = tmp_path / "c.zip"
    whole = RPLAgent(seed=1, schedule=Doubling(of="expression")).learn(
        gym.make("rpl/Betting-25-v0"), budget=40, log_interval=40
    )

    def stop(local, _):
        if local["self"].num_episodes >= 15:
            local["self"].save(path)
            return False

    RPLAgent(seed=1, schedule=Doubling(of="expression")).learn(
        gym.make("rpl/Betting-25-v0"), budget=40, log_interval=40, callback=stop
    )
    assert fingerprint(RPLAgent.load(path).resume()) == fingerprint(whole)


def test_new_sources_never_replay_old_random_numbers():
    agent = RPLAgent(seed=1, schedule=Never()).learn(FastCorridorEnv(), budget=50)
    before = agent.counts.transitions.copy()
    agent.set_env(FastCorridorEnv())
    agent.learn(budget=50)
    first = RPLAgent(seed=1, schedule=Never()).learn(FastCorridorEnv(), budget=50).counts.transitions
    assert np.array_equal(before, first)
    assert not np.array_equal(agent.counts.transitions - before, before)


# ---------------------------------------------------------------------- files that are wrong
def test_damaged_checkpoints_fall_back_to_the_previous_one(tmp_path):
    path = tmp_path / "c.zip"
    agent = RPLAgent(seed=0).learn(FastCorridorEnv(), budget=20)
    agent.save(path)
    agent.learn(budget=20)
    agent.save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.warns(RPLWarning, match="previous"):
        assert RPLAgent.load(path, FastCorridorEnv()).num_episodes == 20
    previous_path(path).write_bytes(b"x")
    with pytest.raises(DataError):
        RPLAgent.load(path, FastCorridorEnv())


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """What a checkpoint contains."""
    path = tmp_path_factory.mktemp("stored") / "c.zip"
    RPLAgent(seed=0).learn(FastCorridorEnv(), budget=20).save(path)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda s, a: s.pop("session"),
        lambda s, a: s.update(config={"confidence": "no"}),
        lambda s, a: s.update(schedule={"kind": "os.system"}),
        lambda s, a: s.update(rng={"bit_generator": "PCG64"}),
        lambda s, a: s["source"].update(simulator=[1, 2]),
        lambda s, a: s["source"].update(opening=None),
        lambda s, a: a.update({"counts.transitions": np.zeros(3, dtype=np.int64)}),
        lambda s, a: a.update({"counts.transitions": -a["counts.transitions"]}),
        lambda s, a: a.update({"session.sampling.weights": a["session.sampling.weights"] * 2}),
        lambda s, a: a.update({"session.limits.rows": np.zeros(2, dtype=np.int64)}),
        lambda s, a: a.update({"solutions.optimistic.lower_values": np.zeros(2)}),
        lambda s, a: s["session"].update(certificate={}),
    ],
)
def test_hostile_contents_give_clear_errors(tmp_path, stored, change):
    from rpl_agent.agent.storage import checkpoint

    state, arrays = checkpoint.read(stored)
    change(state, arrays)
    checkpoint.write(tmp_path / "bad.zip", state, arrays)
    with pytest.raises((DataError, ModelError)):
        RPLAgent.load(tmp_path / "bad.zip", FastCorridorEnv()).learn(budget=1)


def test_a_file_cannot_name_code_to_import(tmp_path):
    from rpl_agent.agent.storage import checkpoint

    path = tmp_path / "c.zip"
    RPLAgent(seed=0).learn(FastCorridorEnv(), budget=5).save(path)
    state, arrays = checkpoint.read(path)
    for identifier in ("antigravity:x", "os:system", {"entry_point": "os:system"}, None):
        state["session"]["env_spec"] = {"id": identifier, "kwargs": {}}
        checkpoint.write(path, state, arrays)
        assert RPLAgent.load(path).env is None  # the model is stored, the environment is not made
    assert "antigravity" not in sys.modules


# ---------------------------------------------------------------------- real processes
PROGRAM = """
import sys, time
from rpl_agent.agent import CheckpointCallback, RPLAgent
from tests.agent_worlds import FastCorridorEnv
path, budget = sys.argv[1], int(sys.argv[2])
def tell(local, _):
    print(local["self"].num_episodes, flush=True)
    time.sleep(0.02)
agent = RPLAgent(seed=11)
agent.learn(FastCorridorEnv(), budget=budget, callback=[CheckpointCallback(10, path), tell], log_interval=50)
agent.save(path)
print("interrupted" if agent.interrupted else "done", agent.certificate.lower, flush=True)
"""


def start(path, budget, **options):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, str(path), str(budget)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment, **options,
    )  # fmt: skip


def wait_for(process, episodes):
    for line in process.stdout:
        if line.split()[0].isdigit() and int(line.split()[0]) >= episodes:
            return
    raise AssertionError(process.stderr.read())


def test_kill_9_loses_at_most_what_came_after_the_last_checkpoint(tmp_path, all_looks):
    path = tmp_path / "c.zip"
    process = start(path, 120)
    wait_for(process, 77)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    agent = RPLAgent.load(path, FastCorridorEnv())
    assert 70 <= agent.num_episodes < 120
    agent.resume()
    whole = RPLAgent(seed=11).learn(FastCorridorEnv(), budget=120, log_interval=50)
    assert fingerprint(agent) == fingerprint(whole)


def test_ctrl_c_once_certifies_and_saves(tmp_path, all_looks):
    path = tmp_path / "c.zip"
    process = start(path, 1_000_000)
    wait_for(process, 60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "interrupted" in out
    agent = RPLAgent.load(path, FastCorridorEnv())
    assert agent.interrupted and agent.num_episodes >= 60 and agent.certificate is not None

    # it goes on as one with the same plan that a callback ended after the same episode
    class Until(BaseCallback):
        every_episodes = 1

        def _on_step(self):
            return self.agent.num_episodes < stopped

    stopped = agent.num_episodes
    resumed = agent.resume(budget=stopped + 50)
    other = RPLAgent(seed=11).learn(FastCorridorEnv(), budget=1_000_000, log_interval=50, callback=Until())
    assert other.num_episodes == stopped
    assert np.array_equal(other.resume(budget=stopped + 50).counts.transitions, resumed.counts.transitions)


ENDLESS = """
import time
from rpl_agent.agent import RPLAgent
from tests.agent_worlds import CorridorEnv
class Endless(CorridorEnv):
    def step(self, action):
        time.sleep(0.01)
        state, reward, _, _, info = super().step(action)
        if state != self._pmdp.initial_state:
            print("step", flush=True)
        return state, reward, False, False, info
# it pays again for staying in the goal, which is not what this is about
agent = RPLAgent(seed=0, compiled=False, verbose=1, check_rewards=False).learn(Endless(), budget=10**6)
print("certified", agent.certificate.samples, agent.num_episodes, flush=True)
"""


def endless():
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout.readline().strip() == "step"
    process.send_signal(signal.SIGINT)
    for line in process.stdout:
        if line.startswith("interrupted"):
            return process
    raise AssertionError(process.stderr.read())


def test_ctrl_c_twice_stops_at_once():
    process = endless()
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert process.returncode != 0 and "KeyboardInterrupt" in err and "certified" not in out
    assert time.monotonic() - begin < 5


def test_ctrl_c_once_ends_an_endless_episode_too():
    process = endless()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    samples, episodes = out.split("certified")[1].split()
    assert int(samples) > 0 and int(episodes) == 0
