"""Events that rows observe as several outcomes: the checker's counts, and that they cannot be bent."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import confidence_intervals, event_table
from rpl_agent.core.evidence.unions import MOST_SHARED
from rpl_agent.core.model import Domain, Objective, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.checked_model import model_content


def die(rows, faces=("a", "b", "c")):
    """A model of one die with more faces than these, and rows (name: successors) of its only choice."""
    size = len(faces)
    domain = Domain(faces, np.zeros(size), np.ones(size), np.ones((1, size)), np.ones(1))
    ends = {s: {"stay": {s: 1}} for s in range(1, 9)}
    return build(0, ({0: rows} | ends).__getitem__, domain=domain, labels={"won": lambda s: s == 1})


def content(pmdp):
    return model_content(pmdp, Objective.reach("won"), graph=False)


def events(pmdp, counted):
    """The checker's successes and failures, by the text of an event, from counts by action and successor."""
    model = checker.Model(content(pmdp))
    transitions = []
    for (action, successor), n in counted.items():
        row = pmdp.find_row(0, pmdp.action_names.index(action))
        transitions.append([pmdp.find_transition(row, successor), n])
    data = checker.Data(model, {"schedule": "table", "planned": 0, "transitions": sorted(transitions), "marks": []})
    found = checker.Intervals(data, Fraction(1, 10), {}).events
    return {str(pmdp.table.polynomial(f)): counts for f, counts in found.items()}


REST = "1 - a - b - c"
APART = {1: "a", 2: "b", 3: "c", 4: REST}


def test_faces_that_a_wall_joins_are_observed_where_they_are_apart():
    pmdp = die({"apart": APART, "wall": {1: "a + b", 3: "c", 4: REST}})
    found = events(pmdp, {("apart", k): 10**k for k in range(1, 5)} | {("wall", 1): 7, ("wall", 3): 5})
    assert found["a + b"] == (117, 11_005)
    assert found["a"] == (10, 11_100)  # at the wall it is not seen alone
    assert found["c"] == (1_005, 10_117)


def test_a_complement_is_observed_by_its_own_parts():
    """No row has a + b: where the faces are apart, 1 − a − b did not happen if one of them came."""
    pmdp = die({"apart": APART, "wall": {1: "a", 2: "b", 3: "1 - a - b"}})
    found = events(pmdp, {("apart", k): 10**k for k in range(1, 5)} | {("wall", 1): 3, ("wall", 3): 5})
    assert found["1 - a - b"] == (11_005, 113)


def test_an_event_whose_parts_are_hidden_is_not_observed():
    pmdp = die({"apart": {1: "a", 2: "b + c", 3: REST}, "wall": {1: "1 - a - b", 2: "a + b"}})
    counted = {("apart", 1): 10, ("apart", 2): 100, ("apart", 3): 1_000, ("wall", 1): 7, ("wall", 2): 5}
    found = events(pmdp, counted)
    (joined,) = {"1 - a - b", "a + b"} & set(found)
    assert sorted(found[joined]) == [5, 7]


def test_parts_that_do_not_add_up_are_no_event():
    pmdp = die({"apart": {1: "a", 2: "0.5*b", 3: "0.5*b + c", 4: REST}, "wall": {1: "a + b", 3: "1 - a - b"}})
    found = events(pmdp, {("apart", 1): 1, ("apart", 2): 2, ("apart", 3): 3, ("wall", 1): 4})
    joined = {"a + b", "1 - a - b"} & set(found)
    assert [sum(found[one]) for one in joined] == [4]


def test_an_expression_that_stands_twice_is_twice_a_part():
    twice = {1: "0.5*a", 2: "0.5*a", 3: "b", 4: "1 - a - b"}
    pmdp = die({"twice": twice, "wall": {1: "0.5*a + b", 2: "1 - 0.5*a - b"}})
    found = events(pmdp, {("twice", k): 10 for k in range(1, 5)} | {("wall", 1): 3})
    joined = {"0.5*a + b", "1 - 0.5*a - b"} & set(found)
    assert [sum(found[one]) for one in joined] == [3]


def test_a_row_that_has_the_event_alone_counts_once():
    pmdp = die({"both": {1: "a + b", 2: "c", 4: REST}, "apart": APART})
    found = events(pmdp, {("both", 1): 2, ("both", 2): 3, ("both", 4): 5})
    assert found["a + b"] == (2, 8)


def test_a_row_has_an_event_by_itself_or_by_its_complement():
    """Expression 1 is the complement of the event 0, and 2 is an event without one."""
    events, mate = {0: None, 2: None}, {0: 1, 1: 0, 2: 2}
    assert checker.Intervals.single((0, 1), events, mate) == [(0, [0], True)]
    assert checker.Intervals.single((2, 1, 3), events, mate) == [(2, [0], True), (0, [1], False)]
    assert checker.Intervals.single((2, 2, 1), events, mate) == [(0, [2], False)]


def test_large_tables_are_not_searched(monkeypatch):
    pmdp = die({"apart": APART, "wall": {1: "a + b", 3: "c", 4: REST}})
    counted = {("apart", k): 10 for k in range(1, 5)}
    assert events(pmdp, counted)["a + b"] == (20, 20)
    monkeypatch.setattr(checker, "MOST_SHARED", pmdp.num_expressions)
    assert events(pmdp, counted)["a + b"] == (20, 20)
    monkeypatch.setattr(checker, "MOST_SHARED", pmdp.num_expressions - 1)
    assert events(pmdp, counted)["a + b"] == (0, 0)


def test_a_table_that_takes_too_many_looks_is_refused(monkeypatch):
    pmdp = die({"apart": APART, "wall": {1: "a + b", 3: "c", 4: REST}})
    table = [dict(terms) for terms in checker.Model(content(pmdp)).table]
    assert checker.Unions([], []).looks == 0
    looks = checker.Unions(table, list(range(len(table))))
    looks.of(tuple(range(len(table))), set())
    for most, holds in ((looks.looks, True), (looks.looks - 1, False)):
        monkeypatch.setattr(checker, "MOST_PARTS", most)
        again = checker.Unions(table, list(range(len(table))))
        if holds:
            again.of(tuple(range(len(table))), set())
        else:
            with pytest.raises(checker.Refused, match="looks"):
                again.of(tuple(range(len(table))), set())


def test_both_sides_look_in_tables_of_the_same_size():
    assert checker.MOST_SHARED == MOST_SHARED


@pytest.mark.parametrize("seed", range(8))
def test_the_checker_counts_what_the_package_counts(seed):
    """Random rows of one die: every row joins faces at random."""
    rng = np.random.default_rng(seed)
    chances = ["a", "b", "c", "d", "1 - a - b - c - d"]
    rows = {}
    for k in range(6):
        to = np.sort(rng.integers(1, 6, 5))
        rows[f"row {k}"] = {int(s): " + ".join(chances[i] for i in np.flatnonzero(to == s)) for s in np.unique(to)}
    pmdp = die(rows, ("a", "b", "c", "d"))
    counts = Counts(pmdp, schedule="table")
    counts.add_batch(rng.integers(0, 50, pmdp.num_transitions))
    successes, trials = event_table(pmdp).pool(counts)
    seen = [[t, int(n)] for t, n in enumerate(counts.transitions) if n]
    data = checker.Data(
        checker.Model(content(pmdp)), {"schedule": "table", "planned": 0, "transitions": seen, "marks": []}
    )
    theirs = checker.Intervals(data, Fraction(1, 10), {}).events
    assert sorted(map(sorted, theirs.values())) == sorted(sorted((k, n - k)) for k, n in zip(successes, trials))


def test_intervals_hold_where_the_rows_depend_on_the_past():
    """The next row depends on the last outcome; a run misses if an interval is false at any of its looks."""
    pmdp = die({"apart": APART, "wall": {1: "a + b", 3: "c", 4: REST}, "other": {1: "a + c", 2: "b", 4: REST}})
    delta, runs, missed = 0.5, 60, 0
    chances = pmdp.table.at(np.array([0.3, 0.2, 0.1]))
    rows, rng = [pmdp.find_row(0, k) for k in range(3)], np.random.default_rng(11)
    for _ in range(runs):
        counts, row, holds = Counts(pmdp), rows[0], True
        for step in range(40):
            span = np.arange(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
            t = int(rng.choice(span, p=chances[pmdp.expression[span]]))
            counts.add_transitions([t])
            row = rows[int(pmdp.successor[t]) % 3]
            if step % 20 == 19:
                lower, upper = confidence_intervals(pmdp, counts, "anytime", delta)
                holds &= bool(((lower <= chances + 1e-12) & (chances - 1e-12 <= upper)).all())
        missed += not holds
    assert missed <= delta * runs
