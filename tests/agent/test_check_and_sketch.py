"""`check_model` and `sketch`: a model beside its environment, and a model from nothing."""

from __future__ import annotations

import gymnasium as gym
import pytest

from rpl_agent import DataError, ModelError, Objective, RPLAgent, build, check_model, sketch
from rpl_agent.agent.world.named_env import make_named
from rpl_agent.cli import main
from tests.agent.test_ordinary import WORLDS
from tests.attach_worlds import Machine, machine_model

pytestmark = pytest.mark.short_runs


def test_a_right_model_passes():
    pmdp, objective = machine_model()
    found = check_model(Machine(), pmdp, objective, episodes=60)
    assert found.ok and found.rows_played == 19 and "nothing looks wrong" in str(found)
    assert any("declared fail ≈" in line for line in found.lines)


def corridor(**changed):
    """Walk right with p (pays −1 a step) to 2; the model may be wrong in one way."""
    said = {"row": {1: "p", 0: "1 - p"}, "pay": -1.0} | changed

    def actions(s):
        if s == 2:
            return {0: {2: 1}}
        return {0: {s + k: p for k, p in said["row"].items()}}

    return build(
        0, actions, domain=["p"], labels={"end": lambda s: s == 2},
        rewards={"r": lambda s, a: said["pay"] if s < 2 else 0.0},
    )  # fmt: skip


class Corridor(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        self.s += self.np_random.random() < 0.7
        return self.s, -1.0, self.s == 2, False, {}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None), ({"pay": -2.0}, "paid -1, but declared is -2: write -1"), 
        ({"row": {1: "0.4", 0: "0.6"}}, "write its true value"), ({"row": {1: 1}}, "add that successor"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_cure(changed, said):
    goal = Objective.discounted("r", 0.9, target="end")
    found = check_model(Corridor(), corridor(**changed), goal, episodes=80)
    assert found.ok == (said is None)
    assert said is None or any(said in problem for problem in found.problems), found.problems


def test_an_end_that_the_model_does_not_have():
    class Short(Corridor):
        def step(self, action):
            observation, reward, _, cut, info = super().step(action)
            return observation, reward, observation >= 1, cut, info

    found = check_model(Short(), corridor(), Objective.discounted("r", 0.9, target="end"), episodes=20)
    assert any("ended 20 times in" in problem and "end=" in problem for problem in found.problems)


def test_a_start_that_the_model_does_not_have():
    class Late(Corridor):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.s = 1
            return 1, {}

    found = check_model(Late(), corridor(), Objective.discounted("r", 0.9, target="end"), episodes=20)
    assert any("20 episodes start in" in problem for problem in found.problems)


def test_rows_that_are_not_tied():
    """One parameter where there are two: a row of its own is proposed."""

    class Two(Corridor):
        def step(self, action):
            self.s += self.np_random.random() < (0.9 if self.s == 0 else 0.3)
            return self.s, -1.0, self.s == 2, False, {}

    found = check_model(Two(), corridor(), Objective.discounted("r", 0.9, target="end"), episodes=150)
    assert any("a parameter of its own" in problem for problem in found.problems)


def told(tmp_path, env: str, *changes: tuple[str, str], episodes: int = 300):
    """The environment and the facts of a sketch, after edits."""
    path = tmp_path / "drawn.py"
    text = sketch(eval(env, globals()), episodes=episodes, code=f"{IMPORTS}def environment():\n    return {env}\n")
    for line, edited in changes:
        assert line in text
        text = text.replace(line, edited)
    path.write_text(text)
    return make_named(f"{path}:make")


IMPORTS = "from tests.agent.test_ordinary import WORLDS\nfrom tests.agent.test_check_and_sketch import Corridor\n\n\n"


@pytest.mark.parametrize("name", ["gambler", "optimal stopping", "maintenance", "three-sided die"])
def test_from_nothing_to_a_certificate(name, tmp_path):
    world = WORLDS[name]
    env, facts = told(tmp_path, f"WORLDS[{name!r}].env()")
    agent = RPLAgent(env, **facts, delta=0.1, seed=0).learn(budget=60, log_interval=1000)
    steps, found = agent.session.assumptions.horizon, agent.certificate
    if steps is not None:
        assert found.lower <= world.best(steps) <= found.upper + 1e-9
    assert "Nothing was assumed about which states exist" in str(found) and "rewards lie in" in str(found)


def test_a_sketch_of_a_few_steps_proves_next_to_nothing(tmp_path):
    """A closed sketch of rows seen once said [6, 6] where the truth is 3."""
    env, facts = told(tmp_path, "Corridor()", episodes=3)
    found = RPLAgent(env, **facts, delta=0.1, seed=0).learn(budget=2).certificate
    assert found.gap > 1 and "rewards lie in" in found.assumptions


def test_facts_are_lines_to_edit(tmp_path):
    lines = [('# "successors": seen_after,', '"successors": seen_after,')]
    env, facts = told(tmp_path, "Corridor()", *lines)
    assert None in facts["successors"](1, 0) and set(facts["successors"]("nowhere", 0)) > {0, 1}
    agent = RPLAgent(env, **facts, delta=0.1, seed=0).learn(budget=30)
    assert "only the given successors can follow" in agent.certificate.assumptions
    env, facts = told(tmp_path, "Corridor()", ('# "deterministic": True,', '"deterministic": True,'))
    with pytest.raises(DataError, match="refutes deterministic=True"):
        RPLAgent(env, **facts, delta=0.1, seed=0).learn(budget=30)


def test_a_sketch_makes_the_environment_that_was_played(tmp_path):
    """Once it forgot keywords: the file's lake was slippery, and its facts were about another one."""
    played = gym.make("FrozenLake-v1", is_slippery=False, map_name="8x8", max_episode_steps=7)
    path = tmp_path / "drawn.py"
    path.write_text(sketch(played, episodes=20))
    made, _ = make_named(f"{path}:make")
    assert made.spec.max_episode_steps == 7 and made.observation_space.n == 64
    assert len(made.unwrapped.P[0][2]) == 1  # one outcome
    assert "return gym.make('FrozenLake-v1', map_name='4x4')\n" in sketch(gym.make("FrozenLake-v1"), episodes=20)
    odd = gym.make("FrozenLake-v1", desc=None)
    odd.spec.kwargs["desc"] = {1, 2}  # not plain data
    assert "...  # gym.make('FrozenLake-v1', …)" in sketch(odd, episodes=20)


def test_the_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sketch", "FrozenLake-v1", "--episodes", "60", "--output", "lake.py"]) == 0
    assert "rpl train lake.py:make" in capsys.readouterr().out
    assert main(["train", "lake.py:make", "--budget", "20", "--log-dir", "logs", "--quiet"]) == 0
    assert "rewards lie in [0, 1]" in capsys.readouterr().out
    assert main(["check", "FrozenLake-v1", "--episodes", "30"]) == 0
    assert "nothing looks wrong" in capsys.readouterr().out
    assert main(["sketch", "nothing-v0"]) == 2
    with pytest.raises(ModelError, match="Discrete actions"):
        sketch(gym.make("Pendulum-v1"))


def test_a_factory_that_needs_arguments_is_named(tmp_path):
    (tmp_path / "lakes.py").write_text("def lake(size, render_mode=None):\n    raise AssertionError('it ran')\n")
    with pytest.raises(ModelError, match="lake needs size; name a function or class that needs no argument"):
        make_named(f"{tmp_path / 'lakes.py'}:lake")
