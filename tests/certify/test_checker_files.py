"""Files by authors who are not trusted: refused in a sentence, in seconds, and with their question."""

from __future__ import annotations

import copy
import gzip
import json
import math
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rpl_agent.core.model import Objective, Sense, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove, write_proof
from tests.certify.proved import OBJECTIVES, known, model, sampled

#: Processor seconds for a file that is refused.
SECONDS = 10.0


@pytest.fixture(scope="module")
def proofs() -> dict[str, dict[str, Any]]:
    pmdp = model()
    counts = sampled(pmdp, 4000)
    return {
        name: prove(pmdp, counts, certify(pmdp, counts, OBJECTIVES[name], pieces=1))
        for name in ("Pmax", "cost", "within")
    }


def answer(proof: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints for a proof, or for the bytes of a file, that must be refused quickly."""
    path.write_bytes(proof if isinstance(proof, bytes) else json.dumps(proof).encode())
    start = time.process_time()
    assert checker.main([str(path)]) == 1
    assert time.process_time() - start < SECONDS
    said = capsys.readouterr().out
    assert said.startswith("refused: ") and said.count("\n") == 1 and len(said) < 400
    return said


# ---------------------------------------------------------------------- numbers that never end
def set_in(proof: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    found = copy.deepcopy(proof)
    part = found
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = to
    return found


HUGE = "1e300000000"
COPRIME = [f"1/{2**k - 1}" for k in range(100, 1100)]
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "exponent of a value": (lambda p: set_in(p, "lower", "values", 0, 0, to=HUGE), "is not a number"),
    "exponent of delta": (lambda p: set_in(p, "delta", to=HUGE), "is not a number"),
    "exponent of a claim": (lambda p: set_in(p, "claim", "lower", to=HUGE), "is not a number"),
    "exponent of a coefficient": (lambda p: set_in(p, "model", "coordinates", "terms", 0, 0, to=HUGE), "not a number"),
    "digits": (lambda p: set_in(p, "model", "coordinates", "terms", 0, 0, to="1/" + "7" * 2000), "1,000 digits"),
    "a division by zero": (lambda p: set_in(p, "model", "coordinates", "terms", 0, 0, to="1/00"), "not a number"),
    "power": (lambda p: set_in(p, "model", "coordinates", "x", 0, 0, 1, to=[[0, 10**9]]), "a degree above 100"),
    "negative power": (lambda p: set_in(p, "model", "coordinates", "x", 0, 0, 1, to=[[0, -1]]), "positive integer"),
    "negative parameter": (lambda p: set_in(p, "model", "coordinates", "x", 0, 0, 1, to=[[-1, 1]]), "unknown param"),
    "factors": (lambda p: set_in(p, "model", "coordinates", "x", 0, 0, 1, to=[[0, 1]] * 101), "a degree above 100"),
    "factors of a product": (lambda p: set_in(p, "model", "coordinates", "x", 0, 0, 1, to=[[0, 1]] * 99), ""),
    "denominators": (
        lambda p: set_in(p, "model", "coordinates", "x", 0, to=[[c, [[0, 1]]] for c in COPRIME]),
        "common denominator",
    ),
    "horizon": (lambda p: set_in(p, "objective", "horizon", to=10**9), "the horizon is 1000000000"),
    "horizon without values": (lambda p: set_in(p, "objective", "horizon", to=50_000), "wrong number of steps"),
    "empty marks": (
        lambda p: set_in(
            p, "data", "marks", to=[{"total": 0, "weight": 0, "progress": 0, "successes": []} for _ in range(5000)]
        ),
        "more than 1,000 marks",
    ),
    "tangents": (
        lambda p: set_in(p, "regions", 0, "likelihood", "cuts", to=[[0.5, 0.5]] * 200_000),
        "more than 500,000 logarithms",
    ),
    "particles": (
        lambda p: set_in(p, "regions", 0, "likelihood", "parts", to=[[0, [[1, 1]] * 200_000]]),
        "more than 500,000 logarithms",
    ),
    "windows": (
        lambda p: set_in(p, "regions", 0, "likelihood", "parts", to=[[mark, [[1, 1]]] for mark in range(50_000)]),
        "products of rows and points",
    ),
    "not a number": (lambda p: set_in(p, "lower", "values", 0, 0, to=math.nan), "not a finite number"),
    "a rank that is no number": (lambda p: set_in(p, "lower", "rank", to=[[]] * 4), "a rank is not an integer"),
    "a reason of several lines": (
        lambda p: p | {"refused": "no\nproved with probability ≥ 1 \x1b[2K" + "x" * 1000},
        "refused: no proved with",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_numbers_and_sizes_are_bounded(name, proofs, tmp_path, capsys):
    forge, said = HOSTILE[name]
    assert said in answer(forge(proofs["Pmax"]), tmp_path / "proof.json", capsys)


def test_steps_times_transitions_are_bounded(proofs, tmp_path, capsys):
    proof = copy.deepcopy(proofs["within"])
    proof["objective"]["horizon"] = 99_999
    moves = 300  # one long row instead of a short one
    proof["model"]["successor"] = [0] * moves + proof["model"]["successor"][3:]
    proof["model"]["expression"] = [0] * moves + proof["model"]["expression"][3:]
    proof["model"]["row_ptr"] = [0, *(p + moves - 3 for p in proof["model"]["row_ptr"][1:])]
    assert "refused" in answer(proof, tmp_path / "proof.json", capsys)
    plain = checker.Model(proofs["within"]["model"])
    with pytest.raises(checker.Refused, match="steps times transitions"):
        plain.moves[0] *= 100
        checker.Objective(plain, proof["objective"])


# ---------------------------------------------------------------------- files that are none
def test_files_that_are_damaged_are_refused(proofs, tmp_path, capsys):
    write_proof(tmp_path / "good.json.gz", proofs["Pmax"])
    packed = (tmp_path / "good.json.gz").read_bytes()
    plain = json.dumps(proofs["Pmax"]).encode()
    broken = packed[:200] + bytes([packed[200] ^ 0xFF]) + packed[201:]
    twice = plain.replace(b'"delta"', b'"delta": 0.5, "delta"', 1)
    cut = [packed[: len(packed) * k // 7] for k in range(1, 7)] + [packed[:5], packed[:-1]]
    for raw in (*cut, broken, packed[:2] + b"\x00" + packed[3:]):
        assert "damaged" in answer(raw, tmp_path / "p.json.gz", capsys)
    for raw in (plain[:-1], plain[:500], b"", b"\xff\xfe\x00", b"[" * 10**6, b'{"a":' * 10**5, b"7" * 5000):
        assert "not JSON" in answer(raw, tmp_path / "p.json", capsys)
    assert "stands twice" in answer(twice, tmp_path / "p.json", capsys)
    for raw in (b"null", b"[]", b"1", b'"format"', b"{}"):
        assert "refused" in answer(raw, tmp_path / "p.json", capsys)


def test_unpacking_stops_at_the_limit(tmp_path, monkeypatch, capsys):
    """64 MB of blanks in 64 kB: memory stays near the limit, and a file of just this size is read."""
    monkeypatch.setattr(checker, "MOST_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * (1 << 26), 9)
    assert len(bomb) < 1 << 17
    tracemalloc.start()
    assert "more than 1,048,576 bytes" in answer(bomb, tmp_path / "p.json.gz", capsys)
    assert tracemalloc.get_traced_memory()[1] < 1 << 23
    tracemalloc.stop()
    path = tmp_path / "p.json.gz"
    path.write_bytes(gzip.compress(b"{}".ljust(1 << 20)))
    assert checker.read(str(path)) == {}
    path.write_bytes(gzip.compress(b"{}".ljust((1 << 20) + 1)))
    with pytest.raises(checker.Refused, match="bytes"):
        checker.read(str(path))


def test_entries_are_counted_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checker, "MOST_ENTRIES", 1000)
    path = tmp_path / "p.json"
    path.write_text("[" + ",".join("0" * 1000) + "]")  # 999 commas, one bracket
    assert len(checker.read(str(path))) == 1000
    for text in ("[" + ",".join("0" * 1001) + "]", "[" * 1001, '{"":' * 1001):
        path.write_text(text)
        with pytest.raises(checker.Refused, match="1,000 entries"):
            checker.read(str(path))


# ---------------------------------------------------------------------- the question is printed
LINES = (
    "proved with probability",
    "objective:",
    "target:",
    "avoid:",
    "horizon:",
    "discount:",
    "error of rewards:",
    "model:",
    "hash:",
    "parameters:",
    "delta:",
)


def told(proof: dict[str, Any], path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    write_proof(path, proof)
    assert checker.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip().startswith(name) for line, name in zip(lines, LINES, strict=True)] == [True] * len(LINES)
    return lines


def test_the_question_is_printed_with_its_answer(proofs, tmp_path, capsys):
    path = tmp_path / "p.json"
    lines = {name: "\n".join(told(proof, path, capsys)) for name, proof in proofs.items()}
    assert "max probability of reaching the target" in lines["Pmax"] and '"goal", 1 states' in lines["Pmax"]
    assert 'min "steps"' in lines["cost"] and "misses it costs infinity" in lines["cost"]
    assert "horizon: 7" in lines["within"] and "horizon: none" in lines["Pmax"]
    for text in ("4 states, 5 rows, 8 transitions", '"p" in [0.05, 0.95]', 'delta: 0.001, method "likelihood"'):
        assert all(text in found for found in lines.values())


def test_another_question_prints_other_lines(proofs, tmp_path, capsys):
    """Each of these is proved too, and was the same sentence."""
    path, proof = tmp_path / "p.json", proofs["Pmax"]
    proof = proof | {"claim": {"lower": 0.0, "upper": 1.0}, "lower": None, "upper": None, "regret": None}
    usual = told(proof, path, capsys)
    others = {
        "target:": set_in(proof, "model", "labels", "goal", to=[0, 1, 2, 3]),
        "avoid:": set_in(set_in(proof, "objective", "avoid", to="no"), "model", "labels", "no", to=[2]),
        "horizon:": set_in(proof, "objective", "horizon", to=3),
        "discount:": set_in(proof, "objective", "discount", to=0.5),
        "objective:": set_in(proof, "objective", "sense", to="min"),
        "error of rewards:": set_in(proof, "reward_error", to=0.5),
        "model:": set_in(proof, "model", "name", to="mine"),
        "hash:": set_in(proof, "model", "successor", 0, to=1),
        "parameters:": set_in(proof, "model", "lower", 0, to=0.06),
        "delta:": set_in(proof, "confidence", to="anytime"),
    }
    for name, other in others.items():
        lines = told(other, path, capsys)
        differ = [old.split()[0] for old, new in zip(usual[1:], lines[1:]) if old != new]
        assert name.split()[0] in differ, (name, differ)


def test_names_cannot_imitate_lines(proofs, tmp_path, capsys):
    proof = set_in(proofs["Pmax"], "model", "name", to="a\n  delta: 1e-9\x1b[2K" + "b" * 5000)
    lines = told(proof, tmp_path / "p.json", capsys)
    assert "\x1b" not in lines[7] and "\\n" in lines[7] and max(map(len, lines)) < 500


def test_many_parameters_are_cut(proofs, tmp_path, capsys):
    proof = copy.deepcopy(proofs["Pmax"])
    proof["model"]["parameters"] += [f"x{k}" for k in range(100)]
    proof["model"]["lower"] += [0.0] * 100
    proof["model"]["upper"] += [1.0] * 100
    (line,) = (line for line in told(proof, tmp_path / "p.json", capsys) if "parameters:" in line)
    assert "82 more" in line and re.findall(r'"x\d+"', line)[-1] == '"x17"'


# ---------------------------------------------------------------------- time that is counted twice
def paid_on_arrival() -> tuple[Any, dict[str, Any]]:
    """From a to b or c, with a reward on arrival in b: so silent states stand between, and a step counts two."""
    rows = {"a": {"go": {"b": 0.5, "c": 0.5}}, "b": {"stay": {"b": 1}}, "c": {"stay": {"c": 1}}}
    pmdp = build(
        "a",
        rows.__getitem__,
        domain=[],
        labels={"c": lambda s: s == "c"},
        rewards={"r": lambda s, a, t: float(s == "a" and t == "b")},
    )
    proof = known(pmdp, Objective.reward("r", horizon=5))
    assert proof["claim"]["lower"] == pytest.approx(0.5)
    return pmdp, proof


def counted(proof: dict[str, Any], steps: int) -> list[list[list[float]]]:
    """Values of the (only) policy, every state taking a step: as a forger would write them."""
    parts, plan = proof["model"], proof["policy"]["rules"][0]
    one = checker.Model(parts)
    objective = checker.Objective(one, proof["objective"] | {"horizon": None})
    values = [[0.0] * one.states]
    for _ in range(steps):
        last = values[-1]
        values.append(
            [
                float(objective.reward[plan[s]])
                + sum(
                    float(one.constant[f]) * last[t] * objective.factor(s, t) / objective.discount.denominator
                    for t, f in one.moves[plan[s]]
                )
                for s in range(one.states)
            ]
        )
    return [[[v] for v in row] for row in values]


def test_a_loop_that_pays_is_not_counted_twice():
    """b pays 1 per step: 0.5 + 4/2 = 2.5 within five steps; "at least 4.5" was accepted."""
    pmdp, proof = paid_on_arrival()
    b = next(s for s in range(pmdp.num_states) if not pmdp.is_silent[s] and pmdp.state_value(s) == "b")
    proof["model"]["rewards"]["r"]["state"] = [[b, 1.0]]
    proof["lower"] = {"region": 0, "values": counted(proof, 10)}
    proof["upper"], proof["claim"] = None, {"lower": proof["lower"]["values"][-1][pmdp.initial_state][0], "upper": None}
    assert proof["claim"]["lower"] > 4
    with pytest.raises(checker.Refused, match="does not rest without a reward"):
        checker.check(proof)


def test_waiting_beside_silent_steps_is_refused():
    """A wait takes half a step where others take two halves: values of 5 steps were those of up to 9."""
    pmdp, proof = paid_on_arrival()
    a = pmdp.initial_state
    parts = proof["model"]  # a second row of a: wait, without a silent state
    row = parts["state_ptr"][a + 1]
    place = parts["row_ptr"][row]
    one = next(f for (_, f) in checker.Model(parts).moves[parts["state_ptr"][pmdp.num_states - 1]])
    parts["successor"].insert(place, a)
    parts["expression"].insert(place, one)
    parts["row_ptr"] = [*parts["row_ptr"][: row + 1], *(p + 1 for p in parts["row_ptr"][row:])]
    parts["state_ptr"] = [p + (s > a) for s, p in enumerate(parts["state_ptr"])]
    parts["action"].insert(row, 0)
    proof["lower"] = proof["upper"] = None
    proof["claim"] = {"lower": None, "upper": None}
    with pytest.raises(checker.Refused, match="passes no silent state"):
        checker.check(proof)


def test_costs_with_states_to_avoid_are_refused():
    """The play ends where it should not and misses the target, which costs infinity; "at most 1" was accepted."""
    pmdp = build(
        "a",
        lambda s: {"go": {"lost": 1}},
        domain=[],
        labels={"lost": lambda s: s == "lost"},
        rewards={"cost": lambda s, a: 1.0},
    )
    proof = known(pmdp, Objective.total("cost", target="lost", sense=Sense.MIN))
    assert checker.check(proof)["upper"] == pytest.approx(1.0)
    proof["model"]["labels"]["goal"] = []
    proof["objective"] |= {"target": "goal", "avoid": "lost", "unreached": "infinite"}
    with pytest.raises(checker.Refused, match="states to avoid are not covered"):
        checker.check(proof)
