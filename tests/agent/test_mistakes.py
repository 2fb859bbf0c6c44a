"""Ordinary mistakes of people who come from reinforcement learning: one sentence each, never a raw Python error."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import (
    CheckpointCallback,
    Config,
    Counts,
    DataError,
    Doubling,
    EveryN,
    ModelError,
    RPLAgent,
    StopOnGap,
    build,
    certify,
    check_model,
    read_log,
    sketch,
)
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
    "a text as variables": ({"variables": "xy"}, r"variables='xy' is a text: .*\('x', 'y'\)"),
    "an unknown parameter": ({"actions": lambda s: {0: {s: "q"}}}, r"unknown parameters \['q'\]"),
}


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
    "a text as a number": (lambda: EveryN("x"), "n must be a whole number of episodes"),
    "half a step": (lambda: pump(horizon=2.5), "horizon 2.5 is neither 'env' nor a whole number"),
    "a number as a folder": (lambda: pump(tensorboard_log=5), "tensorboard_log=5 is not a path"),
    "a gap in percent": (lambda: pump().learn(budget=5, stop_when_gap="1%"), "stop_when_gap '1%' must be a positive"),
    "a gap of yes": (lambda: pump().learn(budget=5, stop_when_gap=True), "stop_when_gap True must be a positive"),
    "half an interval": (lambda: pump().learn(budget=5, log_interval=2.5), "log_interval 2.5 must be a whole number"),
    "a callback's class": (lambda: pump().learn(budget=5, callback=StopOnGap), "StopOnGap is a class"),
    "a gap as a text": (lambda: StopOnGap("x"), "must be a positive number, not 'x'"),
    "a frequency as a text": (lambda: CheckpointCallback("x"), "save_freq = 'x' must be a whole number"),
    "nowhere to save": (lambda: pump().save(None), "path=None is not a path"),
    "nothing to load": (lambda: RPLAgent.load(None), "path=None is not a path"),
    "the id to evaluate": (lambda: pump().evaluate("Pump-v0", 5), r"'Pump-v0' is a text: .*gymnasium.make"),
    "episodes as a text": (lambda: pump().evaluate(Pump(), "5"), "episodes '5' must be a whole number"),
    "one bound": (lambda: pump().evaluate(Pump(), 5, bounds=5), "bounds=5 must be the least and the most"),
    "the id to check": (lambda: check_model("FrozenLake-v1"), "'FrozenLake-v1' is a text"),
    "no episodes to check": (lambda: check_model(Pump(), FULL, WATER, episodes=0), "episodes 0 must be"),
    "the class to sketch": (lambda: sketch(Pump), "Pump is a class"),
    "no episodes to sketch": (lambda: sketch(gym.make("FrozenLake-v1"), episodes=0), "episodes 0 must be"),
    "counts before the model": (lambda: certify(Counts(FULL), FULL, WATER), "got Counts in place of ParametricMDP"),
    "a dict to certify": (lambda: certify(FULL, Counts(FULL), WATER, {"delta": 1}), "got dict in place of Config"),
    "counts of nothing": (lambda: Counts("x"), "counts need a model first"),
    "the log before the model": (lambda: read_log("log.csv", FULL), "counts need a model first"),
    "a text as parameters": (lambda: FULL.instantiate("x"), "must be 1 finite numbers"),
}


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
