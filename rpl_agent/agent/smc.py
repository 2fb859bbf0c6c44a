"""Statistical model checking: the agent, run until its certificate is ε wide.

With probability ≥ 1 − δ, over the whole run and whenever it stops, the value of the property lies in [lower, upper].
That is the certificate's own statement: for a maximising property lower ≤ V^π ≤ V* ≤ upper (a chain has one policy).

A chain's paths are counted, too: each reaches the target or not, and what k of n say of the probability
(`evidence.paths`) needs no model. Certificates and paths have a share of δ each, and the answer is what both allow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.schedule import Doubling
from rpl_agent.certificate import Certificate
from rpl_agent.evidence.ledger import split_paths
from rpl_agent.evidence.paths import reach_bounds
from rpl_agent.model import Kind, Objective, ParametricMDP, range_on_box, reached
from rpl_agent.pipeline import Config


@dataclass(frozen=True)
class SampledAnswer:
    """The value of a property, sampled.

    lower, upper : what the certificate and, on a chain, its ``paths`` (lower, upper) allow together.
    """

    certificate: Certificate
    paths: tuple[float, float] | None
    epsilon: float
    samples: int  # transitions
    episodes: int
    certificates: int
    seconds: float

    @property
    def lower(self) -> float:
        return self.certificate.lower if self.paths is None else max(self.certificate.lower, self.paths[0])

    @property
    def upper(self) -> float:
        return self.certificate.upper if self.paths is None else min(self.certificate.upper, self.paths[1])

    @property
    def decided(self) -> bool:
        """Whether the interval is as narrow as was asked for."""
        return self.upper - self.lower <= self.epsilon


class PathCount(BaseCallback):
    """Bounds from the paths of a chain; ends the run when they, with the certificate, are ε wide.

    A path has succeeded when it enters the target, and failed when it enters a state that the target cannot follow.
    Both can be read off the counts of transitions, because each happens at most once in a path.
    """

    def __init__(self, pmdp: ParametricMDP, objective: Objective, delta: float, epsilon: float):
        super().__init__()
        self.delta, self.epsilon = delta, epsilon
        target, hopeless = _ends(pmdp, objective)
        source = pmdp.row_state[pmdp.transition_row]
        leaves = ~(target | hopeless)[source]
        self._reaching = np.flatnonzero(leaves & target[pmdp.successor])
        self._failing = np.flatnonzero(leaves & hopeless[pmdp.successor])

    @staticmethod
    def applies(pmdp: ParametricMDP, objective: Objective) -> bool:
        """Whether the value is the probability that a path of the chain reaches a target, at any time."""
        if pmdp.num_rows != pmdp.num_states or objective.kind is not Kind.REACH or objective.horizon is not None:
            return False
        target, hopeless = _ends(pmdp, objective)
        return objective.discount == 1.0 and not (target | hopeless)[pmdp.initial_state]

    @property
    def every_episodes(self) -> int:  # type: ignore[override]
        return max(10, self.agent.num_episodes // 20)

    def bounds(self) -> tuple[float, float]:
        counts = self.agent.counts.transitions
        reached, failed = int(counts[self._reaching].sum()), int(counts[self._failing].sum())
        # one path more than have ended may be under way
        return reach_bounds(reached, failed, self.agent.num_episodes + 1, self.delta, min(self.epsilon, 0.5))

    def _on_step(self) -> bool:
        low, high = self.bounds()
        found = self.agent.certificate
        if found is not None:
            low, high = max(low, found.lower), min(high, found.upper)
        return high - low > self.epsilon

    def _on_certificate(self, certificate: Certificate) -> bool:
        return self._on_step()


def _ends(pmdp: ParametricMDP, objective: Objective) -> tuple[np.ndarray, np.ndarray]:
    """(target, hopeless), each (S,) bool: where a path has succeeded, and from where no parameters let it."""
    task = objective.resolve(pmdp)
    target = np.asarray(task.target)
    possible = range_on_box(pmdp.table, pmdp.domain.lower, pmdp.domain.upper)[1][pmdp.expression] > 0.0
    source = pmdp.row_state[pmdp.transition_row]
    open_moves = possible & ~task.decided[source]
    return target, ~reached(pmdp.successor[open_moves], source[open_moves], np.flatnonzero(target), pmdp.num_states)


def check(env: Any, config: Config, epsilon: float, *, budget: int, seed: int = 0) -> SampledAnswer:
    """Sample ``env`` until upper − lower ≤ ``epsilon``, at most ``budget`` transitions.

    ``config`` must be of a confidence set that holds at all times (the agent refuses others).
    """
    began = time.perf_counter()
    # One update per tenth of the episodes at most: a rule per row would update thousands of times in a large model.
    probe, paths = RPLAgent(env, config=config), None
    if PathCount.applies(probe.pmdp, probe.objective):
        delta, rest = split_paths(config.delta)
        config, paths = replace(config, delta=delta), PathCount(probe.pmdp, probe.objective, rest, epsilon)
    agent = RPLAgent(env, config=config, seed=seed, schedule=Doubling("expression", spacing=0.1))
    agent.learn(env, budget, unit="steps", stop_when_gap=epsilon, callback=paths)
    found = agent.certificate
    assert found is not None
    return SampledAnswer(
        found, None if paths is None else paths.bounds(), epsilon, agent.num_timesteps, agent.num_episodes,
        agent.num_updates, time.perf_counter() - began,
    )  # fmt: skip
