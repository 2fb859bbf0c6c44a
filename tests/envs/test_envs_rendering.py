"""Pictures: what must be visible is visible, at every size; texts without any drawing library."""

from __future__ import annotations

import builtins
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from rpl_envs import INSTANCES, benchmark
from rpl_envs.rendering import window
from rpl_envs.rendering.canvas import BLUE, GREEN, ORANGE, PAPER, PURPLE, RED, Canvas

SMALL = [i.id for i in INSTANCES.values() if i.online]


def near(frame, color, tolerance=40):
    """Number of pixels of about this colour."""
    return int((np.abs(frame.astype(int) - np.array(color)).sum(axis=2) < tolerance).sum())


def state(pmdp, **values):
    found = np.ones(pmdp.num_states, dtype=bool)
    for name, value in values.items():
        found &= pmdp.variables[name] == value
    return int(np.flatnonzero(found)[0])


@pytest.mark.parametrize("id", SMALL)
def test_pictures_follow_the_episode(id):
    env = gym.make(id, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    env.action_space.seed(0)
    for _ in range(4):
        _, _, over, _, _ = env.step(env.action_space.sample())
        if over:
            break
    second = env.render()
    assert first.shape == second.shape and first.dtype == np.uint8
    assert first.std() > 5
    assert (first != second).any()
    assert max(first.shape[:2]) <= 800


def test_what_must_be_seen_is_seen():
    rover = benchmark("MarsRover-10x10")
    calm = rover.renderer.rgb(rover.pmdp, [0])
    assert near(calm, GREEN) > 50 and near(calm, BLUE) > 50 and near(calm, PURPLE, 90) > 100
    silent = rover.renderer.rgb(rover.pmdp, [state(rover.pmdp, u=5, h=0)])
    assert near(silent, RED) > near(calm, RED) + 1000  # the gauge is nearly full
    aircraft = benchmark("Aircraft-20x10")
    frame = aircraft.renderer.rgb(aircraft.pmdp, [0])
    assert near(frame, BLUE) > 50 and near(frame, RED) > 50
    game = benchmark("ParallelBetting-6")
    curves = game.renderer.rgb(game.pmdp, [0, int(game.pmdp.successor[3])])
    assert near(curves, BLUE) > 50 and near(curves, ORANGE) > 50
    ladder = benchmark("Engagement-50")
    assert near(ladder.renderer.rgb(ladder.pmdp, [0]), PURPLE) > 100


def test_texts_say_where_we_are():
    rover = benchmark("MarsRover-10x10")
    text = rover.renderer.text(rover.pmdp, [state(rover.pmdp, x=3, y=9, u=2, h=0, t=1)])
    assert "R rover y=9 x=3" in text and "unreported [!!----]   tries [!-----]   report not sent" in text
    assert text.splitlines()[7] == "..hhhh..Rl"
    aircraft = benchmark("Aircraft-20x10")
    lines = aircraft.renderer.text(aircraft.pmdp, [0]).splitlines()
    assert lines[9].startswith(">") and lines[9].endswith("##<") and len(lines) == 12
    glider = benchmark("Glider-11x9")
    lines = glider.renderer.text(glider.pmdp, [state(glider.pmdp, x=4, y=5)]).splitlines()
    assert lines[3][4] == "@" and lines[0][10] == "G"
    assert lines[8][0] == "↙" and lines[0][0] == "↖"  # currents computed by hand
    ladder = benchmark("Engagement-50")
    assert " level     2 ▁\nchosen none" in ladder.renderer.text(ladder.pmdp, [0])
    money = benchmark("Betting-25")
    assert "step 0 of 25" in money.renderer.text(money.pmdp, [0])


LONGEST = pytest.param("Engagement-1000", marks=pytest.mark.nightly)


@pytest.mark.parametrize("name", ["Aircraft-100x20", "Engagement-300", LONGEST, "Glider-71x67", "Betting-100"])
def test_large_models_stay_readable(name):
    made = benchmark(name)
    last = made.pmdp.num_states - 1
    frame = made.renderer.rgb(made.pmdp, [0, last])
    assert max(frame.shape) <= 800
    lines = made.renderer.text(made.pmdp, [0, last]).splitlines()
    assert len(lines) <= 45 and max(map(len, lines)) <= 140


def test_human_mode_opens_a_window_where_there_is_one(monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    pyplot.close("all")
    monkeypatch.setattr(window, "interactive_pyplot", lambda: pyplot)
    monkeypatch.setattr(pyplot, "pause", lambda seconds: None)
    env = gym.make("rpl/Glider-11x9-v0", render_mode="human")
    env.reset(seed=0)
    assert env.step(1) is not None and env.render() is None
    assert len(pyplot.get_fignums()) == 1
    env.close()
    assert pyplot.get_fignums() == []
    assert capsys.readouterr().out == ""


def test_human_mode_prints_without_matplotlib(monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert window.interactive_pyplot() is None
    env = gym.make("rpl/Betting-25-v0", render_mode="human")
    env.reset(seed=0)
    assert "step 0 of 25" in capsys.readouterr().out
    env.close()


def test_canvas_shapes_cover_what_they_should():
    canvas = Canvas(100, 60)
    canvas.rect(10, 10, 30, 20, RED)
    assert near(canvas.array(), RED, 1) == 200
    canvas = Canvas(100, 100)
    canvas.disc((50, 50), 20, BLUE)
    assert near(canvas.array(), BLUE, 1) == pytest.approx(np.pi * 400, rel=0.1)
    canvas = Canvas(100, 100)
    canvas.polygon([(10, 10), (90, 10), (10, 90)], GREEN)
    assert near(canvas.array(), GREEN, 1) == pytest.approx(3200, rel=0.06)
    canvas.line((-50, -50), (300, 300), RED, 2)  # drawing outside is clipped
    canvas.disc((500, 500), 5, RED)
    canvas.text((95, 95), "clipped", RED)
    canvas.arrow((5, 5), (5, 5), RED)  # an arrow of length 0 is nothing
    canvas.path([(5, 5)], RED)
    assert canvas.array().shape == (100, 100, 3)


def test_texts_are_aligned():
    extents = {}
    for align in ("left", "center", "right"):
        canvas = Canvas(300, 30)
        width = canvas.text((150, 8), "HHHH", RED, 9, align)
        inked = (canvas.array() != np.array(PAPER)).any(axis=2)
        columns, rows = np.flatnonzero(inked.any(axis=0)), np.flatnonzero(inked.any(axis=1))
        extents[align] = (columns.min(), columns.max())
        assert abs(rows.min() - 8) <= 1 and abs(len(rows) - 9) <= 1  # capitals of 9 pixels
        assert abs(columns.max() - columns.min() - width) <= 4
    assert extents["left"][0] >= 148 and extents["right"][1] <= 152
    assert abs(sum(extents["center"]) / 2 - 150) <= 2


def test_without_pillow_there_are_texts_and_a_clear_error():
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "import gymnasium as gym, rpl_envs\n"
        "text = gym.make('rpl/Glider-11x9-v0', render_mode='ansi'); text.reset(seed=0)\n"
        "assert '@ glider' in text.render()\n"
        "picture = gym.make('rpl/Glider-11x9-v0', render_mode='rgb_array'); picture.reset(seed=0)\n"
        "try: picture.render()\n"
        "except rpl_envs.pmdp_env.ModelError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("pictures need pillow: pip install pillow ("), done.stderr
    assert done.stdout.count("\n") == 1
