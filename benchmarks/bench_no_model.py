"""No model: certificates of environments of which only a range of returns is known.

Each row is one run at δ = 0.1:

- ``gap``: ``upper`` − ``lower``. ``aim`` is the gap of the method's prototype, on worlds of the same names.
- ``V*``, ``value``: the optimum and the value of the returned policy, both exact.
- ``plays``: how many plays of the returned policy gave ``lower``.
- ``least``: any method's ``lower`` is below ``value`` by this much or more in half of its runs ("What a wide range
  costs" in docs/tutorials/from_nothing.md has the argument).
- ``missed``: whether a bound excludes the truth, which may happen to a tenth of the runs.
- ``ucrl2``: upper − lower of UCRL2's L1 balls for the same data and policy; its states and rewards are known to exist.
- ``q_learning``: Q-learning finds a greedy policy in half of the episodes, and the other half bounds it from below.
- ``cpu``, ``stepping``: processor time of the agent, and of the environment alone for as many steps and resets. Both
  are measured during the run, because the pace of a shared machine changes.

`--full` adds 10^5 episodes, `--first` takes another seed, `--only` takes the name of a world or one of these parts:

- ``memory``: the largest memory of a run with 10^5 rows, in a process of its own (10^6 steps; 10^7 with `--full`).
- ``graph``: what the same bets and plays give if it is known which states follow which, and every row has
  probabilities of its own (10^4 episodes; Taxi, of which only the start is unknown then, 10^5 with `--full`). ``aim``
  and ``aim_loss`` are the prototype's gap and V* − ``lower``.
- ``facts``: CliffWalking after 10^3 episodes with nothing, and with one fact each. ``aim`` is 3 times the gap that the
  prototype had with the graph.
"""

from __future__ import annotations

import math
import multiprocessing
import re
import time
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent import BaseCallback, Objective, ParametricMDP, RPLAgent, build_noise
from rpl_agent.core.model import paying
from rpl_agent.core.model.building.noise import chances_of
from rpl_agent.guarantee.stakes import lower_mean

DELTA, SEED = 0.1, 97_000
#: outcomes of a row: probability, successor, reward, end
Row = list[tuple[float, int, float, bool]]


@dataclass(frozen=True)
class World:
    """A table, what the agent is told about it, and the gaps to compare with after 10^3, 10^4 and 10^5 episodes."""

    rows: list[list[Row]]
    starts: list[int]
    discount: float
    returns: tuple[float, float]
    limit: int
    aim: tuple[float, float, float]
    facts: dict[str, Any]


class TableEnv(gym.Env):
    """A world by its table."""

    def __init__(self, world: World):
        self.world = world
        self.observation_space = gym.spaces.Discrete(len(world.rows))
        self.action_space = gym.spaces.Discrete(len(world.rows[0]))
        self._ends = [[np.cumsum([p for p, *_ in row]).tolist() for row in rows] for rows in world.rows]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self._state = self.world.starts[int(self.np_random.random() * len(self.world.starts))]
        self._steps = 0
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        ends = self._ends[self._state][action]
        row = self.world.rows[self._state][action]
        _, self._state, reward, over = row[min(bisect(ends, self.np_random.random()), len(row) - 1)]
        self._steps += 1
        return self._state, float(reward), bool(over), self._steps >= self.world.limit, {}


def _toy(name: str, **options: Any) -> list[list[Row]]:
    table = gym.make(name, **options).unwrapped.P  # type: ignore[attr-defined]
    return [[table[s][a] for a in sorted(table[s])] for s in sorted(table)]


def _grid(size: int = 10, slip: float = 0.1) -> list[list[Row]]:
    """Walk to the far corner, which pays 1; a step goes astray with probability ``slip``."""
    rows: list[list[Row]] = []
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))
    for s in range(size * size):
        rows.append([])
        for a in range(4):
            row: Row = []
            for b, (dx, dy) in enumerate(moves):
                x, y = min(max(s // size + dx, 0), size - 1), min(max(s % size + dy, 0), size - 1)
                after = x * size + y
                over = after == size * size - 1
                row.append((1 - slip + slip / 4 if a == b else slip / 4, after, float(over), over))
            rows[-1].append(row)
    return rows


def _queue(capacity: int = 20, arrival: float = 0.5) -> list[list[Row]]:
    """Serve slowly for nothing or fast for 0.1; every customer who waits costs."""
    rows: list[list[Row]] = []
    for n in range(capacity + 1):
        rows.append([])
        for fast in (False, True):
            served = 0.6 if fast else 0.4
            cost = -0.9 * n / capacity - 0.1 * fast
            row: Row = []
            for comes, goes in ((0, 0), (0, 1), (1, 0), (1, 1)):
                p = (arrival if comes else 1 - arrival) * (served if goes else 1 - served)
                row.append((p, min(capacity, max(n - goes, 0) + comes), cost, False))
            rows[-1].append(row)
    return rows


def _inventory(capacity: int = 6) -> list[list[Row]]:
    """Order up to the capacity, sell to a random demand; rewards lie in [−1.8, 6]."""
    demand = [math.comb(6, d) * 0.25**d * 0.75 ** (6 - d) for d in range(7)]
    rows: list[list[Row]] = []
    for stock in range(capacity + 1):
        rows.append([])
        for order in range(capacity + 1):
            have = min(stock + order, capacity)
            ordered = have - stock
            row: Row = []
            for d, p in enumerate(demand):
                sold = min(d, have)
                row.append((p, have - sold, sold - 0.2 * ordered - 0.1 * (have - sold) - 0.2 * (ordered > 0), False))
            rows[-1].append(row)
    return rows


def worlds() -> dict[str, World]:
    taxi = gym.make("Taxi-v4").unwrapped
    starts = np.flatnonzero(taxi.initial_state_distrib).tolist()  # type: ignore[attr-defined]
    lake4, lake8 = _toy("FrozenLake-v1"), _toy("FrozenLake8x8-v1")
    return {
        "FrozenLake 4x4": World(lake4, [0], 0.99, (0, 1), 100, (0.346, 0.070, 0.021), {}),
        "FrozenLake 8x8": World(lake8, [0], 0.99, (0, 1), 200, (0.839, 0.194, 0.023), {}),
        "grid 10x10": World(_grid(), [0], 0.95, (0, 1), 100, (0.460, 0.119, 0.020), {}),
        "queue": World(_queue(), [0], 0.95, (-20, 0), 100, (1.03, 0.243, 0.075), {}),
        "inventory": World(_inventory(), [0], 0.95, (-36, 120), 100, (59, 14.9, 0.71), {}),
        "CliffWalking": World(
            _toy("CliffWalking-v1", is_slippery=True), [36], 0.95, (-2000, 0), 200, (40.9, 4.4, 0.52), {}
        ),
        "Taxi": World(_toy("Taxi-v4"), starts, 0.95, (-200, 20), 200, (43, 28, 1.06), {}),
        "Taxi, deterministic": World(
            _toy("Taxi-v4"), starts, 0.95, (-200, 20), 200, (32, 0.39, 0.073), {"deterministic": True}
        ),
    }


def rows(smoke: bool = False, full: bool = False, only: str | None = None, first: int = SEED) -> list[dict[str, Any]]:
    budgets = (60,) if smoke else (1_000, 10_000, 100_000) if full else (1_000, 10_000)
    chosen = [(name, world) for name, world in worlds().items() if only in (None, name)]
    if smoke:
        chosen = chosen[:1]
    found = [measure(name, world, budget, first) for name, world in chosen for budget in budgets]
    if only == "graph":
        episodes = {name: 60 if smoke else 100_000 if full and name == "Taxi" else 10_000 for name in GRAPH}
        found += [graph_known(name, budget, first) for name, budget in episodes.items()]
    if only == "facts":
        found += [with_fact(fact, 60 if smoke else 1_000, first) for fact in FACTS]
    if only in (None, "memory"):
        size, steps = (100, 2_000) if smoke else (25_000, 10_000_000 if full else 1_000_000)
        with multiprocessing.get_context("spawn").Pool(1) as alone:  # what others left behind does not count
            found.append(alone.apply(memory, (size, steps, first)))
    return found


class ManyStates(gym.Env):
    """Four actions a state, each with three successors; one step in fifty ends an episode."""

    def __init__(self, size: int):
        self.size = size
        self.observation_space = gym.spaces.Discrete(size)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self._state = int(self.np_random.random() * self.size)
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        drawn = self.np_random.random()
        self._state = ((4 * self._state + action) * 7_919 + int(3.0 * drawn)) % self.size
        return self._state, 0.01 * (action == self._state % 4), drawn * 50.0 % 1.0 < 0.02, False, {}


def memory(size: int, steps: int, seed: int) -> dict[str, Any]:
    """A run with 4 · size rows, and the largest memory of this process, in megabytes."""
    begun = time.process_time()
    agent = RPLAgent(ManyStates(size), returns=(0, 1), discount=0.99, delta=DELTA, seed=seed)
    agent.learn(total_timesteps=steps, log_interval=10**9)
    found = agent.certificate
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return {
        "rows": found.rows,
        "tried": found.rows - found.untried,
        "outcomes": len(agent.session.experience.data.counts),
        "steps": found.samples,
        "episodes": found.episodes,
        "megabytes": math.nan if peak is None else int(peak[1]) * 1024 / 1e6,
        "cpu": time.process_time() - begun,
    }


class Pace(BaseCallback):
    """Measures, at every update, how long the environment alone takes for the steps since the last one."""

    def __init__(self, world: World):
        super().__init__()
        self._world, self._steps, self._episodes = world, 0, 0
        self.stepping = self.spent = 0.0  # processor time of the environment, and of measuring it

    def _on_update(self) -> None:
        begun, steps, episodes = time.process_time(), self.agent.num_timesteps, self.agent.num_episodes
        if steps > self._steps:
            self.stepping += stepping(self._world, steps - self._steps, episodes - self._episodes)
        self._steps, self._episodes = steps, episodes
        self.spent += time.process_time() - begun

    _on_training_end = _on_update


def measure(name: str, world: World, budget: int, seed: int) -> dict[str, Any]:
    """One cell of the table."""
    begun, pace = time.process_time(), Pace(world)
    agent = RPLAgent(
        TableEnv(world), returns=world.returns, discount=world.discount, delta=DELTA, seed=seed, **world.facts
    )
    agent.learn(budget=budget, log_interval=budget, callback=pace)
    seconds = time.process_time() - begun - pace.spent
    found, best = agent.certificate, value(world, None)
    policy = _table(world, agent)
    own = value(world, policy)
    missed = not (found.lower <= own + 1e-9 and best <= found.upper + 1e-9)
    aims = dict(zip((1_000, 10_000, 100_000), world.aim))
    return {
        "world": name,
        "episodes": budget,
        "V*": best,
        "value": own,
        "lower": found.lower,
        "upper": found.upper,
        "gap": found.gap,
        "aim": aims.get(budget, math.nan),
        "plays": found.plays,
        "least": (1.0 - (2.0 * DELTA) ** (1.0 / budget)) * (own - world.returns[0]),
        "ucrl2": ucrl2_gap(world, agent, policy),
        "q_learning": q_learning(world, budget, seed),
        "missed": missed,
        "cpu": seconds,
        "stepping": pace.stepping,
    }


#: The prototype's gap and V* − lower where the graph is known; NaN where it was not measured.
GRAPH = {"FrozenLake 8x8": (math.nan, 0.024), "grid 10x10": (0.088, math.nan), "Taxi": (0.097, 0.06)}


def graph_model(world: World) -> ParametricMDP:
    """The world's graph, with unknown probabilities in every row that has several outcomes, and of the start."""
    ends = {after for state in world.rows for row in state for _, after, _, over in row if over}
    after_of = {
        (s, a): sorted({after for _, after, *_ in row})
        for s, state in enumerate(world.rows)
        for a, row in enumerate(state)
    }
    paid = {
        (s, a, after): reward
        for s, state in enumerate(world.rows)
        for a, row in enumerate(state)
        for _, after, reward, _ in row
    }
    noise: dict[Any, list[int]] = {pair: after for pair, after in after_of.items() if len(after) > 1}
    initial: Any = world.starts[0]
    if len(world.starts) > 1:
        noise["start"] = world.starts
        initial = dict(chances_of(noise)[0]["start"])
    actions = range(len(world.rows[0]))
    return build_noise(
        initial,
        lambda s: actions[:1] if s in ends else actions,
        noise=noise,
        key=lambda s, a: (s, a) if s not in ends and (s, a) in noise else None,
        effect=lambda s, a, label: s if s in ends else after_of[s, a][0] if label is None else label,
        labels={"over": lambda s: s in ends},
        rewards={"reward": lambda s, a, after: 0.0 if s in ends else paid[s, a, after]},
    )


def graph_known(name: str, budget: int, seed: int) -> dict[str, Any]:
    """A run with the graph of a world."""
    world, begun = worlds()[name], time.process_time()
    model = graph_model(world)
    target = "over" if model.labels["over"].any() else None
    goal = Objective.discounted("reward", world.discount, target=target)
    agent = RPLAgent(TableEnv(world), pmdp=model, objective=goal, delta=DELTA, seed=seed)
    agent.learn(budget=budget, log_interval=budget)
    found, best, (aim, loss) = agent.certificate, value(world, None), GRAPH[name]
    return {
        "world": name,
        "episodes": budget,
        "V*": best,
        "lower": found.lower,
        "upper": found.upper,
        "gap": found.gap,
        "aim": aim,
        "loss": best - found.lower,
        "aim_loss": loss,
        "by_plays": found.plays is not None,
        "missed": not found.lower <= best <= found.upper,
        "cpu": time.process_time() - begun,
    }


def _from_afar(state: int) -> tuple[float, float]:
    """Returns from a cell of CliffWalking: at best every step pays −1 and leads towards the goal, at worst all fall."""
    steps = abs(state // 12 - 3) + abs(state % 12 - 11)
    return -2000.0, -(1.0 - 0.95 ** max(steps, 1)) / (1.0 - 0.95)


def _neighbours() -> Callable[[int, int], list[int | None]]:
    rows = worlds()["CliffWalking"].rows
    return lambda state, action: [None if over else after for _, after, _, over in rows[state][action]]


def _turning(key: Callable[[int, int], Any]) -> dict[str, Any]:
    """A step of CliffWalking goes as it should or turns to either side; pairs with the same key as often."""
    rows, goal = worlds()["CliffWalking"].rows, 47
    actions, turns = range(len(rows[0])), range(3)

    def effect(state: int, action: int, turn: int | None) -> Any:
        if turn is None:
            return state
        _, after, reward, _ = rows[state][action][turn]
        return after if reward == -1 else paying(after, reward=reward + 1.0)

    model = build_noise(
        36,
        lambda s: actions[:1] if s == goal else actions,
        noise={key(s, a): turns for s in range(len(rows)) if s < 37 for a in actions},
        key=lambda s, a: None if s == goal else key(s, a),
        effect=effect,
        labels={"over": lambda s: s == goal},
        rewards={"reward": lambda s, a: -float(s != goal)},
    )
    return {"pmdp": model, "objective": Objective.discounted("reward", 0.95, target="over")}


#: What is stated of CliffWalking, as arguments of the agent.
FACTS: dict[str, Callable[[], dict[str, Any]]] = {
    "nothing": lambda: {"returns": (-2000, 0), "discount": 0.95},
    "returns of each state": lambda: {"returns": _from_afar, "discount": 0.95},
    "successors": lambda: {"rewards": (-100, -1), "successors": _neighbours(), "discount": 0.95},
    "noise, a key per pair": lambda: _turning(lambda s, a: (s, a)),
    "noise, the same everywhere": lambda: _turning(lambda s, a: "turn"),
}


def with_fact(fact: str, budget: int, seed: int) -> dict[str, Any]:
    """A run of CliffWalking of which one fact is stated."""
    world, begun = worlds()["CliffWalking"], time.process_time()
    agent = RPLAgent(TableEnv(world), delta=DELTA, seed=seed, **FACTS[fact]())
    agent.learn(budget=budget, log_interval=budget)
    found, best = agent.certificate, value(world, None)
    return {
        "fact": fact,
        "episodes": budget,
        "V*": best,
        "lower": found.lower,
        "upper": found.upper,
        "gap": found.gap,
        "aim": 3 * 2.65,
        "missed": not found.lower <= best <= found.upper,
        "cpu": time.process_time() - begun,
    }


def _table(world: World, agent: RPLAgent) -> np.ndarray:
    """The returned policy's action in every state of the world."""
    data, policy = agent.session.experience.data, agent.policy
    return np.array([policy.action(data.find(s), 0) for s in range(len(world.rows))])


def value(world: World, policy: np.ndarray | None) -> float:
    """The exact mean return of the best or of a given policy."""
    size, actions = len(world.rows), len(world.rows[0])
    p, r = np.zeros((size, actions, size)), np.zeros((size, actions))
    for s, state in enumerate(world.rows):
        for a, row in enumerate(state):
            for chance, after, reward, over in row:
                r[s, a] += chance * reward
                p[s, a, after] += 0.0 if over else chance
    v = np.zeros(size)
    while True:
        q = r + world.discount * (p @ v)
        after_all = q.max(axis=1) if policy is None else q[np.arange(size), policy]
        if np.abs(after_all - v).max() < 1e-12 * max(1.0, np.abs(v).max()):
            return float(after_all[world.starts].mean())
        v = after_all


def stepping(world: World, steps: int, episodes: int) -> float:
    """Processor time of random actions alone, in at least as many episodes: a good policy resets more often."""
    env, most = TableEnv(world), min(steps, 5_000)
    longest = math.ceil(steps / max(episodes, 1))
    actions = np.random.default_rng(0).integers(env.action_space.n, size=most).tolist()
    begun, left = time.process_time(), 0
    for action in actions:
        if left == 0:
            env.reset()
            left = longest
        _, _, ended, cut, _ = env.step(action)
        left = 0 if ended or cut else left - 1
    return (time.process_time() - begun) * steps / most


def ucrl2_gap(world: World, agent: RPLAgent, policy: np.ndarray) -> float:
    """Upper − lower of UCRL2's confidence set: L1 balls of transitions, intervals of mean rewards, per row."""
    size, actions = len(world.rows), len(world.rows[0])
    data, (low, high) = agent.session.experience.data, world.returns
    counts, paid = np.zeros((size, actions, size + 1)), np.zeros((size, actions))
    for row, reward, after, count in zip(data.rows, data.rewards, data.successors, data.counts):
        s, a = data.states[row // actions], row % actions
        counts[s, a, size if after < 0 else data.states[after]] += count
        paid[s, a] += count * reward
    n, t = counts.sum(axis=2), data.total
    spread = (high - low) * (1 - world.discount)  # of one reward
    seen = np.maximum(n, 1)
    radius = np.minimum(2.0, np.sqrt(14 * size * np.log(2 * actions * t / DELTA) / seen))
    slack = spread * np.minimum(1.0, np.sqrt(7 * np.log(2 * size * actions * t / DELTA) / (2 * seen)))
    share, mean = counts / seen[..., None], paid / seen

    def solve(sign: float, fixed: np.ndarray | None) -> float:
        v = np.full(size, high if sign > 0 else low)
        for _ in range(400):
            worth = np.append(v, 0.0)
            order = np.argsort(-sign * worth)
            q = mean + sign * slack + world.discount * _shifted(share, radius, order) @ worth
            q = np.where(n > 0, np.clip(q, low, high), high if sign > 0 else low)
            after = q.max(axis=1) if fixed is None else q[np.arange(size), fixed]
            if np.abs(after - v).max() < 1e-4 * (high - low):
                break
            v = after
        return float(v[world.starts].mean())

    return solve(1.0, None) - solve(-1.0, policy)


def _shifted(share: np.ndarray, radius: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Distributions with half of the radius moved to the first state of ``order``, from the last ones."""
    found = share[:, :, order].copy()
    found[:, :, 0] = np.minimum(1.0, found[:, :, 0] + radius / 2)
    others = found[:, :, 1:]
    # what is too much is taken from the worst states first
    behind = np.cumsum(others[:, :, ::-1], axis=2)[:, :, ::-1] - others
    too_much = np.maximum(found.sum(axis=2) - 1.0, 0.0)[..., None]
    found[:, :, 1:] = others - np.clip(too_much - behind, 0.0, others)
    result = np.empty_like(found)
    result[:, :, order] = found
    return result


def q_learning(world: World, budget: int, seed: int) -> float:
    """A lower bound on the greedy policy of Q-learning in half of the episodes, from the other half."""
    env, rng, (low, high) = TableEnv(world), np.random.default_rng([seed, 1]), world.returns
    size, actions = len(world.rows), len(world.rows[0])
    q, visits, totals = [[float(high)] * actions for _ in range(size)], [[0] * actions for _ in range(size)], []
    state, _ = env.reset(seed=seed + 1)
    for k in range(budget):
        learns = k < budget // 2
        state, _ = env.reset()
        total, weight, over = 0.0, 1.0, False
        while not over:
            greedy = q[state].index(max(q[state]))
            action = int(rng.integers(actions)) if learns and rng.random() < 0.1 else greedy
            after, reward, ended, cut, _ = env.step(action)
            if learns:
                visits[state][action] += 1
                aim = reward + (0.0 if ended else world.discount * max(q[after]))
                q[state][action] += (aim - q[state][action]) / visits[state][action] ** 0.7
            total += weight * reward
            weight *= world.discount
            state, over = after, ended or cut
        if not learns:  # what was cut may be followed by the least return
            totals.append(total + (0.0 if ended else weight * min(low, 0.0)))
    return lower_mean(np.array(totals), np.ones(len(totals)), float(low), float(high), DELTA)
