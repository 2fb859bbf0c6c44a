"""Statistical model checking: the agent, run until its certificate is ε wide.

With probability ≥ 1 − δ, over the whole run and whenever it stops, the value of the property lies in [lower, upper].
That is the certificate's own statement: for a maximising property lower ≤ V^π ≤ V* ≤ upper (a chain has one policy).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.schedule import Doubling
from rpl_agent.certificate import Certificate
from rpl_agent.pipeline import Config


@dataclass(frozen=True)
class SampledAnswer:
    """The value of a property, sampled."""

    certificate: Certificate
    epsilon: float
    samples: int  # transitions
    episodes: int
    certificates: int
    seconds: float

    @property
    def lower(self) -> float:
        return self.certificate.lower

    @property
    def upper(self) -> float:
        return self.certificate.upper

    @property
    def decided(self) -> bool:
        """Whether the interval is as narrow as was asked for."""
        return self.upper - self.lower <= self.epsilon


def check(env: Any, config: Config, epsilon: float, *, budget: int, seed: int = 0) -> SampledAnswer:
    """Sample ``env`` until upper − lower ≤ ``epsilon``, at most ``budget`` transitions.

    ``config`` must be of a confidence set that holds at all times (the agent refuses others).
    """
    began = time.perf_counter()
    # One update per tenth of the episodes at most: a rule per row would update thousands of times in a large model.
    agent = RPLAgent(config=config, seed=seed, schedule=Doubling("expression", spacing=0.1))
    agent.learn(env, budget, unit="steps", stop_when_gap=epsilon)
    found = agent.certificate
    assert found is not None
    return SampledAnswer(
        found, epsilon, agent.num_timesteps, agent.num_episodes, agent.num_updates, time.perf_counter() - began
    )
