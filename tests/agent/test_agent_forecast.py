"""`agent.plan`: forecasts agree with runs, follow the set in use, and refuse what they cannot answer."""

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from benchmarks import block_worlds
from rpl_agent import Config, ModelError, Objective, Policy, Polynomial, RPLAgent, build, certify
from rpl_agent.agent.exploration import ForCertificate, ForRegret
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.agent.forecast import Sampler, _Imagined, _search, enough, forecast
from rpl_agent.agent.schedule import Never
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model.simulate import Simulator, row_visits
from rpl_agent.guarantee.pipeline import uncertainty_from
from rpl_envs.benchmark import benchmark
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs

COIN, P = np.array([0.3]), Polynomial.parameter("p")


def coin():
    """One toss: its value is p, and n tosses leave the standard deviation √(p(1 − p)/n)."""

    def actions(state):
        return {"toss": {"heads": P, "tails": 1 - P}} if state == "start" else {"stay": {state: 1}}

    pmdp = build("start", actions, domain=["p"], labels={"heads": lambda state: state == "heads"})
    return pmdp, Objective.parse("maximise probability of heads")


def test_sigma_of_a_coin_is_that_of_the_binomial():
    pmdp, objective = coin()
    found = forecast(pmdp, objective, COIN, Config(), Sampler(None), episodes=[100, 10_000], draws=1)
    assert found.sigma == pytest.approx(np.sqrt(0.21 / np.array([100, 10_000])), rel=1e-6)
    assert found.value == pytest.approx(0.3) and found.steps == pytest.approx(1.0)
    assert (found.price > 1.0).all()  # nobody is narrower than a single look


def test_with_many_unknowns_data_decide_what_is_tried():
    """Bridges: a coin is tossed until it has come up once. Data that were drawn for the visits of another run may have
    no such toss, and then tell almost nothing: 37 was forecast for runs of 15 to 20."""
    bridges = block_worlds.bridges()
    env = rpl_envs.make_own(bridges.pmdp, bridges.objective, bridges.theta, max_episode_steps=bridges.steps)
    run = RPLAgent(seed=410).learn(env, 1_000).certificate
    asked = (bridges.pmdp, bridges.objective, bridges.theta, Config(), Sampler(bridges.steps))
    found = forecast(*asked, episodes=[1_000], draws=3, seed=5)
    assert found.gap[0] == pytest.approx(run.gap, rel=0.25)


def test_a_gap_that_is_asked_for_is_met_by_data():
    pmdp, objective = coin()
    found = forecast(pmdp, objective, COIN, Config(), Sampler(None), gap=0.05, draws=3)
    assert found.needed is not None
    assert found.gap[found.episodes == found.needed] == pytest.approx(0.05, rel=0.05)
    real = [
        certify(pmdp, uniform_counts(pmdp, objective, COIN, found.needed, 2, seed), objective, Config()).gap
        for seed in range(3)
    ]
    assert np.mean(real) == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("first", [1.01, 0.97, 30.0, 0.2])
def test_the_number_of_episodes_is_one_after_which_the_gap_is_small_enough(first):
    """575 episodes were forecast for a gap of 0.02, and a gap of 0.0202 after them."""

    def gaps(n):
        return np.array([first * 0.02 * (1_000 / n) ** 0.5])

    needed = _search(gaps, 0.02, 10**9)
    assert 0.97 * 0.02 <= gaps(needed).mean() <= 0.02


@pytest.mark.parametrize(
    "world, small",
    [
        ("MarsRover-10x10", True),
        *(pytest.param(world, False, marks=pytest.mark.nightly) for world in ("MarsRover-10x10", "ParallelBetting-5")),
    ],
)
def test_forecasts_agree_with_runs(world, small, monkeypatch):
    if small:
        make_worlds_small(monkeypatch)
    env, theta = gym.make(f"rpl/{world}-v0"), np.array(benchmark(world).theta)
    episodes = 200 if small else 500
    found = RPLAgent(seed=7).plan(env, theta, episodes=episodes)
    gaps = [
        RPLAgent(seed=seed).learn(env, episodes).certificate.gap for seed in range(4)
    ]  # single runs differ by a third
    assert found.gap[0] == pytest.approx(np.mean(gaps), rel=0.15)


def test_the_price_is_that_of_the_set_in_use():
    """Intervals per expression cost more than the joint set; a smaller δ costs more than a larger one."""
    world = benchmark("ParallelBetting", n=2)
    gaps = [
        forecast(world.pmdp, world.objective, np.array(world.theta), config, Sampler(10), episodes=[100], draws=1).gap
        for config in (Config(delta=0.1), Config(), Config(confidence="anytime", relaxation="tied"))
    ]
    assert gaps[0] < gaps[1] < gaps[2]


def test_who_draws_the_data_matters():
    world = benchmark("MarsRover-10x10")
    agent, env = RPLAgent(seed=0), gym.make("rpl/MarsRover-10x10-v0")
    theta = np.array(world.theta)
    planned = agent.plan(env, theta, episodes=100, draws=1)
    uniform = agent.plan(env, theta, episodes=100, draws=1, policy=Policy.uniform(world.pmdp))
    never = RPLAgent(seed=0, schedule=Never()).plan(env, theta, episodes=100, draws=1)
    assert planned.sigma[0] < uniform.sigma[0] == never.sigma[0]


def test_expected_visits_are_those_of_the_simulator():
    world = benchmark("Aircraft-20x10")
    mdp, policy = world.pmdp.instantiate(np.array(world.theta)), Policy.uniform(world.pmdp)
    stop = world.objective.resolve(world.pmdp).decided
    counts = np.zeros(world.pmdp.num_transitions, dtype=np.int64)
    Simulator(mdp, stop, 8, 3).run(policy, 20_000, counts)
    seen = np.add.reduceat(counts, world.pmdp.row_ptr[:-1]) / 20_000
    visits = np.where(stop[world.pmdp.row_state], 0.0, row_visits(mdp, policy, 8, stop))
    assert np.abs(seen - visits).max() < 5 * np.sqrt(visits.max() / 20_000)


def test_drawn_outcomes_have_the_law_of_the_model():
    world = benchmark("Aircraft-20x10")
    imagined = _Imagined(
        world.pmdp, world.objective, np.array(world.theta), Config(), Sampler(50, policy=Policy.uniform(world.pmdp)),
        np.random.default_rng(0),
    )  # fmt: skip
    counts = imagined.draw(50_000, np.random.default_rng(1))
    expected = counts.row_totals[world.pmdp.transition_row] * imagined.mdp.probability
    often = (expected > 50) & (imagined.mdp.probability < 1.0)
    spread = np.sqrt(expected * (1.0 - imagined.mdp.probability))[often]
    off = (counts.transitions - expected)[often] / spread
    assert len(off) > 300 and np.abs(off).max() < 5.5 and 0.85 < (off**2).mean() < 1.15


def test_a_forecast_refuses_what_it_cannot_answer(tmp_path, monkeypatch):
    pmdp, objective = coin()
    with pytest.raises(ModelError, match="outside the domain"):
        forecast(pmdp, objective, np.array([1.5]), Config(), Sampler(None))
    with pytest.raises(ModelError, match=r"gap -1\.0 must be a positive number"):
        forecast(pmdp, objective, COIN, Config(), Sampler(None), gap=-1.0)
    with monkeypatch.context() as patch, pytest.raises(ModelError, match="needs more than"):
        patch.setattr("rpl_agent.agent.forecast.MOST", 500)  # as many as can be counted, or the search takes long
        forecast(pmdp, objective, COIN, Config(), Sampler(None), gap=1e-9, draws=1)
    forecast(pmdp, objective, COIN, Config(), Sampler(None), gap=0.1, draws=1).plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5_000


def test_more_data_sets_are_drawn_where_their_gaps_differ():
    assert not enough([1.0, 1.0]) and enough([1.0, 1.01, 0.99])
    assert not enough([1.0, 2.0, 3.0]) and not enough([1.0, 2.0] * 10) and enough([1.0, 2.0] * 16)
    assert enough([np.inf] * 3)  # more of them say no more


def test_a_regret_is_planned_for():
    """Regrets fall with the data, much faster than gaps; the answer is where the mean regret is small enough."""
    world = rpl_envs.benchmark("Glider-11x9")
    sampler = Sampler(world.max_episode_steps, policy=Policy.uniform(world.pmdp))
    arguments = (world.pmdp, world.objective, np.array(world.theta), Config(), sampler)
    found = forecast(*arguments, regret="1%", draws=1)
    assert found.aim == "regret" and found.wanted == pytest.approx(0.01 * found.value)
    at = {int(n): regret for n, regret in zip(found.episodes, found.regret)}
    assert at[found.needed] <= found.wanted < at[round(0.1 * found.needed)]
    assert found.gap[list(at).index(found.needed)] > found.wanted  # a gap of 1 % takes far more
    with pytest.raises(ModelError, match="one at a time"):
        forecast(*arguments, gap=1.0, regret=1.0)
    with pytest.raises(ModelError, match="share of the value"):
        forecast(*arguments, regret="-1%")


def test_exploring_for_the_regret_aims_at_a_difference():
    """Two coins of which one is better so far: its value takes tosses of it alone, their difference tosses of both."""

    def actions(state):
        coins = {"one": {"won": "p", "lost": "1 - p"}, "other": {"won": "q", "lost": "1 - q"}}
        return coins if state == "start" else {"stay": {state: 1}}

    pmdp = build("start", actions, domain=["p", "q"], labels={"won": lambda s: s == "won"})
    objective, counts = Objective.reach("won"), Counts(pmdp)
    start, won, lost = (pmdp.state_index(name) for name in ("start", "won", "lost"))
    for action, wins in ((0, 60), (1, 50)):
        counts.add(start, action, won, wins)
        counts.add(start, action, lost, 100 - wins)
    uncertainty, goal = uncertainty_from(pmdp, counts, Config(), objective), SamplingGoal(100, False, 1)
    first, second = pmdp.find_row(start, 0), pmdp.find_row(start, 1)
    rows = pmdp.state_ptr[:-1].copy()
    rows[start] = second
    shares = {}
    for kind in (ForCertificate(), ForRegret()):
        plan = kind.plan(counts, uncertainty, objective, Policy.deterministic(rows), goal)
        shares[kind.name] = plan.as_weights(pmdp)[[first, second]]
    np.testing.assert_allclose(shares["certificate"], [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(shares["regret"], [0.5, 0.5], atol=0.1)
    agent = RPLAgent("rpl/Betting-25-v0", exploration="regret", seed=0).learn(budget=20)
    assert agent.exploration.name == "regret" and agent.certificate.lower <= agent.certificate.upper
