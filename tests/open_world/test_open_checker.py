"""`open_checker`: proofs of certificates without a model pass, and every false one is refused by its sentence."""

from __future__ import annotations

import copy
import gzip
import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import gymnasium as gym
import pytest

from rpl_agent import ModelError, RPLAgent
from rpl_agent.agent.runs import verify_run
from rpl_agent.agent.storage.checkpoint import read_latest
from rpl_agent.agent.storage.open_state import foreign_parts, read_open
from rpl_agent.cli import main
from rpl_agent.core.evidence.ledger import OpenLedger, of_states
from rpl_agent.guarantee import checker, open_checker
from rpl_agent.guarantee.open_world.values import UpperValues
from rpl_agent.guarantee.stakes import STAKES
from tests.open_world.worlds import Walk

FOLDER = Path(open_checker.__file__).parent


def everything(state, action):
    return [None, 0, 1, 2, 3]


KINDS = {
    "discounted": ({}, {"discount": 0.9, "returns": (0, 1)}),
    "unknown number of states": ({"known": False}, {"discount": 0.9, "returns": (0, 1)}),
    "horizon": ({}, {"horizon": 6, "returns": (0, 1)}),
    "rewards": ({}, {"discount": 0.8, "rewards": (0, 1)}),
    "deterministic": ({"deterministic": True}, {"discount": 0.9, "returns": (0, 1), "deterministic": True}),
    "returns per state": ({}, {"discount": 0.9, "returns": lambda s: (0, 1 if s else 2)}),
    "successors": ({}, {"discount": 0.8, "rewards": (0, 1), "successors": everything}),
}


def proof_of(kind: str, episodes: int = 150) -> dict:
    world, facts = KINDS[kind]
    env = gym.wrappers.TimeLimit(Walk(**world), 5 if kind != "horizon" else 6)
    agent = RPLAgent(env, **facts, delta=0.1, seed=3).learn(episodes)
    proof = agent.session.prove(agent.certificate)
    assert "refused" not in proof, proof
    return json.loads(json.dumps(proof))


PROOFS: dict[str, dict] = {}


@pytest.fixture
def proof(request):
    kind = getattr(request, "param", "discounted")
    if kind not in PROOFS:
        PROOFS[kind] = proof_of(kind)
    return copy.deepcopy(PROOFS[kind])


def refusal(proof: dict) -> str:
    with pytest.raises((checker.Refused, *checker.MALFORMED)) as error:
        open_checker.check(proof)
    return str(error.value)


@pytest.mark.parametrize("proof", KINDS, indirect=True)
def test_proofs_of_every_kind_pass_and_are_as_tight_as_what_was_computed(proof):
    found = open_checker.check(proof)
    assert found["lower"] <= found["upper"]
    told = "\n".join([open_checker.sentence(proof, found), *open_checker.question(proof, found)])
    assert "no policy returns more than" in told and "assumed: observations are a Markov state" in told


@pytest.mark.parametrize("kind", ["discounted", "horizon"])
def test_what_is_proved_is_what_was_computed(kind):
    """From all data; a run also keeps what its rows had shown before, which may be a little more."""
    world, facts = KINDS[kind]
    agent = RPLAgent(gym.wrappers.TimeLimit(Walk(**world), 6), **facts, delta=0.1, seed=4).learn(200)
    claim, found = agent.session.prove(agent.certificate)["claim"], agent.certificate
    data = agent.session.experience.data
    at_once = UpperValues(agent.session.assumptions, data.actions, OpenLedger.of(0.1))
    at_once.update(data)
    assert claim["upper"] <= at_once.start(data) + 1e-3
    assert claim["lower"] >= found.momentary_lower - 1e-3


@pytest.mark.parametrize("proof", ["discounted", "unknown number of states", "rewards"], indirect=True)
def test_a_bound_of_a_row_that_is_a_little_less_is_refused(proof):
    last = proof["upper"]["steps"][-1]
    last[1] -= 0.01
    assert f"of row {last[0]} does not follow" in refusal(proof)


@pytest.mark.parametrize("proof", ["horizon"], indirect=True)
def test_a_value_with_steps_to_go_that_is_a_little_less_is_refused(proof):
    layer = proof["upper"]["values"][-1]
    state = next(s for s, v in enumerate(layer) if v is not None)
    layer[state] -= 0.01
    assert f"the value of state {state} with 6 steps to go does not follow" in refusal(proof)


@pytest.mark.parametrize("proof", ["deterministic"], indirect=True)
def test_a_row_that_is_known_is_worth_its_outcome(proof):
    proof["upper"]["steps"][-1][1] -= 1e-6
    assert "does not follow" in refusal(proof)


@pytest.mark.parametrize("proof", KINDS, indirect=True)
def test_claims_a_little_inside_are_refused(proof):
    for side, moved in (("upper", -0.01), ("lower", 0.01)):
        false = copy.deepcopy(proof)
        false[side]["start"] += moved
        false["claim"][side] += moved
        assert "does not follow" in refusal(false)
        false = copy.deepcopy(proof)
        false["claim"][side] += moved
        assert f"{side} {false['claim'][side]!r} is claimed, but {proof['claim'][side]!r} is proved" in refusal(false)


def test_steps_may_use_only_what_was_shown_before(proof):
    """The greatest values that agree with the data are shown from above; any order but that of the file jumps ahead."""
    proof["upper"]["steps"].reverse()
    assert "does not follow" in refusal(proof)


def test_a_loop_that_supports_itself_proves_nothing():
    """U = 0 agrees with itself where an action leads back for ever; it does not follow from U = 1."""
    data = {"states": 1, "actions": 1, "starts": [[0, 9]], "outcomes": [[0, 0.0, 0, 100_000]]}
    told = dict.fromkeys(("rewards", "state_returns", "overall", "successors", "horizon"))
    told |= {"discount": 1, "returns": [0, 1], "deterministic": False, "known_states": 1}
    false = {"format": open_checker.FORMAT, "world": "loop", "delta": 0.1, "assumed": told, "data": data}
    false |= {"lower": None, "upper": {"steps": [[0, 0.0]], "start": 0.5}, "claim": {"lower": 0, "upper": 0.5}}
    assert "the bound 0.0 of row 0 does not follow" in refusal(false)


FORGERIES = {
    "format": (lambda p: p.update(format="rpl-open-proof/0"), "the format is 'rpl-open-proof/0'"),
    "refused": (lambda p: p.update(refused="too long"), "the file has no proof: too long"),
    "delta": (lambda p: p.update(delta=1.5), "delta is 1.5"),
    "discount": (lambda p: p["assumed"].update(discount=1.5), "the discount is 1.5"),
    "a larger discount": (lambda p: p["assumed"].update(discount=0.999), "does not follow"),
    "horizon": (lambda p: p["assumed"].update(horizon=0), "the horizon is 0"),
    "deterministic": (lambda p: p["assumed"].update(deterministic=1), "deterministic is neither"),
    "one outcome": (lambda p: p["assumed"].update(deterministic=True), "has two outcomes, but one is assumed"),
    "returns": (lambda p: p["assumed"].update(returns=[1, 0]), "the range of returns has its ends in the wrong order"),
    "wider returns": (lambda p: p["assumed"].update(returns=[0, 5]), "does not follow"),
    "nothing bounded": (lambda p: p["assumed"].update(returns=None), "neither returns nor rewards are bounded"),
    "both": (lambda p: p["assumed"].update(state_returns=[[0, 1]] * 4), "stated for all states and for each"),
    "few ranges": (
        lambda p: p["assumed"].update(state_returns=[[0, 1]], returns=None, overall=[0, 1]),
        "a state has no range of returns",
    ),
    "a range of no state": (
        lambda p: p["assumed"].update(state_returns=[[0, 1]] * 4, returns=None, overall=[0, 0.5]),
        "a state's returns are outside the range of all returns",
    ),
    "rewards": (lambda p: p["assumed"].update(rewards=[0, 0.5]), "the reward 1.0 is outside its range"),
    "ranges that exclude each other": (
        lambda p: p["assumed"].update(rewards=[0, 1], returns=[-9, -8]),
        "the stated ranges exclude each other",
    ),
    "successors": (lambda p: p["assumed"].update(rewards=[0, 1], successors=[[0]] * 8), "is not among the given"),
    "no successors": (lambda p: p["assumed"].update(rewards=[0, 1], successors=[[]] * 8), "nothing follows row 0"),
    "few successors": (lambda p: p["assumed"].update(rewards=[0, 1], successors=[[0]]), "a wrong number of rows"),
    "successors alone": (lambda p: p["assumed"].update(successors=[[0]] * 8), "without a range of rewards"),
    "an unknown successor": (
        lambda p: p["assumed"].update(rewards=[0, 1], successors=[[-2]] * 8),
        "a successor of row 0 does not exist",
    ),
    "few states": (lambda p: p["assumed"].update(known_states=1), "more states than there are"),
    "more states": (lambda p: p["assumed"].update(known_states=10**6), "does not follow"),
    "states": (lambda p: p["data"].update(states=0), "states is 0"),
    "actions": (lambda p: p["data"].update(actions=True), "actions is True"),
    "an outcome twice": (
        lambda p: p["data"]["outcomes"].append(p["data"]["outcomes"][0]),
        "an outcome is counted twice",
    ),
    "a row": (lambda p: p["data"]["outcomes"].append([99, 0.0, 0, 1]), "a row or a successor that does not exist"),
    "a successor": (
        lambda p: p["data"]["outcomes"].append([0, 0.0, 99, 1]),
        "a row or a successor that does not exist",
    ),
    "a count": (lambda p: p["data"]["outcomes"].append([0, 0.5, 0, -1]), "a count is -1"),
    "a reward": (lambda p: p["data"]["outcomes"].append([0, "1", 0, 1]), "'1' is not a number"),
    "fewer data": (lambda p: [o.__setitem__(3, 1) for o in p["data"]["outcomes"]], "does not follow"),
    "no start": (lambda p: p["data"].update(starts=[]), "there is no start"),
    "a start": (lambda p: p["data"].update(starts=[[9, 1]]), "a start does not exist"),
    "a start twice": (lambda p: p["data"]["starts"].append(p["data"]["starts"][0]), "one is counted twice"),
    "fewer starts": (lambda p: [s.__setitem__(1, 1) for s in p["data"]["starts"]], "of the start does not follow"),
    "a row in a step": (lambda p: p["upper"]["steps"].append([99, 0.5]), "row 99 does not exist"),
    "a policy of another number": (lambda p: p["lower"].update(policy_number=10**9), "does not follow"),
    "no policy": (lambda p: p["lower"].update(policy_number=0), "the number of the policy is 0"),
    "rules": (lambda p: p["lower"].update(rules=[]), "a wrong number of steps to go"),
    "an action": (lambda p: p["lower"]["rules"][0].__setitem__(0, 9), "the policy plays what does not exist"),
    "too many plays": (
        lambda p: p["lower"]["plays"][0].__setitem__(3, 10**6),
        "more plays of the policy than episodes",
    ),
    "plays a little better": (lambda p: p["claim"].update(lower=0.99), "lower 0.99 is claimed, but"),
    "better rest": (lambda p: p["lower"]["rest"]["steps"][-1].__setitem__(1, -0.9), "does not follow"),
    "no rest": (lambda p: p["lower"].update(rest=None), "a play was cut, and there are no bounds of what follows"),
    "more since": (
        lambda p: p["lower"]["since"][0].__setitem__(1, 10**9),
        "outcomes since the policy was fixed exceed all outcomes",
    ),
    "since twice": (
        lambda p: p["lower"]["since"].append(p["lower"]["since"][0]),
        "outcomes since the policy was fixed exceed all outcomes",
    ),
    "a cut nowhere": (
        lambda p: next(play for play in p["lower"]["plays"] if play[2] >= 0).__setitem__(2, 99),
        "a play was cut in a state that does not exist",
    ),
    "no plays": (lambda p: p["lower"].update(plays=[]), "of the policy does not follow from its plays"),
    "malformed": (lambda p: p.pop("assumed"), "assumed"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_files_are_refused(proof, name):
    change, sentence = FORGERIES[name]
    change(proof)
    assert sentence in refusal(proof)


@pytest.mark.parametrize("proof", ["horizon"], indirect=True)
def test_forged_files_with_a_horizon_are_refused(proof):
    false = copy.deepcopy(proof)
    false["upper"]["values"].pop()
    assert "values of a wrong number of steps to go" in refusal(false)
    false = copy.deepcopy(proof)
    false["upper"]["values"][0].pop()
    assert "a state has no value" in refusal(false)
    false = copy.deepcopy(proof)
    false["lower"]["plays"][0][1:3] = [7, 0]
    false["lower"]["rest"] = {"values": [[None] * 4] * 6}
    assert "a play was cut after its horizon" in refusal(false)


def test_limits_bound_the_work(proof, monkeypatch):
    for name, sentence in (("MOST_TESTS", "more than 1 "), ("MOST_WORK", "more than 1 outcomes")):
        with monkeypatch.context() as patch:
            patch.setattr(open_checker, name, 1)
            assert sentence in refusal(proof)


def test_stakes_and_shares_are_those_of_the_search():
    assert [float(b) for b in open_checker.STAKES] == pytest.approx(STAKES.tolist())
    assumed = open_checker.Assumed.__new__(open_checker.Assumed)
    assumed.known = None
    shares = [assumed.share(k) for k in range(1_000)]
    assert [float(x) for x in shares] == pytest.approx(of_states(1.0, 0, 1_000, None).tolist())
    assert sum(shares) < 1 == sum(Fraction(1, (j + 1) * (j + 2)) for j in range(10**3)) + Fraction(1, 1001)


def test_products_are_rounded_down():
    for n in (1, 7, 1_000):
        mantissa, exponent = open_checker.power((3**70, -100), n)
        exact = Fraction(3**70, 2**100) ** n
        found = Fraction(mantissa) * Fraction(2) ** exponent
        assert exact * (1 - Fraction(n, 2**90)) <= found <= exact


def test_powers_of_the_discount_are_enclosed():
    discount = Fraction(0.97)
    low, high = open_checker.Discounts(discount).enclosed(40)
    assert low <= discount**40 * checker.ONE <= high and high - low < 1 << 12


def test_the_two_files_alone_check_any_proof(proof, tmp_path):
    for name in ("checker.py", "open_checker.py"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "proof.json.gz").write_bytes(gzip.compress(json.dumps(proof).encode()))
    command = [sys.executable, "-S", "open_checker.py"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*command, "proof.json.gz"], cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("proved with probability ≥ 1 − 0.1"), done
    (tmp_path / "other.json").write_text('{"format": "rpl-proof/0"}')
    done = subprocess.run([*command, "other.json"], cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert done.returncode == 1 and "format 'rpl-proof/0'" in done.stdout


#: What a certificate's file says for readers, besides its fields.
DERIVED = ("gap", "regret", "sentence", "assumptions")


def stated(path):
    """The fields of a certificate's file."""
    return {name: part for name, part in json.loads(path.read_text()).items() if name not in DERIVED}


def test_runs_write_proofs_and_verify_checks_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--returns", "0", "1", "--discount", "0.9", "--budget", "80", "--name", "a", "--log-dir", "logs"]
    assert main(["train", "FrozenLake-v1", *given, "--quiet"]) == 0
    path = tmp_path / "logs" / "a" / "certificate.json"
    assert json.loads(path.read_text())["proved"] is True
    capsys.readouterr()
    assert main(["certify", "logs/a", "--verify"]) == 0
    assert "proved with probability" in capsys.readouterr().out
    assert main(["certify", "logs/a"]) == 0  # computed and proved again
    capsys.readouterr()
    told = stated(path)
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps(told))
    shutil.copy(path.with_name("proof.json.gz"), tmp_path / "alone.proof.json.gz")
    assert main(["certify", "alone.json", "--verify"]) == 0
    lies = {"upper": told["upper"] - 0.01, "lower": 0.9, "policy": [[0, 3]], "samples": 7}
    lies |= {"objective": "another", "assumed": told["assumed"][:1], "rows": told["rows"] + 1, "untried": 1}
    for name, false in lies.items():
        assert told[name] != false
        alone.write_text(json.dumps({**told, name: false}))
        assert main(["certify", "alone.json", "--verify"]) == 1, name
    for name in DERIVED:
        alone.write_text(json.dumps({**told, name: 0.0}))
        assert main(["certify", "alone.json", "--verify"]) == 2 and f"the {name} is 0.0" in capsys.readouterr().err
    alone.write_text(json.dumps(told))
    (tmp_path / "alone.proof.json.gz").unlink()
    assert main(["certify", "alone.json", "--verify"]) == 1
    assert "is missing" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_every_kind_verify_by_their_files(tmp_path, kind):
    world, facts = KINDS[kind]
    for more in ({}, {"rewards": (0, 1)}):
        env = gym.wrappers.TimeLimit(Walk(**world), 5 if kind != "horizon" else 6)
        folder = tmp_path / f"a{len(more)}"
        RPLAgent(env, **(facts | more), delta=0.1, seed=3).learn(20, folder=folder)
        found = verify_run(folder)
        assert found["verified"], found["problems"]


def test_a_policy_that_was_replaced_may_end_its_plays_later(tmp_path):
    """Copies still play a policy when the next one is fixed: the proof counts these plays, its judgement did not."""
    copies = gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Walk(), 5)] * 3)
    agent = RPLAgent(copies, **KINDS["returns per state"][1], delta=0.1, seed=3).learn(150)
    agent.learn(100, folder=tmp_path / "a", reset_num_timesteps=False)
    best = agent.session.best
    assert best.played is not agent.session.experience.played and best.plays < len(best.played.complete())
    assert verify_run(tmp_path / "a")["verified"]


def test_verify_compares_all_parts_of_a_proof_with_the_run(tmp_path, monkeypatch, capsys):
    """A proof of forged plays passes the checker, which knows no others; the run's own plays are in its folder."""
    monkeypatch.chdir(tmp_path)
    env = gym.wrappers.TimeLimit(Walk(), 5)
    agent = RPLAgent(env, discount=0.9, returns=(0, 1), delta=0.1, seed=3)
    agent.learn(150, folder="logs/a")
    run = tmp_path / "logs" / "a"
    told = stated(run / "certificate.json")
    proof = json.loads(gzip.decompress((run / "proof.json.gz").read_bytes()))
    assert main(["certify", "logs/a", "--verify"]) == 0

    def says(change) -> str:
        other = copy.deepcopy(proof)
        change(other)
        checked = open_checker.check(other)
        (run / "proof.json.gz").write_bytes(gzip.compress(json.dumps(other).encode()))
        new = {"lower": checked["lower"], "plays": checked["plays"], "delta": other["delta"]}
        (run / "certificate.json").write_text(json.dumps({**told, **new}))
        capsys.readouterr()
        assert main(["certify", "logs/a", "--verify"]) == 1
        return capsys.readouterr().out

    def earn_more(file):
        for play in file["lower"]["plays"]:
            play[0] = min(play[0] + 0.2, 1.0) if play[2] < 0 else play[0]
        file["lower"]["start"] = file["claim"]["lower"] = told["lower"] + 0.05

    def forget(file):
        """Drop an outcome of an action that the policy does not take."""
        rules, rows = file["lower"]["rules"][0], [outcome[0] for outcome in file["data"]["outcomes"]]
        since = file["lower"]["since"]
        since.remove(next(entry for entry in since if rules[rows[entry[0]] // 2] != rows[entry[0]] % 2))

    assert "the plays of the proof are not those of the run" in says(earn_more)
    assert "the delta of the proof" in says(lambda file: file.update(delta=0.2))
    assert "the number and rules" in says(lambda file: file["lower"].update(unseen=1 - file["lower"]["unseen"]))
    assert "the facts of the proof" in says(lambda file: file["assumed"]["returns"].__setitem__(0, -1e-9))
    assert "the starts of the proof" in says(lambda file: file["data"]["starts"][0].__setitem__(1, 10**6))
    assert "the outcomes since" in says(forget)
    stored, own = read_open(*read_latest(run / "checkpoint.zip")), [[0, 1]] * proof["data"]["states"]
    for part, false, name in (
        ("assumed", {"known_states": 9}, "facts"),
        ("assumed", {"state_returns": own}, "facts about single states"),
        ("data", {"states": 9}, "states and actions"),
        ("data", {"actions": 1}, "states and actions"),
        ("data", {"names": proof["data"]["names"][::-1]}, "names of states"),
        ("data", {"commands": proof["data"]["commands"][::-1]}, "names of actions"),
    ):
        other = {**proof, part: {**proof[part], **false}}
        assert foreign_parts(other, stored) == [f"the {name} of the proof are not those of the run"]


def test_names_of_actions_are_those_of_the_run(tmp_path, monkeypatch, capsys):
    """Before: a certificate and its proof could both call left right, and the run verified them."""
    monkeypatch.chdir(tmp_path)
    env = gym.wrappers.TimeLimit(Walk(), 5)
    RPLAgent(env, discount=0.9, returns=(0, 1), delta=0.1, seed=3).learn(150, folder="logs/a")
    run = tmp_path / "logs" / "a"
    told = stated(run / "certificate.json")
    proof = json.loads(gzip.decompress((run / "proof.json.gz").read_bytes()))

    def says(commands) -> str:
        other = {**proof, "data": {**proof["data"], "commands": commands}}
        open_checker.check(other)  # which only shows them
        (run / "proof.json.gz").write_bytes(gzip.compress(json.dumps(other).encode()))
        policy = [[state, commands[action]] for state, action in told["policy"]]
        false = {**told, "policy": policy, "elsewhere": commands[told["elsewhere"]]}
        (run / "certificate.json").write_text(json.dumps(false))
        capsys.readouterr()
        assert main(["certify", "logs/a", "--verify"]) == 1
        return capsys.readouterr().out

    assert proof["data"]["commands"] == [0, 1]
    assert "the names of actions of the proof are not those of the run" in says([1, 0])
    for commands in ([0, 0], [0, 1, 2]):
        assert "the actions of the proof do not have a name each" in says(commands)


def test_a_run_goes_on_in_a_world_with_its_actions(tmp_path):
    """Before: only their number was compared."""
    agent = RPLAgent(gym.wrappers.TimeLimit(Walk(), 5), discount=0.9, returns=(0, 1), seed=3).learn(20)
    agent.save(tmp_path / "run.zip")
    other = Walk()
    other.action_space = gym.spaces.Discrete(2, start=1)
    with pytest.raises(ModelError, match="its facts or actions differ"):
        agent.learn(gym.wrappers.TimeLimit(other, 5), 1)
    with pytest.raises(ModelError, match="its actions are others"):
        RPLAgent.load(tmp_path / "run.zip", gym.wrappers.TimeLimit(other, 5))
