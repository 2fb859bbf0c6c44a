"""`evaluate`: an interval of any policy's value that does not trust the model, beside the certificate."""

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent import DataError, ModelError, Objective, RPLAgent
from rpl_agent.agent.runs import evaluate_run, train
from rpl_agent.agent.world.plays import value_range
from rpl_agent.core.model import Policy, build
from rpl_agent.formats import prism
from rpl_agent.guarantee.shown import true_value
from tests.agent_worlds import TRUE_P, CorridorEnv, FastCorridorEnv, corridor
from tests.attach_worlds import Machine, machine_model

pytestmark = pytest.mark.short_runs


@pytest.fixture(scope="module")
def agent():
    return RPLAgent(seed=2, delta=0.05).learn(FastCorridorEnv(), 1500, log_interval=5000)


def test_the_interval_holds_the_value_and_agrees(agent):
    theta = np.array([TRUE_P])
    for policy in (None, Policy.uniform(agent.pmdp)):
        found = agent.evaluate(FastCorridorEnv(), 1500, policy=policy, seed=5)
        exact = true_value(agent.pmdp, agent.objective, policy or agent.certificate.policy, theta)
        assert found.lower <= exact <= found.upper < found.lower + 0.15
        assert found.contradiction is None and found.delta == 0.05


def test_a_world_that_has_changed_contradicts_the_certificate(agent):
    """Learned with p = 0.7, played with p = 0.3; of other policies only a value beyond the optimum says anything."""
    found = agent.evaluate(FastCorridorEnv(p=0.3), 400)
    assert found.upper < agent.certificate.lower and "model is wrong" in found.contradiction
    assert agent.evaluate(FastCorridorEnv(p=0.3), 400, policy=Policy.uniform(agent.pmdp)).contradiction is None
    better = agent.evaluate(FastCorridorEnv(p=0.99), 400, policy=Policy.uniform(agent.pmdp))
    assert better.lower > agent.certificate.upper and better.contradiction


class Race(gym.Env):
    """Half of all episodes are lost at once, the others are won after five steps."""

    observation_space, action_space = gym.spaces.Discrete(7), gym.spaces.Discrete(1)

    def __init__(self):
        labels = {"won": lambda s: s == 5, "lost": lambda s: s == 6}
        self.pmdp = build(0, _race, domain=["p"], labels=labels, name="race")
        self.objective = Objective.reach("won", avoid="lost")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        lost = self.state == 0 and self.np_random.random() < 0.5
        self.state = 6 if lost else self.state + 1
        return self.state, float(self.state == 5), self.state >= 5, False, {}


def _race(state):
    if state >= 5:
        return {0: {state: 1}}
    return {0: {1: "p", 6: "1 - p"}} if state == 0 else {0: {state + 1: 1}}


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_episodes_of_a_vector_count_in_the_order_of_their_starts(mode):
    """Short ones end first: taken in the order of their ends, every interval was wrong with 32 lanes."""
    agent, wrong = RPLAgent(Race(), delta=0.1, seed=0), 0
    for seed in range(2):
        lanes = gym.vector.SyncVectorEnv([Race] * 32, autoreset_mode=gym.vector.AutoresetMode[mode])
        found = agent.evaluate(lanes, 200, seed=seed)
        assert len(found.values) == 200 and np.array_equal(found.lengths == 5, found.values == 1.0)
        wrong += not found.lower <= 0.5 <= found.upper
    assert wrong <= 1  # 0.2 are allowed on average


class Runner:
    """Predicts as SB3's models do."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic and (state is None) == bool(episode_start[0])
        return np.array(0), (0 if state is None else state + 1)


def test_anything_that_predicts_is_a_policy(agent):
    run = Policy.deterministic(agent.pmdp.state_ptr[:-1].copy())
    exact = true_value(agent.pmdp, agent.objective, run, np.array([TRUE_P]))
    found = agent.evaluate(CorridorEnv(), 400, policy=Runner(), seed=1)
    assert found.lower <= exact <= found.upper and np.array_equal(found.returns, found.values)
    assert agent.evaluate(CorridorEnv(p=0.99), 400, policy=Runner()).contradiction
    with pytest.raises(ModelError, match="predict"):
        agent.evaluate(CorridorEnv(), 10, policy=lambda observation: 0)
    with pytest.raises(ModelError, match="needs one environment"):
        agent.evaluate(gym.vector.SyncVectorEnv([CorridorEnv] * 2), 10, policy=Runner())


def test_a_model_of_stable_baselines(agent, sized):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", CorridorEnv(), n_steps=8, batch_size=8, seed=0, device="cpu")
    found = agent.evaluate(CorridorEnv(), sized(60, 200), policy=model)
    assert 0.0 <= found.lower < found.mean < found.upper <= 1.0


def test_ranges_of_values():
    """By hand: ten steps, of which every one but the first can cost 1; at most as many as a limit allows."""
    pmdp, cost = machine_model()
    low, high = value_range(pmdp, cost, None)
    assert (low, high) == (0.0, pytest.approx(9.0))  # not a rounding error below
    assert value_range(pmdp, cost, 4)[1] == pytest.approx(3.0)
    walk, reach = corridor()
    assert value_range(walk, reach, None) == (0.0, 1.0)
    time = Objective.total("time", target="goal")
    assert value_range(walk, time, None)[1] == np.inf and value_range(walk, time, 50)[1] == pytest.approx(50.0)
    cost = Objective.cost("time", target="goal")  # infinite where a play ends in the pit, whatever the limit
    assert value_range(walk, cost, None)[1] == value_range(walk, cost, 50)[1] == np.inf
    assert value_range(walk, Objective.discounted("time", 0.9), None) == (0.0, pytest.approx(10.0))
    assert value_range(walk, Objective.reward("time", target="goal", horizon=7), None)[1] == pytest.approx(7.0)


class Road(gym.Env):
    """One step: the risky way misses the goal half of the time, and is then worth infinity, whatever it cost."""

    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)

    def __init__(self, costs):
        self.costs = costs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        missed = action == 0 and self.np_random.random() < 0.5
        return 2 if missed else 1, -self.costs[action], True, False, {}


def road_model(costs):
    rows = {0: {"risky": {1: "1 - p", 2: "p"}, "safe": {1: 1}}}
    return build(
        0, lambda s: rows.get(s, {"risky": {s: 1}}), domain={"p": (0.1, 0.9)}, labels={"goal": lambda s: s == 1},
        rewards={"cost": lambda s, a: costs[a == "safe"] if s == 0 else 0.0},
    )  # fmt: skip


def test_a_play_that_misses_a_target_it_must_reach_is_worth_infinity():
    """Its payments were taken for what it is worth, and the model was called wrong."""
    costs = (1.0, 3.0)
    pmdp, risky = road_model(costs), [(0, "risky", 1)]
    agent = RPLAgent(Road(costs), pmdp=pmdp, objective="minimise cost until goal", seed=0).learn(budget=100)
    found = agent.evaluate(Road(costs), 200, policy=Policy.from_table(pmdp, risky))
    assert found.contradiction is None and not np.isfinite(found.upper)
    found = agent.evaluate(Road(costs), 200, policy=Policy.from_table(pmdp, risky), bounds=(0.0, 9.0))
    assert found.contradiction is None


def test_a_certain_end_is_no_horizon_where_missing_the_target_is_worth_infinity():
    """The agent answered for at most one step, where missing costs nothing, and chose the risky way."""
    costs = (-1.0, 3.0)
    pmdp, question = road_model(costs), "minimise cost until goal"
    agent = RPLAgent(Road(costs), pmdp=pmdp, objective=question, seed=0).learn(budget=100)
    assert agent.objective == Objective.parse(question) and agent.certificate.lower > 2.9
    assert agent.certificate.policy.rows[0] == pmdp.find_row(0, 1)


def test_costs_discounts_and_bounds_of_the_user():
    pmdp, cost = machine_model()
    agent = RPLAgent(pmdp=pmdp, objective=cost, seed=0).learn(Machine(), 100, log_interval=5000)
    exact = true_value(pmdp, agent.objective, agent.certificate.policy, np.array([0.1, 0.9]))
    found = agent.evaluate(Machine(), 800)
    assert found.lower <= exact <= found.upper < found.lower + 0.6
    wide = agent.evaluate(Machine(), 800, bounds=(0.0, 100.0))
    assert wide.lower <= exact <= wide.upper and wide.upper - wide.lower > found.upper - found.lower
    with pytest.raises(DataError, match=r"value \d+ is .*, outside \[0, 1\]: pass bounds"):
        agent.evaluate(Machine(), 20, bounds=(0.0, 1.0))


def test_another_question_than_the_environments_own():
    """The compiled simulator is paid for the machine's costs; asked for is whether it ever breaks."""
    text = """dtmc
    module m
      s : [0..3] init 0;
      [a] s=0 -> 0.5 : (s'=1) + 0.3 : (s'=2) + 0.2 : (s'=3);
      [] s>0 -> true;
    endmodule
    label "three" = s=3; label "end" = s>0;
    rewards "steps" s=0 : 4; endrewards"""
    model = prism.loads(text, unknown="commands")
    pmdp, own = model.objective('R{"steps"}=? [ F "end" ]')
    env = rpl_envs.make_own(pmdp, own, model.truth.tolist(), max_episode_steps=10)
    agent = RPLAgent(env, objective=Objective.reach("three"), seed=0).learn(budget=100)
    found = agent.evaluate(env, 400)
    assert agent.world.compiled and set(found.values) == {0.0, 1.0} and (found.returns == -4.0).all()
    assert found.lower <= 0.2 <= found.upper


def betting():
    return gym.make("rpl/Betting-v0", n=3)


def test_runs_show_it_beside_the_certificate(tmp_path):
    train(betting(), log_dir=tmp_path, name="run", budget=300, quiet=True)
    result = evaluate_run(tmp_path / "run", betting(), episodes=500, theta=rpl_envs.benchmark("Betting", n=3).theta)
    assert result["witness_lower"] <= result["exact"] <= result["witness_upper"]
    assert "without any model" in result["text"] and result["contradiction"] is None
    bounded = evaluate_run(tmp_path / "run", betting(), episodes=500, bounds=(0.0, 1e6))
    assert bounded["witness_upper"] > result["witness_upper"]
