"""Ordinary mistakes of people who come from reinforcement learning: one sentence each, never a raw Python error."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import (
    CallbackList,
    CheckpointCallback,
    Config,
    Counts,
    DataError,
    Doubling,
    EvalCallback,
    EveryN,
    Limit,
    ModelError,
    Objective,
    OracleCallback,
    Policy,
    RPLAgent,
    Sense,
    StopOnGap,
    bound_return,
    build,
    certify,
    check_model,
    curve,
    from_matrices,
    hide_parameters,
    load_prism,
    read_log,
    read_policy,
    register_confidence_set,
    sketch,
    solve,
    solve_at,
    solve_region,
    validate,
)
from rpl_agent.agent.exploration import Optimistic
from tests.agent.test_attach_actions import WATER, Pump, pump_model


def rows(state):
    return {0: {state + 1: "p", state: "1-p"}} if state < 3 else {0: {state: 1}}


def model(**changed):
    known = {"initial_state": 0, "actions": rows, "domain": ["p"], "labels": {"goal": lambda state: state == 3}}
    return build(**known | changed)


FULL = pump_model(lambda state: (0, 1))


def pump(**settings):
    return RPLAgent(Pump(), pmdp=FULL, objective=WATER, seed=0, **settings)


BUILDING = {
    "a list is no state": ({"initial_state": [2, 0]}, r"the start \[2, 0\] is a list.*write a tuple.*\(2, 0\)"),
    "an array is no state": ({"initial_state": np.array([2, 0])}, "is a ndarray, which cannot be a state"),
    "no action at all": ({"initial_state": {"x": 0}}, "has no successor"),
    "actions as a table": ({"actions": {0: {0: {0: 1}}}}, "actions must be a function: state ->"),
    "actions as a list": ({"actions": lambda s: [{s: 1}]}, "actions must be a mapping"),
    "actions forgotten": ({"actions": lambda s: None}, "actions must be a mapping"),
    "a label that is a list": ({"labels": {"goal": [3]}}, r"labels\['goal'\] is list \[3\], not a function"),
    "a label that is a state": ({"labels": {"goal": 3}}, r"labels\['goal'\] is int 3, not a function"),
    "labels as names": ({"labels": ["goal"]}, "labels must map names to functions"),
    "a label of an array": ({"labels": {"goal": lambda s: np.array([True, False])}}, "must be true or false"),
    "a reward that is a number": ({"rewards": {"r": 1.0}}, r"rewards\['r'\] is float 1.0, not a function"),
    "rewards as names": ({"rewards": ["r"]}, "rewards must map names to functions"),
    "a reward of the state": ({"rewards": {"r": lambda s: 1.0}}, r"must be a function of \(state, action\)"),
    "a reward of too much": ({"rewards": {"r": lambda s, a, t, x: 1.0}}, r"must be a function of \(state, action\)"),
    "no reward": ({"rewards": {"r": lambda s, a: None}}, "must be a finite number, not None"),
    "NaN": ({"rewards": {"r": lambda s, a: float("nan")}}, "must be a finite number, not nan"),
    "a text as a reward": ({"rewards": {"r": lambda s, a: "1"}}, "must be a finite number, not '1'"),
    "a text as a domain": ({"domain": "p"}, r"domain='p' must list the unknown parameters: write \[\"p\"\]"),
    "no domain": ({"domain": None}, "domain=None must list"),
    "a number as bounds": ({"domain": {"p": 0.5}}, r"'p' needs two bounds, \(lower, upper\), not 0.5"),
    "three bounds": ({"domain": {"p": [0, 1, 2]}}, "'p' needs two bounds"),
    "a text as variables": ({"variables": "xy"}, r"variables='xy' is a string: .*\('x', 'y'\)"),
    "an unknown parameter": ({"actions": lambda s: {0: {s: "q"}}}, r"unknown parameters \['q'\]"),
}


def unlucky(*_):
    return {}["x"]


BUILDING |= {
    "actions that fail": ({"actions": unlucky}, r"state 0: actions\(state\) raised KeyError: 'x'"),
    "actions that fail later": (
        {"actions": lambda s: rows(s) if s < 2 else unlucky()},
        r"state 2: actions\(state\) raised KeyError",
    ),
    "a label that fails": ({"labels": {"goal": lambda s: s.x}}, r"state 0: labels\['goal'\] raised AttributeError"),
    "a reward that fails": (
        {"rewards": {"r": lambda s, a: 1 / (s - 1)}},
        r"state 1, action 0: rewards\['r'\] raised ZeroDivisionError: division by zero",
    ),
    "a reward on arrival that fails": (
        {"rewards": {"r": lambda s, a, t: unlucky()}},
        r"state 0, action 0: rewards\['r'\] raised KeyError",
    ),
    "texts as bounds": ({"domain": {"p": ("a", "b")}}, "lower of a domain must be numbers"),
}


def test_what_a_function_raised_is_kept():
    with pytest.raises(ModelError) as caught:
        model(actions=unlucky)
    assert isinstance(caught.value.__cause__, KeyError)


CALLS = {
    "a typing error": (lambda: Config(detla=0.1), "Config has no argument 'detla': the nearest is 'delta'"),
    "another one": (lambda: build(0, rows, domian=["p"]), "build has no argument 'domian': the nearest is 'domain'"),
    "no such thing": (
        lambda: solve(FULL, WATER, gpu=True),
        "solve has no argument 'gpu': it has relaxation, objective",
    ),
    "nothing": (lambda: certify(), r"certify needs pmdp and counts and objective: write certify\(pmdp, counts, obj"),
    "a setting": (lambda: certify(FULL, Counts(FULL), WATER, detla=0.1), "no argument 'detla': the nearest is 'delta'"),
    "no objective": (lambda: certify(FULL, Counts(FULL)), r"certify needs objective: write certify\(pmdp, counts, obj"),
    "no objective to solve": (lambda: solve(FULL), r"solve needs objective: write solve\(relaxation, objective\)"),
    "no parameters": (lambda: solve_at(FULL), r"solve_at needs theta and objective: write solve_at\(pmdp, theta, obj"),
    "no region": (lambda: solve_region(), "solve_region needs pmdp and objective"),
    "no domain": (lambda: build(0, rows), r"build needs domain: write build\(initial_state, actions, domain=\.\.\.\)"),
    "no range": (
        lambda: bound_return(lambda o: 0, Pump(), 5),
        r"bound_return needs returns: write bound_return\(policy,",
    ),
    "no episodes": (lambda: pump().evaluate(Pump()), r"evaluate needs episodes: write evaluate\(env, episodes\)"),
    "no agent's setting": (
        lambda: pump().evaluate(Pump(), 5, delte=0.1),
        "no argument 'delte': the nearest is 'delta'",
    ),
    "too much": (lambda: solve_at(FULL, {}, WATER, 1, 2, 3, 4, 5, 6), "too many positional arguments"),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_arguments_that_are_missing_or_unknown(mistake):
    call, words = CALLS[mistake]
    with pytest.raises(ModelError, match=words):
        call()


class Predicts:
    """A policy like those of Stable-Baselines3, which returns this."""

    def __init__(self, found):
        self.found = found

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return self.found


class PredictsOnly:
    def predict(self, observation):
        return 0


CHOSEN = {
    "nothing": (lambda observation: None, "episode 1: the policy chose None, which is not an action of Discrete"),
    "a text": (lambda observation: "left", "episode 1: the policy chose 'left', which is not an action of Discrete"),
    "another action": (lambda observation: 7, "the policy chose 7, which is not an action of Discrete"),
    "a list": (lambda observation: [0], r"the policy chose \[0\], which is not an action of Discrete"),
    "a prediction of nothing": (Predicts(None), r"predict must return \(action, state\), as in Stable-Baselines3"),
    "only an action": (Predicts(0), r"predict must return \(action, state\), as in Stable-Baselines3, not 0"),
    "no action": (Predicts((None, None)), "the policy chose None, which is not an action of"),
    "half an action": (Predicts((np.float32(0.5), None)), "the policy chose 0.5, which is not an action of"),
    "one argument": (PredictsOnly(), r"predict of PredictsOnly must take \(observation, state, episode_start, determ"),
}


@pytest.mark.parametrize("mistake", CHOSEN)
def test_policies_choose_actions(mistake):
    policy, words = CHOSEN[mistake]
    with pytest.raises(ModelError, match=words):
        bound_return(policy, gym.make("CartPole-v1"), 5, (0, 500))
    if hasattr(policy, "predict"):
        with pytest.raises(ModelError, match=words):
            pump().evaluate(gym.make("CartPole-v1"), 5, policy=policy)


def test_what_an_environment_raises_for_its_own_actions_is_kept():
    class Broken(gym.Wrapper):
        def step(self, action):
            raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        bound_return(lambda observation: 0, Broken(gym.make("CartPole-v1")), 5, (0, 500))


@pytest.mark.parametrize("mistake", BUILDING)
def test_building(mistake):
    changed, words = BUILDING[mistake]
    with pytest.raises(ModelError, match=words):
        model(**changed)


AGENT = {
    "gamma": (lambda: pump(gamma=0.9), "no setting 'gamma': the discount is part of the objective"),
    "learning rate": (lambda: pump(learning_rate=1e-3), "no setting 'learning_rate': nothing is tuned"),
    "a typing error": (lambda: pump(exploraton="optimistic"), "no setting 'exploraton': the nearest is 'exploration'"),
    "a class": (lambda: RPLAgent(Pump, pmdp=FULL, objective=WATER), r"Pump is a class: pass an environment, Pump\(\)"),
    "a function": (lambda: RPLAgent(lambda: Pump(), pmdp=FULL, objective=WATER), "call it and pass what it makes"),
    "a class to learn": (lambda: RPLAgent(pmdp=FULL, objective=WATER).learn(Pump, 10), "Pump is a class"),
    "rows as a model": (lambda: RPLAgent(Pump(), pmdp=rows, objective=WATER), "pmdp is function, not a model"),
    "a table of states": (lambda: pump(observation_to_state={}), "observation_to_state is dict, not a function"),
    "a seed with a point": (lambda: pump().__class__(seed=1.5), "seed 1.5 must be a whole number"),
    "a text as a seed": (lambda: RPLAgent(seed="a"), "seed 'a' must be a whole number"),
    "a negative seed": (lambda: RPLAgent(seed=-1), "seed -1 must be a whole number"),
    "a text as a weight": (lambda: pump(weight="x"), "weight 'x' is not a number from 0 to 1"),
    "a text as precision": (lambda: pump(precision="x"), "precision 'x' is not a number"),
    "a dict as config": (lambda: pump(config={"delta": 0.1}), "is not a Config: write config=Config"),
    "a schedule by name": (lambda: pump(schedule="every:10"), r"is not a schedule: write for example EveryN\(100\)"),
    "a schedule's class": (lambda: pump(schedule=Doubling), "is not a schedule"),
    "a text as a number": (lambda: EveryN("x"), "n 'x' must be a whole number of episodes"),
    "half a step": (lambda: pump(horizon=2.5), "horizon 2.5 is neither 'env' nor a whole number"),
    "a number as a folder": (lambda: pump(tensorboard_log=5), "tensorboard_log=5 is not a path"),
    "a gap in percent": (lambda: pump().learn(budget=5, stop_when_gap="1%"), "stop_when_gap '1%' must be a positive"),
    "a gap of yes": (lambda: pump().learn(budget=5, stop_when_gap=True), "stop_when_gap True must be a positive"),
    "half an interval": (lambda: pump().learn(budget=5, log_interval=2.5), "log_interval 2.5 must be a whole number"),
    "a callback's class": (lambda: pump().learn(budget=5, callback=StopOnGap), "StopOnGap is a class"),
    "a gap as a text": (lambda: StopOnGap("x"), "must be a positive number, not 'x'"),
    "a frequency as a text": (lambda: CheckpointCallback("x"), "save_freq 'x' must be a whole number"),
    "nowhere to save": (lambda: pump().save(None), "path=None is not a path"),
    "nothing to load": (lambda: RPLAgent.load(None), "path=None is not a path"),
    "the id to evaluate": (lambda: pump().evaluate("Pump-v0", 5), r"'Pump-v0' is a string: .*gymnasium.make"),
    "episodes as a text": (lambda: pump().evaluate(Pump(), "5"), "episodes '5' must be a whole number"),
    "one bound": (lambda: pump().evaluate(Pump(), 5, bounds=5), "bounds=5 must be the least and the most"),
    "the id to check": (lambda: check_model("FrozenLake-v1"), "'FrozenLake-v1' is a string"),
    "no episodes to check": (lambda: check_model(Pump(), FULL, WATER, episodes=0), "episodes 0 must be"),
    "the class to sketch": (lambda: sketch(Pump), "Pump is a class"),
    "no episodes to sketch": (lambda: sketch(gym.make("FrozenLake-v1"), episodes=0), "episodes 0 must be"),
    "counts before the model": (lambda: certify(Counts(FULL), FULL, WATER), "got Counts in place of ParametricMDP"),
    "a dict to certify": (lambda: certify(FULL, Counts(FULL), WATER, {"delta": 1}), "got dict in place of Config"),
    "counts of nothing": (lambda: Counts("x"), "counts need a model first"),
    "the log before the model": (lambda: read_log("log.csv", FULL), "counts need a model first"),
    "a text as parameters": (lambda: FULL.instantiate("x"), "must be 1 finite numbers"),
}


GOAL, CENTER = Objective.reach("goal"), FULL.domain.center()
OBJECTIVES = {
    "a state as target": (lambda: Objective.reach(3), "the target 3 is not the name of a label: define one"),
    "a list as target": (lambda: Objective.cost("r", target=["goal"]), r"the target \['goal'\] is not the name"),
    "a function as target": (lambda: Objective.reach(lambda s: s == 3), "is not the name of a label"),
    "a state to avoid": (lambda: Objective.reach("goal", avoid=3), "the avoid 3 is not the name of a label"),
    "a text as sense": (lambda: Objective.reach("goal", sense="max"), "sense='max' is not a direction.*Sense.MAX"),
    "a number as sense": (lambda: Objective.reward("r", target="goal", sense=1), "sense=1 is not a direction"),
    "a text as horizon": (lambda: Objective.total("r", horizon="5"), "horizon '5' must be a whole number of steps"),
    "half a step": (lambda: Objective.reach("goal", horizon=2.5), "horizon 2.5 must be a whole number of steps"),
    "a horizon of yes": (lambda: Objective.reach("goal", horizon=True), "horizon True must be a whole number"),
    "steps as a text": (lambda: Objective.instant("r", "5"), "horizon '5' must be a whole number of steps"),
    "a number as reward": (lambda: Objective.cost(5, target="goal"), "5 is not the name of a reward"),
    "a function as reward": (lambda: Objective.reward(rows, target="goal"), "is not the name of a reward"),
    "a discount as a text": (lambda: Objective.discounted("r", "0.9"), r"discount '0.9' must be a number in \(0, 1\]"),
    "no discount": (lambda: Objective.discounted("r", None), "discount None must be a number"),
    "the discount first": (lambda: Objective.discounted(0.9, "r"), "0.9 is not the name of a reward"),
    "a discount of two": (lambda: Objective.discounted("r", 2.0), "discount 2.0 must be a number"),
    "a kind as a text": (
        lambda: Objective("reach", Sense.MAX, "goal"),
        "kind='reach' is not a Kind: use Objective.rea",
    ),
    "a number to parse": (lambda: Objective.parse(5), "the objective 5 is not a string: write, for example"),
    "nothing to parse": (lambda: Objective.parse(None), "the objective None is not a string"),
    "a number as limit": (lambda: GOAL.subject_to(5), "the limit 5 is not a string"),
    "a list as limit": (lambda: GOAL.subject_to(["x"]), r"the limit \['x'\] is not a string"),
    "a limit to parse": (lambda: Limit.parse(3), "the limit 3 is not a string"),
    "a number to certify": (lambda: certify(FULL, Counts(FULL), 5), "got int in place of Objective"),
    "nothing to certify": (lambda: certify(FULL, Counts(FULL), None), "got NoneType in place of Objective"),
    "a policy of numbers": (
        lambda: certify(FULL, Counts(FULL), WATER, policy=[0]),
        r"policy is list \[0\], not Policy",
    ),
    "rows as a text": (lambda: Policy(rows="x"), "the rows of a policy have type"),
    "a goal of the agent": (lambda: RPLAgent(Pump(), pmdp=FULL, objective=5), "objective is int 5, not Objective or"),
    "a limit of the agent": (lambda: pump(subject_to="x"), r"subject_to='x' must be a list of limits"),
    "nothing to solve": (lambda: solve(None, GOAL), "solve needs a relaxation or an UncertainMDP, not None"),
    "words to solve": (
        lambda: solve_at(FULL, CENTER, "x"),
        "the objective 'x' is not understood",
    ),
    "another parameter": (lambda: solve_at(FULL, {"q": 0.5}, WATER), "differ in parameters: q, w"),
    "parameters as a text": (lambda: solve_at(FULL, "p=.5", WATER), "must be 1 finite numbers"),
    "precision as a text": (
        lambda: solve_at(FULL, CENTER, GOAL, precision="x"),
        "precision 'x' must be a positive",
    ),
    "words for a region": (lambda: solve_region(FULL, "x"), "objective is str 'x', not Objective"),
    "time as a text": (lambda: solve_region(FULL, GOAL, time_limit="x"), "time_limit 'x' must be a positive number"),
    "one objective": (lambda: curve(FULL, Counts(FULL), WATER), "about two objectives: pass a list"),
    "no objectives": (lambda: curve(FULL, Counts(FULL), [1, 2]), "objective is int 1, not Objective"),
}


@pytest.mark.parametrize("mistake", OBJECTIVES)
def test_objectives(mistake):
    make, words = OBJECTIVES[mistake]
    with pytest.raises((ModelError, DataError), match=words):
        make()


AGENT |= {
    "confidence for delta": (lambda: Config(delta=0.95), r"below 0.5: for a confidence of 95 % write delta = 0.05"),
    "delta beside a configuration": (
        lambda: pump(config=Config(), delta=0.2),
        r"delta would not be used beside config=...: write config=Config\(delta=0.2, ...\)",
    ),
    "half a delta": (lambda: Config(delta=0.5), "delta = 0.5 is the probability that bounds are wrong, and must be be"),
    "an agent's delta": (lambda: pump(delta=0.99), "write delta = 0.01"),
    "certified at .9": (lambda: certify(FULL, Counts(FULL), WATER, delta=0.9), "write delta = 0.1"),
    "a return at .95": (lambda: bound_return(lambda o: 0, Pump(), 3, (0, 9), delta=0.95), "write delta = 0.05"),
    "a set by number": (lambda: Config(5), r"confidence set 5 is not a name: write one of \('likelihood'"),
    "pieces as a text": (lambda: Config(pieces="3"), "pieces '3' must be a whole number, at least 1"),
    "no pieces": (lambda: Config(pieces=0), "pieces 0 must be a whole number, at least 1"),
    "bets as a text": (lambda: Config(bets="no"), "bets='no' must be True or False"),
    "episodes to learn": (lambda: pump().learn(episodes=5), r"learn has no argument 'episodes': write budget="),
    "steps to learn": (lambda: pump().learn(timesteps=5), "no argument 'timesteps': write total_timesteps="),
    "learn what": (lambda: pump().learn(unknown=5), "learn has no argument 'unknown': it has env, budget"),
    "a budgte": (lambda: pump().learn(budgte=5), "no argument 'budgte': the nearest is 'budget'"),
    "a budget to resume": (lambda: learned().resume(budget="x"), "budget 'x' must be a whole number of episodes"),
    "a step before": (lambda: pump().value_bounds(step=-1), "step -1 must be a whole number, at least 0"),
    "a step as a text": (lambda: pump().value_bounds(step="x"), "step 'x' must be a whole number, at least 0"),
    "a step of q": (lambda: pump().q_bounds(step=-1), "step -1 must be a whole number, at least 0"),
    "an id to callback": (lambda: EvalCallback("x"), r"'x' is a string: pass the environment, gymnasium.make\('x'\)"),
    "a class to callback": (lambda: EvalCallback(Pump), "Pump is a class"),
    "nothing to callback": (lambda: EvalCallback(None), "NoneType is not a Gymnasium environment"),
    "episodes of a callback": (lambda: EvalCallback(Pump(), 0), "n_eval_episodes 0 must be a whole number"),
    "frequency of a callback": (lambda: EvalCallback(Pump(), 5, "x"), "eval_freq 'x' must be a whole number"),
    "seed of a callback": (lambda: EvalCallback(Pump(), 5, 1, "x"), "seed 'x' must be a whole number"),
    "the truth as a text": (lambda: OracleCallback("x"), "theta='x' must be the numbers of the true parameters"),
    "callbacks as a number": (lambda: CallbackList(5), r"CallbackList\(5\): pass a list of callbacks"),
    "classes of callbacks": (lambda: CallbackList([StopOnGap]), "StopOnGap is a class"),
    "a path as a number": (lambda: CheckpointCallback(5, 7), "save_path=7 is not a path"),
    "a callback of nothing": (lambda: pump().learn(budget=5, callback=lambda: True), "a function of two arguments"),
    "a width as a text": (lambda: bound_return(lambda o: 0, Pump(), 3, (0, 9), width="x"), "width 'x' must be a posi"),
    "a policy of two": (lambda: bound_return(lambda o, a: 0, Pump(), 3, (0, 9)), "a function of one argument"),
    "a log as a number": (lambda: read_log(FULL, 5), "source=5 is not a path"),
    "the model before the policy": (lambda: read_policy(FULL, "policy.csv"), "is not a path"),
    "a model's file as a number": (lambda: load_prism(5), "path=5 is not a path"),
    "matrices as a number": (lambda: from_matrices(5), "must be matrices of finite numbers, one per action, not 5"),
    "nothing to hide": (lambda: hide_parameters(5), "mdp is int 5, not MDP"),
    "nothing to validate": (lambda: validate(5), "pmdp is int 5, not ParametricMDP"),
    "nothing to register": (
        lambda: register_confidence_set(5),
        "5 is not a confidence set: pass an object with a name",
    ),
}


def planned(**wishes):
    return pump().plan(Pump(), [0.2], **wishes)


AGENT |= {
    "bounds as texts": (lambda: learned().evaluate(Pump(), 5, bounds=("a", "b")), r"bounds=\('a', 'b'\) must be the"),
    "bounds reversed": (lambda: learned().evaluate(Pump(), 5, bounds=(9, 0)), r"bounds=\(9, 0\) must be the least"),
    "NaN as a bound": (lambda: learned().evaluate(Pump(), 5, bounds=(np.nan, 9)), "bounds=.nan, 9. must be"),
    "narrow bounds": (
        lambda: learned().evaluate(Pump(), 5, bounds=(0, 1)),
        "value 1 is .*, outside .0, 1.: pass bounds",
    ),
    "evaluated at .95": (lambda: learned().evaluate(Pump(), 5, delta=0.95), r"delta = 0.95 .* write delta = 0.05$"),
    "an exploration as a number": (lambda: pump(exploration=3), "exploration 3 is not a name, and has no method plan"),
    "an exploration's class": (lambda: pump(exploration=Optimistic), "Optimistic is a class: pass .* Optimistic()"),
    "a number as limits": (lambda: pump(subject_to=3), "subject_to=3 must be a list of limits"),
    "counts as a text": (lambda: Doubling(first="x"), "Doubling: first 'x' must be a whole number"),
    "spacing as a text": (lambda: Doubling(spacing="x"), "Doubling: spacing 'x' must be a share"),
    "every True": (lambda: EveryN(True), "EveryN: n True must be a whole number of episodes"),
    "plan for no gap": (lambda: planned(gap=-1), "gap -1 must be a positive number"),
    "plan for a text": (lambda: planned(gap="x"), "gap 'x' must be a positive number"),
    "plan for any gap": (lambda: planned(gap=np.inf), "gap inf must be finite"),
    "plan nothing": (lambda: planned(episodes=0), "episodes 0 must be a whole number, at least 1"),
    "plan a half": (lambda: planned(episodes=[10, 1.5]), "episodes 1.5 must be a whole number"),
    "plan a text": (lambda: planned(episodes="10"), "episodes '10' must be a whole number"),
    "plan without draws": (lambda: planned(episodes=10, draws=0), "draws 0 must be a whole number"),
    "plan a policy": (lambda: planned(episodes=10, policy=3), "policy is int 3, not Policy"),
    "a horizon of yes": (lambda: RPLAgent(Pump(), returns=(0, 9), horizon=True), "horizon True is neither 'env' nor a"),
    "no horizon": (
        lambda: RPLAgent(Pump(), returns=(0, 9), horizon=0),
        "horizon 0 is neither 'env' nor a whole number",
    ),
    "no step": (lambda: pump(horizon=0), "horizon 0 is neither 'env' nor a whole number of steps, at least 1"),
    "successors as a list": (
        lambda: RPLAgent(Pump(), rewards=(0, 2), discount=0.9, successors=[0, 1]),
        r"successors=\[0, 1\] must be a function of \(state, action number\)",
    ),
}


def learned():
    return pump().learn(budget=3)


@pytest.mark.parametrize("mistake", AGENT)
def test_the_agent(mistake):
    make, words = AGENT[mistake]
    with pytest.raises((ModelError, DataError), match=words):
        make()


def test_what_is_no_mistake():
    """Lists as observations, fractions as rewards, names in any collection."""
    assert FULL.state_index([2, 0]) == FULL.state_index((2, 0)) == 0
    assert model(domain={"p"}, rewards={"r": lambda s, a, t: np.float32(1)}).num_parameters == 1
    assert pump(config=Config(delta=0.1)).config.delta == 0.1
