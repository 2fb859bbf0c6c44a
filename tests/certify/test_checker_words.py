"""What the checker says: which number stands for what, of whom; and the status of the command."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import mpmath
import pytest

from rpl_agent.guarantee import checker

NUMBERS = {"lower": 1.0, "upper": 2.0, "regret": None, "optimal": False, "evaluated": False}
BEGIN = "proved with probability ≥ 1 − 0.1 over 1,234 transitions: "


def said(maximising: bool = True, confidence: str = "likelihood", limits: int = 0, **found: Any) -> str:
    proof = {"objective": {"limits": [{}] * limits}, "confidence": confidence, "delta": 0.1}
    if "gain lower" in found:
        proof["baseline"] = {}
    data, objective = SimpleNamespace(total=1234), SimpleNamespace(maximising=maximising)
    return checker.sentence(proof, NUMBERS | {"data": data, "objective": objective} | found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the policy achieves at least 1.0; no policy achieves more than 2.0"),
        ({"maximising": False}, "the policy costs at most 2.0; no policy costs less than 1.0"),
        ({"evaluated": True}, "the value of the policy lies in [1.0, 2.0]"),
        ({"lower": None}, "the policy achieves at least unknown; no policy achieves more than 2.0"),
        (
            {"regret": 0.5},
            "the policy achieves at least 1.0; no policy achieves more than 2.0; no policy is better by more than 0.5",
        ),
        (
            {"regret": 0.0, "optimal": True},
            "the policy achieves at least 1.0; no policy achieves more than 2.0; no policy is better",
        ),
        (
            {"confidence": "graph", "evaluated": True},
            "the value of the policy lies in [1.0, 2.0] (only the model's graph is trusted)",
        ),
        (
            {"gain lower": 3.0, "gain upper": 4.0, "baseline lower": 5.0, "baseline upper": 6.0, "evaluated": True},
            "the value of the policy lies in [1.0, 2.0]; it is better than the baseline by at least 3.0, by at most "
            "4.0; the value of the baseline lies in [5.0, 6.0]",
        ),
        (
            {"limits": 1, "limit 0 lower": 7.0, "limit 0 upper": 8.0, "limit 0 best": 9.0},
            "the policy achieves at least 1.0; no policy that keeps the limits achieves more than 2.0; limit 0 has a "
            "value in [7.0, 8.0] for the policy, and none better than 9.0 for any",
        ),
    ],
)
def test_the_sentence_says_which_number_is_what(given, words):
    assert said(**given) == BEGIN + words


@pytest.mark.parametrize(("number", "shown"), [(19, 19), (20, 20), (21, 20), (25, 20)])
@pytest.mark.parametrize("inequalities", [None, 0, 3])
def test_parameters_are_listed_up_to_twenty_with_the_inequalities_between_them(number, shown, inequalities):
    told = dict.fromkeys(("lower", "upper"), [0] * number) | {"parameters": [f"x{k}" for k in range(number)]}
    told |= {"name": "m", "hash": "h", "successor": [0]}
    asked = {"kind": "reward", "reward_name": "r", "sense": "max"}
    line = None if inequalities is None else SimpleNamespace(domain=[None] * inequalities)
    model = SimpleNamespace(coordinates=line, labels={}, states=1, rows=1, silent=[])
    found = {"data": SimpleNamespace(model=model), "objective": SimpleNamespace(must_reach=False)}
    proof = {"objective": asked, "model": told, "reward_error": 0.0, "delta": 0.1, "confidence": "likelihood"}
    (text,) = (line for line in checker.question(proof, found) if line.startswith("parameters"))
    assert text.count(" in [0, 0]") == shown and (" more;" in text) == (number > 20)
    assert number <= 20 or f", {number - 20} more;" in text
    assert text.endswith(f"linear inequalities of the domain: {inequalities or 0}")


def asked_about(**parts: Any) -> list[str]:
    """The lines of `question` about a small model."""
    told = {"parameters": [], "lower": [], "upper": [], "name": "m", "hash": "h", "successor": [0] * 1234}
    model = SimpleNamespace(coordinates=None, labels={"goal": {0, 1}, "pit": {2}}, states=3, rows=4, silent={0})
    model.moves, model.row_state, model.initial, model.rows_of = [[(1, 0)]] * 4, [0, 1, 2, 2], 1, [[0], [1], [2, 3]]
    model.rewards = {"fuel": {"state": [], "row": [[0, 1]]}}
    found = {"data": SimpleNamespace(model=model), "objective": SimpleNamespace(must_reach=False)}
    proof = {"model": told, "reward_error": 0.0, "delta": 0.1, "confidence": "likelihood"}
    return checker.question(proof | parts, found)


def test_the_question_has_a_line_for_every_part_of_the_objective():
    asked = {"kind": "reach", "sense": "max", "target": "goal", "avoid": "pit", "horizon": 7, "discount": 0.5}
    lines = asked_about(objective=asked)
    assert lines[:5] == [
        "objective: max probability of reaching the target",
        'target: "goal", 2 states',
        'avoid: "pit", 1 states',
        "horizon: 7",
        "discount: 0.5",
    ]
    assert lines[5:7] == [
        "error of rewards: 0.0",
        'model: "m", 3 states, 4 rows, 1,234 transitions; 1 states take no time',
    ]
    told = {
        "parameters": [],
        "lower": [],
        "upper": [],
        "successor": [0] * 1234,
    }  # without the names that a file gives itself
    content = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    assert lines[7] == f'hash: "h" by the file; SHA-256 of its content {content}'
    plain = asked_about(objective={"kind": "instant", "sense": "min", "reward_name": "fuel"})
    assert plain[:5] == [
        'objective: min "fuel" at the horizon', "target: none", "avoid: none", "horizon: none", "discount: 1",
    ]  # fmt: skip


def test_limits_and_the_baseline_have_a_line_each():
    limit = {"kind": "reward", "sense": "min", "target": "goal", "reward_name": "fuel"}
    limits = [{"objective": limit, "threshold": 2.5}, {"objective": limit | {"discount": 0.5}, "threshold": 3}]
    lines = asked_about(
        objective={"kind": "reach", "sense": "max", "target": "goal", "limits": limits}, baseline={"b": 1}
    )
    assert lines[5:8] == [
        'limit 0: objective: min "fuel"; target: "goal", 2 states; a play that misses it costs infinity; avoid: none; '
        "horizon: none; discount: 1; threshold: 2.5",
        'limit 1: objective: min "fuel"; target: "goal", 2 states; avoid: none; horizon: none; discount: 0.5; '
        "threshold: 3",
        "baseline: a policy, SHA-256 of its content " + hashlib.sha256(b'{"b": 1}').hexdigest(),
    ]
    assert lines[8] == "error of rewards: 0.0"


def test_a_certificate_is_told_where_its_proof_is(tmp_path, capsys):
    path = tmp_path / "certificate.json"
    path.write_text('{"lower": 0.5}')
    assert checker.main([str(path)]) == 1
    assert capsys.readouterr().out == (
        f"refused: not a proof: format None, not {checker.FORMAT!r}; the proof of a certificate is beside it, and its "
        "name ends in proof.json.gz\n"
    )


def test_the_status_says_proved_refused_or_nothing_to_read(tmp_path, monkeypatch, capsys):
    path = tmp_path / "p.json"
    path.write_text("{}")
    assert checker.main([str(path)]) == 1 and "refused: not a proof" in capsys.readouterr().out
    assert checker.main([str(tmp_path / "none.json")]) == 2
    assert checker.main([]) == checker.main([str(path), str(path)]) == 2
    monkeypatch.setattr(checker, "check", lambda proof: {})
    monkeypatch.setattr(checker, "sentence", lambda proof, found: "proved")
    monkeypatch.setattr(checker, "question", lambda proof, found: ["objective", "delta"])
    capsys.readouterr()
    assert checker.main([str(path)]) == 0 and capsys.readouterr().out == "proved\n  objective\n  delta\n"


def test_only_one_file_is_read(tmp_path, monkeypatch):
    """The first argument is the file."""
    read = []
    monkeypatch.setattr(checker, "read", lambda path: read.append(path))
    checker.main(["one.json"])
    assert read == ["one.json"]


def test_pi_is_enclosed():
    with mpmath.workdps(60):
        low, high = (mpmath.mpf(bound.numerator) / bound.denominator for bound in checker.PI)
        assert low < mpmath.pi < high and checker.PI[1] - checker.PI[0] == Fraction(1, 10**39)
