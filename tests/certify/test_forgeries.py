"""No coherent forgery is accepted with a false claim; a checker without one of its rules would accept some."""

from __future__ import annotations

import json
import random
import warnings
from unittest import mock

import pytest

from rpl_agent.guarantee import checker
from tests.certify import forgeries


@pytest.fixture(scope="module")
def watch() -> forgeries.Watch:
    return forgeries.Watch()


@pytest.mark.parametrize("first", [3, *(pytest.param(k, marks=pytest.mark.nightly) for k in range(100, 140, 5))])
def test_no_forgery_is_accepted_with_a_false_claim(first, watch, sized):
    warnings.simplefilter("ignore")
    tally, wrong, _ = forgeries.run(sized(60, 600), first, watch)
    assert wrong == []
    became = {what.partition(": ")[2] for what in tally}
    assert became == {"refused by the checker", "refused by the reader", "accepted, and true"}


@pytest.mark.parametrize(
    ("forger", "place", "name"),
    [
        (forgeries._generous_intervals, checker.Intervals, "_check"),
        (forgeries._any_ball, checker.Likelihood, "check_ball"),
    ],
)
def test_without_a_rule_its_forgeries_would_pass(forger, place, name, watch):
    """So the forgeries are good enough to need each of these rules."""
    warnings.simplefilter("ignore")
    for seed in range(24):
        for _, case in forgeries.small_cases(seed):
            proof = json.loads(json.dumps(forgeries.witness(case, forger, random.Random(seed))))
            if "refused" not in proof:
                with mock.patch.object(place, name, lambda *_: None):
                    _, wrong = forgeries.judged(case, proof, watch)
                if wrong:
                    assert forgeries.judged(case, proof, watch) == ("refused by the checker", [])
                    return
    pytest.fail(f"no forgery needs {name}")


def test_what_a_file_runs_is_noticed(watch):
    watch.looks, watch.seen = True, []
    exec("1 + 1")
    watch.looks = False
    assert any(event in ("exec", "compile") for event in watch.seen)
