"""Ordinary environments attach: two dozen worlds as people write them, with optima by plain value iteration.

Every world is a law: a function of its parameters that gives, for a state, action -> [(probability, successor, pay)].
With numbers it is played and solved; with polynomials it is the model. ``None`` as successor ends the episode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple

from rpl_agent import Objective, RPLAgent, build
from rpl_agent.agent import EveryN
from rpl_agent.agent.evaluation import monte_carlo, optimal_value
from rpl_agent.core.model import Domain, Polynomial, paying
from rpl_agent.guarantee.shown import true_value

pytestmark = pytest.mark.short_runs

OVER = "over"


@dataclass(frozen=True)
class Ordinary:
    """A world: its law, true parameters and start; steps of a TimeLimit; how states are shown; what is asked."""

    law: Callable[..., Any]
    theta: dict[str, float]
    start: Any
    space: Any
    limit: int | None = None
    show: Callable[[Any], Any] = lambda s: s
    back: Callable[..., Any] | None = None
    discount: float = 1.0
    simplex: bool = False
    wrap: Callable[[gym.Env], gym.Env] = lambda env: env

    def env(self) -> gym.Env:
        env = self.wrap(Played(self))
        return env if self.limit is None else gym.wrappers.TimeLimit(env, self.limit)

    def agent(self) -> RPLAgent:
        def actions(s: Any) -> dict[Any, Any]:
            if s == OVER:
                return {a: {OVER: 1} for a in self.law(s0, **unknown)}
            rows = {}
            for a, ways in self.law(s, **unknown).items():
                row: dict[Any, Any] = {}
                for p, after, reward in ways:
                    key = paying(OVER if after is None else after, money=reward)
                    row[key] = row.get(key, 0) + p
                rows[a] = row
            return rows

        s0, unknown = self.start, {name: Polynomial.parameter(name) for name in self.theta}
        domain = Domain.box(tuple(self.theta))
        pmdp = build(
            s0, actions, domain=domain.with_simplex() if self.simplex else domain,
            labels={"over": lambda s: s == OVER}, rewards={"money": lambda s, a: 0.0},
        )  # fmt: skip
        ends = OVER in pmdp.state_values
        target = "over" if ends else None
        if self.discount < 1.0:
            goal = Objective.discounted("money", self.discount, target=target)
        else:
            goal = Objective.reward("money", target=target, horizon=self.limit)
        return RPLAgent(
            pmdp=pmdp, objective=goal, end=OVER if ends else None, observation_to_state=self.back, seed=3,
            schedule=EveryN(60),
        )  # fmt: skip

    def best(self, steps: int) -> float:
        """Plain value iteration over the steps that are left."""
        states, todo = {self.start}, [self.start]
        while todo:
            ways = [w for rows in self.law(todo.pop(), **self.theta).values() for w in rows]
            new = {after for p, after, _ in ways if p > 0 and after is not None} - states
            states |= new
            todo.extend(new)
        values: dict[Any, float] = {}
        for _ in range(steps):
            values = {
                s: max(
                    sum(p * (r + self.discount * values.get(after, 0.0)) for p, after, r in ways)
                    for ways in self.law(s, **self.theta).values()
                )
                for s in states
            }
        return values[self.start]

    def paid(self, agent: RPLAgent) -> tuple[float, float]:
        """Mean and standard deviation of what an episode of the agent's policy pays, summed over the law."""
        pmdp, moments = agent.pmdp, {self.start: np.array([1.0, 0.0, 0.0])}  # of the pay, where the episode is there
        for step in range(self.limit or 300):
            after: dict[Any, np.ndarray] = {}
            for s, (mass, first, second) in moments.items():
                if s is None:  # it has ended
                    ways = [(1.0, None, 0.0)]
                else:
                    row = agent.policy.row(pmdp, pmdp.state_index(s), None, pmdp.solver_step(step))
                    ways = self.law(s, **self.theta)[pmdp.action_keys[pmdp.action[row]]]
                for p, there, r in ways:
                    came = p * np.array([mass, first + r * mass, second + 2 * r * first + r * r * mass])
                    after[there] = after.get(there, 0.0) + came
            moments = after
        _, mean, square = sum(moments.values())
        return mean, np.sqrt(max(square - mean * mean, 0.0))


class Played(gym.Env):
    """A law, played; at the end the last observation is repeated."""

    def __init__(self, world: Ordinary):
        self.world, self.observation_space = world, world.space
        self.action_space = Discrete(len(world.law(world.start, **world.theta)))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.world.start
        return self.world.show(self.state), {}

    def step(self, action):
        rows = self.world.law(self.state, **self.world.theta)
        ways = rows[list(rows)[int(action)]]
        _, after, reward = ways[self.np_random.choice(len(ways), p=[float(p) for p, _, _ in ways])]
        self.state = self.state if after is None else after
        return self.world.show(self.state), float(reward), after is None, False, {}


# ---------------------------------------------------------------------- the worlds
def queue(s, p, q):
    """Serve fast (costs 2) or slowly; a customer waits at 1 a step; five of them are too many."""

    def row(rate, price):
        up, down = p / 2, rate / 2
        return [(up, min(s + 1, 4), -s - price), (down, max(s - 1, 0), -s - price), (1 - up - down, s, -s - price)]

    return {0: row(q, 0), 1: row(q / 2 + 0.5, 2)}


def inventory(s, p):
    """Order up to two for 1 each; sold with probability p for 3; stock costs 0.1."""

    def row(a):
        stock, paid = min(s + a, 4), -a - 0.1 * s
        return [(p, max(stock - 1, 0), 3 * (stock > 0) + paid), (1 - p, stock, paid)]

    return {a: row(a) for a in range(3)}


def maintenance(s, p):
    """A machine wears out; it earns 3 less its wear; a repair costs 4."""
    return {"run": [(p, min(s + 1, 3), 3.0 - s), (1 - p, s, 3.0 - s)], "repair": [(1, 0, -4.0)]}


def gambler(s, p):
    """Bet 1 or 2; the goal of 5 pays 10, ruin ends."""

    def to(money):
        return (None, 10.0) if money >= 5 else (None, 0.0) if money <= 0 else (money, 0.0)

    return {name: [(p, *to(s + b)), (1 - p, *to(s - b))] for name, b in (("low", 1), ("high", 2))}


def bandit(s, p, q):
    return {0: [(p, 0, 1.0), (1 - p, 0, 0.0)], 1: [(q, 0, 2.0), (1 - q, 0, -1.0)]}


def stopping(s, p):
    """Offers go up and down; take the present one, or wait for 0.1."""
    return {"wait": [(p, min(s + 1, 5), -0.1), (1 - p, max(s - 1, 0), -0.1)], "take": [(1, None, float(s))]}


def parking(s, p):
    """Drive on or take the free place; the last chance is the garage."""
    cell, free = s
    drive = [(p, (cell + 1, 1), 0.0), (1 - p, (cell + 1, 0), 0.0)] if cell < 4 else [(1, None, -6.0)]
    return {"drive": drive, "park": [(1, None, -float(4 - cell))] if free else drive}


def grid(s, p):
    x, y = s

    def to(dx, dy):
        cell = (min(max(x + dx, 0), 2), min(max(y + dy, 0), 2))
        return (None, 10.0) if cell == (2, 2) else (None, -10.0) if cell == (1, 1) else (cell, -1.0)

    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    return {k: [(p, *to(*m)), ((1 - p), *to(*moves[(k + 1) % 4]))] for k, m in enumerate(moves)}


def walk(s, p):
    """A random walk with a push: right costs 0.2, the end at 4 pays 3, the one at −1 nothing."""

    def to(k):
        return (None, 3.0) if k == 4 else (None, 0.0) if k < 0 else (k, 0.0)

    def row(chance, price):
        return [(w, to(k)[0], to(k)[1] - price) for w, k in ((chance, s + 1), (1 - chance, s - 1))]

    return {0: row(p, 0.0), 1: row(p / 2 + 0.5, 0.2)}


def pig(s, p):
    """Roll for 2 to 3 more or lose all; hold to keep."""
    return {"roll": [(p, min(s + 2, 12), 0.0), (1 - p, None, 0.0)], "hold": [(1, None, float(s))]}


def weather(s, p, q):
    """Take an umbrella (0.3) or get wet (1): wet days follow wet days with p, dry ones with q."""
    rain = p if s == "wet" else q
    dry = [(rain, "wet", -0.3), (1 - rain, "dry", -0.3)]
    return {"umbrella": dry, "none": [(rain, "wet", -1.0), (1 - rain, "dry", 0.0)]}


def fishing(s, p):
    """Catch one (worth 1) or let them breed; none left: it is over."""
    after = [(p, min(s + 1, 4)), (1 - p, s)]
    caught = [(p, min(s, 4)), (1 - p, s - 1)]
    return {"breed": [(w, n, 0.0) for w, n in after], "catch": [(w, n if n > 0 else None, 1.0) for w, n in caught]}


def channel(s, p, q):
    """Send at high power (0.5) or low: good and bad channel."""
    good = s["ok"] if isinstance(s, dict) else s[0]
    flip = q
    low = p if good else p / 2
    return {0: [(low, (1, 0), 1.0), (1 - low, (0, 0), 0.0)], 1: [(flip, (1, 1), 0.5), (1 - flip, (0, 1), -0.5)]}


def three_way(s, a, b):
    """A die of three sides, thrown until it shows its last."""
    return {"throw": [(a, 0, 1.0), (b, 0, 2.0), (1 - a - b, None, 0.0)], "stop": [(1, None, 0.5)]}


def slot(s, p):
    """The observation never changes: only the reward shows what happened. The third pull is the last."""
    after = s + 1 if s < 2 else None
    return {"pull": [(p, after, 4.0), (1 - p, after, -1.0)], "leave": [(1, None, 0.0)]}


def exam(s, p):
    """Learn (−1) or try (pass: 8, fail: again, three tries)."""
    learned, tries = s
    luck = p if learned == 0 else p / 2 + 0.5
    fail = (learned, tries + 1) if tries < 2 else None
    return {"learn": [(1, (1, tries), -1.0)], "try": [(luck, None, 8.0), (1 - luck, fail, 0.0)]}


def harvest(s, p):
    """Grow with luck, or harvest what there is; frost ends it."""
    return {"grow": [(p, min(s + 1, 4), 0.0), (1 - p, None, 0.0)], "harvest": [(1, 0, float(s) - 0.5)]}


def debt(s, p):
    """Only costs: pay 2 of the debt, or 1 and hope."""
    hope = [(p, s - 1 if s > 1 else None, -1.0), (1 - p, min(s + 1, 6), -1.0)]
    return {"pay": [(1, s - 2 if s > 2 else None, -2.0)], "hope": hope}


def garage(s, p, q):
    """A machine that wears out: it earns 5 less 3 per scratch; a repair costs 2 and may fail; it breaks for good."""
    worse = min(s + 1, 3)
    return {
        "run": [(p, None, -4.0), (1 - p, worse, 5.0 - 3 * s)],
        "repair": [(p / 2, None, -4.0), (q / 2, 0, -2.0), (1 - p / 2 - q / 2, s, -2.0)],
    }


WORLDS = {
    "queue": Ordinary(queue, {"p": 0.4, "q": 0.6}, 0, Discrete(5), limit=12),
    "queue, discounted": Ordinary(queue, {"p": 0.4, "q": 0.6}, 0, Discrete(5), limit=40, discount=0.8),
    "inventory": Ordinary(inventory, {"p": 0.7}, 0, Discrete(5), limit=10),
    "inventory as a vector": Ordinary(
        inventory, {"p": 0.7}, 0, Box(0, 4, (1,)), 10, lambda s: np.array([s], np.float32), lambda o: int(o[0])
    ),
    "maintenance": Ordinary(maintenance, {"p": 0.3}, 0, Discrete(4), limit=15),
    "gambler": Ordinary(gambler, {"p": 0.45}, 2, Discrete(6)),
    "bandit": Ordinary(bandit, {"p": 0.6, "q": 0.5}, 0, Discrete(1), limit=5),
    "optimal stopping": Ordinary(stopping, {"p": 0.6}, 2, Discrete(6), limit=20),
    "parking": Ordinary(parking, {"p": 0.3}, (0, 0), MultiDiscrete([5, 2]), show=np.array),
    "grid": Ordinary(grid, {"p": 0.8}, (0, 0), Tuple((Discrete(3), Discrete(3))), limit=30),
    "grid, numbered": Ordinary(
        grid, {"p": 0.8}, (0, 0), Discrete(9), 30, lambda s: 3 * s[0] + s[1], lambda o: divmod(int(o), 3)
    ),
    "grid as a picture": Ordinary(
        grid, {"p": 0.8}, (0, 0), Box(0, 1, (3, 3)), 30,
        lambda s: np.eye(9, dtype=np.float32)[3 * s[0] + s[1]].reshape(3, 3), lambda o: divmod(int(np.argmax(o)), 3),
    ),
    "walk": Ordinary(walk, {"p": 0.4}, 1, Discrete(4), limit=25),
    "pig": Ordinary(pig, {"p": 0.8}, 0, Discrete(13)),
    "weather in words": Ordinary(weather, {"p": 0.7, "q": 0.2}, "dry", Text(3), limit=8),
    "weather, wrapped": Ordinary(
        weather, {"p": 0.7, "q": 0.2}, "dry", Text(3), limit=8, wrap=gym.wrappers.RecordEpisodeStatistics
    ),
    "fishing": Ordinary(fishing, {"p": 0.5}, 2, Discrete(5), limit=10),
    "channel, a dictionary": Ordinary(
        channel, {"p": 0.7, "q": 0.6}, (1, 0), Dict({"ok": Discrete(2), "loud": Discrete(2)}), 6,
        lambda s: {"ok": s[0], "loud": s[1]}, lambda o: (int(o["ok"]), int(o["loud"])),
    ),
    "three-sided die": Ordinary(three_way, {"a": 0.3, "b": 0.2}, 0, Discrete(1), limit=9, simplex=True),
    "slot machine": Ordinary(slot, {"p": 0.35}, 0, Discrete(3)),
    "exam": Ordinary(exam, {"p": 0.4}, (0, 0), Tuple((Discrete(2), Discrete(3))), limit=8),
    "harvest": Ordinary(harvest, {"p": 0.9}, 0, Discrete(5), limit=14),
    "debt": Ordinary(debt, {"p": 0.6}, 4, Discrete(7), limit=12),
    # gains and costs in worlds with cycles and without a limit: some chance ends them, or whoever waits loses
    "garage": Ordinary(garage, {"p": 0.2, "q": 0.9}, 0, Discrete(4)),
    "walk to its end": Ordinary(walk, {"p": 0.4}, 1, Discrete(4)),
    "stopping whenever": Ordinary(stopping, {"p": 0.6}, 2, Discrete(6)),
    "grid to its end": Ordinary(grid, {"p": 0.8}, (0, 0), Tuple((Discrete(3), Discrete(3)))),
}  # fmt: skip


@pytest.mark.parametrize("name", WORLDS)
def test_an_ordinary_world(name, sized):
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    world, plays = WORLDS[name], sized(25, 80)
    agent = world.agent().learn(world.env(), budget=sized(40, 120), log_interval=1000)
    certificate, pmdp = agent.certificate, agent.pmdp
    steps = agent.objective.horizon
    best = world.best(300 if steps is None else steps)
    theta = np.array([world.theta[name] for name in pmdp.table.parameters])
    assert optimal_value(pmdp, agent.objective, theta) == pytest.approx(best, abs=1e-5)
    value = true_value(pmdp, agent.objective, certificate.policy, theta)
    assert certificate.lower - 1e-6 <= value <= best + 1e-6 <= certificate.upper + 2e-6 and not certificate.refuted
    if world.discount == 1.0:
        mean, deviation = world.paid(agent)
        assert mean == pytest.approx(value, abs=1e-5)
        if isinstance(world.space, Text):  # which SB3 does not know
            paid = monte_carlo(agent, world.env(), plays).returns
        else:
            env = world.env()
            env.reset(seed=1)
            paid, _ = evaluation.evaluate_policy(agent, env, plays, return_episode_rewards=True, warn=False)
        assert np.mean(paid) == pytest.approx(value, abs=5 * deviation / np.sqrt(plays) + 1e-9)


def test_there_are_enough():
    assert len(WORLDS) >= 20


# ---------------------------------------------------------------------- what did not attach
def test_an_environment_may_end_at_the_horizon():
    """terminated=True after the last step of a horizon objective; before: refused."""

    class Ends(gym.wrappers.TimeLimit):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated or truncated, False, info

    world = WORLDS["bandit"]
    agent = world.agent()
    agent.learn(Ends(Played(world), 5), budget=30, log_interval=1000)
    assert agent.certificate.lower <= world.best(5) <= agent.certificate.upper


def test_a_mapping_may_see_terminated_and_info(tmp_path):
    class Telling(gym.Wrapper):
        """Shows nothing; the info says where it is."""

        def reset(self, **keywords):
            observation, _ = self.env.reset(**keywords)
            return 0, {"price": observation}

        def step(self, action):
            observation, *rest, _ = self.env.step(action)
            return (0, *rest, {"price": observation})

    world = WORLDS["optimal stopping"]
    agent = world.agent()
    agent.end = None
    agent.observation_to_state = lambda o, terminated, info: OVER if terminated else info["price"]
    agent.learn(gym.wrappers.TimeLimit(Telling(Played(world)), 20), budget=60, log_interval=1000)
    assert agent.certificate.lower <= world.best(20) <= agent.certificate.upper


def test_the_end_is_kept_with_the_agent(tmp_path):
    world = WORLDS["pig"]
    agent = world.agent().learn(world.env(), budget=10, log_interval=1000)
    agent.save(tmp_path / "pig.zip")
    again = RPLAgent.load(tmp_path / "pig.zip", world.env())
    assert again.learn(budget=10).num_episodes == 20


def test_only_the_reward_shows_what_happened():
    """Whether the first pull wins, asked as a probability: two ways to one state, told apart by what they pay."""
    world = WORLDS["slot machine"]
    pmdp = build(
        0, lambda s: {"pull": {paying(1, money=4): "p", paying(1, money=-1): "1 - p"}, "leave": {1: 1}} if s == 0 else {
            "pull": {1: 1}, "leave": {1: 1}}, domain=["p"], labels={"there": lambda s: s == 1},
        rewards={"money": lambda s, a: 0.0},
    )  # fmt: skip

    class Once(gym.Wrapper):
        def step(self, action):
            _, reward, _, _, info = self.env.step(action)
            return 1, reward, True, False, info

    agent = RPLAgent(pmdp=pmdp, objective=Objective.reach("there"), seed=0)
    agent.learn(Once(Played(world)), budget=40, log_interval=1000)
    assert agent.num_episodes == 40 and agent.certificate.lower == pytest.approx(1.0)
