"""Independent blocks of parameters: factorisation, products of regions, thousands of unknowns."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import rpl_envs
from rpl_agent import Config, Counts, Domain, Nature, Objective, RPLAgent, build, certify, hide_parameters, solve
from rpl_agent.core.coupled.bounds import is_rectangular
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.evidence.intervals import anytime, confidence_intervals
from rpl_agent.core.evidence.ledger import per_event, split_main
from rpl_agent.core.model.expressions import DENSE_COLUMNS
from rpl_agent.core.model.policy import Policy
from rpl_agent.core.model.simulate import Simulator
from rpl_agent.core.regions import Product
from rpl_agent.core.regions import blocks as blocks_module
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.parameter_region import ParameterRegion
from rpl_agent.core.relaxations.interval import Intervals, Point, expression_bounds
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.guarantee.confidence import confidence_names
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.likelihood.polynomial.parameters import parameter_blocks
from rpl_agent.guarantee.likelihood.refutation.misspecification import log_e_value
from rpl_agent.guarantee.likelihood.region import interval_region, likelihood_region
from rpl_agent.guarantee.likelihood.shares import OF_A_TABLE
from rpl_agent.guarantee.pipeline import RELAXATIONS, uncertainty_from

pytestmark = pytest.mark.short_runs


def chain(n: int, row, names) -> object:
    """States 0..n-1 in a line with row(s) = {offset: expression}; n is the goal, -1 is lost."""
    names = names if isinstance(names, Domain) else list(names)

    def actions(s):
        if s in (-1, n):
            return {"go": {s: "1"}}
        return {"go": {min(n, max(-1, s + step)): f for step, f in row(s).items()}}

    return build(0, actions, domain=names, labels={"goal": lambda s: s == n, "lost": lambda s: s == -1})


def coins(n: int):
    """n states, each with its own coin: forward or lost."""
    return chain(n, lambda s: {1: f"p{s}", -2 - s: f"1-p{s}"}, [f"p{s}" for s in range(n)])


def dice(n: int):
    """n states, each with its own three-sided die: forward, stay, lost."""
    names = [f"{side}{s}" for s in range(n) for side in "ab"]
    A = np.zeros((n, 2 * n))
    A[np.arange(n), 2 * np.arange(n)] = A[np.arange(n), 2 * np.arange(n) + 1] = 1.0
    domain = Domain(tuple(names), np.zeros(2 * n), np.ones(2 * n), A, np.ones(n))
    return chain(n, lambda s: {1: f"a{s}", 0: f"b{s}", -2 - s: f"1-a{s}-b{s}"}, domain)


def mixed(n: int):
    """Coins, dice of one parameter on three sides, products of two coins: every kind of block, in turn."""

    def row(s):
        if s % 3 == 0:
            return {1: f"p{s}", -2 - s: f"1-p{s}"}
        if s % 3 == 1:
            return {1: f"0.5+0.25*p{s}", 0: f"0.25*p{s}", -2 - s: f"0.5-0.5*p{s}"}
        return {1: f"p{s}*q{s}", 0: f"p{s}-p{s}*q{s}", -2 - s: f"1-p{s}"}

    return chain(n, row, [f"p{s}" for s in range(n)] + [f"q{s}" for s in range(2, n, 3)])


def data(model, theta, episodes, seed):
    simulator = Simulator(model.instantiate(theta), model.labels["goal"] | model.labels["lost"], 1000, seed)
    counts = Counts(model)
    for _ in range(4):
        batch = np.zeros(model.num_transitions, np.int64)
        simulator.run(Policy.uniform(model), episodes // 4, batch)
        counts.add_batch(batch)
    return counts


def brute_force_blocks(model):
    """Sets of parameters that meet in rows, by repeated union."""
    groups = [{name} for name in model.table.parameters]
    for r in range(model.num_rows):
        span = slice(model.row_ptr[r], model.row_ptr[r + 1])
        met = set().union(*(model.table.polynomial(int(f)).parameters for f in model.expression[span]))
        joined = [g for g in groups if g & met]
        if joined:
            groups = [g for g in groups if not g & met] + [set().union(*joined)]
    return {frozenset(g) for g in groups}


@pytest.mark.parametrize("make", [coins, dice, mixed])
@pytest.mark.parametrize("n", [3, 40])
def test_blocks_are_the_parameters_that_meet(make, n):
    model = make(n)
    found = factorisation(model)
    assert found.num_blocks == len(brute_force_blocks(model)) == n
    x = model.table.reduction.coordinates(np.linspace(0.2, 0.4, model.num_parameters))[0]
    assert len(found.order) == len(x) == found.block_ptr[-1]
    for block in found.others:
        own = found.order[found.block_ptr[block.number] : found.block_ptr[block.number + 1]]
        theta = [np.linspace(0.2, 0.4, model.num_parameters)[model.table.parameters.index(p)]
                 for p in block.model.table.parameters]  # fmt: skip
        # the block's coordinates are the model's
        np.testing.assert_allclose(block.model.table.reduction.coordinates(np.array(theta))[0], x[own])
        assert frozenset(block.model.table.parameters) in brute_force_blocks(model)
    assert found.single.all() == (make is not mixed)


@pytest.mark.parametrize("confidence", [c for c in confidence_names() if c not in ("l1", "ellipsoid")])
@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_seventy_independent_parameters_have_every_set(confidence, relaxation):
    """Each of these but the tied ones used to be refused."""
    model = coins(70)
    counts = data(model, np.full(70, 0.97), 2000, seed=1)
    config = Config(confidence, relaxation, delta=0.05)
    found = certify(model, counts, Objective.reach("goal"), config)
    assert found.lower <= 0.97**70 <= found.upper and found.fallback is None
    assert 0.0 < found.lower < found.upper < 1.0 or confidence == "hoeffding"  # too wide for 2000 episodes


@pytest.mark.parametrize("confidence", ["l1", "ellipsoid"])
def test_sets_over_all_parameters_at_once_say_which_to_take_instead(confidence):
    model = coins(70)
    with pytest.raises(ModelError, match="too many for one region: choose confidence likelihood or anytime"):
        certify(model, Counts(model), Objective.reach("goal"), Config(confidence, "rectangular"))


def test_coins_have_the_likelihood_set_of_the_beta_mixture():
    """A coin's region is its anytime interval at its share of δ, and rectangular is exact."""
    model = coins(30)
    counts = data(model, np.full(30, 0.9), 3000, seed=2)
    region = likelihood_region(model, counts, 0.01)
    assert isinstance(region, Product) and not region.regions
    low, high = region.box()
    row = model.find_row(model.initial_state, 0)
    seen = {str(model.table.polynomial(int(model.expression[t]))): counts.transitions[t]
            for t in range(model.row_ptr[row], model.row_ptr[row + 1])}  # fmt: skip
    (a,), (b,) = anytime([seen["p0"]], [sum(seen.values())], per_event(0.01, 30))
    assert (low[0], high[0]) == pytest.approx((a, b), abs=1e-12)
    assert Rectangular(model, region).compiled() is not None


def leaning(n: int):
    """Every state has two rows with one coin: blocks that are no single distribution."""
    return chain(
        n, lambda s: {1: f"0.5+0.25*p{s}", 0: f"0.25*p{s}", -2 - s: f"0.5-0.5*p{s}"}, [f"p{s}" for s in range(n)]
    )


@pytest.mark.parametrize("make", [dice, leaning])
def test_a_block_is_bounded_as_it_would_be_alone(make):
    model = make(30)
    theta = np.full(model.num_parameters, 0.45)
    counts = data(model, theta, 20000, seed=3)
    region, blocks = likelihood_region(model, counts, 0.01), factorisation(model)
    assert region.contains(model.table.reduction.coordinates(theta)).all()
    lower, upper = expression_bounds(region, model)
    ends = confidence_intervals(model, counts, "anytime", 0.01)
    for block in blocks.others[:4]:
        alone = interval_region(block.model, *(bound[block.expressions] for bound in ends))
        low, high = expression_bounds(alone, block.model)
        np.testing.assert_allclose(lower[block.expressions], low, atol=1e-9)
        np.testing.assert_allclose(upper[block.expressions], high, atol=1e-9)
    truth = model.table.at(theta)
    assert ((lower <= truth) & (truth <= upper)).all()
    assert bool(blocks.others) == (make is leaning)


def test_products_of_coins_are_blocks_although_rows_mix_them():
    """In rows p q, p (1 − q), 1 − p the likelihood is a product over p and q: each has its own interval."""
    model = mixed(30)
    theta = np.full(model.num_parameters, 0.45)
    counts = data(model, theta, 20000, seed=3)
    region, blocks = likelihood_region(model, counts, 0.01), parameter_blocks(model)
    assert isinstance(region, ParameterRegion) and region.contains(theta[None]).all()
    assert sorted(len(block.parameters) for block in blocks) == [1] * model.num_parameters
    low, high = region.box()
    j = model.table.parameters.index("q2")
    coin = next(block for block in blocks if block.parameters[0] == j)
    seen = {str(model.table.polynomial(int(f))): int(counts.successes[f]) for f in range(model.num_expressions)}
    won, lost = seen["p2*q2"], seen["p2 - p2*q2"]
    (a,), (b,) = anytime([won], [won + lost], per_event(split_main(0.01, OF_A_TABLE).level_set, len(blocks)))
    assert coin.coin is not None and (low[j], high[j]) == pytest.approx((a, b), abs=1e-12)
    lower, upper = expression_bounds(region, model)
    truth = model.table.at(theta)
    assert ((lower <= truth) & (truth <= upper)).all() and Rectangular(model, region).compiled() is not None


def test_wide_rows_of_joint_blocks_are_queried_and_dice_are_compiled():
    joint = leaning(12)
    counts = data(joint, np.full(joint.num_parameters, 0.8), 4000, seed=5)
    assert Rectangular(joint, likelihood_region(joint, counts, 0.1)).compiled() is None
    simple = dice(12)
    counts = data(simple, np.tile([0.8, 0.1], 12), 4000, seed=5)
    assert Rectangular(simple, likelihood_region(simple, counts, 0.1)).compiled() is not None


@pytest.mark.parametrize("make", [coins, dice, mixed])
def test_certificates_hold_and_hierarchies_nest(make):
    model = make(12)
    theta = np.tile([0.85, 0.1], 12)[: model.num_parameters] if make is dice else np.full(model.num_parameters, 0.85)
    counts = data(model, theta, 20000, seed=4)
    objective = Objective.reach("goal")
    exact = certify(model, counts, objective, Config(delta=0.4)).estimate
    widths = []
    for relaxation in ("rectangular", "expression"):
        # relaxations of one set: bets on rows would divide δ differently for one of them
        found = certify(model, counts, objective, Config(relaxation=relaxation, delta=0.05, bets=False))
        widths.append(found.gap)
        assert found.fallback is None and 0 <= found.lower <= found.upper <= 1
        if np.isfinite(exact):
            assert found.lower <= exact <= found.upper
    assert widths[0] <= widths[1] + 1e-6


@pytest.mark.nightly
def test_the_product_holds_the_truth_as_often_as_it_says():
    """Coverage under looking after every batch: 8 blocks, stated failure 0.2."""
    model, failures, runs = mixed(8), 0, 150
    for seed in range(runs):
        theta = np.random.default_rng(seed).uniform(0.2, 0.8, model.num_parameters)
        simulator = Simulator(model.instantiate(theta), model.labels["goal"] | model.labels["lost"], 100, seed)
        counts, inside = Counts(model), True
        for _ in range(6):
            batch = np.zeros(model.num_transitions, np.int64)
            simulator.run(Policy.uniform(model), 60, batch)
            counts.add_batch(batch)
            inside &= bool(likelihood_region(model, counts, 0.2).contains(theta[None]).all())
        failures += not inside
    assert failures <= 0.2 * runs


@pytest.mark.parametrize("parameters", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_thousands_of_parameters_are_certified(parameters):
    """No array of size d² is made on the way (400 MB each at night), and every block has its own interval."""
    model = coins(parameters)
    counts = Counts(model)
    counts.add_batch(np.random.default_rng(0).integers(1, 100, model.num_transitions))
    uncertainty = uncertainty_from(model, counts, Config())
    assert uncertainty.fallback is None and uncertainty.estimate.shape == (parameters,)
    assert "monomials" not in model.table.__dict__
    low, high = uncertainty.region.box()
    assert ((0 < low) & (low < uncertainty.estimate) & (uncertainty.estimate < high) & (high < 1)).all()


@pytest.mark.parametrize("make", [coins, dice, mixed])
def test_the_e_value_of_many_blocks_is_the_product_of_theirs(make, monkeypatch):
    """Twelve blocks at once, and the same data through one search over all coordinates."""
    model = make(12)
    counts = data(model, np.full(model.num_parameters, 0.45), 4000, seed=6)
    found = log_e_value(model, counts)
    monkeypatch.setattr(blocks_module, "JOINT_RANK", 10**6)  # `pays` is False: one search
    assert found == pytest.approx(log_e_value(model, counts), abs=2.0) and found < 0.0


def test_tied_coins_that_differ_are_refuted():
    """Forty coins said to be twenty: the data of each pair disagree."""
    model = chain(40, lambda s: {1: f"p{s // 2}", -2 - s: f"1-p{s // 2}"}, [f"p{k}" for k in range(20)])
    counts = Counts(model)
    for s in range(40):
        counts.add_many([_state(model, s)] * 400, [0] * 400, [_state(model, s + 1)] * (380 if s % 2 else 240)
                        + [_state(model, -1)] * (20 if s % 2 else 160))  # fmt: skip
    with pytest.warns(RPLWarning, match="refuted"):
        assert uncertainty_from(model, counts, Config()).refuted


def _state(model, s):
    """The number of the s-th state of a chain: it was discovered in the order of the line, the lost one second."""
    goal = int(np.flatnonzero(model.labels["goal"])[0])
    lost = int(np.flatnonzero(model.labels["lost"])[0])
    order = [k for k in range(model.num_states) if k not in (goal, lost)]
    return lost if s < 0 else goal if s >= len(order) else order[s]


@pytest.mark.parametrize("make", [coins, dice, mixed])
def test_estimates_of_many_blocks_are_near_the_truth(make):
    model = make(20)
    theta = np.full(model.num_parameters, 0.45)
    counts = data(model, theta, 400, seed=6)
    counts.add_batch(np.rint(2000 * model.instantiate(theta).probability).astype(int))
    found = point_estimate(model, counts)
    np.testing.assert_allclose(model.table.at(found), model.table.at(theta), atol=0.02)


def squares(side: int):
    """A square that is walked from corner to corner, every row an unknown coin of its own; up to 2 side² blocks."""

    def actions(s):
        x, y = s
        if s == (side, side) or x < 0:
            return {"stay": {s: "1"}}
        right, up = (min(x + 1, side), y), (x, min(y + 1, side))
        if right == s or up == s:
            return {"go": {(side, side): "9/10", (-1, 0): "1/10"}}
        return {"right": {right: "9/10", up: "1/10"}, "up": {up: "7/10", right: "3/10"}}

    labels = {"goal": lambda s: s == (side, side), "lost": lambda s: s[0] < 0}
    return hide_parameters(build((0, 0), actions, domain=[], labels=labels))


def test_agents_of_many_blocks_update_as_often_as_the_data_grow(monkeypatch, all_looks):
    """No matrix of all coordinates on the way, and not one update per row."""

    def refuse(*_):
        raise AssertionError("an eigenvalue problem of all coordinates")

    monkeypatch.setattr("rpl_agent.agent.planner.np.linalg.eigvalsh", refuse)
    world = squares(12)
    assert world.pmdp.num_parameters > DENSE_COLUMNS
    env = rpl_envs.make_own(world.pmdp, Objective.reach("goal"), world.theta, max_episode_steps=30)
    agent = RPLAgent(config=Config(delta=0.05), seed=1)
    agent.learn(env, 20_000, unit="steps")
    found = agent.certificate
    planned = agent.num_updates - agent.session.planner.skipped
    assert planned <= 10 + np.log(20_000) / np.log(1.05)  # logarithmic in the data
    assert agent.session.planner.skipped > planned  # rows alone would have asked for more
    truth = solve(Point(world.mdp), Objective.reach("goal"), Nature.COOPERATIVE)
    assert found.lower <= truth.lower and truth.upper <= found.upper


def test_blocks_of_one_row_each_have_nothing_to_be_coupled():
    """One choice per row is all that one common parameter is there; shared coins are another matter."""
    objective = Objective.reach("goal")
    for make, rectangular in ((coins, True), (dice, True), (shared_coins, False)):
        model = make(12)
        theta = (
            np.tile([0.85, 0.1], 12)[: model.num_parameters] if make is dice else np.full(model.num_parameters, 0.85)
        )
        counts = data(model, theta, 20_000, seed=4)
        uncertainty = uncertainty_from(model, counts, Config(delta=0.05))
        assert isinstance(uncertainty.region, Product)
        assert is_rectangular(uncertainty.relaxation, uncertainty.region) is rectangular
        wide, tight = (
            certify(model, counts, objective, Config(relaxation=r, delta=0.05)) for r in ("rectangular", "coupled")
        )
        assert wide.lower <= tight.lower <= tight.upper <= wide.upper
        if rectangular:
            assert (tight.lower, tight.upper) == (wide.lower, wide.upper)
            assert sum(tight.attribution.values()) == pytest.approx(
                1.0
            )  # where the gap comes from is known all the same


def ladder(n: int):
    """n steps without a way back, every one a joint block of three outcomes: one parameter moves all of them."""

    def actions(s):
        if s == -1 or s >= n:
            return {"go": {s: "1"}}
        # the best and the worst outcome grow together: the hull lets nature have only one of them
        return {"go": {s + 1: f"0.5-0.5*p{s}", s + 2: f"0.5+0.25*p{s}", -1: f"0.25*p{s}"}}

    labels = {"goal": lambda s: s >= n, "lost": lambda s: s == -1}
    return build(0, actions, domain=[f"p{s}" for s in range(n)], labels=labels)


def test_rows_of_joint_blocks_are_exact_in_a_model_without_cycles():
    """Against the ends of every parameter's interval, row by row: a row is linear in its one parameter."""
    model, objective = ladder(9), Objective.reach("goal")
    counts = data(model, np.full(9, 0.6), 4000, seed=2)
    uncertainty = uncertainty_from(model, counts, Config(relaxation="rectangular", delta=0.05))
    assert isinstance(uncertainty.relaxation, Rectangular) and isinstance(uncertainty.region, Product)
    low, high = uncertainty.region.box()
    value = {9: 1.0, 10: 1.0}
    for s in range(8, -1, -1):
        ends = (low[s], high[s])
        value[s] = min((0.5 - p / 2) * value[s + 1] + (0.5 + p / 4) * value[s + 2] for p in ends)
    found = certify(model, counts, objective, Config(relaxation="rectangular", delta=0.05, bets=False))
    assert found.lower <= value[0] and found.lower == pytest.approx(value[0], abs=1e-6)
    hull = certify(model, counts, objective, Config(relaxation="expression", delta=0.05, bets=False))
    assert hull.lower < found.lower < found.upper < hull.upper


def test_many_joint_rows_and_cycles_keep_their_hull(monkeypatch):
    counts = data(leaning(12), np.full(leaning(12).num_parameters, 0.8), 500, seed=5)
    assert isinstance(uncertainty_from(counts.pmdp, counts, Config()).relaxation, Intervals)
    monkeypatch.setattr(sys.modules["rpl_agent.guarantee.pipeline"], "QUERIED_ROWS", 5)
    counts = data(ladder(9), np.full(9, 0.6), 500, seed=2)
    assert isinstance(uncertainty_from(counts.pmdp, counts, Config()).relaxation, Intervals)


def shared_coins(n: int):
    """n coins, each thrown in three states one after the other."""
    return chain(3 * n, lambda s: {1: f"p{s // 3}", -2 - s: f"1-p{s // 3}"}, [f"p{k}" for k in range(n)])


def test_a_die_that_no_row_throws_leaves_the_estimate_of_the_others():
    """Its chances are in the middle of their bounds, 3/2 in all, unless the domain has a say."""
    dice = [[f"{die}{k}" for k in range(3)] for die in "tuvw"]
    domain = Domain.box([name for die in dice for name in die], 0.0, 1.0)
    for die in dice:
        domain = domain.with_simplex(die)
    thrown = [dict(enumerate([*die, " - ".join(["1", *die])])) for die in dice[:3]]
    model = build(0, lambda s: {"throw": thrown[s]} if s < 3 else {"stay": {s: "1"}}, domain=domain)
    counts = Counts(model)
    counts.add_batch(np.full(model.num_transitions, 50))
    found = point_estimate(model, counts)
    assert model.domain.contains(found)
    assert np.allclose(found[:9], 0.25, atol=0.05)
