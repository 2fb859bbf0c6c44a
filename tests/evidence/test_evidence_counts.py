"""Counts, marks and checkpoints."""

import numpy as np
import pytest

import rpl_envs
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import BET_SHARES
from rpl_agent.core.model import build


@pytest.fixture(scope="module")
def chain():
    def actions(state):
        x = state[0]
        if x >= 3:
            return {"stay": {state: 1}}
        return {"go": {(x + 1,): "p", (0,): "1 - p"}, "try": {(x + 1,): "0.5*p", state: "1 - 0.5*p"}}

    return build((0,), actions, domain=["p"], variables=("x",), name="chain")


def test_add_and_row_totals(chain):
    counts = Counts(chain)
    go, attempt = chain.action_names.index("go"), chain.action_names.index("try")
    counts.add(0, go, 1, n=3)
    counts.add(0, go, 0)
    counts.add_many([1, 1], [attempt, attempt], [2, 1])
    assert counts.total == 6
    assert counts.row_totals[chain.find_row(0, go)] == 4
    assert counts.row_totals[chain.find_row(1, attempt)] == 2
    f = chain.expression[chain.find_transition(chain.find_row(0, go), 1)]
    assert counts.successes[f] == 3
    np.testing.assert_array_equal(
        counts.successes,
        np.bincount(chain.expression, weights=counts.transitions, minlength=chain.num_expressions),
    )


def test_transitions_by_number_count_as_by_name(chain):
    rng = np.random.default_rng(0)
    numbers = rng.integers(chain.num_transitions, size=70_000)
    rows = chain.transition_row[numbers]
    named, numbered = Counts(chain), Counts(chain)
    named.add_many(chain.row_state[rows], chain.action[rows], chain.successor[numbers])
    numbered.add_transitions(numbers)
    for key, array in named.to_arrays().items():  # marks included
        np.testing.assert_array_equal(numbered.to_arrays()[key], array)
    assert len(numbered.marks) > 2
    numbered.add_transitions([])
    for wrong in ([-1], [chain.num_transitions], [0.5], [[0]]):
        with pytest.raises(DataError, match="transition"):
            numbered.add_transitions(wrong)
    assert numbered.total == 70_000


def test_impossible_transition_is_named_and_not_counted(chain):
    counts = Counts(chain)
    go = chain.action_names.index("go")
    with pytest.raises(DataError, match=r"x=0.*go.*never leads to.*x=2"):
        counts.add(0, go, 2)
    with pytest.raises(DataError, match=r"x=3.*go.*is not enabled"):
        counts.add(3, go, 3)
    with pytest.raises(DataError, match=r"no state 17 \(it has 4"):
        counts.add(17, go, 3)
    with pytest.raises(DataError):
        counts.add_many([0, 0], [go, go], [1, 3])
    assert counts.total == 0 and not counts.transitions.any()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, float])
def test_counts_that_would_wrap_are_refused(chain, dtype):
    """Sums of int64 wrap silently; a count beyond 2^53 is no longer a float64 either."""
    counts, batch = Counts(chain), np.zeros(chain.num_transitions, dtype=dtype)
    batch[0] = 2**53
    counts.add_batch(batch)
    for more in (1, 2**62, *((2**63 + 2**40,) if dtype is np.uint64 else ())):
        batch[0] = more
        with pytest.raises(DataError, match="2\\^53"):
            counts.add_batch(batch)
    with pytest.raises(DataError, match="2\\^53"):
        counts.add(0, chain.action_names.index("go"), 1, n=2**63 - 1)
    with pytest.raises(DataError, match="not a whole number"):
        counts.add(0, chain.action_names.index("go"), 1, n=0.5)
    with pytest.raises(DataError, match="not a whole number"):
        counts.add(0, chain.action_names.index("go"), 1, n="3")
    assert counts.total == counts.transitions[0] == counts.successes.sum() == 2**53


def test_bad_batches(chain):
    counts = Counts(chain)
    with pytest.raises(DataError, match="shape"):
        counts.add_batch(np.zeros(3, dtype=int))
    bad = np.zeros(chain.num_transitions, dtype=int)
    bad[2] = -1
    with pytest.raises(DataError, match="negative count -1"):
        counts.add_batch(bad)
    with pytest.raises(DataError, match="whole"):
        counts.add_batch(np.full(chain.num_transitions, 0.5))
    with pytest.raises(DataError, match="schedule"):
        Counts(chain, schedule="often")


def test_geometric_marks_fall_due_exactly_in_a_log(chain):
    counts = Counts(chain)
    go = chain.action_names.index("go")
    n = 5000
    counts.add_many(np.zeros(n, int), np.full(n, go), np.arange(n) % 2)
    assert [m.total for m in counts.marks] == [64, 256, 1024, 4096]
    assert all(m.successes.sum() == m.total and m.progress == 0.0 and m.trials is None for m in counts.marks)
    assert counts.origin_weight + sum(m.weight for m in counts.marks) <= 1


def test_batches_mark_at_boundaries_and_weights_are_bounded(chain):
    counts = Counts(chain, schedule="geometric")
    batch = np.zeros(chain.num_transitions, dtype=np.int64)
    batch[0] = 1000
    for _ in range(5):
        counts.add_batch(batch)
    assert [m.total for m in counts.marks] == [1000, 2000, 5000]
    split = Counts(chain, schedule="split")
    split.add_batch(batch)
    split.mark()
    split.add_batch(batch)
    assert len(split.marks) == 1 and split.marks[0].total == 1000
    with pytest.raises(DataError, match="weights left"):
        split.mark(weight=0.9)


def test_planned_split_marks_itself(chain):
    counts = Counts(chain, schedule="split", planned=1000)
    go = chain.action_names.index("go")
    counts.add_many(np.zeros(1000, int), np.full(1000, go), np.arange(1000) % 2)
    assert [m.total for m in counts.marks if m.weight] == [40, 80, 160]
    assert {m.total for m in counts.marks} >= {round(1000 * share) for share in BET_SHARES}
    assert all(m.progress == m.total / 1000 and m.trials.sum() == 2 * m.total for m in counts.marks)
    assert 0.98 < counts.origin_weight + sum(m.weight for m in counts.marks) <= 1 + 1e-12
    restored = Counts.from_arrays(chain, counts.to_arrays())
    assert restored.planned == 1000 and [m.total for m in restored.marks] == [m.total for m in counts.marks]
    with pytest.raises(DataError, match="planned"):
        Counts(chain, planned=5)


def test_checkpoint_round_trip_continues_identically(chain):
    rng = np.random.default_rng(3)
    first, whole = (Counts(chain, schedule="split", planned=4000) for _ in range(2))
    batches = [rng.integers(0, 50, chain.num_transitions) for _ in range(12)]
    for batch in batches[:6]:
        first.add_batch(batch)
    restored = Counts.from_arrays(chain, first.to_arrays())
    for batch in batches[6:]:
        restored.add_batch(batch)
    for batch in batches:
        whole.add_batch(batch)
    np.testing.assert_array_equal(restored.transitions, whole.transitions)
    assert [m.total for m in restored.marks] == [m.total for m in whole.marks]
    for a, b in zip(restored.marks, whole.marks):
        np.testing.assert_array_equal(a.successes, b.successes)
        np.testing.assert_array_equal(a.trials, b.trials)
        assert (a.weight, a.progress) == (b.weight, b.progress)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mark_successes", lambda a: a + 10**6), ("mark_successes", lambda a: a[::-1]),
        ("mark_successes", lambda a: -a),
        ("mark_trials", lambda a: a + 10**6), ("mark_trials", lambda a: a[::-1]), ("mark_trials", lambda a: a[:, 1:]),
        ("mark_trials", lambda a: a[:-1]), ("mark_totals", lambda a: a - 1),
        ("mark_totals", lambda a: a[::-1]), ("mark_totals", lambda a: a + 10**6),
        ("mark_weights", lambda a: -a), ("mark_weights", lambda a: a + np.nan), ("mark_weights", lambda a: a + 0.5),
        ("mark_progress", lambda a: a + 1.0), ("mark_progress", lambda a: -a), ("mark_progress", lambda a: a + np.nan),
    ],
)  # fmt: skip
def test_marks_that_are_no_beginnings_of_the_data_are_refused(chain, name, change):
    """Weights and shares of a file, too: with -20 and 20 a region would shrink at will."""
    counts = Counts(chain, schedule="planned")
    for k, batch in enumerate(np.random.default_rng(3).integers(1, 50, (6, chain.num_transitions))):
        counts.add_batch(batch)
        counts.bet(k / 6)
    arrays = counts.to_arrays()
    Counts.from_arrays(chain, dict(arrays))
    arrays[name] = change(arrays[name])
    with pytest.raises(DataError, match=r"mark|progress"):
        Counts.from_arrays(chain, arrays)


def test_the_first_data_say_whether_there_is_an_order(chain):
    """A table has no marks and one window, which begins before it."""
    table, steps = Counts(chain), Counts(chain)
    table.add_batch(np.full(chain.num_transitions, 1000))
    table.add_batch(np.full(chain.num_transitions, 1000))
    assert (table.schedule, table.marks, table.origin_weight) == ("table", [], 1.0)
    go = chain.action_names.index("go")
    for _ in range(100):
        steps.add(0, go, 1)
    assert (steps.schedule, len(steps.marks)) == ("geometric", 1)
    sorted_by_outcome = Counts(chain)
    sorted_by_outcome.add(0, go, 1, n=100)
    assert (sorted_by_outcome.schedule, sorted_by_outcome.marks) == ("table", [])
    assert Counts.from_arrays(chain, Counts(chain).to_arrays()).schedule is None
    assert Counts.from_arrays(chain, table.to_arrays()).schedule == "table"


def test_a_mark_before_the_first_batch_says_that_there_is_an_order(chain):
    """Its window and the one from the first sample share one weight; a table would give each a whole one."""
    counts = Counts(chain)
    counts.mark()
    counts.add_batch(np.full(chain.num_transitions, 1000))
    assert counts.schedule == "split" and counts.origin_weight + counts.marks[0].weight <= 1.0
    table = Counts(chain)
    table.add_batch(np.full(chain.num_transitions, 1000))
    with pytest.raises(DataError, match="no order"):
        table.mark()


def test_bets_are_marked_by_a_plan_that_may_change(chain):
    counts, go = Counts(chain, schedule="planned"), chain.action_names.index("go")

    def play(until, goal):
        shares = []
        while counts.total < until:
            counts.add_many(np.zeros(10, int), np.full(10, go), np.arange(10) % 2)
            if counts.bet(counts.total / goal) and not counts.marks[-1].weight:
                shares.append(counts.marks[-1].progress)
        return shares

    first = play(10_000, 10_000)
    assert len(first) == len(BET_SHARES) - 1  # the last one lies beyond 9,990 of 10,000
    assert all(a >= b for a, b in zip(first, BET_SHARES))
    second = play(20_000, 20_000)  # twice the budget: once, as soon as it is known, and then as before
    assert second[0] == pytest.approx(0.5, abs=0.01) and len(second) < 30 and second == sorted(second)
    play(30_000, 30_000)
    assert all(share == 0.5 for share in play(80_000, 80_000)[1:])  # nobody believes the fourth plan
    assert not any(counts.bet(share) for share in (0.0, 1.0, 1.5))


def test_windows_begin_where_the_plan_says(chain):
    """Most of the weight is where it is needed, and there is always some for a plan that is extended."""
    counts, go = Counts(chain, schedule="planned"), chain.action_names.index("go")
    for goal in (10_000, 100_000):
        while counts.total < goal:
            counts.add_many(np.zeros(10, int), np.full(10, go), np.arange(10) % 2)
            counts.bet(counts.total / goal, value=False)
    begun = [(m.total, m.weight) for m in counts.marks]
    assert [total for total, _ in begun] == [64, 256, 400, 800, 1600, 12_800]
    left = 1.0 - counts.origin_weight
    for (_, weight), share in zip(begun, (1 / 16, 1 / 16, 1 / 4, 1 / 4, 1 / 4, 1 / 4)):
        assert weight == pytest.approx(share * left, rel=1e-12)
        left -= weight
    arrays = counts.to_arrays()
    assert [m.weight for m in Counts.from_arrays(chain, dict(arrays)).marks] == [weight for _, weight in begun]
    arrays["mark_weights"][1] = 0.5  # more than a quarter, and less than 1 in sum
    arrays["mark_weights"][2:] /= 10
    with pytest.raises(DataError, match="not the schedule's own"):
        Counts.from_arrays(chain, arrays)


def test_merged_counts_are_those_of_all_pieces_and_mark_only_where_one_ends():
    pmdp = rpl_envs.benchmark("Betting-25").pmdp
    rng = np.random.default_rng(0)
    pieces, ends = [], []
    for size in (10, 100, 300, 1000, 50):
        piece = Counts(pmdp)
        piece.add_transitions(rng.integers(0, pmdp.num_transitions, size))
        pieces.append(piece)
        ends.append(size)
    merged = Counts(pmdp).merge(*pieces)
    assert merged.total == sum(ends) and merged.schedule == "geometric"
    np.testing.assert_array_equal(merged.transitions, sum(piece.transitions for piece in pieces))
    np.testing.assert_array_equal(merged.successes, sum(piece.successes for piece in pieces))
    assert {mark.total for mark in merged.marks} <= set(np.cumsum(ends).tolist()) and merged.marks
    with pytest.raises(DataError, match="given twice"):
        merged.merge(pieces[0], pieces[0])
    with pytest.raises(DataError, match="given twice"):
        merged.merge(merged)
    with pytest.raises(DataError, match="another model, Betting-25"):
        Counts(rpl_envs.benchmark("Glider-11x9").pmdp).merge(pieces[0])
    with pytest.raises(ModelError, match="piece is int 3, not Counts"):
        merged.merge(3)
