"""No coherent forgery is accepted with a false claim; a checker without one of its rules would accept some."""

from __future__ import annotations

import json
import random
import warnings
from contextlib import ExitStack
from unittest import mock

import pytest

from rpl_agent.guarantee import checker
from tests.certify import forgeries


@pytest.fixture(scope="module")
def watch() -> forgeries.Watch:
    return forgeries.Watch()


@pytest.mark.parametrize("first", [8, *(pytest.param(k, marks=pytest.mark.nightly) for k in range(100, 140, 5))])
def test_no_forgery_is_accepted_with_a_false_claim(first, watch, sized):
    warnings.simplefilter("ignore")
    tally, wrong, _ = forgeries.run(sized(20, 600), first, watch, every=sized(False, True))
    assert wrong == []
    became = {what.partition(": ")[2] for what in tally}
    assert became == {"refused by the checker", "refused by the reader", "accepted, and true"}


@pytest.mark.parametrize(
    ("forger", "place", "name", "first"),
    [
        (forgeries._generous_intervals, checker.Intervals, "_check", 8),
        (forgeries._any_ball, checker.Likelihood, "check_ball", 14),
    ],
)
def test_without_a_rule_its_forgeries_would_pass(forger, place, name, first, watch):
    """So the forgeries are good enough to need each of these rules."""
    warnings.simplefilter("ignore")
    for seed in range(first, first + 24):
        for _, case in forgeries.small_cases(seed):
            proof = json.loads(json.dumps(forgeries.witness(case, forger, random.Random(seed))))
            if "refused" not in proof:
                with mock.patch.object(place, name, lambda *_: None):
                    _, wrong = forgeries.judged(case, proof, watch)
                if wrong:
                    assert forgeries.judged(case, proof, watch) == ("refused by the checker", [])
                    return
    pytest.fail(f"no forgery needs {name}")


@pytest.mark.parametrize(("forger", "first"), [(forgeries._fewer_pieces, 19), (forgeries._smaller_pieces, 185)])
def test_pieces_that_do_not_cover_the_region_would_pass(forger, first, watch):
    """A generous checker accepts false bounds from them, the real one does not."""
    warnings.simplefilter("ignore")
    for seed in range(first, first + 24):
        for _, case in forgeries.small_cases(seed):
            proof = json.loads(json.dumps(forgeries.witness(case, forger, random.Random(seed))))
            with ExitStack() as stack:
                for patch in forger(random.Random(seed)):
                    stack.enter_context(patch)
                wrong = [] if "refused" in proof else forgeries.judged(case, proof, watch)[1]
            if wrong:
                assert forgeries.judged(case, proof, watch) == ("refused by the checker", [])
                return
    pytest.fail("no forgery needs the halves to cover their box")


def test_what_a_file_runs_is_noticed(watch):
    watch.looks, watch.seen = True, []
    exec("1 + 1")
    watch.looks = False
    assert any(event in ("exec", "compile") for event in watch.seen)


@pytest.mark.parametrize("forger", [forgeries._any_tie, forgeries._kind_difference])
def test_without_a_rule_false_comparisons_would_pass(forger):
    """A policy that is not the best would be proved optimal, and gains and regrets would be too good."""
    warnings.simplefilter("ignore")
    draw = random.Random(5)  # for which differences are too small by 1
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(forgeries, "WITNESSES", ()))
        stack.enter_context(mock.patch.object(forgeries, "COMPARING", (lambda _: iter(()),) * 2))  # of two claims
        for patch in forger(draw):
            stack.enter_context(patch)
        assert any(forgeries.compared(seed, every=False)[1] for seed in range(4))
