"""`bound_return`: the mean return of any policy in any environment, with an interval and without a model.

What `evaluate_policy` of Stable-Baselines3 estimates, bounded by the confidence sequence of `likelihood.bets.mean`. Its
assumptions are the user's: the return of every episode lies in the given range, and episodes are independent draws of
one policy in one environment. Anyone can break the second by a policy that learns or remembers across episodes.
An environment that reseeds Gymnasium's generator by itself is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import GeneratorStates
from rpl_agent.agent.sampling.interrupt import Interrupt
from rpl_agent.agent.sampling.step_checker import checked_flag, checked_reward, unpack_reset, unpack_step
from rpl_agent.agent.sampling.stepping import generator_state
from rpl_agent.agent.world.observations import Env, is_vector, make_registered, require_environment
from rpl_agent.core.errors import (
    DataError,
    ModelError,
    finite_range,
    front_door,
    require_count,
    require_positive,
    takes,
)
from rpl_agent.core.evidence.ledger import check_stated_delta
from rpl_agent.core.evidence.repetition import RepeatedChanceError
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.printed import chance_text, interval_text
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval

#: An episode that is still running after this many steps has no end.
ENDLESS = 1_000_000
#: With a width to stop at, the interval is computed again after this share of further episodes.
LOOKS = 0.05


@dataclass(frozen=True, eq=False)
class ReturnBound:
    """Bounds on a policy's mean return, valid with probability ≥ 1 − delta; prints as one line.

    >>> import gymnasium as gym
    >>> env = gym.make("CliffWalking-v1", max_episode_steps=9)
    >>> print(bound_return(lambda observation: 0, env, 50, (-900, 0)))  # up, into the wall
    mean return in [-284.206, 0] with probability ≥ 0.999; 50 episodes returned -9 on average
    """

    lower: float
    upper: float
    delta: float
    returns: np.ndarray  # (n,) of the episodes, in order
    lengths: np.ndarray  # (n,)
    interrupted: bool = False  # by Ctrl-C, before all episodes were played

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def episodes(self) -> int:
        return len(self.returns)

    def to_dict(self) -> dict[str, Any]:
        """The numbers without the single episodes."""
        return {
            "mean": self.mean,
            "lower": self.lower,
            "upper": self.upper,
            "delta": self.delta,
            "episodes": self.episodes,
            "steps": int(self.lengths.sum()),
            "interrupted": self.interrupted,
        }

    def __str__(self) -> str:
        return (
            f"mean return in {interval_text(self.lower, self.upper)} with probability ≥ {chance_text(self.delta)}; "
            f"{self.episodes:,} episodes returned {self.mean:.6g} on average"
        )


@front_door
def bound_return(
    policy: Any,
    env: Env | str,
    episodes: int,
    returns: tuple[float, float],
    *,
    delta: float = 1e-3,
    width: float | None = None,
    seed: int = 0,
    deterministic: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> ReturnBound:
    """Play a policy and bound its mean return: `evaluate_policy` with an interval that holds.

    Ctrl-C ends it after the running episode, with the interval of the episodes so far; the interval holds then, too.

    Parameters
    ----------
    policy : anything with Stable-Baselines3's ``predict``, or a function from an observation to an action.
    env : one environment, or its registered id.
    episodes : to play, fixed in advance.
    returns : least and most that one episode can return; every episode that is outside is an error.
    delta : probability that the interval is wrong.
    width : end early once upper − lower is this small; the interval holds then, too.
    deterministic : passed to ``predict``.
    progress : called with the number of episodes played and of all of them.

    Examples
    --------
    >>> import gymnasium as gym
    >>> bound = bound_return(lambda observation: 0, gym.make("CliffWalking-v1", max_episode_steps=9), 50, (-900, 0))
    >>> bound.lower <= bound.mean <= bound.upper
    True
    """
    low, high = finite_range("returns", returns, "the least and the most that one episode can return")
    check_stated_delta(delta)
    if width is not None:
        require_positive("width", width)
    found, lengths = list[float](), list[int]()
    off, look_at = 0.0, 1.0

    def interval() -> tuple[float, float]:
        lower, upper = mean_interval(np.array(found), low, high, delta, width, episodes)
        return max(lower - off, low), min(upper + off, high)

    with Interrupt() as interrupt:
        for k, (rewards, _) in enumerate(play_episodes(policy, _single(env), episodes, seed, deterministic)):
            total, rounding = _total(rewards)
            if not low - rounding <= total <= high + rounding:
                raise DataError(
                    f"episode {k + 1} returned {total:.10g}, outside returns=({low:g}, {high:g}): the interval needs "
                    "a range that no episode can leave"
                )
            off = max(off, rounding)
            found.append(min(max(total, low), high))
            lengths.append(len(rewards))
            if progress is not None:
                progress(len(found), episodes)
            if width is not None and len(found) >= look_at:
                lower, upper = interval()
                look_at = len(found) * (1.0 + LOOKS)
                if upper - lower <= width:
                    break
            if interrupt.asked():
                break
        interrupted = interrupt.requested and len(found) < episodes
        return ReturnBound(*interval(), delta, np.array(found), np.array(lengths), interrupted)


def _total(rewards: list[float]) -> tuple[float, float]:
    """The sum, and its error: rewards such as 0.1 are rounded, each by at most a unit roundoff of its size."""
    return math.fsum(rewards), (len(rewards) + 1) * UNIT_ROUNDOFF * math.fsum(map(abs, rewards))


def _single(env: Any) -> Any:
    if isinstance(env, str):
        made = make_registered(env)
        if made is None:
            raise ModelError(f"no environment is registered as {env!r}")
        return made
    if is_vector(env):
        raise ModelError(
            f"{type(env).__name__} has several environments: pass a single one, wrapped as in training "
            "(gymnasium.make(id), not a vector environment or a VecEnv)"
        )
    require_environment(env)
    return env


def play_episodes(
    policy: Any, env: Any, episodes: int, seed: int, deterministic: bool = True
) -> Iterator[tuple[list[float], bool]]:
    """(rewards, whether it was only truncated) of each episode of a policy that sees observations."""
    require_count("episodes", episodes)
    choose, watch = _chooser(policy, deterministic), GeneratorStates()
    for k in range(episodes):
        where = lambda: f"episode {k + 1}"  # noqa: B023, E731
        before = generator_state(env) if k else None
        observation, _ = unpack_reset(env.reset(seed=seed) if k == 0 else env.reset(), where)
        after = generator_state(env)
        if after is not None and watch.add(after) and before != after:
            raise RepeatedChanceError(
                "the environment reseeds its generator in reset(), not only in reset(seed=...): its episodes repeat "
                "the same chance and are no independent draws"
            )
        rewards: list[float] = []
        memory, over = None, False
        while not over:
            action, memory = choose(observation, memory, not rewards)
            observation, reward, terminated, truncated, _ = unpack_step(_stepped(env, action, where), where)
            rewards.append(checked_reward(reward, where))
            ended, cut = checked_flag(terminated, "terminated", where), checked_flag(truncated, "truncated", where)
            over = ended or cut
            if len(rewards) >= ENDLESS and not over:
                raise DataError(
                    f"episode {k + 1} has not ended after {ENDLESS:,} steps: set a length with "
                    "gymnasium.wrappers.TimeLimit"
                )
        yield rewards, cut and not ended


def _stepped(env: Any, action: Any, where: Callable[[], str]) -> Any:
    """The environment's answer to a policy's action; an action that it does not have is named in the error."""
    try:
        if action is not None:
            return env.step(action)
        error = None
    except Exception as raised:
        if env.action_space.contains(action):
            raise
        error = raised
    raise ModelError(f"{where()}: the policy chose {action!r}, which is not an action of {env.action_space}") from error


Chooser = Callable[[Any, Any, bool], tuple[Any, Any]]


def _chooser(policy: Any, deterministic: bool) -> Chooser:
    """(observation, memory, whether an episode starts) -> (action, memory)."""
    if isinstance(policy, type):
        raise ModelError(f"{policy.__name__} is a class: pass a policy, {policy.__name__}(...)")
    if hasattr(policy, "predict"):
        if not takes(policy.predict, 1, "state", "episode_start", "deterministic"):
            raise ModelError(
                f"predict of {type(policy).__name__} must take (observation, state, episode_start, deterministic), as "
                "in Stable-Baselines3: or pass a function from an observation to an action"
            )

        def predict(observation: Any, memory: Any, starts: bool) -> tuple[Any, Any]:
            found = policy.predict(
                observation, state=memory, episode_start=np.array([starts]), deterministic=deterministic
            )
            if not isinstance(found, tuple) or len(found) != 2:
                raise ModelError(f"predict must return (action, state), as in Stable-Baselines3, not {found!r}")
            action, memory = found
            return (
                action.item() if isinstance(action, np.generic | np.ndarray) and not action.ndim else action
            ), memory

        return predict
    if callable(policy):
        if not takes(policy, 1):
            raise ModelError("the policy must be a function of one argument, the observation")
        reset = getattr(policy, "reset", None)  # as `RPLAgent.as_policy` needs it

        def call(observation: Any, memory: Any, starts: bool) -> tuple[Any, Any]:
            if starts and callable(reset):
                reset()
            return policy(observation), None

        return call
    raise ModelError(
        f"{type(policy).__name__} is not a policy: it needs predict(observation), as in Stable-Baselines3, or to be a "
        "function from an observation to an action"
    )
