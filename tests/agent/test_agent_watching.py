"""`rpl watch`: what is shown is what happened, in a terminal, in a pipe and in files."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs  # noqa: F401 (registers the worlds)
from rpl_agent.agent import RPLAgent, runs
from rpl_agent.agent.output.watch import EpisodeFrame, episode_frames, watch, write_gif
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError

pytestmark = pytest.mark.short_runs

ID = "rpl/Glider-11x9-v0"


def world(render_mode=None):
    return gym.make(ID, render_mode=render_mode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    return runs.train(world(), source={"id": ID}, log_dir=logs, name="shared", budget=20, seed=0, quiet=True)["run"]


def replay(folder, seed):
    """The actions and rewards of one episode, without anything of output/watch.py."""
    agent, env = runs.load_run(runs.Path(folder), world()), world()
    observation, _ = env.reset(seed=seed)
    actions, rewards, over = [], [], False
    while not over:
        action, _ = agent.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(int(action))
        actions.append(agent.pmdp.action_names[int(action)])
        rewards.append(reward)
        over = terminated or truncated
    return actions, rewards


def test_frames_tell_the_actions_and_the_return(folder):
    actions, rewards = replay(folder, 5)
    agent = runs.load_run(runs.Path(folder), world())
    frames = list(episode_frames(agent, world("ansi"), 2, seed=5))
    first = [frame for frame in frames if frame.episode == 1]
    assert [frame.action for frame in first] == [None, *actions]
    assert [frame.total for frame in first] == pytest.approx([0.0, *np.cumsum(rewards)])
    assert [frame.over for frame in first] == [False] * len(actions) + [True] and not first[-1].cut
    assert f"action {actions[0]}   return" in first[1].caption and "(over)" in first[-1].caption
    assert frames[-1].episode == 2


def test_a_cut_episode_says_so(folder):
    short = gym.make(ID, render_mode="ansi", max_episode_steps=2)
    frames = list(episode_frames(runs.load_run(runs.Path(folder), world()), short, 1))
    assert len(frames) == 3 and frames[-1].cut and "cut by the time limit" in frames[-1].caption


@pytest.mark.parametrize("horizon, steps", [(20, 20), (None, 1_000)])
def test_an_episode_without_a_time_limit_is_not_shown_for_ever(horizon, steps):
    class Endless(gym.Env):
        metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  (as Gymnasium has it)
        observation_space, action_space, render_mode = gym.spaces.Discrete(1), gym.spaces.Discrete(2), "ansi"

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return 0, 0.0, False, False, {}

        def render(self):
            return "."

    facts = {"returns": (0, 1), "horizon": horizon, "discount": None if horizon else 0.9}
    agent = RPLAgent(Endless(), **facts, seed=0).learn(3)
    frames = list(episode_frames(agent, Endless(), 2))
    assert len(frames) == 2 * (steps + 1) and frames[-1].left and not frames[-1].over
    assert frames[-1].caption.endswith("(not over yet)")
    assert watch(agent, Endless(), "a")["returns"] == [0.0]


def test_text_in_a_pipe(folder, capsys):
    assert main(["watch", folder, "--seed", "5"]) == 0
    text = capsys.readouterr().out
    actions, rewards = replay(folder, 5)
    assert re.findall(r"^episode 1   step \d+   action (\S+)", text, re.M) == ["–", *actions]
    assert text.count("@ glider") == len(actions) + 1 and "\x1b" not in text
    assert f"returns: [{sum(rewards)}]" in text
    assert main(["watch", folder, "--seed", "5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["actions"] == [None, *actions] and result["returns"] == [sum(rewards)]


def test_a_terminal_is_drawn_in_place(folder):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rpl_agent.cli", "watch", folder, "--seed", "5", "--fps", "90"]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    assert process.wait(timeout=60) == 0
    text = written.decode()
    actions, _ = replay(folder, 5)
    assert all(f"step {k}   action {action}" in text for k, action in enumerate(actions, 1))
    assert text.count("\x1b[1A") >= 10 * len(actions)  # the cursor goes up over the picture before each
    assert "returns: [" in text[text.rindex("(over)") :]


def watch_run(folder, env, **options):
    return watch(runs.load_run(Path(folder), env), env, folder, **options)


def test_gifs_have_every_step(folder, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    steps = len(replay(folder, 5)[0])
    picture = tmp_path / "w.gif"
    result = watch_run(folder, world("rgb_array"), output=picture, seed=5, fps=10)
    assert result["frames"] == steps + 1 and result["output"] == str(picture)
    with Image.open(picture) as image:
        assert image.n_frames == steps + 1 and image.info["duration"] == 100


def test_pictures_of_different_heights_are_one_animation(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    frames = [EpisodeFrame(np.full((h, 51, 3), h, np.uint8), 1, i, None, 0.0) for i, h in enumerate((30, 45))]
    write_gif(tmp_path / "w.gif", frames)
    with Image.open(tmp_path / "w.gif") as image:
        assert image.size == (51, 71) and image.n_frames == 2


def test_what_is_missing_is_named(folder, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="render mode"):
        watch_run(folder, world())
    with pytest.raises(ModelError, match=r"must end in \.gif"):
        watch_run(folder, world("rgb_array"), output=tmp_path / "w.avi")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModelError, match="pip install pillow"):
        write_gif(tmp_path / "w.gif", [EpisodeFrame(np.zeros((3, 3, 3), np.uint8), 1, 0, None, 0.0)])


def test_worlds_of_others_say_what_they_cannot_draw(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pygame", None)
    source = {"id": "FrozenLake-v1"}
    run = runs.train(gym.make("FrozenLake-v1"), source=source, log_dir=tmp_path, name="lake", budget=5, quiet=True)
    assert main(["watch", run["run"]]) == 0
    assert "SFFF" in capsys.readouterr().out
    assert main(["watch", run["run"], "--output", str(tmp_path / "w.gif")]) == 2
    err = capsys.readouterr().err
    assert "gymnasium[toy-text]" in err and err.count("\n") == 1
    silent = gym.make("FrozenLake-v1", render_mode="ansi")
    silent.unwrapped.metadata = {"render_modes": ["rgb_array"]}
    with pytest.raises(ModelError, match="FrozenLake-v1 cannot draw text"):
        watch_run(run["run"], silent)
