"""Many parameters: cost against their number, in one run.

Worlds in which every row is a separate unknown distribution (a *block*), and one with a large common one:

- *layers*: L layers of L states, two actions, a step leads to one of n states of the next layer. ``set`` is what data
  cost before the solver (estimate, e-value, region, relaxation), ``certify`` is all of a certificate, both in CPU µs
  per block. ``learn`` is a run of the agent of twenty steps per block with its default schedule: its updates, and CPU
  µs per block and update. ``joint`` rows have one parameter on three successors, a small region each: they are only
  certified.
- *inventory*: one categorical unknown, the demand of a day, shared by all rows: CPU seconds of a certificate.
- *grid*: `rpl smc --unknown rows` on a square grid with a pit until the answer is known to 0.05: CPU ms per block.

Cost is linear in the number of blocks if a column stays constant from 10^2 to 10^4 blocks. ``growth`` compares
``certify`` per block with the smallest world of its kind.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import rpl_envs
from rpl_agent import Config, Objective, RPLAgent, build, build_noise, certify, hide_parameters
from rpl_agent.agent.smc import check_by_sampling
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.formats import prism
from rpl_agent.guarantee.pipeline import uncertainty_from

#: layers, hence about 2 L² blocks
SIDES = {"smoke": (4, 7), "usual": (7, 22, 71), "full": (7, 22, 71, 224)}
#: a joint block costs milliseconds, so at most about 10^3 of them
JOINT_SIDE = 22
#: sides of the grid, with four blocks per state
GRIDS = {"smoke": (4,), "usual": (5, 16, 50), "full": (5, 16, 50)}
#: outcomes of a day's demand
OUTCOMES = {"smoke": (12,), "usual": (12, 24, 50), "full": (12, 24, 50)}
#: steps of the agent, and visits before a certificate, per block
STEPS = 20
DELTA = 0.01
GRID = """mdp
const int N;
module walk
  x : [0..N-1] init 0;
  y : [0..N-1] init 0;
  [east]  !ends -> 0.9 : (x'=min(x+1,N-1)) + 0.1 : (y'=min(y+1,N-1));
  [north] !ends -> 0.9 : (y'=min(y+1,N-1)) + 0.1 : (x'=max(x-1,0));
  [west]  !ends -> 0.9 : (x'=max(x-1,0)) + 0.1 : (y'=max(y-1,0));
  [south] !ends -> 0.9 : (y'=max(y-1,0)) + 0.1 : (x'=min(x+1,N-1));
  [stay]  ends -> true;
endmodule
formula ends = y=N-1 & x=N-1;
label "goal" = ends;
label "pit" = x=N-1 & y=0;
"""


def rows(smoke: bool = False, full: bool = False) -> list[dict[str, Any]]:
    size = "smoke" if smoke else "full" if full else "usual"
    found: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        _layers("coins", 3)  # warm-up
        for kind in ("coins", "dice", "joint"):
            part = [_layers(kind, side) for side in SIDES[size] if kind != "joint" or side <= JOINT_SIDE]
            first = float(part[0]["certify µs/block"])
            found += [{**row, "growth": round(row["certify µs/block"] / first, 2)} for row in part]
        found += [_inventory(outcomes) for outcomes in OUTCOMES[size]]
        return found + [_grid(side) for side in GRIDS[size]]


def inventory(outcomes: int) -> ParametricMDP:
    """Stock of at most 60, ordered in sixes; demand is one of ``outcomes`` numbers with unknown probabilities."""
    return build_noise(
        0,
        lambda stock: range(0, 61 - stock, 6),
        noise={"demand": list(range(outcomes))},
        key=lambda stock, order: "demand",
        effect=lambda stock, order, demand: max(stock + order - demand, 0),
        rewards={"profit": lambda stock, order, rest: stock + order - rest - 0.3 * order - 0.05 * (stock + order)},
    )


def _inventory(outcomes: int) -> dict[str, Any]:
    pmdp, objective = inventory(outcomes), Objective.discounted("profit", 0.95)
    truth = np.random.default_rng(1).dirichlet(np.ones(outcomes))[: pmdp.num_parameters]
    counts = uniform_counts(pmdp, objective, truth, 200, 50, 1)
    start = time.process_time()
    found = certify(pmdp, counts, objective, delta=DELTA)
    seconds = time.process_time() - start
    sizes = {"blocks": 1, "parameters": pmdp.num_parameters, "transitions": pmdp.num_transitions}
    shown = {
        "certify CPU s": round(seconds, 2),
        "gap": round(float(found.gap), 3),
        "regret": round(float(found.regret), 3),
    }
    return {"world": f"inventory-{outcomes}", **sizes, **shown}


def layers(kind: str, side: int) -> tuple[ParametricMDP, np.ndarray]:
    """The world of one kind of row, and its true parameters."""

    def known(state: tuple[int, int]) -> dict[str, dict]:
        layer, place = state
        if layer == side:
            return {"stay": {state: "1"}}
        chances = ("7/10", "3/10") if kind == "coins" else ("5/10", "3/10", "2/10")
        ahead = [(layer + 1, (place + k) % side) for k in range(len(chances))]
        shifted = [ahead[-1], *ahead[:-1]]
        return {"go": dict(zip(ahead, chances)), "turn": dict(zip(shifted, chances))}

    def joint(state: tuple[int, int]) -> dict[str, dict]:
        layer, place = state
        if layer == side:
            return {"stay": {state: "1"}}
        ahead = [(layer + 1, (place + k) % side) for k in range(3)]
        names = [f"p{layer}_{place}_{a}" for a in ("go", "turn")]
        shares = [(f"0.5+0.25*{p}", f"0.25*{p}", f"0.5-0.5*{p}") for p in names]
        return {"go": dict(zip(ahead, shares[0])), "turn": dict(zip(ahead[::-1], shares[1]))}

    labels: dict[str, Callable] = {"goal": lambda s: s[0] == side and s[1] % 2 == 0}
    if kind != "joint":
        unknown = hide_parameters(build((0, 0), known, domain=[], labels=labels))
        return unknown.pmdp, unknown.theta
    names = [f"p{i}_{j}_{a}" for i in range(side) for j in range(side) for a in ("go", "turn")]
    reached = [n for n in names if int(n[1:].split("_")[1]) <= 2 * int(n[1:].split("_")[0])]
    model = build((0, 0), joint, domain=reached, labels=labels)
    return model, np.full(len(reached), 0.4)


def _layers(kind: str, side: int) -> dict[str, Any]:
    pmdp, theta = layers(kind, side)
    objective = Objective.reach("goal")
    blocks = int((np.diff(pmdp.row_ptr) > 1).sum())
    counts = uniform_counts(pmdp, objective, theta, STEPS * blocks // side + 1, side + 1, 1)
    config = Config(delta=DELTA)
    certify(pmdp, counts, objective, config)  # what is found once per model is found here
    began = time.process_time()
    uncertainty_from(pmdp, counts, config)
    set_seconds = time.process_time() - began
    began = time.process_time()
    certify(pmdp, counts, objective, config)
    certify_seconds = time.process_time() - began
    micro = 1e6 / blocks
    found: dict[str, Any] = {
        "world": kind, "states": pmdp.num_states, "blocks": blocks, "parameters": pmdp.num_parameters,
        "set µs/block": round(set_seconds * micro, 1), "certify µs/block": round(certify_seconds * micro, 1),
    }  # fmt: skip
    if kind == "joint":
        return found | {"updates": "", "learn µs/block/update": "", "learn s": ""}
    env = rpl_envs.make_own(pmdp, objective, theta, max_episode_steps=side + 1)
    agent = RPLAgent(config=config, seed=1)
    began = time.process_time()
    agent.learn(env, STEPS * blocks, unit="steps")
    seconds = time.process_time() - began
    updates = agent.num_updates - agent.session.planner.skipped
    return found | {
        "updates": updates, "learn µs/block/update": round(seconds * micro / updates, 1), "learn s": round(seconds, 2)
    }  # fmt: skip


def _grid(side: int) -> dict[str, Any]:
    model = prism.loads(GRID, {"N": side}, unknown="rows")
    pmdp, objective = model.objective('Pmax=? [ !"pit" U "goal" ]')
    assert model.truth is not None
    env = rpl_envs.make_own(pmdp, objective, model.truth, max_episode_steps=4 * side)
    began = time.process_time()
    found = check_by_sampling(env, Config(delta=DELTA), 0.05, budget=5_000_000)
    seconds = time.process_time() - began
    return {
        "world": "grid", "states": pmdp.num_states, "blocks": pmdp.num_parameters, "decided": found.decided,
        "samples": found.samples, "updates": found.certificates, "cpu s": round(seconds, 1),
        "cpu ms/block": round(1e3 * seconds / pmdp.num_parameters, 2),
    }  # fmt: skip
