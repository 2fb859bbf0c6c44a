"""Proofs: what they cost, and how much of a computed certificate is proved.

The six worlds (at small sizes; `--full`: at their own), FrozenLake, Taxi and a model in PRISM's language. ``prove`` and
``check`` are processor seconds, ``certify`` those of the certificate; ``gap`` is the proved gap over the computed one.
`--full` adds a model of 10^5 transitions, whose certificate is checked by plain Python. Every proof goes through
JSON and must be accepted: a refused one ends the benchmark with the checker's reason.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import rpl_envs
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.formats import prism
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.proof import prove
from rpl_envs.toy_text import frozen_lake, taxi
from tests.small_worlds import SIZES

Row = dict[str, Any]
Case = tuple[str, ParametricMDP, Objective, np.ndarray, int, int]
MODELS = Path(__file__).parent.parent / "examples" / "models"
EPISODES = 500


def _cases(full: bool) -> Iterator[Case]:
    """(name, model, objective, true parameters, episodes, their longest)."""
    worlds: list[tuple[str, dict[str, int]]] = [(name, {} if full else size) for name, size in SIZES.items()]
    for name, size in worlds + ([("MarsRover-10x10", {"X": 20, "Y": 20})] if full else []):
        world = rpl_envs.benchmark(f"rpl/{name}-v0", **size)
        theta = np.asarray(world.theta)
        yield (
            " ".join([name, *map(str, size.values())]),
            world.pmdp,
            world.objective,
            theta,
            EPISODES,
            world.max_episode_steps,
        )
    lake, cab = frozen_lake(), taxi()
    yield "FrozenLake-v1", lake.pmdp, lake.objective, np.full(lake.pmdp.num_parameters, 1 / 3), EPISODES, 100
    yield "Taxi-v4", cab.pmdp, cab.objective, np.full(cab.pmdp.num_parameters, 0.3), EPISODES, 200
    bridge = prism.load(MODELS / "bridge.prism")
    pmdp, objective = bridge.objective((MODELS / "bridge.props").read_text().split(";")[0])
    yield "bridge.prism", pmdp, objective, pmdp.domain.center(), EPISODES, 100


def rows(smoke: bool = False, full: bool = False) -> list[Row]:
    return [_row(*case) for k, case in enumerate(_cases(full)) if not smoke or k in (1, 8)]


def _row(name: str, pmdp: ParametricMDP, objective: Objective, theta: np.ndarray, episodes: int, steps: int) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = uniform_counts(pmdp, objective, theta, episodes, steps, 1)
        times = [time.process_time()]
        certificate = certify(pmdp, counts, objective)
        times.append(time.process_time())
        proof = prove(pmdp, counts, certificate)
        times.append(time.process_time())
    text = json.dumps(proof)
    times.append(time.process_time())
    found = checker.check(json.loads(text))
    times.append(time.process_time())
    low, high = (float("nan") if found[side] is None else found[side] for side in ("lower", "upper"))
    seconds = [later - now for now, later in pairwise(times)]
    return {
        "model": name, "transitions": pmdp.num_transitions, "data": counts.total, "certify": seconds[0],
        "prove": seconds[1], "check": seconds[3], "file MB": len(text) / 1e6,
        "computed": [certificate.lower, certificate.upper], "proved": [low, high],
        "gap": (high - low) / certificate.gap if certificate.gap else 1.0,
    }  # fmt: skip
