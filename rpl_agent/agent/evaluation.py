"""Evaluate a policy: by Monte Carlo in an environment, and exactly if the true parameters are given.

Episodes that were not used for learning give independent evidence: a confidence sequence for the policy's mean value
(`likelihood.bets.mean`) that relies on no model, only on bounded values. With probability ≥ 1 − 2δ it and the
certificate both hold, so if they exclude each other the model is wrong.

The agent never calls this module while it learns: true parameters come from the owner of the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch
from rpl_agent.agent.sampling.returns import play_episodes
from rpl_agent.agent.sampling.stream import open_source
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.world.attach import attach
from rpl_agent.agent.world.observations import Env, is_vector, require_environment, time_limit
from rpl_agent.agent.world.plays import ends_elsewhere, value_range
from rpl_agent.core.errors import DataError, ModelError, finite_range, require_count
from rpl_agent.core.evidence.ledger import check_stated_delta
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.printed import interval_text
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Episodes of a policy: what the environment paid (costs are negative), and what the objective counts.

    An episode that was cut before the objective was decided counts with what it had collected by then.
    """

    returns: np.ndarray  # (n,)
    lengths: np.ndarray  # (n,)
    values: np.ndarray  # (n,)
    cut: int = 0
    lower: float = math.nan  # of the mean value, with probability ≥ 1 − delta; nan if values are not bounded
    upper: float = math.nan
    delta: float = math.nan
    contradiction: str | None = None  # with the certificate
    interrupted: bool = False  # before all episodes were played

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean return."""
        return _standard_error(self.returns)

    @property
    def value_error(self) -> float:
        """Standard error of the mean value."""
        return _standard_error(self.values)


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class Watcher:
    """Who watches episodes that are played.

    progress : called with the number of episodes played and of all of them
    interrupted : whether to end early, with the episodes played so far
    """

    progress: Callable[[int, int], None] | None = None
    interrupted: Callable[[], bool] = lambda: False


def monte_carlo(agent: Any, env: Env, episodes: int, *, seed: int = 0, policy: Policy | None = None) -> Evaluation:
    """Episodes of a policy (default: the agent's) in ``env``, without learning from them."""
    done = play_policy(agent, env, episodes, seed=seed, policy=policy if policy is not None else agent.policy)
    return _evaluation(done)


def _evaluation(done: SampledBatch) -> Evaluation:
    columns = np.array(done.returns), np.array(done.lengths), np.array(done.values)
    return Evaluation(*columns, done.cut, interrupted=done.interrupted)


def play_policy(
    agent: Any, env: Env, episodes: int, *, seed: int, policy: Policy, watcher: Watcher | None = None
) -> SampledBatch:
    """Episodes of a policy that nobody learns from."""
    require_count("episodes", episodes)
    objective = agent.objective
    compiled = objective.horizon is None  # the simulator knows no rules that change with time
    attachment = attach(
        env,
        pmdp=agent.pmdp,
        objective=objective,
        state_of=getattr(agent, "observation_to_state", None),
        compiled=compiled and agent.compiled,
        check_rewards=getattr(agent, "check_rewards", None),
        action_to_env=getattr(agent, "action_to_env", None),
        end=getattr(agent, "end", None),
    )
    done = SampledBatch()
    seeds = np.random.SeedSequence([seed, 3])
    source = open_source(
        attachment, Experience(agent.pmdp), np.random.default_rng(seeds), int(seeds.generate_state(1)[0])
    )
    asked = _asked(watcher or Watcher(), done, episodes)
    source.collect(Request(policy, Limits(), pause=episodes, episodes_left=episodes, interrupted=asked), done)
    done.interrupted = done.episodes < episodes
    done.keep_first()
    return done


def _asked(watcher: Watcher, done: SampledBatch, episodes: int) -> Callable[[], bool]:
    """What a source of episodes asks after every step: it tells how many episodes are over."""
    told = 0

    def asked() -> bool:
        nonlocal told
        if watcher.progress is not None and done.episodes > told:
            told = done.episodes
            watcher.progress(told, episodes)
        return watcher.interrupted()

    return asked


def evaluate_policy(
    agent: Any,
    env: Env,
    episodes: int,
    *,
    seed: int = 0,
    policy: Any = None,
    bounds: tuple[float, float] | None = None,
    delta: float | None = None,
    watcher: Watcher | None = None,
) -> Evaluation:
    """Play any policy and bound its mean value; see `RPLAgent.evaluate`."""
    require_environment(env)
    if bounds is not None:
        bounds = finite_range("bounds", bounds, "the least and the most value of one episode", equal=True)
    if delta is not None:
        check_stated_delta(delta)
    if policy is None:
        policy = (agent.certificate or agent.certify()).policy
    objective, own = agent.objective, isinstance(policy, Policy)
    if own:
        found = _evaluation(play_policy(agent, env, episodes, seed=seed, policy=policy, watcher=watcher))
    else:
        found = _play(env, policy, episodes, seed, objective, watcher or Watcher())
    if not len(found.values):
        raise KeyboardInterrupt("no episode was over")
    if bounds is None:
        limit = None if is_vector(env) else time_limit(env, env.unwrapped)
        bounds = value_range(agent.pmdp, objective, limit)
    if not all(map(math.isfinite, bounds)):
        return found
    delta = agent.session.config.delta if delta is None else delta
    try:
        lower, upper = mean_interval(found.values, *bounds, delta, planned=episodes)
    except DataError as error:
        raise DataError(f"an episode's {error}: pass bounds=(least, most) that no episode can leave") from None
    contradiction, certificate = None, agent.certificate
    comparable = own or (agent.world is not None and agent.world.paid is not None)
    comparable = comparable and not ends_elsewhere(agent.pmdp, objective)  # what was paid is not what a miss is worth
    if certificate is not None and not found.cut and comparable:
        contradiction = contradiction_of(certificate, lower, upper, policy is certificate.policy)
    return replace(found, lower=lower, upper=upper, delta=delta, contradiction=contradiction)


def contradiction_of(certificate: Certificate, lower: float, upper: float, certified: bool) -> str | None:
    """How an interval for a policy's value contradicts a certificate (of this or of every policy); None if not."""
    maximising = certificate.objective.sense is Sense.MAX
    low = certificate.lower if certified or not maximising else -math.inf
    high = certificate.upper if certified or maximising else math.inf
    if lower <= high and low <= upper:
        return None
    return (
        f"the model is wrong: episodes give {interval_text(lower, upper)}, the certificate "
        f"{interval_text(certificate.lower, certificate.upper)}"
    )


def _play(env: Env, policy: Any, episodes: int, seed: int, objective: Objective, watcher: Watcher) -> Evaluation:
    """Play a policy that predicts from observations, like SB3's models. Counts what the environment pays."""
    if not hasattr(policy, "predict"):
        raise ModelError(f"{type(policy).__name__} is not a policy: it is not a Policy and has no predict(observation)")
    if is_vector(env):
        raise ModelError("a policy that predicts from observations needs one environment, not a vector environment")
    sign, horizon = 1.0 if objective.sense is Sense.MAX else -1.0, objective.horizon
    returns, lengths, values, cut = [], [], [], 0
    for rewards, truncated in play_episodes(policy, env, episodes, seed):
        counted = rewards[:horizon]
        returns.append(math.fsum(rewards))
        lengths.append(len(rewards))
        values.append(sign * math.fsum(reward * objective.discount**k for k, reward in enumerate(counted)))
        cut += truncated and (horizon is None or len(rewards) < horizon)
        if watcher.progress is not None:
            watcher.progress(len(values), episodes)
        if watcher.interrupted():
            break
    columns = np.array(returns), np.array(lengths), np.array(values)
    return Evaluation(*columns, cut, interrupted=len(values) < episodes)


def optimal_value(pmdp: ParametricMDP, objective: Objective, theta: np.ndarray) -> float:
    """V* at the true parameters."""
    return solve_at(pmdp, theta, objective).middle
