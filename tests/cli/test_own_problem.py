"""One's own problem from the shell: agents compared on it, and policies from files in every command that takes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpl_agent.agent.world.named_env import make_named, named_world
from rpl_agent.cli import main
from rpl_agent.core.model import Policy, StateIndex
from rpl_agent.core.solver import solve_at
from rpl_agent.formats.export import write_policy
from rpl_agent.guarantee.shown import true_value
from rpl_agent.studies.baselines.base import Baseline
from rpl_agent.studies.baselines.q_learning import QLearning
from rpl_agent.studies.experiments.report.charts import compare_chart
from rpl_agent.studies.experiments.runner import Store
from rpl_agent.studies.experiments.worlds import compared_world, world_task

pytestmark = pytest.mark.short_runs

PUMP = '''
import gymnasium as gym
from rpl_agent import Objective, build

TRUE = {"wear": 0.1}

class Pump(gym.Env):
    """Runs (0) for a reward of 1 and may break, the sooner the older; or is serviced (1). Ten days."""
    observation_space = gym.spaces.MultiDiscrete([4, 11])
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.day = 0, 0
        return (self.age, self.day), {}

    def step(self, action):
        if action == 1:
            self.age = 0
        elif self.np_random.random() < TRUE["wear"] * (self.age + 1):
            self.age = 3
        else:
            self.age = min(self.age + 1, 2)
        self.day += 1
        return (self.age, self.day), 1.0 - action, over((self.age, self.day)), False, {}

def over(state):
    return state[0] == 3 or state[1] == 10

def rows(state):
    age, day = state
    if over(state):
        return {0: {state: 1}}
    broken, older = (3, day + 1), (min(age + 1, 2), day + 1)
    return {0: {broken: f"{age + 1}*wear", older: f"1 - {age + 1}*wear"}, 1: {(0, day + 1): 1}}

def known():
    gain = lambda s, a: 1.0 - a if not over(s) else 0.0
    pmdp = build((0, 0), rows, domain={"wear": (0.0, 0.3)}, labels={"over": over}, rewards={"gain": gain})
    return {"pmdp": pmdp, "objective": Objective.total("gain", target="over"), "observation_to_state": tuple}

def make():
    return Pump(), {**known(), "theta": TRUE}

def untold():
    return Pump(), known()
'''


@pytest.fixture(scope="module")
def pump(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "pump.py"
    path.write_text(PUMP)
    return path


@pytest.fixture(scope="module")
def always_run(pump):
    """A policy in a file: never serviced."""
    pmdp = make_named(f"{pump}:untold")[1]["pmdp"]
    path = pump.parent / "always_run.csv"
    write_policy(path, pmdp, Policy.deterministic(pmdp.state_ptr[:-1]))
    return path


def test_the_truth_is_for_measuring_only(pump):
    _, options, theta = named_world(f"{pump}:make")
    assert theta == {"wear": 0.1} and "theta" not in options
    world = compared_world(f"{pump}:make")
    best = solve_at(world.pmdp, world.theta, world.objective)
    assert world.optimum() == pytest.approx(best.middle) and "theta" not in world.attachment
    assert compared_world(f"{pump}:untold").optimum() is None


def test_values_without_the_truth_are_means_of_episodes(pump, always_run):
    told, untold = compared_world(f"{pump}:make"), compared_world(f"{pump}:untold")
    policy = Policy.deterministic(told.pmdp.state_ptr[:-1])
    exact = true_value(told.pmdp, told.objective, policy, told.theta)
    assert told.value(policy, 1, 0) == pytest.approx(exact)
    assert untold.value(policy, 4000, 0) == pytest.approx(exact, abs=0.15)
    assert untold.value(policy, 200, 0) != untold.value(policy, 200, 1)


def test_measured_episodes_end_where_the_environment_has_no_time_limit():
    world = compared_world("CliffWalking-v1")
    up = world.pmdp.action == world.pmdp.action_names.index("up")
    wall = Policy.from_table(world.pmdp, [(StateIndex(s), "up", 1) for s in world.pmdp.row_state[up]])
    assert world.value(wall, 3, seed=0) == 1000.0  # it never arrives


def test_compare_on_ones_own_environment(pump, always_run, tmp_path, capsys):
    picture = tmp_path / "picture.png"
    line = ["compare", f"{pump}:make", "--agents", "rpl", "q-learning", "--seeds", "1", "--budget", "60", "--json"]
    line += ["--output", str(tmp_path / "r"), "--jobs", "1", "--policy", str(always_run), "--plot", str(picture)]
    assert main(line) == 0, capsys.readouterr().out
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["task"]["agent"] for row in rows] == ["rpl", "q-learning", "always_run.csv"]
    world = compared_world(f"{pump}:make")
    for row in rows:
        assert row["task"]["instance"] == "pump.py:make"
        assert row["result"]["value"] == pytest.approx(world.optimum())
        assert row["result"]["final"]["true"] <= world.optimum() + 1e-6
    ours, _, given = (row["result"]["final"] for row in rows)
    assert ours["certified"] <= ours["true"] and given["certified"] is None
    assert given["true"] == pytest.approx(world.value(Policy.deterministic(world.pmdp.state_ptr[:-1]), 1, 0))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_world_of_gymnasium_and_one_without_the_truth(pump, tmp_path, capsys):
    line = ["compare", "FrozenLake-v1", f"{pump}:untold", "--agents", "rpl", "q-learning", "--seeds", "1"]
    line += ["--budget", "30", "--measured", "40", "--output", str(tmp_path), "--jobs", "1"]
    assert main(line) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "the mean of 40 further episodes" in out and "| FrozenLake-v1 | rpl | 1 | 30 | – |" in out
    rows = Store(tmp_path).all("compare")
    assert {row["result"]["measured"] for row in rows} == {40} and {row["result"]["value"] for row in rows} == {None}
    chart = compare_chart(rows)
    assert dict((kind, shown) for kind, _, shown in chart.kinds)["bound"]  # in place of V*
    for panel in chart.panels.values():
        assert "the best policy (V*)" not in {trace.get("name") for trace in panel["traces"]}
        low, high = panel["layout"]["yaxis"]["range"]
        assert low < high


@pytest.mark.parametrize("agent", ["q-learning", "psrl", "ucrl2"])
def test_agents_play_worlds_of_gains_and_costs_whose_plays_are_short(agent, tmp_path):
    line = ["compare", "Blackjack-v1", "--agents", agent, "--seeds", "1", "--budget", "20", "--measured", "5"]
    assert main([*line, "--output", str(tmp_path), "--jobs", "1"]) == 0


def test_a_changed_file_is_another_task(pump, tmp_path):
    path = tmp_path / "pump.py"
    path.write_text(PUMP)
    first = world_task(f"{path}:make")
    path.write_text(PUMP + "\n# changed\n")
    assert first["instance"] == "pump.py:make" and world_task(f"{path}:make")["digest"] != first["digest"]


@pytest.mark.parametrize(
    ("world", "said"),
    [("CartPole-v1", "structure of CartPole-v1 is unknown"), ("rpl/Atlantis-v0", "no world"), ("x.py:f", "no file")],
)
def test_what_cannot_be_compared_is_said_before_anything_runs(world, said, tmp_path, capsys):
    assert main(["compare", world, "--output", str(tmp_path / "r")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "r").exists()


def test_a_baseline_learns_with_a_model_beside_the_environment(pump, tmp_path):
    world = compared_world(f"{pump}:make")
    agent = QLearning(seed=0, attachment=world.attachment).learn(world.make(), 20)
    assert isinstance(agent, Baseline) and agent.pmdp.content_hash == world.pmdp.content_hash
    agent.save(tmp_path / "q")
    again = QLearning.load(tmp_path / "q", world.make(), attachment=world.attachment)
    assert again.num_episodes == 20


# -- policies from files ---------------------------------------------------------------------------------------------
def _zip(pump, folder) -> Path:
    """What Stable-Baselines3 saves after learning nothing; its observations are the environment's."""
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    env = make_named(f"{pump}:untold")[0]
    path = folder / "ppo.zip"
    stable_baselines3.PPO("MlpPolicy", env, seed=0, device="cpu", n_steps=8, batch_size=8).save(path)
    return path


def _storm(pump, folder) -> Path:
    """A scheduler as Storm writes it, with numbers of states."""
    pmdp = make_named(f"{pump}:untold")[1]["pmdp"]
    chosen = [{"origin": {"action-label": pmdp.action_names[0]}, "prob": 1}]
    path = folder / "scheduler.json"
    path.write_text(json.dumps([{"s": s, "c": chosen} for s in range(pmdp.num_states)]))
    return path


def _ours(ending):
    def write(pump, folder) -> Path:
        pmdp = make_named(f"{pump}:untold")[1]["pmdp"]
        path = folder / f"policy{ending}"
        write_policy(path, pmdp, Policy.deterministic(pmdp.state_ptr[:-1]))
        return path

    return write


@pytest.mark.parametrize("kind", [_ours(".csv"), _ours(".json"), _storm, _zip])
def test_every_command_takes_every_kind_of_policy(kind, pump, tmp_path, capsys):
    path, world = str(kind(pump, tmp_path)), f"{pump}:make"
    commands = {
        "evaluate": ["evaluate", "--policy", path, "--env", world, "--episodes", "100"],
        "certify": ["certify", world, "--policy", path, "--episodes", "50"],
        "export": ["export", world, "--policy", path, "--policy-file", str(tmp_path / "out.csv")],
        "compare": ["compare", world, "--agents", "rpl", "--policy", path, "--seeds", "1", "--budget", "10"],
    }
    commands["compare"] += ["--output", str(tmp_path / "r"), "--jobs", "1"]
    found = {}
    for name, line in commands.items():
        assert main([*line, "--json"]) == 0, capsys.readouterr().out
        found[name] = json.loads(capsys.readouterr().out)
    value = found["compare"]["rows"][1]["result"]["final"]["true"]
    assert found["evaluate"]["value"] == pytest.approx(value) == found["certify"]["value"]
    assert found["evaluate"]["lower"] <= value <= found["evaluate"]["upper"]
    assert found["certify"]["lower"] <= value <= found["certify"]["upper"]
    line = ["evaluate", "--policy", str(tmp_path / "out.csv"), "--env", world, "--episodes", "50", "--json"]
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(value)


def test_certify_simulates_at_the_truth_of_ones_own_environment(pump, capsys):
    assert main(["certify", f"{pump}:make", "--episodes", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] <= found["value"] <= found["upper"]
    assert main(["certify", f"{pump}:untold", "--episodes", "50"]) == 2
    assert "true parameters" in capsys.readouterr().err
    assert main(["plan", f"{pump}:untold", "--gap", "0.1"]) == 2
    told = capsys.readouterr().err
    assert "give your guess, --theta NAME=VALUE" in told and "--data" not in told, "plan takes no log"
