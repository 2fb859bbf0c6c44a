"""What `open_checker` says: what was asked and assumed, line by line; and the status of the command."""

from __future__ import annotations

import json

import pytest

from rpl_agent.guarantee import checker, open_checker
from rpl_agent.guarantee.open_checker import END, digest
from tests.open_world.test_open_checker_numbers import refusal, statement

DATA = {"states": 2, "actions": 3, "starts": [[0, 50]], "outcomes": [[0, 0.5, END, 60], [4, 1.0, 0, 3], [4, 0.0, 0, 2]]}
OWN = {"returns": None, "rewards": [0, 2], "state_returns": [[0, 3], [0, 1]], "deterministic": False}
PLAYED = {"policy_number": 3, "rules": [[0, 1]], "unseen": 2, "rest": None, "since": [], "start": 0.0}
PLAYS = [[3.0, 2, END, 20, 0], [1.0, 2, END, 5, 0]]
GIVEN = [[END], *[[0, END]] * 5]
MARKOV = "assumed: observations are a Markov state"


def lines(**given) -> list[str]:
    proof = statement(data=DATA, **{"deterministic": False, "known_states": None, **given})
    return open_checker.question(proof, open_checker.check({**proof, "claim": {"lower": -9.0, "upper": 9.0}}))


def test_each_line_says_what_was_asked_of_which_world():
    found = lines()
    assert found == [
        "objective: max return; discount 0.5; horizon none",
        'world: "w", 2 states seen in the order of their first visits, 3 actions',
        MARKOV,
        "assumed: returns lie in [0, 4]",
        "rows: 2 tried, 4 never tried count as the largest return",
        f"data: SHA-256 {digest(DATA)}",
        "delta: 0.1",
    ]
    assert lines(horizon=7)[0] == "objective: max return; discount 0.5; horizon 7"


@pytest.mark.parametrize(
    "facts, said",
    [
        ({}, ["returns lie in [0, 4]"]),
        ({"rewards": [-1, 2]}, ["returns lie in [0, 4]", "rewards lie in [-1, 2]"]),
        ({"returns": None, "rewards": [-1, 2]}, ["rewards lie in [-1, 2]"]),
        ({"known_states": 1234}, ["returns lie in [0, 4]", "there are at most 1,234 states"]),
        (
            {"rewards": [-1, 2], "successors": GIVEN},
            [
                "returns lie in [0, 4]",
                "rewards lie in [-1, 2]",
                f"only the given states follow a row, SHA-256 {digest(GIVEN)}",
            ],
        ),
        (
            OWN,
            [
                "rewards lie in [0, 2]",
                f"returns from each state lie in a range of its own, SHA-256 {digest([[0, 3], [0, 1]])}",
            ],
        ),
        (
            {**OWN, "overall": [0, 3]},
            [
                "rewards lie in [0, 2]",
                f"returns from each state lie in a range of its own, SHA-256 {digest([[0, 3], [0, 1]])}",
                "all these ranges lie in [0, 3]",
            ],
        ),
    ],
)
def test_every_fact_that_is_assumed_is_said_and_no_other(facts, said):
    found = lines(**facts)
    assert [line for line in found if line.startswith("assumed: ")] == [MARKOV, *(f"assumed: {fact}" for fact in said)]


def test_worlds_with_one_outcome_per_action_and_policies_are_named():
    part = {**PLAYED, "rules": [[0]], "plays": PLAYS}
    proof = statement(lower=part)
    found = open_checker.check(proof)
    told = open_checker.question(proof, found)
    assert "assumed: every action has one outcome" in told
    assert told[-3:-1] == [
        f"policy: number 3 of those fixed, SHA-256 {digest([[[0]], 2])}; fixed before its plays, every play that was "
        "begun counts",
        f"plays: SHA-256 {digest([PLAYS, []])}",
    ]
    assert found["plays"] == 25
    assert open_checker.sentence(proof, found) == (
        "proved with probability ≥ 1 − 0.1 over 60 steps of 50 episodes: this policy returns at least 0.0 (it was "
        "played 25 times); no policy returns more than 4.0"
    )


def test_bounds_are_claimed_where_they_are_proved():
    """Of a policy that was played: what is proved is the number that its part states, and not one more bit."""
    proof = statement(lower={**PLAYED, "rules": [[0]], "plays": [[3.0, 2, END, 50, 0]], "start": 1.0})
    assert open_checker.check({**proof, "claim": {"lower": 1.0, "upper": 4.0}})["lower"] == 1.0
    for claim, sentence in (
        ({"lower": 1.0 + 2**-50, "upper": 4.0}, "but 1.0 is proved"),
        ({"lower": 1.0, "upper": 4.0 - 2**-50}, "but 4.0 is proved"),
    ):
        assert sentence in refusal(open_checker.check, {**proof, "claim": claim})


def test_the_status_says_whether_it_is_proved(tmp_path, capsys, monkeypatch):
    def status(*words: str) -> tuple[int, str]:
        code = open_checker.main(list(words))
        return code, capsys.readouterr().out

    def file(content: object) -> str:
        place = tmp_path / "proof.json"
        place.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(place)

    proof = statement()
    code, said = status(file(proof))
    assert (
        code == 0 and said.startswith("proved with") and "\n  objective: max return" in said and "refused" not in said
    )
    assert status(file({**proof, "claim": {"lower": 0.0, "upper": 3.0}})) == (
        1,
        "refused: upper 3.0 is claimed, but 4.0 is proved\n",
    )
    code, said = status(file({**proof, "assumed": None}))
    assert code == 1 and said.startswith("refused: the file is malformed: ")
    assert status(str(tmp_path / "none.json"))[0] == 2
    for words in ((), ("a", "b")):
        code, said = status(*words)
        assert code == 2 and said == f"{open_checker.__doc__}\n"
    monkeypatch.setattr(checker, "main", lambda words: 7)  # whatever the other one says
    assert status(file({"format": "rpl-proof/10"})) == (7, "") and status(file("{}")) == (7, "")
