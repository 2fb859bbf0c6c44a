"""Callbacks that observe a run. Stable-Baselines3's own callbacks work too.

Events: training start and end, every batch of episodes (``_on_step``), every update of the sampling policy, every
certificate. Returning False from ``_on_step`` or ``_on_certificate`` ends the run, which then certifies what it has.
``num_timesteps`` counts environment steps; with the compiled simulator one call covers many of them.

SB3 calls a callback after every step of the environment. With one of SB3's callbacks (`SB3Callback`), episodes are
therefore collected one at a time, and it is then called once per step, with ``num_timesteps``, ``n_calls`` and
``dones`` as they were at that step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partialmethod
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from rpl_agent.agent.evaluation import monte_carlo, optimal_value
from rpl_agent.agent.sampling.interrupt import interruptible
from rpl_agent.agent.schedule import RegretGoal
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.agent.storage.pace import Pace
from rpl_agent.agent.world.observations import Env, require_environment
from rpl_agent.core.errors import ModelError, RPLWarning, as_path, check_seed, require_count, takes
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.shown import true_value

if TYPE_CHECKING:
    from stable_baselines3.common import callbacks as sb3

#: A callback of ours or of Stable-Baselines3, ``function(locals, globals)``, or several of these.
Callback: TypeAlias = "BaseCallback | sb3.BaseCallback | Callable[[dict, dict], Any] | Sequence[Callback] | None"


class Observed(Protocol):
    """What callbacks may ask of the agent that they observe, an `RPLAgent`."""

    session: Any

    @property
    def num_episodes(self) -> int: ...

    @property
    def num_timesteps(self) -> int: ...

    @property
    def logger(self) -> Any: ...

    @property
    def run_folder(self) -> Path | None: ...

    @property
    def certificate(self) -> Any: ...

    @property
    def pmdp(self) -> ParametricMDP: ...

    @property
    def objective(self) -> Objective: ...

    def get_env(self) -> Any: ...

    def certify(self) -> Any: ...

    def save(self, path: Any) -> None: ...


class BaseCallback:
    """Override the methods with an underscore; ``self.agent`` (also ``self.model``) is the agent.

    >>> class Tell(BaseCallback):
    ...     def _on_certificate(self, certificate):
    ...         print(self.agent.num_episodes, "episodes")
    ...         return True
    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=20, log_interval=10, callback=Tell())
    10 episodes
    20 episodes
    """

    agent: Observed
    #: call it after at most this many episodes; None leaves that to the agent
    every_episodes: int | None = None

    def __init__(self, verbose: int = 0):
        self.verbose = verbose
        self.n_calls = 0
        self.num_timesteps = 0
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    @property
    def model(self) -> Observed:
        return self.agent

    @property
    def logger(self) -> Any:
        return self.agent.logger

    @property
    def training_env(self) -> Any:
        return self.agent.get_env()

    # ------------------------------------------------------------------ called by the agent
    def init_callback(self, agent: Observed) -> None:
        self.agent = agent
        self._init_callback()

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals, self.globals = locals_, globals_
        self.num_timesteps = self.agent.num_timesteps
        self._on_training_start()

    def on_rollout_start(self) -> None:
        self._on_rollout_start()

    def on_step(self) -> bool:
        self.n_calls += 1
        self.num_timesteps = self.agent.num_timesteps
        return self._on_step()

    def on_rollout_end(self) -> None:
        self._on_rollout_end()

    def on_update(self) -> None:
        self._on_update()

    def on_certificate(self, certificate: Certificate) -> bool:
        self.num_timesteps = self.agent.num_timesteps
        return self._on_certificate(certificate)

    def on_training_end(self) -> None:
        self._on_training_end()

    # ------------------------------------------------------------------ for own callbacks
    def _init_callback(self) -> None:
        pass

    def _on_training_start(self) -> None:
        pass

    def _on_rollout_start(self) -> None:
        pass

    def _on_step(self) -> bool:
        """After every batch of episodes; False ends the run."""
        return True

    def _on_rollout_end(self) -> None:
        pass

    def _on_update(self) -> None:
        """After the sampling policy changed."""

    def _on_certificate(self, certificate: Certificate) -> bool:
        """At every log point; False ends the run."""
        return True

    def _on_training_end(self) -> None:
        pass


class CallbackList(BaseCallback):
    """Several callbacks, in order; all are called even if one wants to stop.

    >>> len(CallbackList([CertificateLog(), StopOnGap(0.1)]).callbacks)
    2
    """

    def __init__(self, callbacks: Iterable[Any]):
        super().__init__()
        if not isinstance(callbacks, Iterable) or isinstance(callbacks, str):
            raise ModelError(
                f"CallbackList({callbacks!r}): pass a list of callbacks, [CertificateLog(), StopOnGap(0.1)]"
            )
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            refuse_class(callback)

    @property
    def every_episodes(self) -> int | None:  # type: ignore[override]
        """The most episodes between two calls that every callback allows."""
        wanted = [getattr(callback, "every_episodes", None) for callback in self.callbacks]
        return min((n for n in wanted if n is not None), default=None)

    def _init_callback(self) -> None:
        for callback in self.callbacks:
            callback.init_callback(self.agent)

    @interruptible
    def _each(self, event: str, *arguments: Any) -> bool:
        """Whether all callbacks that handle the event agree (SB3's have no updates and certificates)."""
        known = [callback for callback in self.callbacks if hasattr(callback, event)]
        return all([getattr(callback, event)(*arguments) for callback in known])

    on_training_start: Any = partialmethod(_each, "on_training_start")
    on_rollout_start: Any = partialmethod(_each, "on_rollout_start")
    on_step: Any = partialmethod(_each, "on_step")
    on_rollout_end: Any = partialmethod(_each, "on_rollout_end")
    on_update: Any = partialmethod(_each, "on_update")
    on_certificate: Any = partialmethod(_each, "on_certificate")
    on_training_end: Any = partialmethod(_each, "on_training_end")


class FunctionCallback(BaseCallback):
    """Call ``function(locals, globals)``, as SB3 does; False ends the run."""

    def __init__(self, function: Callable[[dict, dict], bool | None]):
        super().__init__()
        if not takes(function, 2):
            raise ModelError("a callback must be a function of two arguments, (locals, globals), as in SB3")
        self._function = function

    def _on_step(self) -> bool:
        self.locals["self"] = self.agent
        return self._function(self.locals, self.globals) is not False


class CheckpointCallback(BaseCallback):
    """Saves to one file, atomically, keeping the previous one.

    Parameters
    ----------
    save_freq : episodes between two saves, or None.
    save_path : the file; default ``checkpoint.zip`` in the run folder.
    seconds : seconds between two saves, more if they take long, or None. Saving draws no random numbers, so its timing
        changes nothing.

    >>> CheckpointCallback(save_freq=1000, save_path="logs/agent.zip").path.name
    'agent.zip'
    """

    def __init__(
        self, save_freq: int | None = None, save_path: str | Path | None = None, *, seconds: float | None = 20.0
    ):
        super().__init__()
        if save_freq is not None:
            require_count("save_freq", save_freq, "episodes")
        self.path = None if save_path is None else as_path(save_path, "save_path")
        self.every, self.seconds = save_freq, seconds
        self._saved_at = 0
        self._pace = Pace(0.0 if seconds is None else seconds)

    def _on_training_start(self) -> None:
        if self.path is None:
            if self.agent.run_folder is None:
                raise ModelError("CheckpointCallback needs a save_path, or an agent with tensorboard_log")
            self.path = self.agent.run_folder / "checkpoint.zip"
        self.save()  # so that a run can be resumed from its very start

    def _on_step(self) -> bool:
        due = self.every is not None and self.agent.num_episodes // self.every > self._saved_at // self.every
        if due or (self.seconds is not None and self._pace.is_due()):
            self.save()
        return True

    def save(self) -> None:
        """Save now; on a disk error warn and retry at the next save point."""
        assert self.path is not None
        try:
            with self._pace.measured():
                self.agent.save(self.path)
        except CheckpointError as error:
            warnings.warn(f"{error}; learning continues, and saving will be retried", RPLWarning, stacklevel=2)
        self._saved_at = self.agent.num_episodes


class CertificateLog(BaseCallback):
    """Keeps every certificate as (episodes, steps, lower, upper, estimate), e.g. for learning curves.

    >>> log = CertificateLog()
    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=20, log_interval=10, callback=log)
    >>> [point["episodes"] for point in log.history]
    [10, 20]
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[dict[str, float]] = []

    def _on_certificate(self, certificate: Certificate) -> bool:
        self.history.append(
            {
                "episodes": self.agent.num_episodes,
                "steps": self.agent.num_timesteps,
                "lower": certificate.lower,
                "upper": certificate.upper,
                "regret": certificate.regret,
                "estimate": certificate.estimate,
            }
        )
        return True


class StopOnGap(BaseCallback):
    """Ends the run once upper − lower ≤ gap; allowed only if the guarantee holds at data-dependent times.

    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=1000, log_interval=50, callback=StopOnGap(12.0))
    >>> agent.num_episodes < 1000, agent.certificate.gap <= 12.0
    (True, True)
    """

    def __init__(self, gap: float):
        super().__init__()
        if isinstance(gap, bool) or not isinstance(gap, Real) or not gap > 0:
            raise ModelError(f"the gap to stop at must be a positive number, not {gap!r}")
        self.gap: float = float(gap)

    def _on_training_start(self) -> None:
        self.agent.session.require_anytime("stopping when the gap is small")

    def _on_certificate(self, certificate: Certificate) -> bool:
        return not certificate.gap <= self.gap


class StopOnRegret(BaseCallback):
    """Ends the run once no policy is better by more than ``regret``: a number, or a share of the value such as "1%".

    Allowed only if the guarantee holds at data-dependent times.

    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=1000, log_interval=50, callback=StopOnRegret("5%"))
    >>> agent.num_episodes < 1000, agent.certificate.regret <= 0.05 * agent.certificate.lower
    (True, True)
    """

    def __init__(self, regret: float | str):
        super().__init__()
        self.goal = RegretGoal.parse(regret)

    def _on_training_start(self) -> None:
        self.agent.session.require_anytime("stopping when the regret is small")

    def _on_certificate(self, certificate: Certificate) -> bool:
        return not certificate.regret <= self.goal.most(certificate.lower, certificate.upper)


class EvalCallback(BaseCallback):
    """Evaluates the current robust policy in a separate environment; logs ``eval/*``.

    Parameters
    ----------
    eval_env : the environment, not the one used for learning.
    n_eval_episodes : episodes per evaluation.
    eval_freq : evaluate at every n-th certificate.

    >>> import gymnasium
    >>> evaluation = EvalCallback(gymnasium.make("rpl/Betting-25-v0"), n_eval_episodes=10)
    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=20, log_interval=20, callback=evaluation)
    >>> len(evaluation.history)
    1
    """

    def __init__(self, eval_env: Env, n_eval_episodes: int = 100, eval_freq: int = 1, seed: int = 0):
        super().__init__()
        require_environment(eval_env)
        require_count("n_eval_episodes", n_eval_episodes, "episodes")
        require_count("eval_freq", eval_freq, "certificates")
        check_seed(seed)
        self.env, self.episodes, self.every, self.seed = eval_env, n_eval_episodes, eval_freq, seed
        self.history: list[tuple[int, float]] = []
        self._certificates = 0

    def _on_certificate(self, certificate: Certificate) -> bool:
        self._certificates += 1
        if (self._certificates - 1) % self.every == 0:
            result = monte_carlo(self.agent, self.env, self.episodes, seed=self.seed, policy=certificate.policy)
            self.history.append((self.agent.num_episodes, result.mean))
            self.logger.record("eval/mean_reward", result.mean)
            self.logger.record("eval/mean_ep_length", float(np.mean(result.lengths)))
        return True


class OracleCallback(BaseCallback):
    """``oracle/*``: the exact value of the current robust policy at the true parameters.

    For simulators only. The truth is given to this callback, never to the agent.

    >>> import tempfile
    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0, tensorboard_log=tempfile.mkdtemp())
    >>> agent = agent.learn(budget=20, callback=OracleCallback(theta=[0.6]))
    >>> "oracle/value" in (agent.run_folder / "progress.csv").read_text()
    True
    """

    def __init__(self, theta: np.ndarray):
        super().__init__()
        try:
            self._theta = np.asarray(theta, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(f"theta={theta!r} must be the numbers of the true parameters, for example [0.6]") from None
        self._best: float | None = None

    def _on_certificate(self, certificate: Certificate) -> bool:
        pmdp, objective = self.agent.pmdp, self.agent.objective
        self.logger.record("oracle/value", true_value(pmdp, objective, certificate.policy, self._theta))
        if self._best is None:
            self._best = optimal_value(pmdp, objective, self._theta)
        self.logger.record("oracle/optimum", self._best)
        return True


class Facade:
    """Wraps an object: has some attributes of its own, and takes all others from the object."""

    def __init__(self, other: Any, **own: Any):
        self._other = other
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


class SB3Callback(Facade):
    """Adapter around one of SB3's callbacks, which gets the agent as the model that it expects."""

    every_episodes = 1

    def init_callback(self, agent: Observed) -> None:
        def record(key: str, value: Any, exclude: Any = None) -> None:
            if isinstance(value, (int, float, np.number)):
                agent.logger.record(key, value)

        env = agent.get_env()
        copies = env if hasattr(env, "num_envs") else Facade(env, num_envs=1)
        # SB3's callbacks record and dump at once; here records wait for the next log point, over episodes
        logger = Facade(agent.logger, record=record, dump=lambda step=0: None)
        self.agent = agent
        self._model: Any = Facade(
            agent,
            num_timesteps=agent.num_timesteps,
            logger=logger,
            get_env=lambda: copies,
            get_vec_normalize_env=lambda: None,  # observations are states, and nothing is normalised
        )
        self._other.init_callback(self._model)

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        target = self.agent.session.target
        steps = target.goal if target is not None and target.unit == "steps" else None
        if steps is None and "ProgressBarCallback" in {base.__name__ for base in type(self._other).__mro__}:
            raise ModelError(
                "SB3's ProgressBarCallback counts steps: call learn(total_timesteps=...), or use progress_bar=True"
            )
        self._episodes, self._steps = self.agent.num_episodes, self.agent.num_timesteps
        self._other.on_training_start({"self": self.agent, "total_timesteps": steps}, {})

    def on_step(self) -> bool:
        """Call SB3's callback once per step since the last call; ``dones`` is true where an episode ended."""
        agent, callback = self.agent, self._other
        finished = list(agent.session.lengths)[len(agent.session.lengths) - (agent.num_episodes - self._episodes) :]
        ends = np.cumsum(finished)
        go_on = True
        for k in range(1, agent.num_timesteps - self._steps + 1):
            callback.locals |= {"dones": np.array([k in ends]), "infos": [{}]}
            self._model.num_timesteps = self._steps + k
            go_on = callback.on_step() is not False and go_on
        self._episodes, self._steps = agent.num_episodes, agent.num_timesteps
        return go_on


def refuse_class(callback: Any) -> None:
    """Raise if this is the class of a callback."""
    if isinstance(callback, type):
        raise ModelError(f"{callback.__name__} is a class: pass a callback, {callback.__name__}(...)")


def as_callback(callback: Callback) -> Any:
    """Turn None, a callback, a list or a function into one callback."""
    if callback is None:
        return CallbackList([])
    refuse_class(callback)
    if isinstance(callback, (list, tuple)):
        return CallbackList([as_callback(item) for item in callback])
    if hasattr(callback, "on_step"):
        if isinstance(callback, BaseCallback):
            return callback
        is_sb3 = any(base.__module__.split(".")[0] == "stable_baselines3" for base in type(callback).__mro__)
        return SB3Callback(callback) if is_sb3 else callback  # anything with on_step will do
    if callable(callback):
        return FunctionCallback(callback)
    raise ModelError(f"{callback!r} is neither a callback, a list of callbacks nor a function")


def has_callback(callbacks: Any, kind: type) -> bool:
    """Whether one of the callbacks is of this kind."""
    if isinstance(callbacks, CallbackList):
        return any(has_callback(callback, kind) for callback in callbacks.callbacks)
    return isinstance(callbacks, kind)
