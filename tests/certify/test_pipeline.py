"""The pipeline step by step: which share of δ goes where, which bound is taken from which part, and for whom."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rpl_agent import Config, Counts, DataError, ModelError, Objective, RPLWarning, build, certify
from rpl_agent.core.coupled.regret import NOT_FOUND, Regret, difference_above
from rpl_agent.core.errors import RefutedWarning, RepeatedChanceWarning
from rpl_agent.core.evidence.intervals import untied_intervals
from rpl_agent.core.evidence.ledger import Ledger, refuting_log_e_value
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Sense
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import pipeline
from rpl_agent.guarantee.certificate import with_margin
from rpl_agent.guarantee.confidence import confidence_set
from rpl_agent.guarantee.likelihood.refutation.alternatives import Doubt
from rpl_agent.guarantee.pipeline import Uncertainty, certify_uncertainty, uncertainty_from

DELTA = 0.1
REACH = Objective.reach("won")


def coin(kinds: str = "pq"):
    """Two coins to choose from, each tossed once."""

    def actions(s):
        return {"stay": {s: 1}} if s else {f"toss {k}": {1: k, 2: f"1 - {k}"} for k in kinds}

    rewards = {"paid": lambda s, a: float(s == 0), "gain": lambda s, a: (s == 0) * (1.0 if a == "toss p" else -1.0)}
    labels = {"won": lambda s: s == 1, "lost": lambda s: s == 2, "over": lambda s: s > 0}
    return build(0, actions, domain=list(kinds), labels=labels, rewards=rewards, name="coins")


def tossed(pmdp) -> Counts:
    counts = Counts(pmdp)
    batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
    batch[:4] = [60, 40, 30, 70]
    counts.add_batch(batch)
    return counts


# ====================================================================== settings
@pytest.mark.parametrize(
    "settings",
    [
        {"relaxation": "loose"}, {"precision": 0.0}, {"precision": 1.0}, {"precision": 2.0}, {"precision": "small"},
        {"precision": -0.5}, {"pieces": 0}, {"pieces": True}, {"pieces": 1.5}, {"bets": 1}, {"prefer": "luck"},
        {"delta": 0.0}, {"confidence": "none"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises((ModelError, DataError)):
        Config(**settings)


def test_settings_that_make_sense_are_kept_and_defaults_are_those_of_the_docs():
    for name in pipeline.RELAXATIONS:
        assert Config(relaxation=name).relaxation == name
    for settings in ({"precision": 0.5}, {"pieces": 1}, {"pieces": 2}, {"bets": False}, {"prefer": "regret"}):
        assert all(getattr(Config(**settings), name) == value for name, value in settings.items())
    given = Config()
    assert (given.delta, given.precision, given.pieces) == (1e-3, 1e-6, 8)
    assert pipeline.ROUNDING == 1e-11 and pipeline.QUERIED_ROWS == 500


def test_rows_are_bet_on_only_with_bets_the_likelihood_and_sets_of_rows():
    assert Config().bets_on_rows and Config(relaxation="rectangular").bets_on_rows
    for settings in ({"bets": False}, {"confidence": "l1"}, {"relaxation": "tied"}, {"relaxation": "parameter"}):
        assert not Config(**settings).bets_on_rows


def test_arguments_are_of_their_kinds():
    pmdp = coin()
    pipeline.require_kinds(pmdp, Counts(pmdp), REACH, None)
    pipeline.require_kinds(pmdp, Counts(pmdp), 'Pmax=? [ F "won" ]', Config())
    for given in ((REACH, Counts(pmdp), REACH, None), (pmdp, pmdp, REACH, None), (pmdp, Counts(pmdp), REACH, "fast")):
        with pytest.raises(ModelError, match="in place of"):
            pipeline.require_kinds(*given)


# ====================================================================== shares of δ, and what is done with them
def taken(monkeypatch, relaxation: str = "coupled", result: Any = "own", **settings) -> tuple[Uncertainty, Any]:
    """(what comes of the data, what the set is made of); ``result`` in place of the relaxation."""
    pmdp, seen = coin(), []
    relax = pipeline.RELAXERS[relaxation]

    def watched(data):
        seen.append(data)
        return relax(data) if result == "own" else result

    monkeypatch.setitem(pipeline.RELAXERS, relaxation, watched)
    objective = settings.pop("objective", REACH)
    found = uncertainty_from(pmdp, tossed(pmdp), Config(delta=DELTA, relaxation=relaxation, **settings), objective)
    return found, seen[0] if seen else None


@pytest.fixture
def tied_rows(monkeypatch):
    """A world whose rows are not bet on."""
    monkeypatch.setattr(pipeline.RowBets, "apply", lambda pmdp, objective: False)


def test_the_set_has_the_main_share_and_bets_on_the_objective(monkeypatch, tied_rows):
    found, data = taken(monkeypatch)
    assert data.delta == Ledger.of(DELTA).take("main") and data.objective is REACH
    assert not found.refuted and not found.empty and found.fallback is None
    assert found.rows is None and found.visits is None and found.region is data.known_region is not None
    assert found.basis == pipeline.basis_of(data.pmdp, data.counts, REACH)
    for settings in ({"bets": False}, {"relaxation": "rectangular"}):
        assert taken(monkeypatch, **settings)[1].objective is None
    assert taken(monkeypatch, confidence="l1")[0].basis == ""


def test_bets_on_rows_have_shares_of_their_own_and_take_the_place_of_bets_on_the_value(monkeypatch):
    shares, seen = Ledger.of_untied(DELTA), dict[str, float]()
    for name in ("RowBets", "VisitBets"):
        monkeypatch.setattr(pipeline, name, Shared(name, seen))
    found, data = taken(monkeypatch)
    assert data.delta == shares.take("main") and data.objective is None
    assert (found.basis, found.rows, found.visits) == ("rows", "RowBets", "VisitBets")
    assert seen == {"RowBets": shares.take("rows"), "VisitBets": shares.take("visits")}
    for settings in ({"bets": False}, {"confidence": "l1"}):
        found, data = taken(monkeypatch, **settings)
        assert found.rows is None and found.visits is None and data.delta == Ledger.of(DELTA).take("main")
    assert taken(monkeypatch, objective=None)[0].rows is None
    monkeypatch.setattr(pipeline.VisitBets, "is_applied", False)
    found, _ = taken(monkeypatch)
    assert found.rows == "RowBets" and found.visits is None


class Shared:
    """In place of bets: notes the share that they get."""

    def __init__(self, name: str, seen: dict[str, float]) -> None:
        self.name, self.seen, self.is_applied = name, seen, True

    def apply(self, pmdp, objective) -> bool:
        return self.is_applied

    def __call__(self, pmdp, counts, objective, share: float) -> str:
        self.seen[self.name] = share
        return self.name


def test_counts_of_another_model_are_refused():
    pmdp, other = coin(), coin("qp")
    assert uncertainty_from(coin(), tossed(pmdp), Config(), REACH).fallback is None  # of an equal one they are not
    with pytest.raises(DataError, match="another model"):
        uncertainty_from(other, Counts(pmdp), Config(), REACH)


@pytest.mark.parametrize("kind, category, uses_data", [
    ("rows", RefutedWarning, True), ("before", RefutedWarning, False), ("after", RefutedWarning, False),
    ("repeated", RepeatedChanceWarning, False),
])  # fmt: skip
@pytest.mark.parametrize("is_by_rows", [False, True])
def test_a_model_is_refuted_at_its_share_and_bounds_fall_back(monkeypatch, kind, category, uses_data, is_by_rows):
    pmdp = coin()
    counts = tossed(pmdp)
    monkeypatch.setattr(pipeline.RowBets, "apply", lambda pmdp, objective: is_by_rows)
    shares = Ledger.of_untied(DELTA) if is_by_rows else Ledger.of(DELTA)
    limit = refuting_log_e_value(shares.take("refutation"))

    def found(log_e_value: float) -> Uncertainty:
        evidence = Doubt(log_e_value, kind, 0)
        return uncertainty_from(pmdp, counts, Config(delta=DELTA), REACH, evidence=evidence)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        below = found(math.nextafter(limit, 0.0))
    assert not below.refuted and not below.empty and below.fallback is None
    with pytest.warns(category) as told:
        at = found(limit)
    assert at.refuted and not at.empty and at.region is None and at.rows is None and at.visits is None
    assert ("no data" in at.fallback) != uses_data and [w.category for w in told] == [category]
    known = counts if uses_data else Counts(pmdp)
    lower, upper = untied_intervals(pmdp, known, confidence_set("likelihood").untied, shares.take("fallback"))
    assert np.array_equal(at.relaxation.lower, lower) and np.array_equal(at.relaxation.upper, upper)


@pytest.mark.parametrize("kind", ["rows", "before"])
def test_a_set_without_parameters_falls_back_to_intervals_of_the_data(monkeypatch, tied_rows, kind):
    monkeypatch.setattr(pipeline, "strongest", lambda *doubts: Doubt(0.0, kind, 0))
    with pytest.warns(RPLWarning, match="no parameter fits all constraints: .* untied intervals") as told:
        found, data = taken(monkeypatch, result=None)
    assert not issubclass(told[0].category, RefutedWarning)
    assert found.empty and not found.refuted
    share = Ledger.of(DELTA)
    lower, _ = untied_intervals(data.pmdp, data.counts, confidence_set("likelihood").untied, share.take("fallback"))
    assert np.array_equal(found.relaxation.lower, lower)


def test_intervals_that_no_distribution_fits_leave_no_parameter(monkeypatch):
    data = SimpleNamespace(pmdp=coin(), timings={}, intervals=(np.zeros(4), np.ones(4)))
    monkeypatch.setattr(pipeline, "tied", lambda pmdp, lower, upper: "set")
    for feasible, expected in ((True, "set"), (False, None)):
        monkeypatch.setattr(pipeline, "rows_feasible", lambda pmdp, lower, upper, feasible=feasible: feasible)
        assert pipeline._tied(data) == expected
    for is_empty, expected in ((False, "set"), (True, None)):
        given = SimpleNamespace(region=SimpleNamespace(is_empty=is_empty), timings={}, pmdp=None)
        assert pipeline._of_region(lambda region, pmdp: "set", given) == expected


def test_regions_of_intervals_get_them_and_others_do_not(monkeypatch):
    for given in (True, False):
        seen = []
        kind = SimpleNamespace(region_of_intervals=given, region=lambda *data, seen=seen: seen.append(data) or "region")
        data = pipeline.ConfidenceData("pmdp", "counts", kind, 0.1, None, None, {})
        data.__dict__["intervals"] = "intervals"
        assert data.region == "region" == data.known_region and seen[0][4] == ("intervals" if given else None)


def test_rows_know_of_one_block_and_slow_ones_are_bounded_by_intervals(monkeypatch):
    class Rows:
        def __init__(self, pmdp, region) -> None:
            self.region = region

        def compiled(self):
            return None if self.region.slow else "compiled"

        def bounds(self):
            return "lower", "upper"

    monkeypatch.setattr(pipeline, "Rectangular", Rows)
    monkeypatch.setattr(pipeline, "Intervals", lambda pmdp, lower, upper, name: (lower, upper, name))
    monkeypatch.setattr(pipeline, "_queries_pay", lambda pmdp: pmdp == "pays")
    hull = ("lower", "upper", "rectangular")

    def region(kind=object, slow=False, dimension=2):
        made = type("Region", (kind,), {"slow": slow, "dimension": dimension, "__init__": lambda self: None})()
        return made

    most = pipeline.MOST_COORDINATES
    assert pipeline.rectangular_set(region(), "never").region.dimension == 2
    assert pipeline.rectangular_set(region(slow=True), "never") == hull
    assert pipeline.rectangular_set(region(slow=True), "pays").region.slow
    assert pipeline.rectangular_set(region(dimension=most), "never").region.dimension == most
    assert pipeline.rectangular_set(region(dimension=most + 1), "never") == hull
    assert pipeline.rectangular_set(region(Product, dimension=most + 1), "never").region.dimension == most + 1
    sliced = region(Sliced)
    type(sliced).product = region()
    assert pipeline.rectangular_set(sliced, "never").region is sliced.product


def test_rows_that_are_linear_programs_do_not_lose_their_bounds():
    """Nine parameters, of which three are in each row, without cycles: their polytopes have no compiled form."""

    def actions(place):
        layer, column = place
        if layer == 3:
            return {"stay": {place: 1}}
        found = {}
        for a in range(2):
            draw = np.random.default_rng([3, layer, column, a])
            i, j, k = draw.choice(9, 3, replace=False)
            after = [(layer + 1, int(t)) for t in draw.choice(3, 3, replace=False)]
            w = int(draw.integers(1, 9))
            one, two = f"{w / 10}*p{i} + {(10 - w) / 10}*p{j}", f"{(10 - w) / 10}*p{k} + {w / 10}*p{i}"
            found[f"a{a}"] = dict(zip(after, (one, two, f"1 - ({one}) - ({two})")))
        return found

    domain = {f"p{k}": (0.05, 0.45) for k in range(9)}
    pmdp = build((0, 0), actions, domain=domain, labels={"goal": lambda place: place == (3, 0)})
    goal, theta = Objective.reach("goal"), np.random.default_rng(3).uniform(0.1, 0.4, 9)
    counts = uniform_counts(pmdp, goal, theta, 1_000, 50, 3)
    found = certify(pmdp, counts, goal, Config("anytime", "rectangular"))
    assert found.lower <= solve_at(pmdp, theta, goal).middle <= found.upper and found.gap < 0.5


def test_queries_pay_for_few_rows_without_cycles(monkeypatch):
    def lake(cyclic: bool, rows: int):
        def actions(s):
            if s >= rows:
                return {"stay": {s: 1}}
            back = 0 if cyclic else s + 1
            return {"go": {s + 1 + (s + 1 == back): "p", back: "q", rows + 5: "1 - p - q"}}

        return build(0, actions, domain={"p": (0, 0.5), "q": (0, 0.5)}, labels={"end": lambda s: s >= rows})

    assert pipeline._queries_pay(lake(False, 3)) and not pipeline._queries_pay(lake(True, 3))
    monkeypatch.setattr(pipeline, "QUERIED_ROWS", 3)
    assert pipeline._queries_pay(lake(False, 3)) and not pipeline._queries_pay(lake(False, 4))
    monkeypatch.setattr(pipeline, "QUERIED_ROWS", 0)
    assert pipeline._queries_pay(coin())  # rows of two successors have a compiled form


# ====================================================================== bounds
def test_bounds_are_closed_if_they_differ_by_rounding_alone():
    for lower, upper, closed in (
        (1.0, 1.0, False), (1.0, 1.0 + 5e-12, True), (1.0, 1.0 + 2e-11, False), (0.0, 5e-12, True),
        (0.0, 1.5e-11, False), (100.0, 100.0 + 5e-10, True), (100.0, 100.0 + 2e-9, False), (2.0, 1.5, False),
        (-1.0, -1.0 + 5e-12, True), (-100.0, -100.0 + 5e-10, True),
    ):  # fmt: skip
        assert pipeline._is_closed(lower, upper) == closed


def uncertain(**parts) -> Any:
    plain = {
        "relaxation": SimpleNamespace(pmdp=coin()),
        "region": "region",
        "fallback": None,
        "rows": "rows",
        "is_quick": False,
    }
    return SimpleNamespace(**plain | {"visits": None} | parts)


def test_coupled_bounds_need_a_region_and_no_fallback():
    assert pipeline._is_coupled(uncertain(), Config())
    assert not pipeline._is_coupled(uncertain(), Config(relaxation="rectangular"))
    assert not pipeline._is_coupled(uncertain(region=None), Config())
    assert not pipeline._is_coupled(uncertain(fallback="refuted"), Config())


def aim(sense: Sense = Sense.MAX, signed: bool = False) -> Any:
    """An objective whose numbers are exact."""
    task = SimpleNamespace(outward=lambda low, high: (low, high), must_play_errors=lambda error: signed and error > 0)
    return SimpleNamespace(sense=sense, resolve=lambda pmdp: task, with_reward_error=lambda a, b, e: (a - e, b + e))


def better(monkeypatch, found, sense=Sense.MAX, policy=None, known=(0.2, 0.8), **settings):
    """What `_better_bounds` makes of coupled bounds ``found``, and the bounds that they were told of."""
    told = []

    def bounds(relaxation, region, objective, given, start, skipped, pieces, quick):
        told.append(skipped)
        assert (given, start, pieces, quick) == (policy, "old", 8, False)
        return None if found is None else SimpleNamespace(lower=found[0], upper=found[1], policy="new")

    monkeypatch.setattr(pipeline, "coupled_bounds", bounds)
    result = pipeline._better_bounds(uncertain(), aim(sense), Config(**settings), policy, known, "old")
    return result[:3], told[0]


@pytest.mark.parametrize(
    "sense, found, expected",
    [
        (Sense.MAX, (0.3, 0.7), (0.3, 0.7, "new")),
        (Sense.MAX, (0.1, 0.7), (0.2, 0.7, "old")),
        (Sense.MAX, (0.3, 0.9), (0.3, 0.8, "new")),
        (Sense.MAX, (0.2, 0.8), (0.2, 0.8, "old")),  # as good: the policy stays
        (Sense.MIN, (0.3, 0.7), (0.3, 0.7, "new")),
        (Sense.MIN, (0.3, 0.9), (0.3, 0.8, "old")),
        (Sense.MIN, (0.2, 0.8), (0.2, 0.8, "old")),
        (Sense.MAX, (0.8, 0.8), (0.8, 0.8, "new")),  # bounds may meet
        (Sense.MAX, (0.81, 0.9), (0.2, 0.8, "old")),  # and never cross
        (Sense.MAX, None, (0.2, 0.8, "old")),
    ],
)
def test_the_better_bound_of_each_side_is_kept_with_its_policy(monkeypatch, sense, found, expected):
    assert better(monkeypatch, found, sense) == (expected, (0.2, 0.8))
    is_given, told = better(monkeypatch, found, sense, policy="given", prefer="regret")  # nothing to choose
    assert is_given == expected and told == (0.2, 0.8)


@pytest.mark.parametrize("sense", [Sense.MAX, Sense.MIN])
def test_by_regret_the_own_side_bounds_the_policy_that_is_returned(monkeypatch, sense):
    everything = -math.inf, math.inf
    asked = []

    def less(known, region, chosen, gap, pieces):
        asked.append(chosen)
        assert gap == difference_above(min(0.8, known.upper), max(0.2, known.lower)) and pieces == 8
        return is_less

    monkeypatch.setattr(pipeline, "_has_less_regret", less)
    own = 0 if sense is Sense.MAX else 1
    for is_less in (True, False):
        for found in ((0.1, 0.9), (0.3, 0.7), (0.1, 0.7), (0.3, 0.9)):
            (*bounds, policy), told = better(monkeypatch, found, sense, prefer="regret")
            wanted = [max(0.2, found[0]), min(0.8, found[1])]
            wanted[own] = found[own] if is_less else (0.2, 0.8)[own]  # of the policy that is returned, and of no other
            assert (bounds, policy, told) == (wanted, "new" if is_less else "old", everything)
    is_less, before = True, len(asked)
    nothing = (-math.inf, 0.7) if own == 0 else (0.3, math.inf)  # a side that was not bounded
    (*bounds, policy), _ = better(monkeypatch, nothing, sense, prefer="regret")
    wanted = [max(0.2, nothing[0]), min(0.8, nothing[1])]
    assert (bounds, policy, len(asked)) == (wanted, "old", before)


def test_the_policy_with_less_regret_is_the_one_that_gains_least_by_another(monkeypatch):
    for own, other, less in ((0.1, 0.2, True), (0.2, 0.1, False), (0.1, 0.1, False)):
        most = {("new", 0.5, 8): own, ("old", 0.5, 8): other}  # with all that the regret of the result is found by
        monkeypatch.setattr(pipeline, "proved_regret", lambda found, region, *how, m=most: Regret(m[how]))
        assert pipeline._has_less_regret(SimpleNamespace(policy="new"), "region", "old", 0.5, 8) == less


# ====================================================================== regret
def regret(
    monkeypatch, most=0.4, given=False, found="found", region="region", best=(0.1, 0.95), sense=Sense.MAX, **more
):
    """`_regret` of a policy with bounds 0.25 and 0.75; (the regret, what was known before, whether it was solved)."""
    told, solved = [], []

    def proved(found, region, policy, known, pieces=1):
        assert found == "found" and region == "region" and policy == "policy"
        told.append(known)
        return Regret(most)

    def solutions(relaxation, objective, policy, precision, warm, timings, error):
        solved.append(error)
        assert policy is None
        return SimpleNamespace(lower=7.0, upper=9.0), SimpleNamespace(lower=best[0], upper=best[1])

    monkeypatch.setattr(pipeline, "proved_regret", proved)
    monkeypatch.setattr(pipeline, "checked_solutions", solutions)
    claim = pipeline.PolicyBounds(0.25, 0.75, "policy", given)
    result = pipeline._regret(uncertain(region=region), Config(**more), aim(sense), found, claim, 0.01)
    return result.most, told, solved


def test_the_regret_of_an_own_policy_is_at_most_its_gap():
    """The gap of a policy that was given is one of its own value: best values are solved for where it has to be."""
    with pytest.MonkeyPatch.context() as patch:
        assert regret(patch) == (0.4, [0.5], [])
        assert regret(patch, given=True) == (0.4, [math.inf], [])  # below its gap
        assert regret(patch, 0.5, given=True) == (0.5, [math.inf], [])
        assert regret(patch, 0.6, given=True) == (0.6, [math.inf], [0.01])
        assert regret(patch, 0.8, given=True) == (difference_above(0.95, 0.25), [math.inf], [0.01])
        assert regret(patch, 0.8, given=True, sense=Sense.MIN) == (difference_above(0.75, 0.1), [math.inf], [0.01])
        assert regret(patch, 0.8, given=True, relaxation="tied") == (0.8, [math.inf], [])
        assert regret(patch, 0.8) == (0.8, [0.5], [])
        for missing in ({"found": None}, {"region": None}):
            assert regret(patch, **missing) == (math.inf, [], [])
            assert regret(patch, given=True, **missing)[0] == difference_above(0.95, 0.25)


def test_the_regret_of_any_policy_needs_coupled_bounds(monkeypatch):
    monkeypatch.setattr(pipeline, "proved_regret", lambda found, region, policy, known: Regret(0.3))
    monkeypatch.setattr(
        pipeline, "regret_with_error", lambda objective, regret, bounds, error: (regret.most, bounds, error)
    )
    monkeypatch.setattr(pipeline, "coupled_bounds", lambda *given: "found")
    claim = pipeline.PolicyBounds(0.25, 0.75, "policy")

    def asked(error=0.0, signed=False, relaxation="coupled", **parts):
        return pipeline.regret_of(uncertain(**parts), Config(relaxation=relaxation), aim(signed=signed), claim, error)

    assert asked() == (0.3, (0.25, 0.75), 0.0) and asked(0.125) == (0.3, (0.25, 0.75), 0.125)
    assert asked(region=None) is NOT_FOUND is asked(relaxation="tied") is asked(fallback="refuted")
    assert asked(0.125, signed=True) is NOT_FOUND and asked(0.0, signed=True)[0] == 0.3
    monkeypatch.setattr(pipeline, "coupled_bounds", lambda *given: None)
    assert asked()[0] == math.inf


# ====================================================================== bets on rows and visits
def test_bets_on_visits_are_asked_for_their_own_objective(monkeypatch):
    monkeypatch.setattr(pipeline, "with_row_bets", lambda rows, objective, known, best: (0.3, 0.7))
    visits = SimpleNamespace(objective=REACH, improve=lambda known, asked: (*known, asked.chosen, "visited"))

    def asked(policy=None, objective=REACH, visits=visits, **settings):
        own = pipeline.AskedPolicy(policy, False, "chosen")
        return pipeline._with_bets_on_rows(
            uncertain(visits=visits), objective, Config(**settings), own, (0.2, 0.8), None
        )

    with_visits, without = (0.3, 0.7, "chosen", "visited"), (0.3, 0.7, "chosen", None)
    assert asked() == with_visits == asked("given") == asked("given", prefer="regret")
    assert asked(prefer="regret") == without == asked(visits=None) == asked(objective=Objective.reach("lost"))


# ====================================================================== the certificate
@pytest.fixture
def certified(monkeypatch):
    """Certificates whose solutions, regret and estimate are given; (certificate, what parts were told, a solution)."""
    coins = coin()
    monkeypatch.setattr(pipeline.RowBets, "apply", lambda pmdp, objective: False)

    def made(objective=REACH, robust=(0.25, 0.5), optimistic=(0.125, 0.75), regret=NOT_FOUND, policy=None, **given):
        pmdp = given.pop("pmdp", coins)
        counts = tossed(pmdp)
        uncertainty = uncertainty_from(pmdp, counts, Config(delta=DELTA), objective)
        told: dict[str, Any] = {}

        def solution(bounds, iterations):
            parts = {"policy": real.policy, "iterations": iterations, "gap": bounds[1] - bounds[0]}
            return SimpleNamespace(lower=bounds[0], upper=bounds[1], **parts)

        real = pipeline.checked_solutions(
            uncertainty.relaxation, objective, policy, 1e-6, pipeline.Solutions(), {}, 0.0
        )[0]

        def solutions(relaxation, objective, policy, precision, warm, timings, share):
            told["share"], told["warm"] = share, warm
            return solution(robust, 3), solution(optimistic, 4)

        def of_regret(uncertainty, config, objective, found, claim, share):
            told["claim"] = claim
            return regret

        def with_error(objective, regret, bounds, error):
            told["error"] = error
            return regret

        def coupled(*given):
            told["coupled"] = True
            return (*given[4], given[5], None)

        def bets(uncertainty, objective, config, asked, known, best):
            told["asked"], told["best"] = asked, best
            return (*known, asked.chosen, None)

        for name, stub in {
            "checked_solutions": solutions, "_regret": of_regret, "regret_with_error": with_error,
            "_better_bounds": coupled, "_with_bets_on_rows": bets, "value_at_estimate": lambda *given: 0.3,
        }.items():  # fmt: skip
            monkeypatch.setattr(pipeline, name, stub)
        try:
            config = Config(delta=DELTA, **given.pop("settings", {}))
            return certify_uncertainty(pmdp, counts, uncertainty, objective, config, policy=policy, **given), told, real
        finally:
            monkeypatch.undo()
            monkeypatch.setattr(pipeline.RowBets, "apply", lambda pmdp, objective: False)

    return made


def test_a_certificate_has_the_robust_bound_of_the_own_side_and_the_optimistic_one_of_the_other(certified):
    found, told, real = certified()
    assert (found.lower, found.upper) == with_margin(REACH, 0.25, 0.75)
    assert (
        found.policy is real.policy
        and not found.evaluated
        and found.regret == difference_above(found.upper, found.lower)
    )
    assert told["claim"] == (0.25, 0.75, real.policy, False) and told["asked"] == (None, False, real.policy)
    assert told["best"].upper == 0.75 and told["coupled"] and told["share"] == told["error"] == 0.0
    assert (found.slack, found.iterations, found.undecided, found.assumptions) == (0.625, 7, None, ())
    cost = Objective.reach("won", sense=Sense.MIN)
    found, _, _ = certified(cost, robust=(0.125, 0.5), optimistic=(0.25, 0.75))
    assert (found.lower, found.upper) == with_margin(cost, 0.25, 0.5)
    short = Objective.reach("won", horizon=2)
    assert certified(short)[0].slack == 0.0


def test_errors_of_rewards_are_counted_once(certified):
    """By the solver where rewards have both signs, else by the bounds; coupled bounds cannot count those of sums."""
    gain = Objective.reward("gain", target="over")
    found, told, _ = certified(gain, reward_error=0.0)
    assert told["coupled"] and told["share"] == told["error"] == 0.0
    found, told, _ = certified(gain, reward_error=0.0625)
    assert told["share"] == 0.0625 and told["error"] == 0.0 and "coupled" not in told
    assert (found.lower, found.upper) == with_margin(gain, 0.25, 0.75) and found.reward_error == 0.0625
    paid = Objective.reward("paid", target="over")
    found, told, _ = certified(paid, reward_error=0.0625)
    assert told["share"] == 0.0 and told["error"] == 0.0625 and told["coupled"]
    assert (found.lower, found.upper) == with_margin(paid, *paid.with_reward_error(0.25, 0.75, 0.0625))


def test_a_certificate_says_what_a_model_assumes_and_how_long_it_takes(certified):
    pmdp = coin()
    assert certified(pmdp=replace(pmdp, assumption="a sketch"))[0].assumptions == ("a sketch",)
    found, _, _ = certified(regret=Regret(0.25))
    assert found.episodes_for == {"regret of 1%": math.ceil(200 * (0.25 / (0.01 * 0.3) - 1.0))}
    assert certified(regret=Regret(0.625), policy=found.policy)[0].episodes_for == {}  # no less than the gap
    warm = pipeline.Solutions()
    assert certified(warm=warm)[1]["warm"] is warm and warm.robust.iterations == 3


def test_a_given_policy_is_bounded_and_its_regret_is_not_its_gap(certified):
    _, _, real = certified()
    found, told, _ = certified(policy=real.policy, regret=Regret(0.875, np.arange(3)))
    assert found.evaluated and found.policy is real.policy and found.regret == 0.875 and found.undecided == 3
    assert told["claim"][2:] == (real.policy, True) and told["asked"].given is real.policy and told["best"] is None
    assert certified(regret=Regret(0.875))[0].regret == difference_above(found.upper, found.lower)


def test_bounds_that_are_closed_are_not_looked_at_again_and_crossing_ones_are_a_bug(certified):
    assert "coupled" not in certified(robust=(0.5, 0.5), optimistic=(0.5, 0.5 + 1e-12))[1]
    assert certified(robust=(0.5, 0.5), optimistic=(0.5, 0.5))[1]["coupled"]
    assert "coupled" not in certified(settings={"relaxation": "rectangular"})[1]
    with pytest.raises(ModelError, match="contradict each other"):
        certified(robust=(0.5, 0.5), optimistic=(0.25, 0.25))
