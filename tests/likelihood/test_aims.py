"""Estimates, spreads and payoffs against the checker, which computes them again: the same bits, or proofs fail."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from benchmarks import block_worlds
from rpl_agent import Objective
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Sense, build
from rpl_agent.core.native import core
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.bets import slabs as bets
from rpl_agent.guarantee.likelihood.bets.aim import bet_world
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates
from rpl_agent.guarantee.likelihood.joint_set import fits
from rpl_agent.guarantee.proof.content import data_content
from rpl_envs.benchmark import benchmark
from tests.likelihood.test_bets import MODELS, OBJECTIVES
from tests.reference.proofs import checked_model
from tests.small_worlds import SIZES

WORLDS = ("Aircraft-20x10", "Betting-25", "Glider-11x9", "MarsRover-10x10")
BLOCKS = ("bridges", "random 1", "wet chicken")


def _exactly(count, seed):
    """Numbers whose sums cancel, tie between two floats, or span the whole range."""
    rng = random.Random(seed)
    kind = rng.randrange(4)
    if kind == 0:
        return [rng.uniform(-1, 1) * 2.0 ** rng.randint(-60, 60) for _ in range(count)]
    if kind == 1:  # ties, broken by something far below
        return [1.0, 2.0**-53, *(rng.choice([-1, 1]) * 2.0 ** -rng.randint(60, 1000) for _ in range(count - 2))]
    if kind == 2:
        half = [rng.uniform(-1, 1) * 2.0 ** rng.randint(-900, 900) for _ in range(count // 2)]
        return half + [-x for x in half] + [rng.uniform(-1, 1) for _ in range(count % 2)]
    return [rng.choice([0.0, -0.0, 5e-324, -5e-324, 1e307, -1e307, 1.0]) for _ in range(min(count, 3))]


@pytest.mark.parametrize("seed", range(300))
def test_sums_are_rounded_once(seed):
    """A row c + w·x with w = 1 is a sum, and `math.fsum` is what the checker uses."""
    numbers = _exactly(2 + seed % 12, seed)
    out = np.empty(1)
    row, x = np.array([numbers[0], *[1.0] * (len(numbers) - 1)]), np.array(numbers[1:])
    core.rows_at(1, len(x), row, x, out)
    assert out[0] == math.fsum(numbers) == float(sum(map(Fraction, numbers)))


def _data(name, sizes, episodes=300, seed=5):
    """(model, objective, counts with marks) of a world, or of a small model of `test_bets`."""
    if name in BLOCKS:
        world = block_worlds.world(name)
        model, objective, theta, steps = world.pmdp, world.objective, world.theta, world.steps
    elif name in WORLDS:
        world = benchmark(name, **sizes.get(name, {}))
        model, objective, theta, steps = world.pmdp, world.objective, np.array(world.theta), world.max_episode_steps + 1
    else:
        kind, objective_name = name.split(": ")
        (make, theta), objective, steps = MODELS[kind], OBJECTIVES[objective_name], 30
        model = make()
    return model, objective, uniform_counts(model, objective, theta, episodes, steps, seed)


NAMES = [*WORLDS, *BLOCKS, *(f"{model}: {objective}" for model in MODELS for objective in OBJECTIVES)]


@pytest.mark.parametrize("name", NAMES)
def test_all_numbers_of_a_mark_are_the_checkers(name, sized):
    model, objective, counts = _data(name, sized({k: SIZES[k] for k in WORLDS if k != "Glider-11x9"}, {}))
    checked, asked = checked_model(model, objective)
    theirs, ours = checked.coordinates, joint_coordinates(model)
    assert ours.floats.tolist() == theirs.floats and ours.free.tolist() == theirs.free
    assert ours.walls.tolist() == theirs.walls and ours.start.tolist() == theirs.start
    assert (ours.tau, ours.size, ours.dimension) == (theirs.tau, theirs.size, theirs.dimension)
    data = checker.Data(checked, data_content(counts, graph=False))
    estimates = fits(ours, counts)
    assert data.fits(theirs) == [x.tolist() for x in estimates] and len(estimates) > 40
    alpha = 1e-4
    own = checker.Bets(checked, asked, theirs, Fraction(alpha))
    placed, last, aims, slopes = None, None, set(), set()
    for mark, x in zip(counts.marks, estimates[1:]):
        if mark.weight:
            L = np.array(theirs.spread(mark.successes.tolist(), x.tolist()))
            assert (np.tril(L) == ours.spread(mark.successes[ours.free], x)).all()
        if mark.progress:
            placed = bets._next(model, ours, (objective, alpha), mark, x, last, placed)
            payoffs = own.payoffs(x.tolist(), mark.progress, mark.successes.tolist(), mark.trials.tolist())
            assert payoffs == [(u * own.GRID).tolist() for u in placed.payoffs]
            assert own.shifts == [series.shift.tolist() for series in placed.aim.series]
            assert own.gradients == [series.gradient.tolist() for series in placed.aim.series]
            assert own.slopes == [slope.tolist() for slope in placed.aim.slopes]
            last = mark
            aims.add(placed.aim.total)
            slopes.add(placed.aim.slope_total)
    assert (
        slopes == aims if ours.is_product else len(slopes) < len(aims)
    )  # of blocks the best policy changes more often
    assert len(aims) > 5 and any(map(any, payoffs)) == any(map(any, own.gradients))


def _silent(random_start):
    """Rewards that are paid on the way to a state, and a start that is drawn."""
    rows = {
        0: {"a": {1: "p/2", 2: "1 - p/2"}, "b": {1: "1/2", 0: "1/2"}},
        1: {"a": {0: "p", 2: "1 - p"}},
        2: {"a": {2: 1}},
    }
    return build(
        {0: "1/4", 1: "3/4"} if random_start else 0, lambda s: rows[s], domain=["p"],
        rewards={"r": lambda s, a, after: float(1 + s + 3 * after)}, labels={"end": lambda s: s == 2},
    )  # fmt: skip


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("objective", [
    Objective.discounted("r", 0.9), Objective.reach("end", horizon=4),
    Objective.reach("end", horizon=6, sense=Sense.MIN),
    Objective.cost("r", target="end"), Objective.cost("r", target=None, horizon=3),
])  # fmt: skip
def test_gradients_of_models_with_silent_states_are_the_checkers(objective, random_start):
    model = _silent(random_start)
    checked, asked = checked_model(model, objective)
    own, line = checker.Bets(checked, asked, checked.coordinates, Fraction(1, 10)), joint_coordinates(model)
    for p in (0.1, 0.4, 0.9):
        gradient = bet_world(model, objective).slope(line, line.chances(np.array([p])))
        assert gradient.tolist() == own._slope([p])
        assert gradient.any()


def test_an_estimate_that_is_not_positive_is_refused():
    line = joint_coordinates(MODELS["two"][0]())
    x = np.full(line.dimension, 7.0)
    with pytest.raises(checker.Refused, match="not positive"):
        line.next_fit(np.ones(line.free.max() + 1), (x, 0))
    with pytest.raises(checker.Refused, match="direction open"):
        line.spread(np.ones(len(line.free)), x)
