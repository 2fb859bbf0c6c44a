"""Policies from tables, from files of other tools and from networks."""

from __future__ import annotations

import json

import numpy as np
import pytest

import rpl_envs
from rpl_agent.agent.world.attach import attach
from rpl_agent.cli import main
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Policy, build
from rpl_agent.formats.export import write_policy
from rpl_agent.formats.policies import read_policy
from rpl_agent.formats.prism import load
from tests.small_worlds import make_worlds_small

PRISM = """mdp
const double p;
module m
  x : [0..3] init 0;
  lit : bool init false;
  [go] x<2 -> p:(x'=x+1)&(lit'=true) + 1-p:(x'=0);
  [jump] x<2 -> 0.5:(x'=2) + 0.5:(x'=3);
  [] x>=2 -> true;
endmodule
label "won" = x=2;
"""


@pytest.fixture
def world(monkeypatch):
    make_worlds_small(monkeypatch)
    return rpl_envs.benchmark("Aircraft-20x10")


def lamp(start="start", **settings):
    def actions(s):
        if s in ("on", "off"):
            return {"stay": {s: 1}}
        return (
            {"left": {"on": "p", "off": "1 - p"}, "right": {"mid": 1}}
            if s == "start"
            else {"left": {"on": 1}, "right": {"off": 1}}
        )

    return build(start, actions, domain=["p", "q"], labels={"won": lambda s: s == "on"}, **settings)


@pytest.mark.parametrize("ending", ["csv", "json", "strat"])
def test_what_was_written_is_read(world, tmp_path, ending):
    pmdp, rng = world.pmdp, np.random.default_rng(0)
    policy = Policy.deterministic(rng.integers(pmdp.state_ptr[:-1], pmdp.state_ptr[1:]))
    write_policy(tmp_path / f"policy.{ending}", pmdp, policy)
    np.testing.assert_array_equal(read_policy(tmp_path / f"policy.{ending}", pmdp).rows, policy.rows)


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_randomised_policy_is_written_and_read(world, tmp_path, ending):
    weights = np.random.default_rng(1).random(world.pmdp.num_rows)
    weights /= np.add.reduceat(weights, world.pmdp.state_ptr[:-1])[world.pmdp.row_state]
    write_policy(tmp_path / f"policy.{ending}", world.pmdp, Policy(weights=weights))
    np.testing.assert_allclose(read_policy(tmp_path / f"policy.{ending}", world.pmdp).weights, weights, rtol=1e-15)


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("start", ["start", {"start": "q", "on": "1 - q"}])
def test_a_policy_with_a_rule_per_step_is_written_and_read(tmp_path, ending, start):
    """Also where the solver takes a step of its own before the first one, to draw the state."""
    pmdp = lamp(start)
    first, rng = pmdp.solver_step(0), np.random.default_rng(2)
    rules = rng.integers(pmdp.state_ptr[:-1], pmdp.state_ptr[1:], (first + 4, pmdp.num_states))
    write_policy(tmp_path / f"policy.{ending}", pmdp, Policy.deterministic(rules))
    found = read_policy(tmp_path / f"policy.{ending}", pmdp).rows
    assert found.shape == rules.shape
    np.testing.assert_array_equal(found[first:], rules[first:])  # before, there is no choice


def test_a_rule_needs_the_states_of_its_own_step_only(tmp_path):
    pmdp, table = lamp(), tmp_path / "table.csv"
    table.write_text("time_step,state,action\n1,mid,left\n0,start,right\n")
    read = read_policy(table, pmdp).rows
    taken = [pmdp.action_names[pmdp.action[read[k, pmdp.state_index(s)]]] for k, s in enumerate(("start", "mid"))]
    assert taken == ["right", "left"]
    for lines, message in (
        ("0,start,right\n1,start,left", "the rule of step 1 says nothing about state . = 'mid'"),
        ("0,start,right\n2,mid,left", "step 1 is missing"),
        ("0,start,right\none,mid,left", "line 3: 'one' is not a whole number"),
    ):
        table.write_text(f"time_step,state,action\n{lines}\n")
        with pytest.raises((DataError, ModelError), match=message):
            read_policy(table, pmdp)
    table.write_text("time_step,state,action,weight\n0,start,left,1\n0,start,right,1\n1,mid,left,1\n")
    with pytest.raises(ModelError, match="step 0 has several in 'start'"):
        read_policy(table, pmdp)


def test_tables_name_states_and_actions_or_number_them(tmp_path):
    pmdp = lamp()
    table = tmp_path / "table.csv"
    table.write_text("state,action,weight\nstart,left,3\nstart,right,1\nmid,left,1\n")
    policy = Policy.from_table(pmdp, table)
    assert policy.to_table(pmdp, tmp_path / "again.csv")[:2] == [("start", "left", 0.75), ("start", "right", 0.25)]
    np.testing.assert_array_equal(Policy.from_table(pmdp, tmp_path / "again.csv").weights, policy.weights)
    start, mid = (pmdp.state_index(s) for s in ("start", "mid"))
    numbered = [(start, 0, 3), (start, 1, 1), (mid, 0, 1)]
    np.testing.assert_array_equal(Policy.from_table(pmdp, numbered).weights, policy.weights)


def test_a_number_is_no_state_where_values_are_numbers():
    walk = build(10, lambda s: {"up": {12: 1}, "down": {11: 1}} if s == 10 else {"stay": {s: 1}}, domain=[])
    assert Policy.from_table(walk, [(10, "up", 1)]).to_table(walk)[0] == ("10", "up", 1.0)
    with pytest.raises(ModelError, match="not a state"):
        Policy.from_table(walk, [(0, "up", 1)])


def test_a_text_that_two_states_are_written_as_is_the_one_of_that_value():
    """One state's text is how Python quotes the other."""
    quoted = "'on'"
    rows = {0: {"go": {"on": 1}}, "on": {"go": {quoted: 1}, "stay": {"on": 1}}, quoted: {"go": {0: 1}, "stay": {0: 1}}}
    pmdp = build(0, lambda s: rows[s], domain=[])
    policy = Policy.from_table(pmdp, [(0, "go", 1), ("on", "stay", 1), (quoted, "go", 1)])
    assert policy.rows is not None
    chosen = [(pmdp.state_value(s), pmdp.action_names[pmdp.action[r]]) for s, r in enumerate(policy.rows.tolist())]
    assert set(chosen) == {(0, "go"), ("on", "stay"), (quoted, "go")}


@pytest.mark.parametrize(
    "entries, message",
    [
        ([("start", "left", 1), ("start", "left", 1)], "twice"),
        ([("start", "up", 1)], "no action 'up'"),
        ([("on", "left", 1)], "not enabled"),
        ([("start", "left", -1)], "weight -1"),
        ([("start", "left", float("nan"))], "weight nan"),
        ([("start", "left", 0)], "sum to 0"),
        ([("start", "right", 1)], "nothing about state 1 = 'mid'|nothing about state . = 'mid'"),
        ([("nowhere", "left", 1)], "not a state"),
    ],
)
def test_bad_tables_are_refused_by_name(entries, message):
    with pytest.raises(ModelError, match=message):
        Policy.from_table(lamp(), entries)


def test_states_that_the_policy_cannot_reach_may_be_missing():
    assert Policy.from_table(lamp(), [("start", "left", 1)]).weights is not None  # "mid" keeps equal weights


@pytest.mark.parametrize(
    "text, message",
    [
        ("a,b\n1,2\n", "needs the columns"),
        ("state,action,weight\nstart,left,x\n", "line 2"),
        ("state,action,weight\nstart,left\n", "line 2: no weight"),
        ("state,action,w\nstart,left,0.9\nstart,right,0.1\n", "line 3: a second action of state start, and no column"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, text, message):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_policy(tmp_path / "table.csv", lamp())


@pytest.mark.parametrize("ending", ["csv", "json", "strat"])
def test_files_that_are_no_text_are_refused(tmp_path, ending):
    (tmp_path / f"policy.{ending}").write_bytes(bytes(range(128, 256)))
    with pytest.raises(DataError, match=f"policy.{ending} is not a text file"):
        read_policy(tmp_path / f"policy.{ending}", lamp())


def test_folders_are_no_policies(tmp_path):
    (tmp_path / "policy.csv").mkdir()
    with pytest.raises(DataError, match=r"policy\.csv is a folder"):
        read_policy(tmp_path / "policy.csv", lamp())


@pytest.mark.parametrize("name", ["policy.txt", "logs", "policy"])
def test_every_kind_of_policy_file_is_named(tmp_path, name):
    with pytest.raises(DataError, match=r"\.csv, \.json, \.strat"):
        read_policy(tmp_path / name, lamp())


@pytest.mark.parametrize(
    "content",
    [
        {"states": {"x": {"left": 1}}},
        {"states": {"0": 3}},
        {"states": {"0": {"left": "x"}}},
        {"states": {"0": {"left": None}}},
        [3],
        [{"s": "a", "c": [{}]}],
        [{"s": 0, "c": [3]}],
        [{"s": 0, "c": 3}],
        [{"s": 0, "c": [{"labels": 3}]}],
        [{"s": 0, "c": [{"labels": ["left"], "prob": "1/0"}]}],
        [{"s": 0, "m": "x", "c": [{"labels": ["left"]}]}],
    ],
)
def test_malformed_json_names_the_entry(tmp_path, content):
    (tmp_path / "policy.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"policy\.json: .*(state|entry)"):
        read_policy(tmp_path / "policy.json", lamp())


def test_a_scheduler_with_states_that_the_model_does_not_have_is_refused(tmp_path):
    (tmp_path / "policy.json").write_text('[{"s": 99, "c": [{"prob": 1}]}]')
    with pytest.raises(ModelError, match="99 is not a state of model"):
        read_policy(tmp_path / "policy.json", lamp())


def test_tables_of_spreadsheets_begin_with_a_mark(tmp_path):
    (tmp_path / "table.csv").write_text("\ufeffstate,action,weight\nstart,right,1\nmid,left,1\n", encoding="utf-8")
    assert ("start", "right", 1.0) in read_policy(tmp_path / "table.csv", lamp()).to_table(lamp())


def scheduler_of_storm(path):
    stormpy = pytest.importorskip("stormpy")
    path.write_text(PRISM.replace("const double p;", "const double p = 0.8;"))
    program = stormpy.parse_prism_program(str(path))
    options = stormpy.BuilderOptions(build_full=True)
    model = stormpy.build_model(program, options=options)
    query = stormpy.parse_properties('Pmax=? [F "won"]', program)[0]
    return stormpy.model_checking(model, query, extract_scheduler=True).get_scheduler().to_json_str(model)


def test_a_scheduler_of_storm_is_read(tmp_path):
    (tmp_path / "storm.json").write_text(scheduler_of_storm(tmp_path / "known.prism"))
    (tmp_path / "model.prism").write_text(PRISM)
    pmdp, _ = load(str(tmp_path / "model.prism"), {}, {}).objective('Pmax=? [F "won"]')
    policy = read_policy(tmp_path / "storm.json", pmdp)
    names = [pmdp.action_names[pmdp.action[row]] for row in policy.rows]
    assert names[pmdp.initial_state] == "go"
    with_memory = [{"s": 0, "m": 1, "c": []}]
    (tmp_path / "memory.json").write_text(json.dumps(with_memory))
    with pytest.raises(DataError, match="memory"):
        read_policy(tmp_path / "memory.json", pmdp)


def test_networks_become_tables(tmp_path):
    sb3, gym = pytest.importorskip("stable_baselines3"), pytest.importorskip("gymnasium")
    from rpl_agent.studies.baselines.sb3 import from_sb3

    env = gym.make("FrozenLake-v1")
    model = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=32, device="cpu", seed=0)
    model.save(tmp_path / "ppo.zip")
    policy = from_sb3(str(tmp_path / "ppo.zip"), env)
    world = attach(env)
    pmdp = world.pmdp
    for seen in range(16):
        state = world.reader.first(seen)
        if pmdp.state_ptr[state + 1] - pmdp.state_ptr[state] == 4:
            assert pmdp.action[policy.row(pmdp, state)] == int(model.predict(seen, deterministic=True)[0])
    drawn = from_sb3(model, env, deterministic=False)
    assert (np.add.reduceat(drawn.weights, pmdp.state_ptr[:-1]) == pytest.approx(1.0)) and not drawn.is_deterministic
    (tmp_path / "other.zip").write_text("nothing")
    with pytest.raises(DataError, match="not a model saved by Stable-Baselines3"):
        from_sb3(tmp_path / "other.zip", env)
    with pytest.raises(ModelError, match=r"trained with the observation space Discrete\(16\), .* Discrete\(48\)"):
        from_sb3(tmp_path / "ppo.zip", gym.make("CliffWalking-v1"))
    command = ["evaluate", "--policy", str(tmp_path / "ppo.zip"), "--env", "CliffWalking-v1"]
    assert main([*command, "--returns", "-9999", "0"]) == 2


def test_the_shell_takes_any_policy(world, tmp_path, capsys):
    table = tmp_path / "uniform.csv"
    Policy.uniform(world.pmdp).to_table(world.pmdp, table)
    name = "rpl/Aircraft-20x10-v0"
    assert main(["certify", name, "--episodes", "200", "--policy", str(table), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] <= found["value"] <= found["upper"] and found["gap"] < 1.0
    assert main(["export", name, "--policy", str(table), "--policy-file", str(tmp_path / "out.json")]) == 0
    assert read_policy(tmp_path / "out.json", world.pmdp).weights is not None
    assert main(["certify", name, "--episodes", "9", "--policy", str(table), "--evaluate", "optimal"]) == 2
    assert main(["certify", name, "--episodes", "9", "--policy", str(tmp_path / "none.csv")]) == 2
