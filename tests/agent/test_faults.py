"""Full disks, steps that end in an exit, files that were tampered with: nothing observed is lost in silence."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs  # noqa: F401
from rpl_agent.agent import CheckpointCallback, RPLAgent, runs
from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.output.events import EventFile, TensorBoardWriter
from rpl_agent.agent.output.logger import CSVWriter
from rpl_agent.agent.sampling import interrupt as interrupts
from rpl_agent.agent.sampling.interrupt import Interrupt, interruptible
from rpl_agent.agent.schedule import Never
from rpl_agent.agent.storage import checkpoint
from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from rpl_agent.guarantee.certificate import Certificate
from tests.agent_worlds import CorridorEnv, FastCorridorEnv

pytestmark = pytest.mark.short_runs

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ---------------------------------------------------------------------- steps
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_what_was_observed_before_an_exit_inside_a_step_is_kept(tmp_path, kind):
    class Leaves(CorridorEnv):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps > 200:
                raise kind
            return super().step(action)

    agent = RPLAgent(seed=0, tensorboard_log=tmp_path)
    with pytest.raises(kind):
        agent.learn(Leaves(), budget=10_000, log_interval=10**9)
    stored = RPLAgent.load(agent.run_folder / "checkpoint.zip", CorridorEnv())
    assert stored.counts.total == stored.num_timesteps == 200
    assert np.array_equal(stored.session.experience.rows, stored.counts.row_totals)


class Counted(CorridorEnv):
    """Writes down, where another process can read it, how many steps it has answered."""

    def __init__(self, answered):
        super().__init__()
        self.answered = answered

    def step(self, action):
        before = self.answered[0]
        try:
            returned = super().step(action)
            self.answered[0] = before + 1
            return returned
        except BaseException:  # it did not answer
            self.answered[0] = before
            raise


def learn_until_stopped(folder, answered):
    """A child process: 0 if it ended by itself, 1 if it was stopped at once, 2 if anything else happened."""
    try:
        agent = RPLAgent(seed=0, compiled=False, schedule=Never())
        agent.learn(Counted(answered), budget=10**6, log_interval=40, folder=folder)
        return 0
    except KeyboardInterrupt:
        return 1
    except BaseException:
        return 2


@pytest.mark.parametrize("trials", [8, pytest.param(600, marks=pytest.mark.nightly)])
def test_two_interrupts_at_any_moment_lose_no_step(tmp_path, trials):
    """Signals fall between the environment's answer and its count, into the planner, the callbacks and the saving."""
    RPLAgent(seed=0, compiled=False, schedule=Never()).learn(CorridorEnv(), budget=40)  # compiles, before the forks
    rng, stopped, answers = np.random.default_rng(5), 0, 0
    for trial in range(trials):
        answered = np.memmap(tmp_path / f"{trial}.steps", dtype=np.int64, mode="w+", shape=1)
        folder = tmp_path / f"run{trial}"
        child = os.fork()
        if child == 0:
            os._exit(learn_until_stopped(folder, answered))
        while answered[0] < 20:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        for _ in range(rng.integers(2, 5)):
            os.kill(child, signal.SIGINT)
            time.sleep(rng.choice([0.0, 1e-5, 1e-4, 1e-3, 1e-2]))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 1)
        stored = RPLAgent.load(folder / "checkpoint.zip", CorridorEnv())
        assert stored.counts.total == stored.num_timesteps == answered[0], trial
        stopped += status
        answers += int(answered[0])
    # how many are stopped at once depends on how busy the machine is: about half of them, of a few perhaps none
    assert answers > trials * 20 and (stopped > trials // 3 or trials < 100)


def signals(number):
    for _ in range(number):
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_waits_for_the_count_and_aborts_what_counts_nothing():
    """In the environment it waits until the run asks; a plan is aborted; what saves the run afterwards is not."""
    with Interrupt() as interrupt:
        signals(3)
        with pytest.raises(KeyboardInterrupt):
            interrupt.asked()
        interruptible(signals)(2)  # while the run is saved
        assert interrupt.asked()
    with Interrupt() as interrupt:
        signals(1)
        with pytest.raises(KeyboardInterrupt):
            interruptible(signals)(1)
        signals(1)


def test_a_run_within_a_callback_counts_its_steps_too():
    """Callbacks may be aborted, but not the environment of a run that one of them makes."""

    @interruptible
    def callback():
        with Interrupt() as inner:
            signals(2)
            with pytest.raises(KeyboardInterrupt):
                inner.asked()
        signals(1)

    with Interrupt() as outer, pytest.raises(KeyboardInterrupt):
        signals(1)
        assert outer.asked()
        callback()


def test_an_environment_that_does_not_answer_is_given_up(monkeypatch):
    """After a while, and only then: Ctrl-C could not end it otherwise."""
    now = [0.0]
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now[0])
    with Interrupt():
        signals(2)
        now[0] = interrupts.PATIENCE
        signals(1)
        now[0] += 1.0
        with pytest.raises(KeyboardInterrupt):
            signals(1)


def test_a_signal_while_a_line_is_written_loses_nothing():
    """Python refuses to print in a handler that interrupted a print; the run ended in a traceback."""
    said, busy = [], [RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")]

    def notify(text):
        if busy:
            raise busy.pop()
        said.append(text)

    interrupt = Interrupt(notify)
    assert not interrupt.asked() and not said
    interrupt._handle(signal.SIGINT, None)
    assert interrupt.requested and not said
    assert interrupt.asked() and interrupt.asked() and len(said) == 1


def test_what_no_checkpoint_holds_is_reported_with_a_number(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)

    class Leaves(CorridorEnv):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps > 30:
                raise KeyboardInterrupt
            disk.full = True
            return super().step(action)

    with pytest.warns(RPLWarning, match=r"No space left.*remains valid; 30 steps are not in any checkpoint"):
        with pytest.raises(KeyboardInterrupt):
            RPLAgent(seed=0, compiled=False).learn(Leaves(), budget=10_000, log_interval=10**9, folder=tmp_path / "run")
    disk.full = False
    assert RPLAgent.load(tmp_path / "run" / "checkpoint.zip", CorridorEnv()).num_timesteps == 0


@pytest.mark.parametrize("seen", [2.9, "2", None, np.float64(1.5), np.array(["1"]), [1], np.nan, -1, 10**30])
def test_an_observation_that_is_no_number_of_a_state_is_refused(seen):
    """2.9 and "2" were taken for state 2."""

    class Wrong(CorridorEnv):
        steps = 0

        def step(self, action):
            self.steps += 1
            returned = super().step(action)
            return returned if self.steps <= 20 else (seen, *returned[1:])

    agent = RPLAgent(seed=0, compiled=False)
    with pytest.raises(DataError, match=r"episode \d+, step \d+: ") as refusal:
        agent.learn(Wrong(), budget=1000, log_interval=10**9)
    assert "\n" not in str(refusal.value) and agent.counts.total == agent.num_timesteps == 20


# ---------------------------------------------------------------------- full disks
class Disk:
    """Takes nothing more while it is full."""

    def __init__(self, monkeypatch):
        self.full = False
        for place, name in ((checkpoint.os, "fsync"), (os, "write"), (os, "replace")):
            monkeypatch.setattr(place, name, self._guard(getattr(place, name)))

    def _guard(self, function):
        def guarded(*arguments, **keywords):
            if self.full:
                raise FULL
            return function(*arguments, **keywords)

        return guarded


class Fill(BaseCallback):
    def __init__(self, disk, at, until=10**9):
        super().__init__()
        self.disk, self.at, self.until = disk, at, until

    def _on_step(self):
        self.disk.full = self.at <= self.agent.num_episodes < self.until
        return True


def test_a_full_disk_ends_neither_learning_nor_the_last_checkpoint(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    whole = RPLAgent(seed=1, schedule=Never()).learn(FastCorridorEnv(), budget=400, log_interval=50)
    agent = RPLAgent(seed=1, schedule=Never())
    callbacks = [CheckpointCallback(save_freq=50), Fill(disk, 200)]
    with pytest.warns(RPLWarning, match="No space left"), pytest.raises(DataError, match=r"space left.*remains valid"):
        agent.learn(FastCorridorEnv(), budget=400, log_interval=50, folder=tmp_path / "run", callback=callbacks)
    assert agent.num_episodes == 400  # learning went on
    kept = RPLAgent.load(tmp_path / "run" / "checkpoint.zip", FastCorridorEnv())
    assert 150 <= kept.num_episodes <= 200
    disk.full = False
    agent.save(tmp_path / "run" / "checkpoint.zip")  # once there is room
    assert RPLAgent.load(tmp_path / "run" / "checkpoint.zip", FastCorridorEnv()).num_episodes == 400
    assert agent.certificate.lower == whole.certificate.lower
    assert kept.resume().certificate.lower == whole.certificate.lower


def test_logs_go_on_when_there_is_room_again(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    disk = Disk(monkeypatch)
    callbacks = [CheckpointCallback(save_freq=50), Fill(disk, 100, 200)]
    with pytest.warns(RPLWarning, match="No space left"):
        RPLAgent(seed=1, schedule=Never()).learn(
            FastCorridorEnv(), budget=400, log_interval=50, folder=tmp_path, callback=callbacks
        )
    with (tmp_path / "progress.csv").open() as file:
        steps = [int(row["episodes"]) for row in csv.DictReader(file)]
    assert {50, 250, 300, 350, 400} <= set(steps) and sorted(set(steps)) == steps
    events = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload()
    assert {50, 250, 300, 350, 400} <= {e.step for e in events.Scalars("guarantee/lower")}


def test_event_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("rpl_agent.agent.output.events.MAX_BYTES", 4000)
    writer = TensorBoardWriter(tmp_path)
    with pytest.raises(OSError, match="reached"):
        for step in range(10_000):
            writer.write({"guarantee/lower": 1.0, "samples/steps": step}, step)
    assert all(p.stat().st_size <= 4000 for p in tmp_path.rglob("events*"))
    assert isinstance(writer._file, EventFile)


# ---------------------------------------------------------------------- progress.csv
def test_a_step_that_is_logged_again_replaces_its_row(tmp_path):
    path = tmp_path / "progress.csv"
    writer = CSVWriter(path)
    for step in (10, 20):
        writer.write({"a": step / 3}, step)
    again = CSVWriter(path, resume_at=20)
    again.write({"a": 7.5, "b": 1.0}, 20)
    again.write({"a": 8.5}, 30)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    found = [(r["episodes"], r["a"], r["b"]) for r in rows]
    assert found == [("10", repr(10 / 3), ""), ("20", "7.5", "1"), ("30", "8.5", "")]


def test_a_killed_run_that_was_done_logs_its_last_point_once(tmp_path):
    folder = tmp_path / "run"
    RPLAgent(seed=0, schedule=Never()).learn(FastCorridorEnv(), budget=40, log_interval=20, folder=folder)
    agent = RPLAgent.load(folder / "checkpoint.zip", FastCorridorEnv())
    agent.run_folder = folder
    agent.resume()
    with (folder / "progress.csv").open() as file:
        assert [row["episodes"] for row in csv.DictReader(file)] == ["20", "40"]


class Copies(BaseCallback):
    """Keeps what a kill would leave at every step: the run folder as it is, once for each state of it."""

    def __init__(self, kept):
        super().__init__()
        self.kept, self.last = kept, []

    def _on_step(self):
        files = (self.agent.run_folder / name for name in ("checkpoint.zip", "progress.csv"))
        stored = [file.read_bytes() for file in files if file.exists()]
        if stored != self.last:  # from the same files a run goes on in the same way
            self.last = stored
            shutil.copytree(self.agent.run_folder, self.kept / str(self.agent.num_episodes), dirs_exist_ok=True)
        return True


def test_a_run_killed_at_a_log_point_goes_on_to_the_same_bits_and_rows(tmp_path, sized):
    """A checkpoint at a log point is written before its certificate; resumed runs left that certificate out."""

    def learned(agent, folder):
        with (folder / "progress.csv").open() as file:
            rows = [(row["episodes"], row["guarantee/lower"], row["guarantee/upper"]) for row in csv.DictReader(file)]
        return agent.certificate.lower.hex(), agent.certificate.upper.hex(), rows

    folder = tmp_path / "run"
    callbacks = [CheckpointCallback(save_freq=sized(10, 5), seconds=None), Copies(tmp_path)]
    agent = RPLAgent(seed=1, schedule=Never())
    whole = agent.learn(FastCorridorEnv(), budget=25, log_interval=10, folder=folder, callback=callbacks)
    points = sorted((p for p in tmp_path.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    assert {10, 20} <= {int(p.name) for p in points}
    for place in points:
        agent = RPLAgent.load(place / "checkpoint.zip", FastCorridorEnv())
        agent.run_folder = place
        assert learned(agent.resume(), place) == learned(whole, folder), place.name


# ---------------------------------------------------------------------- run folders
def test_a_run_folder_appears_with_its_first_checkpoint_or_not_at_all(tmp_path, monkeypatch):
    real = checkpoint.write

    def dies(*_):
        raise SystemExit  # as a kill would, before the first checkpoint is there

    monkeypatch.setattr(checkpoint, "write", dies)
    with pytest.raises(SystemExit):
        runs.train(gym.make("rpl/Betting-v0", n=3), log_dir=tmp_path, name="first", budget=10, quiet=True)
    assert not (tmp_path / "first").exists()
    (tmp_path / "first").mkdir()  # an empty folder does not block its name
    monkeypatch.setattr(checkpoint, "write", real)
    runs.train(gym.make("rpl/Betting-v0", n=3), log_dir=tmp_path, name="first", budget=10, quiet=True)
    with pytest.raises(ModelError, match="exists"):
        runs.train(gym.make("rpl/Betting-v0", n=3), log_dir=tmp_path, name="first", budget=10, quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["first"]


def test_a_run_made_in_python_is_a_run_for_the_command_line(tmp_path, capsys):
    from rpl_agent.cli import main

    agent = RPLAgent(seed=0, tensorboard_log=tmp_path, schedule=Never())
    agent.learn(gym.make("rpl/Betting-v0", n=3), budget=50, log_interval=50)  # small: every command proves it anew
    for command in (["evaluate", "--episodes", "100"], ["certify"], ["resume", "--budget", "60", "--quiet"], ["watch"]):
        assert main([command[0], str(agent.run_folder), *command[1:], "--json"]) == 0, command
        found = json.loads(capsys.readouterr().out)
        assert found["run"] == str(agent.run_folder)
    assert RPLAgent.load(agent.run_folder / "checkpoint.zip").num_episodes == 60


# ---------------------------------------------------------------------- hostile files
WRONG = ("x", -1, 1 << 70, 1e300, None, True, [], {}, [[]], "inf", -0.5)


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        yield from leaves(value[0], (*path, 0))
    yield path


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "c.zip"
    agent = RPLAgent(seed=0, compiled=False).learn(CorridorEnv(), budget=3, log_interval=3)  # short: it is loaded often
    agent.save(path)
    return checkpoint.read(path), agent


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_value_in_a_checkpoint_gives_anything_but_a_refusal(tmp_path, stored, monkeypatch, every):
    (state, arrays), _ = stored
    tried = refused = 0
    for k, path in enumerate(dict.fromkeys(p for p in leaves(state) if p)):
        for wrong in WRONG[k % every :: every]:  # each of them at every so many places
            changed = replaced(state, path, wrong)
            monkeypatch.setattr(checkpoint, "read_latest", lambda _, s=changed: (s, dict(arrays)))
            tried += 1
            try:
                RPLAgent.load(tmp_path / "any", CorridorEnv())._open_source()
            except (DataError, ModelError) as error:
                refused += 1
                assert "\n" not in str(error) and len(str(error)) < 500
    assert tried > 300 / every and refused > 0.5 * tried


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
def test_no_value_in_an_objective_about_rewards_gives_anything_but_a_refusal(tmp_path, monkeypatch):
    env = gym.make("rpl/Betting-25-v0")
    RPLAgent(seed=0).learn(env, budget=5).save(tmp_path / "c.zip")
    state, arrays = checkpoint.read(tmp_path / "c.zip")
    assert state["objective"]["reward_name"] is not None
    for name in state["objective"]:
        for wrong in WRONG:
            changed = replaced(state, ("objective", name), wrong)
            monkeypatch.setattr(checkpoint, "read_latest", lambda _, s=changed: (s, dict(arrays)))
            try:
                RPLAgent.load(tmp_path / "any", env)
            except (DataError, ModelError) as error:
                assert "\n" not in str(error)


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
def test_no_array_in_a_checkpoint_gives_anything_but_a_refusal(tmp_path, stored, monkeypatch):
    (state, arrays), _ = stored
    refused = 0
    for name, array in arrays.items():
        wrong = [array[..., :-1] if array.ndim else array, array.astype(str), np.zeros((2, 2, 2))]
        if array.dtype.kind == "f":
            wrong.append(np.full_like(array, np.nan))
        for bad in wrong:
            monkeypatch.setattr(checkpoint, "read_latest", lambda _, n=name, b=bad: (state, {**arrays, n: b}))
            if (bad.dtype == array.dtype and np.array_equal(bad, array)) or (bad.size == array.size == 0):
                continue
            try:
                RPLAgent.load(tmp_path / "any", CorridorEnv())._open_source()
            except (DataError, ModelError):
                refused += 1
                continue
            assert name in ("returns", "lengths"), (name, bad)
    assert refused > len(arrays)


def test_no_value_in_a_certificate_or_run_json_gives_anything_but_a_refusal(tmp_path, stored):
    data = stored[1].certificate.to_dict()
    for path in dict.fromkeys(p for p in leaves(data) if p):
        for wrong in WRONG:
            try:
                Certificate.from_json(json.dumps(replaced(data, path, wrong)))
            except DataError as error:
                assert "\n" not in str(error)
    run = {"source": {"id": "rpl/Betting-25-v0", "param": ["a"], "max_steps": 3}, "seed": 1}
    for path in dict.fromkeys(p for p in leaves(run) if p):
        for wrong in WRONG:
            Path(tmp_path / "run.json").write_text(json.dumps(replaced(run, path, wrong)))
            try:
                runs.read_source(tmp_path)
            except DataError as error:
                assert "\n" not in str(error)
    for text in ("", "[]", "{", "null", '{"source": 3}', "\x00"):
        Path(tmp_path / "run.json").write_text(text)
        with pytest.raises(DataError):
            runs.read_source(tmp_path)
