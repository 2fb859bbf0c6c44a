"""What actions mean: the model's are matched with the environment's by name, by number or by order, or refused."""

from __future__ import annotations

import json
import warnings
from enum import Enum

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import DataError, ModelError, Objective, RPLAgent, build, check_model
from rpl_agent.agent import EveryN
from rpl_agent.agent.evaluation import monte_carlo
from rpl_agent.agent.runs import verify_run
from rpl_agent.core.errors import RPLWarning

pytestmark = pytest.mark.short_runs

OBJECTIVE = Objective.reach("right end")


class Walk(gym.Env):
    """Cells 0..4 from 2: ``left`` goes left with 0.9, ``right`` right with 0.9; numbered in the order of ``names``."""

    observation_space = gym.spaces.Discrete(5)

    def __init__(self, names=("left", "right"), start=0, mask=None, **attributes):
        self.order, self.mask = names, mask
        self.action_space = gym.spaces.Discrete(len(names), start=start)
        for name, value in attributes.items():
            setattr(self, name, value)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 2
        return 2, self.info()

    def info(self):
        return {} if self.mask is None else {"action_mask": np.array(self.mask(self.cell), dtype=np.int8)}

    def step(self, action):
        assert self.action_space.contains(int(action))
        way = {"left": -1, "right": 1, "wait": 0}[self.order[int(action) - self.action_space.start]]
        self.cell += way if self.np_random.random() < 0.9 else -way
        return self.cell, float(self.cell == 4), self.cell in (0, 4), False, self.info()


def rows(cell, left="left", right="right"):
    if cell in (0, 4):
        return {left: {cell: 1}, right: {cell: 1}}
    return {left: {cell - 1: "p", cell + 1: "1-p"}, right: {cell + 1: "p", cell - 1: "1-p"}}


def walk_model(actions=rows, **keywords):
    return build(2, actions, domain={"p": (0.5, 1.0)}, labels={"right end": lambda c: c == 4}, **keywords)


def shuffled(cell):
    """Lists its actions in another order in every second cell."""
    listed = rows(cell)
    return listed if cell % 2 == 0 else dict(reversed(listed.items()))


def goes_right(pmdp, env, **settings):
    """Learn, and look that the certified policy goes right in the environment: 0.9^2 / (0.9^2 + 0.1^2)."""
    agent = RPLAgent(pmdp=pmdp, objective=OBJECTIVE, seed=0, schedule=EveryN(100), **settings)
    agent.learn(env, budget=200, log_interval=1000)
    assert not agent.certificate.refuted and agent.certificate.lower <= 0.81 / 0.82 <= agent.certificate.upper
    assert agent.certificate.lower > 0.8
    sampled = monte_carlo(agent, env, 100)
    assert sampled.values.mean() > 0.95
    action, _ = agent.predict(2)
    assert env.order[int(action) - env.action_space.start] == "right"
    return agent


# ---------------------------------------------------------------------- orders
def test_states_that_list_actions_in_different_orders_are_refused_without_names():
    with pytest.warns(RPLWarning, match="different orders"):
        pmdp = walk_model(shuffled)
    with pytest.raises(ModelError, match=r"cannot match actions of Walk to \('left', 'right'\).*action_names"):
        RPLAgent(pmdp=pmdp, objective=OBJECTIVE).set_env(Walk())
    goes_right(walk_model(shuffled, action_names=["right", "left"]), Walk(("right", "left")))
    goes_right(pmdp, Walk(("right", "left")), action_to_env={"left": 1, "right": 0})


def test_an_order_that_the_states_leave_open_is_refused():
    """One state knows only one action, another only the other: the order of discovery means nothing."""

    def actions(cell):
        listed = rows(cell)
        return {"right": listed["right"]} if cell == 2 else {"left": listed["left"]}

    pmdp = walk_model(actions)
    with pytest.raises(ModelError, match="cannot match actions of Walk"):
        RPLAgent(pmdp=pmdp, objective=OBJECTIVE).set_env(Walk())


def test_the_only_order_that_fits_is_taken():
    """The first state lists `right` alone; the others say that `left` comes before it."""

    def actions(cell):
        return {"right": rows(cell)["right"]} if cell == 2 else rows(cell)

    pmdp = walk_model(actions)
    assert pmdp.action_names == ("left", "right") and pmdp.actions_ordered
    goes_right(pmdp, Walk())


# ---------------------------------------------------------------------- names
NAMED = {
    "action_names": lambda names: {"action_names": list(names)},
    "action_meanings": lambda names: {"action_meanings": dict(enumerate(names))},
    "by name": lambda names: {"action_names": {name: i for i, name in enumerate(names)}},
    "ALE": lambda names: {"get_action_meanings": lambda: [name.upper() for name in names]},
}


@pytest.mark.parametrize("kind", NAMED)
def test_names_are_matched_by_name(kind):
    for names in (("left", "right"), ("right", "left")):
        goes_right(walk_model(), Walk(names, start=3, **NAMED[kind](names)))
    names = ("wait", "right", "left")
    with pytest.raises(ModelError, match="no state of the model has the action 3"):
        RPLAgent(pmdp=walk_model(), objective=OBJECTIVE).set_env(Walk(names, start=3, **NAMED[kind](names)))


# ---------------------------------------------------------------------- actions that the model forgets
class Pump(gym.Env):
    """The README's: fast pays twice as much and wears the seal three times as fast. ``guarded``: hour 0 has no fast."""

    observation_space = gym.spaces.MultiDiscrete([3, 9])
    action_space = gym.spaces.Discrete(2)

    def __init__(self, guarded=False):
        self.guarded = guarded

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seal, self.hour = 2, 0
        return (self.seal, self.hour), self.info()

    def info(self):
        return {"action_mask": np.array([1, self.hour > 0], dtype=np.int8)} if self.guarded else {}

    def step(self, action):
        self.seal -= self.np_random.random() < (0.1, 0.3)[action]
        self.hour += 1
        return (self.seal, self.hour), (1.0, 2.0)[action], self.seal == 0 or self.hour == 8, False, self.info()


def pump_model(actions):
    """``actions`` of a state that is not over."""

    def over(state):
        return state[0] == 0 or state[1] == 8

    def rows(state):
        seal, hour = state
        if over(state):
            return {0: {state: 1}}
        worn = {0: "w", 1: "3*w"}
        return {a: {(seal - 1, hour + 1): worn[a], (seal, hour + 1): f"1 - {worn[a]}"} for a in actions(state)}

    pays = {"water": lambda s, a: (1.0, 2.0)[a]}
    return build((2, 0), rows, domain={"w": (0, 0.3)}, labels={"over": over}, rewards=pays, name="pump")


WATER = "maximise water until over"


def test_an_action_that_no_state_has_is_refused():
    """ "no policy achieves more than 7.67", where the environment's best achieves 11.36."""
    pmdp = pump_model(lambda state: (0,))
    with pytest.raises(ModelError, match=r"no state of the model has the action 1: .*could be better"):
        RPLAgent(Pump(), pmdp=pmdp, objective=WATER)
    with pytest.raises(ModelError, match="no state of the model has the action 1"):
        check_model(Pump(), pmdp, WATER)
    knowingly = RPLAgent(Pump(), pmdp=pmdp, objective=WATER, action_to_env={0: 0}, seed=0).learn(budget=20)
    assert "among policies that use the model's actions" in str(knowingly.certificate)


def test_states_that_lack_an_action(tmp_path):
    partial = pump_model(lambda state: (0,) if state[1] == 0 else (0, 1))
    found = check_model(Pump(), partial, WATER, episodes=20)
    assert len(found.problems) == 1 and "1 state(s) lack actions" in found.problems[0]
    agent = RPLAgent(Pump(), pmdp=partial, objective=WATER, seed=0).learn(budget=20, folder=tmp_path / "run")
    note = "among policies that use the model's actions"
    assert note in str(agent.certificate) and "1 in (2, 0)" in str(agent.certificate)
    again = RPLAgent.load(tmp_path / "run" / "checkpoint.zip", Pump())
    assert note in str(again.certify())
    # a certificate that leaves the note out is not verified
    path = tmp_path / "run" / "certificate.json"
    stored = json.loads(path.read_text())
    assert verify_run(tmp_path / "run")["verified"]
    path.write_text(json.dumps(stored | {"assumptions": []}))
    assert not verify_run(tmp_path / "run")["verified"]


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_mask_forbids_is_not_lacking(guarded):
    def actions(state):
        return (0,) if guarded and state[1] == 0 else (0, 1)

    for env in (Pump(guarded), gym.vector.SyncVectorEnv([lambda: Pump(guarded)] * 2)):
        agent = RPLAgent(env, pmdp=pump_model(actions), objective=WATER, seed=0).learn(budget=20)
        assert agent.certificate.assumptions == ()
    assert check_model(Pump(guarded), pump_model(actions), WATER, episodes=20).ok


def test_names_that_differ_are_refused():
    for names in (("west", "east"), ("left", "east")):
        with pytest.raises(ModelError, match=rf"Walk calls its actions \('{names[0]}', '{names[1]}'\), but the model"):
            RPLAgent(pmdp=walk_model(), objective=OBJECTIVE).set_env(Walk(action_names=names))
    turned = gym.wrappers.TransformAction(Walk(action_names=["left", "right"]), lambda a: 1 - a, gym.spaces.Discrete(2))
    with pytest.raises(ModelError, match="the wrapper TransformAction changes what they mean"):
        RPLAgent(pmdp=walk_model(), objective=OBJECTIVE).set_env(turned)


def test_names_in_vectors():
    def make():
        return Walk(("right", "left"), action_names=["right", "left"])

    env = gym.vector.SyncVectorEnv([make] * 2)
    agent = RPLAgent(pmdp=walk_model(), objective=OBJECTIVE, seed=0, schedule=EveryN(50))
    agent.learn(env, budget=200, log_interval=1000)
    assert agent.certificate.lower > 0.8 and not agent.certificate.refuted
    assert agent.predict(np.array([2, 3]))[0].tolist() == [0, 0]


def test_gymnasium_s_worlds_have_the_names_of_their_documentation():
    """A model of one's own with the actions in another order than FrozenLake has them."""

    def actions(cell):
        row, column = divmod(cell, 2)
        moves = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
        places = {name: 2 * min(max(row + dy, 0), 1) + min(max(column + dx, 0), 1) for name, (dy, dx) in moves.items()}
        return {name: {cell: 1} if cell == 3 else {place: 1} for name, place in places.items()}

    pmdp = build(0, actions, domain=["p"], labels={"goal": lambda c: c == 3}, name="lake")
    env = gym.make("FrozenLake-v1", desc=["SF", "FG"], is_slippery=False)
    agent = RPLAgent(pmdp=pmdp, objective=Objective.reach("goal"))
    agent.set_env(env)
    assert agent.world.actions.numbers.tolist() == [3, 1, 0, 2]  # up, down, left, right
    agent.learn(budget=5)


# ---------------------------------------------------------------------- numbers and spaces
def test_numbers_are_those_of_the_space():
    def numbered(cell):
        return {number: row for number, row in zip((4, 5), rows(cell).values(), strict=True)}

    goes_right(walk_model(numbered), Walk(start=4))
    for start in (0, 5):  # not shifted in silence
        with pytest.raises(ModelError, match=rf"the model has the action \d, but the action space of Walk is {start}"):
            RPLAgent(pmdp=walk_model(numbered), objective=OBJECTIVE).set_env(Walk(start=start))


SPACES = {
    "MultiDiscrete": gym.spaces.MultiDiscrete([2, 2]),
    "Dict": gym.spaces.Dict(way=gym.spaces.Discrete(2)),
    "Box": gym.spaces.Box(-1, 1, (1,)),
    "MultiBinary": gym.spaces.MultiBinary(2),
}


@pytest.mark.parametrize("kind", SPACES)
def test_other_action_spaces_are_refused_by_name(kind):
    env = Walk()
    env.action_space = SPACES[kind]
    with pytest.raises(ModelError, match=rf"the action space of Walk is {kind}\(.*it must be Discrete"):
        RPLAgent(pmdp=walk_model(), objective=OBJECTIVE).set_env(env)


def test_what_the_user_says_must_be_a_numbering():
    pmdp = walk_model()
    for wrong in ({"left": 0}, {"left": 0, "right": 0}, {"left": 0, "right": 2}, {"left": 0, "right": 1.5}, ["left"]):
        with pytest.raises(ModelError, match="action_to_env must"):
            RPLAgent(pmdp=pmdp, objective=OBJECTIVE, action_to_env=wrong).set_env(Walk())


class Way(Enum):
    LEFT = "l"
    RIGHT = "r"


def test_actions_are_matched_by_what_the_user_wrote():
    """Numbers, members of an enum; the model's rewards see the same keys."""
    for keys, given in (((0, 1), None), ((0, 1), {0: 0, 1: 1}), ((Way.LEFT, Way.RIGHT), {Way.LEFT: 0, Way.RIGHT: 1})):
        pmdp = walk_model(lambda cell, keys=keys: rows(cell, *keys))
        assert pmdp.action_keys == keys
        agent = goes_right(pmdp, Walk(), action_to_env=given)
        assert {line["action"] for line in agent.policy_table()} <= set(keys)
        assert {type(line["value"]) for line in agent.policy_table()} == {int}


# ---------------------------------------------------------------------- masks
def test_a_mask_that_forbids_what_the_model_has_is_a_contradiction():
    fits = Walk(mask=lambda cell: [cell > 0, cell < 4])
    goes_right(walk_model(), fits)
    for make in (
        lambda: Walk(mask=lambda cell: [1, cell < 3]),
        lambda: gym.vector.SyncVectorEnv([lambda: Walk(mask=lambda cell: [1, cell < 3])] * 2),
    ):
        agent = RPLAgent(pmdp=walk_model(), objective=OBJECTIVE, seed=0)
        with pytest.raises(
            DataError, match=r"action_mask forbids action 'right' in state \d = .*, where the model has it"
        ):
            agent.learn(make(), budget=100)


def test_a_mask_may_leave_out_what_does_nothing():
    """Taxi's mask leaves out moves against walls, which are possible."""
    agent = RPLAgent(seed=0).learn(gym.make("Taxi-v4"), budget=2, log_interval=10)
    assert agent.num_episodes == 2


# ---------------------------------------------------------------------- statistics
def test_a_permutation_inside_the_graph_is_refuted_by_the_data():
    """Both actions have the same successors everywhere: only how often they come shows that they are exchanged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)  # the agent says what this test is about
        exchanged = RPLAgent(pmdp=walk_model(), objective=OBJECTIVE, seed=0)
        exchanged.learn(Walk(("right", "left")), budget=300, log_interval=1000)
    assert exchanged.certificate.refuted
    right = RPLAgent(pmdp=walk_model(), objective=OBJECTIVE, seed=0, schedule=EveryN(50))
    right.learn(Walk(), budget=300, log_interval=1000)
    assert not right.certificate.refuted
