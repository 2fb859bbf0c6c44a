"""`AttachedAgent`: the settings of an agent (an error for a wrong one says what to write instead), the environment that
it is attached to, and its `Session`, which has everything learned so far.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.agent.discovery.session import OpenSession
from rpl_agent.agent.discovery.world import OpenWorld, enter_world, refuse_mixture
from rpl_agent.agent.exploration import Exploration, exploration_of
from rpl_agent.agent.exploration.within_limits import WithinLimits
from rpl_agent.agent.output.logger import Logger
from rpl_agent.agent.sampling.stream import Stream
from rpl_agent.agent.schedule import Doubling, Schedule
from rpl_agent.agent.session import Session
from rpl_agent.agent.storage.state import Settings
from rpl_agent.agent.world.actions import ActionToEnv
from rpl_agent.agent.world.attach import Attachment, attach
from rpl_agent.agent.world.noise import NoiseWords
from rpl_agent.agent.world.observations import Env, StateOf, make_registered, refuse_policy_network
from rpl_agent.agent.world.when_attached import require
from rpl_agent.core.errors import ModelError, as_path, check_seed, nearest, require_kind
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Limit, Objective, ParametricMDP
from rpl_agent.core.model.objectives.words import LIMIT_EXAMPLE
from rpl_agent.guarantee.pipeline import Config

MODES = ("robust", "optimistic")
#: Defaults of the settings that say how to sample.
WEIGHT, EXPLORATION = 0.9, "certificate"
#: Settings of other agents, and what takes their place here.
ELSEWHERE = {
    "gamma": 'the discount is part of the objective, "maximise discounted gain, gamma 0.9"',
    "learning_rate": "nothing is tuned here: counts need no learning rate",
    "epsilon": "weight=0.9 is the probability of the planned action while exploring",
    "total_timesteps": "pass it to learn(total_timesteps=...)",
    "budget": "pass it to learn(budget=...)",
    "device": "there is no network, and no GPU is used",
    "policy_kwargs": "there is no network: the policy is a table",
    "model": "pass the model as pmdp=...",
}
#: Arguments of `learn` of other agents, and what takes their place here.
OF_LEARN = {
    "episodes": "write budget=... for a number of episodes",
    "n_episodes": "write budget=... for a number of episodes",
    "steps": "write total_timesteps=... for a number of steps",
    "timesteps": "write total_timesteps=... for a number of steps",
    "eval_env": "pass callback=EvalCallback(env)",
    "delta": "it belongs to the agent, RPLAgent(env, delta=...)",
}


class AttachedAgent:
    """Settings, environment and session of an agent; `RPLAgent` says what the settings are."""

    def __init__(
        self,
        env: Env | str | None = None,
        *others: Any,
        confidence: str = "likelihood",
        relaxation: str = "coupled",
        delta: float = 1e-3,
        precision: float = 1e-6,
        config: Config | None = None,
        pmdp: ParametricMDP | None = None,
        objective: Objective | str | None = None,
        subject_to: Sequence[Limit | str] = (),
        explore_within_limits: bool = False,
        observation_to_state: StateOf | None = None,
        schedule: Schedule | None = None,
        weight: float = WEIGHT,
        exploration: str | Exploration = EXPLORATION,
        compiled: bool = True,
        check_rewards: bool | None = None,
        horizon: int | str | None = None,
        end: Any = None,
        action_to_env: ActionToEnv | None = None,
        returns: Any = None,
        rewards: Any = None,
        discount: float | None = None,
        deterministic: bool = False,
        successors: Any = None,
        noise: Any = None,
        key: Any = None,
        effect: Any = None,
        tensorboard_log: str | os.PathLike | None = None,
        seed: int | None = None,
        verbose: int = 0,
        **unknown: Any,
    ):
        refuse_policy_network(env, others)
        refuse_settings(unknown, type(self))
        self._words = NoiseWords.of(noise, key, effect, rewards, discount, end)
        if self._words is not None:  # the words define a model
            rewards = discount = end = None
        self._facts = {
            "returns": returns,
            "rewards": rewards,
            "discount": discount,
            "deterministic": deterministic or None,
            "successors": successors,
        }
        without_model = returns is not None or rewards is not None
        model_only = {"pmdp": pmdp, "objective": objective, "schedule": schedule, "end": end, "effect": self._words}
        model_only |= {"check_rewards": check_rewards, "action_to_env": action_to_env, "subject_to": subject_to or None}
        model_only["explore_within_limits"] = explore_within_limits or None
        check_settings(weight, config, schedule, seed)
        self.config = one_config(config, Config(confidence, relaxation, delta, precision))
        model_only |= changed_method(self.config, weight, exploration)
        refuse_mixture(without_model, self._facts, model_only)
        self.schedule = schedule if schedule is not None else Doubling()
        self.weight, self.exploration = weight, exploration_of(exploration)
        self.compiled, self.check_rewards = compiled, check_rewards
        self.horizon, self.end, self.verbose = horizon, end, verbose
        self.observation_to_state, self.action_to_env = observation_to_state, action_to_env
        self.tensorboard_log = None if tensorboard_log is None else as_path(tensorboard_log, "tensorboard_log")
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed)
        self.acting_rng = np.random.default_rng([self.seed, 1])  # separate: acting does not change what is learned
        kind = OpenSession if without_model else Session
        self.session: Any = kind(self.seed, self.config)  # the one thing that differs without a model
        self.run_folder: Path | None = None
        self.world: Attachment | OpenWorld | None = None
        self._mode = "robust"
        self.warned_of_steps = False
        self._logger: Logger = Logger()
        goal, limits = goal_with_limits(objective, subject_to)
        if isinstance(self.session, Session):
            self.session.subject_to = limits
            self.session.within = WithinLimits() if explore_within_limits else None
        self._given = (pmdp, goal)  # given by the user; otherwise the environment's own
        self._source: Stream | None = None
        if env is not None:
            self.set_env(env)

    # ------------------------------------------------------------------ what is attached
    def set_env(self, env: Env | str) -> None:
        """Attach an environment. What was learned is kept, so the model must be the same."""
        if self.world is not None and env is self.world.env:
            return
        if isinstance(env, str):
            made = make_registered(env)
            if made is None:
                raise ModelError(f"no environment is registered as {env!r} (a method is chosen by confidence=...)")
            env = made
        if isinstance(self.session, OpenSession):
            self._enter(env)
        else:
            self._attach(env)
        if self._source is not None:
            self.session.opening = self._source.opening
        self._source = self.session.source_state = None

    def _enter(self, env: Env) -> None:
        """Attach an environment without a model."""
        world = enter_world(env, self._facts, self.horizon, self.observation_to_state)
        self.session.start(world)
        self.world = world

    def _attach(self, env: Env) -> None:
        """Attach an environment with its model."""
        session, (pmdp, objective) = self.session, self._given
        if self._words is not None and pmdp is None:
            pmdp = self._words.model(env, self.observation_to_state)
            objective = self._words.objective(env, pmdp) if objective is None else objective
            self.end = self._words.meaning_of_end(pmdp)
        if objective is None and session.started:
            objective = session.objective
        world = attach(
            env,
            pmdp=pmdp,
            objective=objective,
            state_of=self.observation_to_state,
            compiled=self.compiled,
            check_rewards=self.check_rewards,
            horizon=self.horizon,
            action_to_env=self.action_to_env,
            learned=session.pmdp if session.started else None,
            end=self.end,
        )
        if not session.started:
            self.config = session.config = suited(self.config, world.method)
            session.start(world.pmdp, world.objective)
            session.subject_to += world.limits
            session.require_limits()
        elif session.pmdp.content_hash != world.pmdp.content_hash:
            raise ModelError(f"the environment's model {world.pmdp!r} is not the one learned so far, {session.pmdp!r}")
        self.world = world
        session.env_spec, session.time_limit = world.spec, world.limit

    def get_env(self) -> Any:
        return None if self.world is None else self.world.env

    @property
    def env(self) -> Any:
        return self.get_env()

    @property
    def pmdp(self) -> ParametricMDP:
        return self.session.pmdp

    @property
    def objective(self) -> Objective:
        return self.session.objective

    @property
    def counts(self) -> Counts:
        """Everything observed so far."""
        return self.session.experience.counts

    @property
    def certificate(self) -> Any:
        """The latest `Certificate`, without a model `OpenCertificate`; None before the first."""
        return self.session.certificate

    @property
    def num_episodes(self) -> int:
        return self.session.episodes

    @property
    def num_timesteps(self) -> int:
        return self.session.steps

    @property
    def num_updates(self) -> int:
        return self.session.updates

    @property
    def interrupted(self) -> bool:
        return self.session.interrupted

    @property
    def logger(self) -> Logger:
        return self._logger

    @property
    def observation_space(self) -> Any:
        return self.get_env().observation_space

    @property
    def action_space(self) -> Any:
        return self.get_env().action_space

    # ------------------------------------------------------------------ certificates
    def certify(self) -> Any:
        """The robust policy and its certificate for the data so far."""
        return self.session.update_certificate()

    # ------------------------------------------------------------------ acting
    @property
    def mode(self) -> str:
        """Which policy `predict` uses: ``"robust"`` (certified) or ``"optimistic"`` (exploring)."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ModelError(f"mode {mode!r} is not one of {MODES}")
        self._mode = mode

    @property
    def policy(self) -> Any:
        """The policy of the current mode."""
        if isinstance(self.session, OpenSession):
            return self.session.policy
        if self.mode == "optimistic":
            if self.session.planner.optimistic is None:
                self.session.planner.plan(self.counts)
            return require(self.session.planner.optimistic).policy
        return (self.certificate or self.certify()).policy

    @property
    def settings(self) -> Settings:
        """The agent's own part of a checkpoint."""
        end = None if self.end is None else self.pmdp.state_index(self.end)
        return Settings(self.weight, self.compiled, self.check_rewards, self.mode, self.exploration.name, end)


def refuse_settings(unknown: dict[str, Any], agent: type) -> None:
    """Raise for a setting that the agent does not have, with the one that was meant."""
    _refuse(unknown, agent, f"{agent.__name__} has no setting", ELSEWHERE)


def refuse_arguments(unknown: dict[str, Any], learn: Callable[..., Any]) -> None:
    """Raise for an argument that ``learn`` does not have, with the one that was meant."""
    _refuse(unknown, learn, "learn has no argument", OF_LEARN)


def _refuse(unknown: dict[str, Any], function: Callable[..., Any], words: str, elsewhere: dict[str, str]) -> None:
    if not unknown:
        return
    name = next(iter(unknown))
    known = [p for p in inspect.signature(function).parameters if p not in ("others", "unknown", "self")]
    raise ModelError(f"{words} {name!r}: {elsewhere.get(name) or nearest(name, known)}")


def goal_with_limits(objective: Any, subject_to: Any) -> tuple[Objective | None, tuple[Limit, ...]]:
    """(the objective without its limits, all limits)."""
    goal = Objective.parse(objective) if isinstance(objective, str) else objective
    if goal is not None:
        require_kind("objective", goal, Objective, str)
    if isinstance(subject_to, str | Limit) or not isinstance(subject_to, Iterable):
        raise ModelError(f"subject_to={subject_to!r} must be a list of limits: write [{LIMIT_EXAMPLE!r}]")
    limits = tuple(Limit.parse(given) if isinstance(given, str) else given for given in subject_to)
    for limit in limits:
        require_kind("a limit of subject_to", limit, Limit, str)
    return (None, limits) if goal is None else (goal.free, goal.limits + limits)


def check_settings(weight: Any, config: Any, schedule: Any, seed: Any) -> None:
    """Raise unless these are what `RPLAgent` takes."""
    if not isinstance(weight, float | int) or not 0.0 <= weight <= 1.0:
        raise ModelError(f"weight {weight!r} is not a number from 0 to 1")
    if config is not None and not isinstance(config, Config):
        raise ModelError(f"config={config!r} is not a Config: write config=Config(delta=0.05), or delta=0.05 alone")
    if schedule is not None and (isinstance(schedule, type) or not hasattr(schedule, "limits")):
        raise ModelError(f"schedule={schedule!r} is not a schedule: write for example EveryN(100) or Doubling()")
    check_seed(seed)


def one_config(config: Config | None, fields: Config) -> Config:
    """The configuration, given as a whole or by its fields; both at once contradict each other."""
    if config is None:
        return fields
    given = changed(fields)
    if given:
        name, value = next(iter(given.items()))
        raise ModelError(f"{name} would not be used beside config=...: write config=Config({name}={value!r}, ...)")
    return config


def changed(config: Config) -> dict[str, Any]:
    """The fields that are not the defaults, by name."""
    return {name: value for name, value in vars(config).items() if value != getattr(Config, name)}


def changed_method(config: Config, weight: float, exploration: str | Exploration) -> dict[str, Any]:
    """Settings that are not the defaults and need a model, by name; δ needs none."""
    found = changed(replace(config, delta=Config.delta))
    found |= {} if weight == WEIGHT else {"weight": weight}
    found |= {} if exploration == EXPLORATION else {"exploration": exploration}
    return found


def suited(config: Config, suits: tuple[str, str] | None) -> Config:
    """The method that suits an environment, in place of the defaults; the user's choice takes precedence."""
    default = Config(delta=config.delta, precision=config.precision)
    return config if suits is None or config != default else replace(config, confidence=suits[0], relaxation=suits[1])
