"""`check_model` and `sketch`: a model beside its environment, and a model from nothing."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest

from rpl_agent import ModelError, Objective, RPLAgent, build, certify, check_model, sketch
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


@pytest.mark.parametrize("name", ["gambler", "optimal stopping", "maintenance", "three-sided die"])
def test_from_nothing_to_a_certificate(name, tmp_path):
    world = WORLDS[name]
    code = "from tests.agent.test_ordinary import WORLDS\n\n\ndef environment():\n"
    code += f"    return WORLDS[{name!r}].env()\n"
    path = tmp_path / "drawn.py"
    path.write_text(sketch(world.env(), episodes=300, code=code, file=str(path)))
    assert "Not observed:" in path.read_text()
    env, options = make_named(f"{path}:make")
    assert check_model(env, **options, episodes=50).ok
    agent = RPLAgent(seed=0, **options).learn(env, budget=60, log_interval=1000)
    steps = agent.objective.horizon
    assert agent.certificate.lower <= world.best(steps or 300) <= agent.certificate.upper + 1e-9


def test_a_sketch_says_what_it_assumes(tmp_path):
    """Rows seen once get probability 1: such a certificate said [6, 6] where the truth is 3, and nothing more."""
    path = tmp_path / "sketch.py"
    code = "from tests.agent.test_check_and_sketch import Corridor\n\n\ndef environment():\n    return Corridor()\n"
    path.write_text(sketch(Corridor(), episodes=3, code=code, file=str(path)))
    env, known = make_named(f"{path}:make")
    agent = RPLAgent(env, **known, seed=0)
    agent.certify()
    words = "this model is a sketch: the bounds assume"
    assert words in str(agent.certificate) and words in str(certify(agent.pmdp, agent.counts, agent.objective))
    agent.save(tmp_path / "saved.zip")
    loaded = RPLAgent.load(tmp_path / "saved.zip", pmdp=known["pmdp"])
    assert words in str(loaded.certify())


def test_random_starts_are_unknown_in_a_sketch(tmp_path):
    class Anywhere(Corridor):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.s = int(self.np_random.integers(2))
            return self.s, {}

    text = sketch(Anywhere(), episodes=50, code="def environment():\n    return None\n")
    assert "'start0'" in text and "1 - start0" in text


def test_the_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sketch", "FrozenLake-v1", "--episodes", "60", "--output", "lake.py"]) == 0
    assert "rpl check lake.py:make" in capsys.readouterr().out
    assert main(["check", "lake.py:make", "--episodes", "20", "--json"]) in (0, 1)
    assert "problems" in json.loads(capsys.readouterr().out)
    assert main(["check", "FrozenLake-v1", "--episodes", "30"]) == 0
    assert "nothing looks wrong" in capsys.readouterr().out
    assert main(["sketch", "nothing-v0"]) == 2
    with pytest.raises(ModelError, match="Discrete actions"):
        sketch(gym.make("Pendulum-v1"))
