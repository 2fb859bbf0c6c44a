"""Repeated chance is noticed, and independent chance is not accused."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from rpl_agent.core.evidence import repetition
from rpl_agent.core.evidence.repetition import EpisodeCodes, RepetitionTest, WindowCodes, equal_parts, mix
from rpl_agent.core.model import build


def coin(names="ab"):
    """From each state the next one, by a coin of its own; three ways out of the first."""
    rows = {
        "a": {"go": {"a": "p/2", "b": "1-p", "c": "p/2"}, "stay": {"a": "q", "b": "1-q"}},
        "b": {"go": {"a": "q", "b": "1-q"}, "stay": {"b": 1}},
        "c": {"go": {"a": 1}, "stay": {"c": "p", "a": "1-p"}},
    }
    return build("a", lambda s: rows[s], domain=["p", "q"])


def play(pmdp, rng, steps, uniform=None):
    """Transitions of a play that always restarts after ten steps; ``uniform`` (steps,) are its random numbers."""
    probability = pmdp.instantiate(np.array([0.6, 0.3])).probability
    draws = rng.random(steps) if uniform is None else uniform
    choices, out = rng.random(steps), []
    state = pmdp.initial_state
    for k in range(steps):
        if k % 10 == 0:
            state = pmdp.initial_state
        rows = range(pmdp.state_ptr[state], pmdp.state_ptr[state + 1])
        row = rows[int(choices[k] * len(rows))]
        span = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
        t = span.start + int(np.searchsorted(np.cumsum(probability[span]), draws[k]))
        out.append(min(t, span.stop - 1))
        state = int(pmdp.successor[out[-1]])
    return np.array(out)


def contexts(pmdp, transitions):
    starts = np.arange(len(transitions)) % 10 == 0
    return {"row": np.zeros(len(transitions)), **EpisodeCodes().add(transitions, starts)}


def log_e_value(test):
    found = [table.log_e_value() for table in test._tables.values()]
    return float(np.logaddexp.reduce(found) - math.log(len(found)))


def test_episodes_with_the_same_random_numbers_are_noticed():
    pmdp, rng = coin(), np.random.default_rng(0)
    same = np.tile(rng.random(10), 40)
    test = RepetitionTest(pmdp, ("row", "step", "episode"))
    transitions = play(pmdp, rng, 400, same)
    test.add(transitions, contexts(pmdp, transitions))
    kind, hits, compared, earlier, later = test.alarm()
    assert kind in ("step", "episode") and hits == compared > 100 and earlier < later
    assert transitions[earlier] == transitions[later]


@pytest.mark.parametrize("runs", [200, pytest.param(1000, marks=pytest.mark.nightly)])
def test_false_alarms_are_as_rare_as_they_may_be(runs):
    """Runs of 200 steps, looked at after every 50: the e-value reaches 1/α in at most a share α of them."""
    pmdp, rng = coin(), np.random.default_rng(1)
    largest = []
    for _ in range(runs):
        test, transitions = RepetitionTest(pmdp, ("row", "step", "episode")), play(pmdp, rng, 200)
        codes, most = contexts(pmdp, transitions), -math.inf
        for begin in range(0, 200, 50):
            part = slice(begin, begin + 50)
            test.add(transitions[part], {kind: code[part] for kind, code in codes.items()})
            most = max(most, log_e_value(test))
        largest.append(most)
    for alpha in (0.5, 0.2, 0.05):
        refused = sum(most >= math.log(1 / alpha) for most in largest)
        assert refused <= runs * alpha + 3 * math.sqrt(runs * alpha)
    assert max(largest) > math.log(1.5)  # it moves


def test_expectation_is_at_most_one_by_enumeration():
    """All sequences of seven outcomes of two coins, chosen by what happened before."""
    rows = {0: {"x": {0: "p", 1: "1-p"}, "y": {0: "q", 1: "1-q"}}, 1: {"x": {0: 1}}}
    pmdp = build(0, lambda s: rows[s], domain=["p", "q"])
    for p, q in ((0.5, 0.9), (0.2, 0.6), (0.97, 0.5)):
        expected = 0.0
        for outcome in product(range(2), repeat=7):
            weight, steps = 1.0, []
            for k, target in enumerate(outcome):
                action = sum(outcome[:k]) % 2
                weight *= (p, q)[action] if target == 0 else 1 - (p, q)[action]
                steps.append(pmdp.find_transition(pmdp.find_row(0, action), target))
            test = RepetitionTest(pmdp, ("row", "step"))
            transitions = np.array(steps)
            for k in range(7):  # one at a time, as they come
                test.add(transitions[k : k + 1], {"row": np.zeros(1), "step": np.array([k // 2])})
            expected += weight * math.exp(log_e_value(test))
        assert 0.1 < expected <= 1.0


def test_rows_and_steps_are_told_apart():
    """Row 3 in step 5 had the code of row 5 in step 3: honest plays were refused."""
    rows = {s: {"go": {s + 1: "p", s: "1-p"}} for s in range(20)} | {20: {"go": {20: 1}}}
    pmdp, rng = build(0, lambda s: rows[s], domain=["p"]), np.random.default_rng(5)
    transitions, starts = [], []
    for _ in range(100):
        state = 0
        for step in range(30):
            state_row = int(pmdp.state_ptr[pmdp.state_index(state)])
            went = state + (state < 20 and rng.random() < 0.6)
            transitions.append(pmdp.find_transition(state_row, pmdp.state_index(went)))
            starts.append(step == 0)
            state = went
    test, seen, hits, misses = RepetitionTest(pmdp, ("step",)), {}, 0, 0
    test.add(np.array(transitions), {"step": EpisodeCodes().add(np.array(transitions), np.array(starts))["step"]})
    for k, t in enumerate(transitions):
        row = int(pmdp.transition_row[t])
        if pmdp.row_ptr[row + 1] - pmdp.row_ptr[row] > 1:
            if (row, k % 30) in seen:
                hits += seen[row, k % 30] == t
                misses += seen[row, k % 30] != t
            seen[row, k % 30] = t
    table = test._tables["step"]
    assert (table.hits, table.misses) == (hits, misses) and test.alarm() is None


def test_pieces_change_nothing(monkeypatch):
    pmdp, rng = coin(), np.random.default_rng(2)
    transitions = play(pmdp, rng, 500)
    starts = np.arange(500) % 10 == 0
    kinds = ("step", "episode", "last 7")
    whole, parts = RepetitionTest(pmdp, kinds), RepetitionTest(pmdp, kinds)
    episodes, window = EpisodeCodes(), WindowCodes(7)
    whole.add(transitions, {**EpisodeCodes().add(transitions, starts), "last 7": WindowCodes(7).add(transitions)})
    for begin, end in zip((0, 3, 4, 100, 333), (3, 4, 100, 333, 500)):
        part = transitions[begin:end]
        parts.add(part, {**episodes.add(part, starts[begin:end]), "last 7": window.add(part)})
    for kind in kinds:
        a, b = whole._tables[kind], parts._tables[kind]
        assert (a.hits, a.misses, a.log_e_value()) == (b.hits, b.misses, b.log_e_value())
    different = {tuple(transitions[k - 7 : k]) for k in range(7, 500)}
    assert len(np.unique(WindowCodes(7).add(transitions)[7:])) == len(different)
    monkeypatch.setattr(repetition, "KEPT", 16)  # only some contexts are remembered
    few = RepetitionTest(pmdp, ("step",))
    for _ in range(8):
        few.add(transitions, {"step": EpisodeCodes().add(transitions, starts)["step"]})
    table = few._tables["step"]
    assert table._tally[0] <= 16 and table._tally[1] > 1 and table.hits > 0
    assert (table._table.last >= 0).sum() == table._tally[0]


def test_codes_are_those_of_the_definition():
    radix, big = 0xD1342543DE82EF95, 2**64
    rows = np.random.default_rng(3).integers(0, 4, 60)
    starts = np.random.default_rng(4).random(60) < 0.2
    mixed = [int(word) for word in mix(rows)]
    found, windows = EpisodeCodes().add(rows, starts), WindowCodes(5).add(rows)
    begin = 0
    for k in range(60):
        begin = k if starts[k] else begin
        prefix = sum(mixed[j] * radix ** (j - begin) for j in range(begin, k)) % big
        step = int(mix(np.array([k - begin]))[0])
        assert int(found["step"][k]) == step
        assert found["episode"][k] == mix(np.array([(prefix + step) % big], dtype=np.uint64))[0]
        window = sum(mixed[k - 5 + j] * radix**j for j in range(5)) % big
        assert windows[k] == mix(np.array([window] if k >= 5 else [(k - 5) % big], dtype=np.uint64))[0]


def test_a_table_with_room_forgets_nothing(monkeypatch):
    """Compared with a dictionary; small tables grow on the way."""
    monkeypatch.setattr(repetition, "FIRST_SLOTS", 4)
    pmdp, rng = coin(), np.random.default_rng(6)
    transitions, codes = play(pmdp, rng, 900), rng.integers(0, 300, 900).astype(np.uint64)
    test, seen, matched = RepetitionTest(pmdp, ("row",)), {}, np.zeros(pmdp.num_transitions, int)
    for begin in range(0, 900, 90):
        test.add(transitions[begin : begin + 90], {"row": codes[begin : begin + 90]})
    hits, misses, others, example = 0, 0, 0.0, None
    for k, (t, code) in enumerate(zip(transitions.tolist(), codes.tolist())):
        row = int(pmdp.transition_row[t])
        size = int(pmdp.row_ptr[row + 1] - pmdp.row_ptr[row])
        if size == 1:
            continue
        if (row, code) in seen:
            last, place = seen[row, code]
            matched[t] += 1
            hits, misses = hits + (last == t), misses + (last != t)
            others += math.log(size - 1) if last != t else 0.0
            example = (place, k) if last == t else example
        seen[row, code] = t, k
    table = test._tables["row"]
    assert (table.hits, table.misses, table.example) == (hits, misses, example) and hits > 50 < misses
    assert table._tally[0] == len(seen) and table._others[0] == pytest.approx(others)
    assert np.array_equal(table._matched, matched)


def test_shuffled_copies_have_equal_parts():
    pmdp, rng = coin(), np.random.default_rng(4)
    once = play(pmdp, rng, 200)
    eight = np.concatenate([rng.permutation(once) for _ in range(8)])
    assert equal_parts(pmdp, eight) is not None
    assert equal_parts(pmdp, play(pmdp, rng, 1600)) is None
    certain = np.full(1600, pmdp.find_transition(pmdp.find_row(pmdp.state_index("b"), 1), pmdp.state_index("b")))
    assert equal_parts(pmdp, certain) is None  # nothing is left to chance here
    with pytest.raises(repetition.DataError):
        raise repetition.RepeatedChanceError("a kind of DataError")
