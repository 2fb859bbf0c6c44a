"""Every tabular baseline finds the known answer of three small worlds, within an exact budget, resumably."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.agent.storage import checkpoint
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Objective, StateIndex
from rpl_agent.core.native import core
from rpl_agent.studies.baselines import PSRL, UCBVI, UCRL2, CertaintyEquivalence, QLearning, RMax
from rpl_agent.studies.baselines.planning import TabularPlanner, sweep_order
from tests.reference.baselines import best_in_l1_ball
from tests.toy_worlds import WORLDS, ToyEnv, exact_value, ladder, retry, risk

pytestmark = pytest.mark.short_runs

AGENTS = {
    "q-learning": lambda **k: QLearning(**k),
    "rmax": lambda **k: RMax(known_after=60, **k),
    "ucrl2": lambda **k: UCRL2(**k),
    "ucbvi": lambda **k: UCBVI(**k),
    "psrl": lambda **k: PSRL(**k),
    "ce": lambda **k: CertaintyEquivalence(**k),
    "ce-structured": lambda **k: CertaintyEquivalence(structured=True, **k),
}


@pytest.mark.parametrize(("agent", "world"), [  # by day every learner, and every world
    pytest.param(agent, world, marks=() if world == "risk" or agent == "ucrl2" else pytest.mark.nightly)
    for agent in AGENTS for world in WORLDS
])  # fmt: skip
def test_finds_the_optimal_policy(agent, world):
    env, optimum = WORLDS[world]()
    learner = AGENTS[agent](seed=1).learn(env, 3000)
    assert learner.num_episodes == 3000
    assert exact_value(env, learner.policy) == pytest.approx(optimum, abs=1e-9)
    action, state = learner.predict(env.pmdp.initial_state)
    assert state[0] == 1 and env.pmdp.find_row(env.pmdp.initial_state, int(action)) >= 0


@pytest.mark.parametrize(  # by day one without a model and one with: the path is that of them all
    "agent", [a if a in ("q-learning", "ucrl2") else pytest.param(a, marks=pytest.mark.nightly) for a in AGENTS]
)
def test_the_step_path_needs_no_simulator(agent):
    env, optimum = risk()
    learner = AGENTS[agent](seed=3, compiled=False).learn(env, 1500)
    assert learner.num_episodes == 1500 and learner.num_timesteps >= 1500
    assert exact_value(env, learner.policy) == pytest.approx(optimum, abs=1e-9)


@pytest.mark.parametrize("agent", AGENTS)
def test_save_and_resume_equals_never_having_stopped(agent, tmp_path):
    env, _ = ladder()
    whole = AGENTS[agent](seed=5)
    whole.learn(env, 400, checkpoints=[150])
    first = AGENTS[agent](seed=5)
    seen = []

    def keep(agent):
        seen.append(agent.num_episodes)
        agent.save(tmp_path / f"{agent.num_episodes}.zip")

    first.learn(env, 400, checkpoints=[150], callback=keep)
    assert seen == [150, 400]
    again = type(first).load(tmp_path / "150.zip", ladder()[0])
    assert again.num_episodes == 150
    again.learn(again.world.env, 250)
    assert (again.num_episodes, again.num_timesteps) == (whole.num_episodes, whole.num_timesteps)
    for key, value in whole._arrays().items():
        np.testing.assert_array_equal(again._arrays()[key], value)


def test_learners_saved_by_version_0_2_are_read(tmp_path):
    """There ``weight`` was called ``greedy_weight``."""
    CertaintyEquivalence(seed=5, weight=0.7).learn(ladder()[0], 20).save(tmp_path / "new.zip")
    state, arrays = checkpoint.read_latest(tmp_path / "new.zip")
    state["config"]["greedy_weight"] = state["config"].pop("weight")
    checkpoint.write(tmp_path / "old.zip", state, arrays)
    again = CertaintyEquivalence.load(tmp_path / "old.zip", ladder()[0])
    assert again.weight == 0.7 and again.num_episodes == 20


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    runs = [PSRL(seed=s).learn(ladder()[0], 200).transition_count for s in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_budget_and_files_are_checked(tmp_path):
    env, _ = risk()
    with pytest.raises(ModelError, match="budget 0"):
        RMax().learn(env, 0)
    with pytest.raises(ModelError, match="no environment yet"):
        RMax().predict(0)
    learner = RMax().learn(env, 5)
    learner.save(tmp_path / "a.zip")
    with pytest.raises(DataError, match="holds a RMax"):
        PSRL.load(tmp_path / "a.zip")
    with pytest.raises(DataError, match="another model"):
        RMax.load(tmp_path / "a.zip", ladder()[0])
    (tmp_path / "b.zip").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a checkpoint"):
        RMax.load(tmp_path / "b.zip")
    with pytest.raises(ModelError, match="differs from the one learned"):
        learner.learn(ladder()[0], 5)


def test_a_finite_horizon_is_refused():
    env, _ = risk()
    bounded = ToyEnv(env.pmdp, Objective.reach("goal", horizon=3), {"p": 0.8, "q": 0.6})
    with pytest.raises(ModelError, match="finite-horizon"):
        RMax().learn(bounded, 5)


# ---------------------------------------------------------------------- parts
@given(st.integers(1, 5), st.floats(0, 2.2), st.booleans(), st.integers(0, 10**6))
def test_the_inner_maximisation_of_ucrl2_is_the_linear_programme(n, radius, maximise, seed):
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.full(n, 0.5))
    values = rng.integers(0, 4, n).astype(float)  # ties on purpose
    successor = np.arange(n, dtype=np.int32)
    found = core.optimistic_expectation(n, successor, probability, values, radius, 0.0, maximise, np.empty(n))
    assert found == pytest.approx(best_in_l1_ball(probability, values, radius, maximise), abs=1e-9)


def test_a_bonus_never_leads_past_the_best_successor():
    values, p, succ = np.array([0.0, 1.0]), np.array([0.5, 0.5]), np.arange(2, dtype=np.int32)
    assert core.optimistic_expectation(2, succ, p, values, 0.0, 0.2, True, np.empty(2)) == pytest.approx(0.7)
    assert core.optimistic_expectation(2, succ, p, values, 0.0, 9.0, True, np.empty(2)) == 1.0
    assert core.optimistic_expectation(2, succ, p, values, 0.0, 9.0, False, np.empty(2)) == 0.0


def test_planning_at_the_truth_gives_the_known_values():
    for world in WORLDS.values():
        env, optimum = world()
        planner = TabularPlanner(env.pmdp, env.objective.resolve(env.pmdp))
        values, _ = planner.plan(env._mdp.probability)
        assert values[env.pmdp.initial_state] == pytest.approx(optimum, rel=1e-5)
    # the whole simplex on every row: only the graph and the rewards are left
    env, _ = retry()
    planner = TabularPlanner(env.pmdp, env.objective.resolve(env.pmdp))
    values, _ = planner.plan(env._mdp.probability, radius=np.full(env.pmdp.num_rows, 2.0))
    assert values[0] == pytest.approx(1.0)


def test_the_order_of_sweeps_puts_successors_first():
    env, _ = ladder()
    pmdp = env.pmdp
    order = sweep_order(pmdp)
    position = np.argsort(order)
    assert sorted(order) == list(range(pmdp.num_states))
    source = pmdp.row_state[pmdp.transition_row]
    proper = source != pmdp.successor
    assert (position[pmdp.successor[proper]] < position[source[proper]]).all()


def test_maximum_likelihood_pools_tied_transitions():
    env, _ = ladder()
    learner = CertaintyEquivalence(structured=True, seed=0).learn(env, 4000)
    pmdp = env.pmdp
    up = np.flatnonzero(np.array([str(pmdp.table.polynomial(int(f))) == "p" for f in pmdp.expression]))
    climbs = learner.row_count[pmdp.transition_row[up]].sum()
    assert learner.theta[0] == pytest.approx(learner.transition_count[up].sum() / climbs, abs=1e-6)
    assert abs(learner.theta[0] - 0.7) < 0.03
    blank = CertaintyEquivalence(structured=True)
    blank.set_env(env)
    assert blank.theta[0] == pytest.approx(0.5)


def test_counts_of_a_learner_belong_together():
    env, _ = retry()
    learner = UCRL2(seed=0).learn(env, 100)
    totals = np.add.reduceat(learner.transition_count, env.pmdp.row_ptr[:-1])
    np.testing.assert_array_equal(totals, learner.row_count)
    assert learner.row_count.sum() == learner.num_timesteps


# ---------------------------------------------------------------------- attached as the agent is
class Renamed(gym.ObservationWrapper):
    """Observations are words, not numbers."""

    observation_space = gym.spaces.Text(20)

    def observation(self, observation):
        return f"s{observation}"


class Counting(gym.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        return super().step(action)


@pytest.mark.parametrize("agent", AGENTS)
def test_time_limits_and_wrappers_count_for_baselines(agent):
    env = Counting(gym.wrappers.TimeLimit(retry()[0], 3))
    learner = AGENTS[agent](seed=0).learn(env, 40)
    assert env.steps == learner.num_timesteps <= 3 * 40  # a wrapper's step is called, and the limit cuts
    compiled = AGENTS[agent](seed=0).learn(gym.wrappers.TimeLimit(retry()[0], 3), 40)
    assert compiled.num_timesteps <= 3 * 40


def test_baselines_read_observations_as_the_agent_does(tmp_path):
    env, optimum = risk()
    mapping = lambda text: StateIndex(int(text[1:]))  # noqa: E731
    learner = RMax(known_after=60, seed=1, observation_to_state=mapping).learn(Renamed(env), 1500)
    assert exact_value(env, learner.policy) == pytest.approx(optimum, abs=1e-9)
    first = f"s{env.pmdp.initial_state}"
    learner.save(tmp_path / "c.zip")
    again = RMax.load(tmp_path / "c.zip", Renamed(risk()[0]), observation_to_state=mapping)
    assert again.predict(first)[0] == learner.predict(first)[0]
    with pytest.raises((ModelError, DataError)):
        RMax().learn(Renamed(env), 5)
