"""Pooling and intervals against exact, slow twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence import intervals
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import event_table
from rpl_agent.core.model import Domain, build
from tests.reference import evidence as slow


def _pooling_model():
    """f with 1−f, f in a three-way row, f twice in a row, 2f elsewhere, a lone complement, constants."""

    rows = {
        0: {"a": {1: "p", 2: "1 - p"}, "b": {1: "p", 2: "0.5 - 0.5*p", 3: "0.5 - 0.5*p"}},
        1: {"a": {0: "0.25*p", 2: "0.25*p", 3: "1 - 0.5*p"}, "b": {0: "0.5*p", 1: "1 - 0.5*p"}},
        2: {"a": {0: "0.25*p", 3: "1 - 0.25*p"}, "b": {0: "0.3", 3: "0.7"}},
        3: {"a": {0: "0.5 - 0.5*p", 1: "0.25 + 0.25*p", 2: "0.25 + 0.25*p"}, "b": {3: 1}},
    }
    return build(0, lambda s: rows[s], domain=["p"], name="pooling")


@pytest.fixture(scope="module")
def model():
    return _pooling_model()


def _agree(model, transitions):
    counts = Counts(model)
    counts.add_batch(transitions)
    successes, trials = event_table(counts.pmdp).pool(counts)
    expected = slow.pooled(model, transitions)
    assert event_table(model).num_events == len(expected)
    found = sorted((min(k, n - k), n) for k, n in zip(successes.tolist(), trials.tolist()))
    assert found == sorted((min(k, n - k), n) for k, n in expected.values())


@given(st.integers(0, 2**32 - 1))
def test_pooling_equals_definition(seed):
    model = _pooling_model()
    _agree(model, np.random.default_rng(seed).integers(0, 20, model.num_transitions))


def test_pooling_without_repeats_equals_definition():
    rows = {0: {"a": {0: "p", 1: "0.5*q", 2: "1 - p - 0.5*q"}, "b": {1: "1 - p", 2: "p"}, "c": {1: "1 - p", 2: "p"}},
            1: {"a": {0: "1 - 0.5*q", 1: "0.5*q"}}, 2: {"a": {2: 1}}}  # fmt: skip
    model = build(0, lambda s: rows[s], domain=["p", "q"], validate=False)
    _agree(model, np.random.default_rng(0).integers(0, 9, model.num_transitions))


def _die_at_a_wall():
    """A die of four faces: apart, with two of them together (twice, differently), and with a repeated face."""
    a, b, c = "a", "b", "c"
    rest = f"1 - {a} - {b} - {c}"
    rows = {
        0: {"apart": {0: a, 1: b, 2: c, 3: rest}, "low": {0: f"{a} + {b}", 2: c, 3: rest}},
        1: {"low": {0: f"{a} + {b}", 3: f"1 - {a} - {b}"}, "high": {0: a, 1: b, 3: f"1 - {a} - {b}"}},
        2: {"odd": {0: f"{a} + {c}", 1: b, 3: rest}, "split": {0: f"0.5*{a}", 1: f"0.5*{a}", 2: f"1 - {a}"}},
        3: {"all": {0: f"{a} + {b} + {c}", 3: rest}, "sure": {3: 1}},
    }
    domain = Domain((a, b, c), np.zeros(3), np.ones(3), np.ones((1, 3)), np.ones(1))
    return build(0, lambda s: rows[s], domain=domain, name="die")


@given(st.integers(0, 2**32 - 1))
def test_outcomes_together_are_an_event_that_other_rows_have_alone(seed):
    model = _die_at_a_wall()
    _agree(model, np.random.default_rng(seed).integers(0, 20, model.num_transitions))


def test_every_row_of_a_die_observes_the_faces_that_a_wall_joins():
    model = _die_at_a_wall()
    counts = Counts(model)
    for successor, n in enumerate((10, 20, 30, 40)):
        counts.add(0, 0, successor, n)
    lower, upper = intervals.confidence_intervals(model, counts, "anytime", 0.1)
    low, high = intervals.anytime([30], [100], 0.1 / event_table(model).num_events)
    both = [str(model.table.polynomial(f)) for f in range(model.num_expressions)].index("a + b")
    assert (lower[both], upper[both]) == (low[0], high[0])


def test_intervals_are_mapped_back_to_expressions(model):
    counts = Counts(model)
    counts.add_batch(np.random.default_rng(1).integers(1, 40, model.num_transitions))
    lower, upper = intervals.confidence_intervals(model, counts, "clopper-pearson", 0.05)
    table = model.table
    gamma = 0.05 / event_table(model).num_events
    for pair, (k, n) in slow.pooled(model, counts.transitions).items():
        leader = min(pair, key=str)
        low = stats.beta.ppf(gamma / 2, k, n - k + 1) if k else 0.0
        high = stats.beta.isf(gamma / 2, k + 1, n - k) if k < n else 1.0
        for f in range(table.num_expressions):
            for event, lo, hi in ((leader, low, high), (1 - leader, 1 - high, 1 - low)):
                if table.polynomial(f) == event and f in event_table(model).expression:
                    assert lower[f] >= lo - 1e-9 and upper[f] <= hi + 1e-9
    constants = table.is_constant
    for bounds, known in zip((lower, upper), table.constant_bounds):
        np.testing.assert_array_equal(bounds[constants], known[constants])


def test_same_expression_twice_is_one_event_of_twice_the_probability():
    model = build(0, lambda s: {"a": {1: "p", 2: "p", 3: "1 - 2*p"}} if s == 0 else {"a": {s: 1}},
                  domain=["p"], validate=False)  # fmt: skip
    assert event_table(model).num_events == 1
    counts = Counts(model)
    row = model.find_row(0, 0)
    for successor, n in ((1, 10), (2, 20), (3, 70)):
        counts.transitions[model.find_transition(row, successor)] = 0
        counts.add(0, 0, successor, n)
    lower, upper = intervals.confidence_intervals(model, counts, "anytime", 0.1)
    low, high = intervals.anytime([30], [100], 0.1)
    p = int(model.expression[model.find_transition(row, 1)])
    rest = int(model.expression[model.find_transition(row, 3)])
    assert lower[p] == pytest.approx(low[0] / 2, abs=1e-10) and upper[p] == pytest.approx(high[0] / 2, abs=1e-10)
    assert lower[rest] == pytest.approx(1 - high[0], abs=1e-10)


def test_unobserved_is_everything(model):
    lower, upper = intervals.confidence_intervals(model, Counts(model), "anytime", 0.05)
    unknown = ~model.table.is_constant
    assert (lower[unknown] == 0).all() and (upper[unknown] >= 0.5).all()


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(1e-9, 0.3))
def test_anytime_ends_lie_on_the_level_and_outside(n, share, gamma):
    k = round(share * n)
    lower, upper = (x[0] for x in intervals.anytime([k], [n], gamma))
    level = -np.log(gamma)
    if k == 0:
        assert lower == 0
    elif lower > 0:
        assert slow.anytime_log_martingale(lower, k, n) >= level - 1e-9
        inside = lower + 1e-11 + 1e-9 * lower
        assert slow.anytime_log_martingale(inside, k, n) <= level + 1e-6 * (1 + n * 1e-3)
    if k == n:
        assert upper == 1
    else:
        assert slow.anytime_log_martingale(min(upper, 1 - 1e-16), k, n) >= level - 1e-9
    assert lower <= k / n <= upper


def test_clopper_pearson_equals_scipy_and_is_rounded_outward():
    for k, n in ((0, 10), (3, 10), (10, 10), (500, 1000)):
        lower, upper = intervals.clopper_pearson([k], [n], 1e-6)
        exact = stats.binomtest(k, n).proportion_ci(1 - 1e-6, method="exact")
        assert 0 <= exact.low - lower[0] <= 1e-8 or lower[0] == 0
        assert 0 <= upper[0] - exact.high <= 1e-8 or upper[0] == 1


def test_anytime_price_is_moderate():
    n = np.array([1000, 10000, 100000])
    a = np.subtract(*intervals.anytime(n // 3, n, 1e-7)[::-1])
    c = np.subtract(*intervals.clopper_pearson(n // 3, n, 1e-7)[::-1])
    assert ((a / c > 1.05) & (a / c < 1.35)).all()


def test_quantiles_that_cannot_be_computed_bound_nothing():
    lower, upper = intervals.clopper_pearson(np.array([5, 5]), np.array([1000, 10]), 1e-300)
    assert (lower[0], upper[1]) == (0.0, 1.0) and np.isfinite([*lower, *upper]).all()


def test_bad_input(model):
    for delta in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(DataError, match="delta"):
            intervals.confidence_intervals(model, Counts(model), "anytime", delta)
    with pytest.raises(DataError, match="method"):
        intervals.confidence_intervals(model, Counts(model), "guess", 0.1)
    with pytest.raises(DataError):
        intervals.anytime([5], [3], 0.1)


def test_untied_intervals_trust_only_the_graph(model):
    counts = Counts(model)
    counts.add_batch(np.random.default_rng(2).integers(0, 30, model.num_transitions))
    lower, upper = intervals.untied_intervals(model, counts, "anytime", 0.05)
    row = model.find_row(2, model.action_names.index("b"))  # constants .3 / .7 are learned, too
    span = slice(model.row_ptr[row], model.row_ptr[row + 1])
    assert (upper[span] - lower[span] > 0.05).all()
    single = model.find_row(3, model.action_names.index("b"))
    assert lower[model.row_ptr[single]] == upper[model.row_ptr[single]] == 1.0
    totals = counts.row_totals[model.transition_row]
    some = totals > 0
    ratio = counts.transitions[some] / totals[some]
    assert (lower[some] <= ratio).all() and (ratio <= upper[some]).all()
