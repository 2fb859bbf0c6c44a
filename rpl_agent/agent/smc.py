"""Statistical model checking: run the agent until its certificate is ε wide.

With probability ≥ 1 − δ, over the whole run and whenever it stops, the value of the property lies in [lower, upper].
That is the certificate's own statement: for a maximising property lower ≤ V^π ≤ V* ≤ upper (a chain has one policy).

Whole paths are used as well: each has a value in a known range, so n of them bound the mean without a model. On a chain
every path of the run bounds the value from both sides. In an MDP the robust policy is played once, when that promises
to close the gap, and its paths bound its value from one side. Certificates and paths have a share of δ each, and the
answer is the intersection (docs/guarantees.md, "Paths beside certificates").
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.evaluation import contradiction_of, play_policy
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.sampling.experience import SampledBatch
from rpl_agent.agent.sampling.worth import Bounds, PathWorth
from rpl_agent.agent.schedule import Doubling
from rpl_agent.agent.world.observations import Env, is_vector
from rpl_agent.agent.world.when_attached import require
from rpl_agent.core.evidence.ledger import POLICY_SHARE, split_paths
from rpl_agent.core.model import Objective, Policy, Sense
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.pipeline import Config

#: A policy is played where that takes at most this share of the episodes so far, with this many times the paths that an
#: average play needs: a mean may be a standard deviation off.
PLAYED, BAD_LUCK = 0.25, 1.6


@dataclass(frozen=True)
class SampledAnswer:
    """The value of a property, estimated by sampling."""

    certificate: Certificate
    paths: Bounds | str  # (lower, upper) of whole paths, infinite where they say nothing; or why there are none
    played: Policy | None  # the policy of an MDP that drew the paths
    epsilon: float
    samples: int  # transitions
    episodes: int
    certificates: int
    seconds: float

    @property
    def lower(self) -> float:
        return together(self.certificate, self.paths)[0]

    @property
    def upper(self) -> float:
        return together(self.certificate, self.paths)[1]

    @property
    def policy(self) -> Policy:
        """The one with the better guarantee: that of the certificate, or the one that was played."""
        low, high = (-math.inf, math.inf) if isinstance(self.paths, str) else self.paths
        better = low > self.certificate.lower or high < self.certificate.upper
        return self.played if self.played is not None and better else self.certificate.policy

    @property
    def contradiction(self) -> str | None:
        """The message if certificate and paths exclude each other; the answer is then that of the paths."""
        return None if isinstance(self.paths, str) else contradiction_of(self.certificate, *self.paths, certified=True)

    @property
    def decided(self) -> bool:
        """Whether the interval is as narrow as requested."""
        return self.upper - self.lower <= self.epsilon


def together(certificate: Certificate | None, paths: Bounds | str) -> Bounds:
    """The intersection of both intervals; if it is empty, the paths' interval, which rests on fewer assumptions."""
    if certificate is None or isinstance(paths, str):
        return (-math.inf, math.inf) if certificate is None else (certificate.lower, certificate.upper)
    both = max(certificate.lower, paths[0]), min(certificate.upper, paths[1])
    return both if both[0] <= both[1] else paths


class ChainPaths(BaseCallback):
    """Bounds from the paths of a chain; ends the run when they, with the certificate, are ε wide."""

    def __init__(self, worth: PathWorth, delta: float, epsilon: float):
        super().__init__()
        self._worth, self._delta, self._epsilon = worth, delta, epsilon
        self._paths = SampledBatch()

    @property
    def every_episodes(self) -> int:  # type: ignore[override]
        return max(10, self.agent.num_episodes // 20)

    def bounds(self) -> Bounds:
        return self._worth.bounds(self._paths, self._delta, self.agent.session.experience.reward_error, self._epsilon)

    def _on_step(self) -> bool:
        for name in ("values", "lengths", "undecided"):
            getattr(self._paths, name).extend(getattr(self.agent.session.latest, name))
        return self._on_certificate(self.agent.certificate)

    def _on_certificate(self, certificate: Certificate | None) -> bool:
        low, high = together(certificate, self.bounds())
        return high - low > self._epsilon


class PolicyPaths(BaseCallback):
    """Bounds from paths of the robust policy, played once; ends the run to play, and then once the interval is ε wide.

    planned : episodes to play, 0: not now; found : (lower, upper) of the policy that was played, None: not yet.
    """

    def __init__(self, worth: PathWorth, objective: Objective, delta: float, epsilon: float):
        super().__init__()
        self._worth, self._delta, self._epsilon = worth, delta, epsilon
        self._maximising = objective.sense is Sense.MAX
        self.planned = 0
        self.found: Bounds | None = None
        self.policy: Policy | None = None

    def _on_certificate(self, certificate: Certificate) -> bool:
        if self.found is not None:
            low, high = together(certificate, self.found)
            return high - low > self._epsilon
        self.planned = self._needed(certificate)
        return not self.is_due

    @property
    def is_due(self) -> bool:
        return self.found is None and 0 < self.planned <= PLAYED * self.agent.num_episodes

    def _needed(self, certificate: Certificate) -> int:
        """Episodes until the policy's own paths bound its value closely enough, by the estimate; 0: never."""
        value, worth = certificate.estimate, self._worth
        other = certificate.upper - value if self._maximising else value - certificate.lower
        size = worth.high - worth.low
        if not 0.0 < self._epsilon - other < math.inf or size == 0.0 or certificate.gap <= self._epsilon:
            return 0
        room, share = (self._epsilon - other) / size, min(max((value - worth.low) / size, 0.0), 1.0)
        # no law on [0, 1] with this mean has a larger variance
        paths = 2.0 * math.log(2.0 / self._delta) * (share * (1.0 - share) / room**2 + 1.0 / room)
        return math.ceil(BAD_LUCK * paths)

    def play_planned(self, agent: RPLAgent, env: Env, left: int) -> tuple[int, int]:
        """Play the certified policy as planned, if enough steps are left; return (steps, episodes) that it took."""
        if self.planned * agent.num_timesteps > left * agent.num_episodes:
            return 0, 0
        self.policy = agent.policy
        played = play_policy(agent, env, self.planned, seed=agent.session.fresh_seed(), policy=self.policy)
        low, high = self._worth.bounds(played, self._delta, agent.session.experience.reward_error)
        self.found = (low, math.inf) if self._maximising else (-math.inf, high)
        return played.steps, played.episodes


def check_by_sampling(
    env: Env, config: Config, epsilon: float, *, budget: int, seed: int = 0, paths: bool = True
) -> SampledAnswer:
    """Sample ``env`` until upper − lower ≤ ``epsilon``, using at most ``budget`` transitions.

    ``config`` must have a confidence set that holds at all times (the agent refuses others).
    """
    began = time.perf_counter()
    probe = RPLAgent(env, config=config)
    pmdp, objective = probe.pmdp, probe.objective
    worth = PathWorth(pmdp, objective)
    callback: ChainPaths | PolicyPaths | None = None
    reason = "not asked for" if not paths else "several environments at once" if is_vector(env) else worth.reason
    if not reason and pmdp.num_rows > pmdp.num_states and probe.session.judge.applies:
        reason = "plays of the policy are part of the certificate"
    if not reason and pmdp.num_rows == pmdp.num_states:
        delta, rest = split_paths(config.delta)
        config, callback = replace(config, delta=delta), ChainPaths(worth, rest, epsilon)
    elif not reason:
        delta, rest = split_paths(config.delta, POLICY_SHARE)
        config, callback = replace(config, delta=delta), PolicyPaths(worth, objective, rest, epsilon)
    # At most one update per tenth of the episodes: a limit per row would update thousands of times in a large model.
    agent = RPLAgent(env, config=config, seed=seed, schedule=Doubling("expression", spacing=0.1))
    agent.learn(env, budget, unit="steps", stop_when_gap=epsilon, callback=callback)
    steps = episodes = 0
    if isinstance(callback, PolicyPaths) and callback.is_due:
        steps, episodes = callback.play_planned(agent, env, budget - agent.num_timesteps)
        left = budget - agent.num_timesteps - steps
        if left > 0 and callback.on_certificate(require(agent.certificate)):
            agent.learn(env, left, unit="steps", stop_when_gap=epsilon, callback=callback)
    certificate = require(agent.certificate)
    found: Bounds | str = reason
    played = None
    if isinstance(callback, ChainPaths):
        found = callback.bounds()
    elif callback is not None:
        found, played = callback.found or "the policy was not played", callback.policy
    return SampledAnswer(
        certificate,
        found,
        played,
        epsilon,
        agent.num_timesteps + steps,
        agent.num_episodes + episodes,
        agent.num_updates,
        time.perf_counter() - began,
    )
