"""Worlds in which a policy in use is to be improved: the cliff grid of the docs, and those of public benchmarks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Simulator, build

#: the cliff grid: columns, rows, and the true parameters
WIDTH, HEIGHT = 9, 5
TRUTH = {"slip": 0.1, "wind": 0.05}
#: what a fall costs in the return that the baseline is judged by
FALL = 55.0


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
    pmdp: ParametricMDP, theta: np.ndarray, objective: Objective, policy: Policy, episodes: int, seed: int
) -> Counts:
    """Counts of episodes of a policy, as a log would give them."""
    simulator = Simulator(pmdp.instantiate(theta), objective.resolve(pmdp).decided, 1000, seed)
    counts, done = Counts(pmdp, schedule="geometric"), 0
    while done < episodes:
        some = min(max(1, done // 10), episodes - done)
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        simulator.run(policy, some, batch)
        counts.add_batch(batch)
        done += some
    return counts
