"""Models, data and certificates with proofs, for the tests of the checker."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

import rpl_envs
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, Sense, build
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import prove
from rpl_agent.guarantee.shown import true_value
from tests.reference.worlds import with_heights
from tests.small_worlds import SIZES

#: By day all of them at their small sizes.
SMALL = {f"rpl/{name}-v0": dict(size) for name, size in SIZES.items()}


def of_world(name: str, episodes: int, size: dict[str, int] | None = None, **options):
    world = rpl_envs.benchmark(name, **(size or {}))
    theta = np.asarray(world.theta)
    counts = uniform_counts(world.pmdp, world.objective, theta, episodes, world.max_episode_steps, 1)
    certificate = certify(world.pmdp, counts, world.objective, Config(**options))
    return world.pmdp, theta, counts, certificate, prove(world.pmdp, counts, certificate)


def optimum(pmdp, theta: np.ndarray, certificate: Certificate) -> tuple[float, float]:
    """The true values that the lower and the upper bound are bounds of."""
    own = true_value(pmdp, certificate.objective, certificate.policy, theta, 1e-10)
    best = solve_at(pmdp, theta, certificate.objective, precision=1e-10).middle
    return (own, best) if certificate.objective.sense is Sense.MAX else (best, own)


def actions(state: str) -> dict:
    if state == "s0":
        return {"try": {"s1": "p", "lost": "(1 - p)/2", "s0": "(1 - p)/2"}, "wait": {"s0": 1}}
    return {"go": {"goal": "q", "s0": "1 - q"}} if state == "s1" else {"stay": {state: 1}}


def model(start="s0", *, arrivals: bool = False):
    """s0 tries to reach the goal, and may be lost; waiting is possible and useless."""

    def steps(state: str, action: str) -> float:
        return {"s0": 1.0, "s1": 2.0}.get(state, 0.0)

    def paid(state: str, action: str, successor: str) -> float:
        return 1.5 * (successor == "s1") + 0.1 * (state == "s1")

    return with_heights(build(
        start, actions, domain={"p": (0.05, 0.95), "q": (0.05, 0.95)}, rewards={"steps": paid if arrivals else steps},
        labels={"goal": lambda s: s == "goal", "over": lambda s: s in ("goal", "lost")},
    ))  # fmt: skip


OBJECTIVES = {
    "Pmax": Objective.reach("goal"),
    "Pmin": Objective.reach("goal", sense=Sense.MIN),
    "within": Objective.reach("goal", horizon=7),
    "avoiding": Objective.reach("goal", avoid="over"),
    "cost": Objective.cost("steps", target="over"),
    "total": Objective.total("steps", target="over", sense=Sense.MIN),
    "reward": Objective.reward("steps", target="over"),
    "discounted": Objective.discounted("steps", 0.9),
    "discounted min": Objective.discounted("steps", 0.9, sense=Sense.MIN),
    "steps": Objective.reward("steps", target="over", horizon=5),
    "instant": Objective.instant("height", 4),
}


def sampled(pmdp, steps: int, seed: int = 3, first: int | None = None) -> Counts:
    """Counts of steps (of the first of them) from states and actions in turn, at p = 0.6, q = 0.7."""
    draw, counts, mdp = np.random.default_rng(seed), Counts(pmdp), pmdp.instantiate({"p": 0.6, "q": 0.7})
    rows = [np.arange(*pmdp.row_ptr[row : row + 2]) for row in range(pmdp.num_rows)]
    drawn = [draw.choice(row, steps // len(rows), p=mdp.probability[row] / mdp.probability[row].sum()) for row in rows]
    counts.add_transitions(np.stack(drawn, axis=1).ravel()[:first])
    return counts


def known(pmdp, objective: Objective) -> dict:
    """The proof of a model without parameters, whose certificate is its solution."""
    solution = solve(Point(pmdp.instantiate([])), objective)
    certificate = Certificate(
        solution.lower, solution.upper, 1e-3, objective, solution.policy, "likelihood", "coupled", 0
    )
    return prove(pmdp, Counts(pmdp), certificate)


def content(rows: list[list[dict[int, str]]], paid: dict[int, float] | None = None, **parts: Any) -> dict[str, Any]:
    """A known model as it stands in a proof: per state its rows, per row "p/q" by successor; ``paid`` by row."""
    flat = [row for choices in rows for row in choices]
    known = sorted({p for row in flat for p in row.values()})
    return {
        "name": "small",
        "hash": "",
        "initial": 0,
        "silent": [],
        "coordinates": None,
        "labels": {},
        "state_ptr": list(accumulate(map(len, rows), initial=0)),
        "row_ptr": list(accumulate(map(len, flat), initial=0)),
        "successor": [t for row in flat for t in row],
        "expression": [known.index(p) for r in flat for p in r.values()],
        "expressions": [[[p, []]] for p in known],
        "parameters": [],
        "lower": [],
        "upper": [],
        "rewards": {"r": {"state": [], "row": [[row, x] for row, x in (paid or {}).items()]}},
        "action": [0] * len(flat),
        "actions": ["a"],
    } | parts
