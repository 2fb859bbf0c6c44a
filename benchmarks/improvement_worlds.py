"""Worlds in which a policy in use is to be improved: the cliff grid of the docs, and those of public benchmarks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Objective, ParametricMDP, Policy, Simulator, build
from rpl_agent.core.model.building.unknown import hide_parameters
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.shown import true_value

#: the cliff grid: columns, rows, and the true parameters
WIDTH, HEIGHT = 9, 5
TRUTH = {"slip": 0.1, "wind": 0.05}
#: what a fall costs in the return that the baseline is judged by
FALL = 55.0


@cache
def cliff_grid() -> ParametricMDP:
    """Walk from one end of a cliff to the other: a move fails (slip) or is blown down (wind)."""
    moves = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
    goal = (WIDTH - 1, 0)

    def land(x: int, y: int, dx: int, dy: int) -> object:
        x, y = min(max(x + dx, 0), WIDTH - 1), min(max(y + dy, 0), HEIGHT - 1)
        return "fallen" if y == 0 and 0 < x < WIDTH - 1 else (x, y)

    def actions(state: object) -> Mapping[str, Mapping[object, str]]:
        if state == "end" or state == goal or state == "fallen":
            return {"stop": {"end": "1"}}
        assert isinstance(state, tuple)
        found = {}
        for name, (dx, dy) in moves.items():
            row: dict[object, str] = {}
            for chance, way in (("1 - slip - wind", (dx, dy)), ("slip", (0, 0)), ("wind", (0, -1))):
                to = land(*state, *way)
                row[to] = f"{row[to]} + {chance}" if to in row else chance
            found[name] = row
        return found

    def is_over(state: object) -> bool:
        return state in ("end", "fallen") or state == goal

    return build(
        (0, 0),
        actions,
        domain={"slip": (0.0, 0.45), "wind": (0.0, 0.45)},
        labels={
            "done": is_over,
            "end": lambda s: s == "end",
            "fallen": lambda s: s == "fallen",
            "goal": lambda s: s == goal,
        },
        rewards={
            "steps": lambda s, a: 0.0 if is_over(s) else 1.0,
            "gain": lambda s, a: -FALL if s == "fallen" else 0.0 if is_over(s) else -1.0,
        },
        name="cliff-grid",
    )


def softened(pmdp: ParametricMDP, policy: Policy, share: float) -> Policy:
    """A policy that takes a random action in a share of its steps."""
    uniform = Policy.uniform(pmdp).as_weights(pmdp)
    return Policy.randomised((1.0 - share) * policy.as_weights(pmdp) + share * uniform)


def logged(
    pmdp: ParametricMDP,
    theta: np.ndarray,
    objective: Objective,
    policy: Policy,
    episodes: int,
    seed: int,
    steps: int = 1000,
) -> Counts:
    """Counts of episodes of a policy, each cut after some steps, as a log would give them."""
    simulator = Simulator(pmdp.instantiate(theta), objective.resolve(pmdp).decided, steps, seed)
    counts, done = Counts(pmdp, schedule="geometric"), 0
    while done < episodes:
        some = min(max(1, done // 10), episodes - done)
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        simulator.run(policy, some, batch)
        counts.add_batch(batch)
        done += some
    return counts


# ---------------------------------------------------------------------- worlds of public benchmarks, from their rules
#: discounts, and the steps after which a trajectory is cut, as published
GRID_DISCOUNT, RIVER_DISCOUNT, GATHERING_DISCOUNT = 0.95, 0.95, 0.995
RIVER_STEPS, GATHERING_STEPS = 10, 60


def grid() -> tuple[ParametricMDP, dict[str, float]]:
    """The 5 × 5 grid of Laroche et al. (2019): two walls; ahead .75, to either side .1, back .05."""
    moves = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
    walls = {(2, 3): range(0, 4), (3, 4): range(2, 5)}  # between two columns, in these rows

    def land(x: int, y: int, dx: int, dy: int) -> tuple[int, int]:
        to = (x + dx, y + dy)
        between = (min(x, to[0]), max(x, to[0]))
        blocked = dx != 0 and between in walls and y in walls[between]
        return to if 0 <= to[0] < 5 and 0 <= to[1] < 5 and not blocked else (x, y)

    def actions(state: object) -> Mapping[str, Mapping[object, str]]:
        if state in ("end", (4, 4)):
            return {"stop": {"end": "1"}}
        assert isinstance(state, tuple)
        found = {}
        for name, (dx, dy) in moves.items():
            row: dict[object, str] = {}
            ways = (("ahead", (dx, dy)), ("left", (-dy, dx)), ("right", (dy, -dx)))
            for chance, way in (*ways, ("1 - ahead - left - right", (-dx, -dy))):
                to = land(*state, *way)
                row[to] = f"{row[to]} + {chance}" if to in row else chance
            found[name] = row
        return found

    pmdp = build(
        (0, 0),
        actions,
        domain=simplices([["ahead", "left", "right"]]),
        labels={"end": lambda s: s == "end"},
        rewards={"gain": lambda s, a: 1.0 / GRID_DISCOUNT if s == (4, 4) else 0.0},
        name="grid 5x5",
    )
    return pmdp, {"ahead": 0.75, "left": 0.1, "right": 0.1}


def wet_chicken() -> tuple[ParametricMDP, dict[str, float]]:
    """A boat above a waterfall, 5 × 5 (Hans and Udluft, 2009; discrete as by Scholl, 2021): one current per lane.

    The boat drifts by round(v + u), v = 3 y / 5 and u uniform in ±(3.5 − v): a distribution that is shared by all
    actions and all places of a lane.
    """
    paddles = {"drift": (0, 0), "hold": (-1, 0), "back": (-2, 0), "left": (0, -1), "right": (0, 1)}
    drifts, truth = {}, dict[str, float]()
    names: list[list[str]] = []
    for y in range(5):
        v = 3.0 * y / 5.0
        low, high = v - (3.5 - v), v + (3.5 - v)
        steps = range(math.floor(low + 0.5), math.ceil(high - 0.5) + 1)
        shares = [max(0.0, min(k + 0.5, high) - max(k - 0.5, low)) / (high - low) for k in steps]
        kept = [(k, share) for k, share in zip(steps, shares) if share > 1e-12]
        free = [f"drift{y}_{i}" for i in range(len(kept) - 1)]
        truth |= dict(zip(free, (share for _, share in kept)))
        names.append(free)
        chances = [*free, " - ".join(["1", *free])]
        drifts[y] = [(k, chance) for (k, _), chance in zip(kept, chances)]

    def actions(state: tuple[int, int]) -> Mapping[str, Mapping[object, str]]:
        x, y = state
        found = {}
        for name, (dx, dy) in paddles.items():
            row: dict[object, str] = {}
            lane = min(max(y + dy, 0), 4)
            for k, chance in drifts[y]:
                there = x + dx + k
                to = (0, 0) if there >= 5 else (max(there, 0), lane)
                row[to] = f"{row[to]} + {chance}" if to in row else chance
            found[name] = row
        return found

    rewards = {"gain": lambda s, a: s[0] / RIVER_DISCOUNT}
    domain = simplices([free for free in names if free])
    return build((0, 0), actions, domain=domain, rewards=rewards, name="wet chicken"), truth


def resource_gathering() -> tuple[ParametricMDP, dict[str, float]]:
    """Fetch gold and a gem past two enemies (Barrett and Narayanan, 2008): one attack chance."""
    home, gold, gem, enemies = (4, 2), (0, 2), (1, 4), ((0, 3), (1, 2))

    def actions(state: tuple[int, int, int, int]) -> Mapping[str, Mapping[object, str]]:
        x, y, has_gold, has_gem = state
        found = {}
        for name, (dx, dy) in {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}.items():
            to = (min(max(x + dx, 0), 4), min(max(y + dy, 0), 4))
            kept = (0, 0) if (x, y) == home else (has_gold, has_gem)
            after = (*to, int(kept[0] or to == gold), int(kept[1] or to == gem))
            found[name] = {(*home, 0, 0): "attack", after: "1 - attack"} if to in enemies else {after: "1"}
        return found

    return (
        build(
            (*home, 0, 0),
            actions,
            domain=["attack"],
            rewards={"gain": lambda s, a: (s[2] + s[3]) / GATHERING_DISCOUNT if s[:2] == home else 0.0},
            name="resource gathering",
        ),
        {"attack": 0.1},
    )


def random_mdp(seed: int, states: int = 50, successors: int = 4) -> tuple[ParametricMDP, np.ndarray]:
    """A random MDP as by Laroche et al.: four actions with four successors each, untied; the last state is the goal."""
    rng = np.random.default_rng(seed)
    rows = {}
    for s in range(states):
        for a in range(4):
            cuts = np.diff(np.concatenate([[0.0], np.sort(rng.random(successors - 1)), [1.0]]))
            rows[s, a] = dict(zip(rng.choice(states, successors, replace=False).tolist(), cuts.tolist()))
    goal = states - 1

    def actions(s: object) -> Mapping[int, Mapping[object, Fraction]]:
        if s in ("end", goal):
            return {0: {"end": Fraction(1)}}
        exact = {a: {t: Fraction(p) for t, p in rows[s, a].items()} for a in range(4)}
        return {a: {t: p / sum(row.values()) for t, p in row.items()} for a, row in exact.items()}

    known = build(
        0,
        actions,
        domain=[],
        labels={"end": lambda s: s == "end"},
        rewards={"gain": lambda s, a: 1.0 / GRID_DISCOUNT if s == goal else 0.0},
        name="random MDP",
    )
    hidden = hide_parameters(known)
    return hidden.pmdp, hidden.theta


def simplices(groups: list[list[str]]) -> Domain:
    """Several simplices side by side."""
    names = tuple(name for group in groups for name in group)
    A = np.array([[float(name in group) for name in names] for group in groups])
    return Domain(names, np.zeros(len(names)), np.ones(len(names)), A, np.ones(len(groups)))


def halfway(pmdp: ParametricMDP, theta: np.ndarray, objective: Objective, share: float = 0.5) -> Policy:
    """A softmax of the optimal action values that is worth a share of the way from the random to the best policy."""
    solution = solve_at(pmdp, theta, objective)
    task, p = objective.resolve(pmdp), pmdp.instantiate(theta).probability
    ahead = np.add.reduceat(p * solution.lower_values[pmdp.successor], pmdp.row_ptr[:-1])
    q = task.reward + objective.discount * ahead
    least = true_value(pmdp, objective, Policy.uniform(pmdp), theta)
    wanted = least + share * (solution.middle - least)
    low, high = 0.0, 40.0  # logarithm of the inverse temperature
    best = np.maximum.reduceat(q, pmdp.state_ptr[:-1])[pmdp.row_state]
    for _ in range(40):
        middle = (low + high) / 2.0
        weights = np.exp(np.maximum(math.exp(middle - 10.0) * (q - best), -700.0))
        weights /= np.add.reduceat(weights, pmdp.state_ptr[:-1])[pmdp.row_state]
        policy = Policy.randomised(weights)
        low, high = (middle, high) if true_value(pmdp, objective, policy, theta) < wanted else (low, middle)
    return policy
