"""`RPLAgent`: sample with optimism, update by a schedule, end with a certified policy.

    world ─► source ─► Experience ─► Planner.plan ─► sampling policy ─► source …        (the loop)
                           └───────► Planner.certify ─► Certificate, robust policy      (log points, the end)

The surface is Stable-Baselines3's where that makes sense: learn, predict, save, load, set_env, logger, callbacks.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.agent import acting, checkpoint, reporting
from rpl_agent.agent.attach import World, attach, make_env
from rpl_agent.agent.callbacks import CallbackList, CheckpointCallback, StopOnGap, as_callback
from rpl_agent.agent.console import View, make_view
from rpl_agent.agent.interrupt import Interrupt
from rpl_agent.agent.logger import Logger, write_certificate
from rpl_agent.agent.planner import Planner
from rpl_agent.agent.sampling import Collected, Experience, Order, Source, StateOf
from rpl_agent.agent.schedule import NEVER, Doubling, Limits, Never, Progress, Schedule
from rpl_agent.agent.state import capture, restore, settings_from_state
from rpl_agent.agent.target import Target, next_log
from rpl_agent.certificate import Certificate
from rpl_agent.certify import Config
from rpl_agent.errors import ModelError
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy

#: Returns and lengths of the last episodes that the rollout/* means are over (SB3's window).
WINDOW = 100
MODES = ("robust", "optimistic")


class RPLAgent:
    """Learns a certified policy for an environment whose structure is known and whose parameters are not.

    Parameters
    ----------
    confidence, relaxation, delta, precision : how to certify, see `Config`; or pass ``config``.
    pmdp, objective : the model and what is wanted, where the environment does not carry them.
    observation_to_state : maps an observation to a state index, where observations are not indices.
    schedule : when to update; default `Doubling(of="state-action")`, the paper's.
    weight : probability of the optimistic action while sampling; the rest is spread over the other enabled ones.
    compiled : use the compiled simulator of our own environments (same law, far faster).
    check_rewards : compare rewards with the model's; default: where the environment names model and objective itself.
    tensorboard_log : folder for runs; each `learn` writes to a numbered folder in it.
    seed : of everything random; None draws one and keeps it.
    """

    def __init__(
        self,
        confidence: str = "likelihood",
        relaxation: str = "rectangular",
        delta: float = 1e-3,
        *,
        precision: float = 1e-6,
        config: Config | None = None,
        pmdp: ParametricMDP | None = None,
        objective: Objective | None = None,
        observation_to_state: StateOf | None = None,
        schedule: Schedule | None = None,
        weight: float = 0.9,
        compiled: bool = True,
        check_rewards: bool | None = None,
        tensorboard_log: str | os.PathLike | None = None,
        seed: int | None = None,
        verbose: int = 0,
    ):
        if not 0.0 <= weight <= 1.0:
            raise ModelError(f"weight {weight} is outside [0, 1]")
        self.config = config or Config(confidence, relaxation, delta, precision)
        self.schedule = schedule if schedule is not None else Doubling()
        self.weight = weight
        self.compiled = compiled
        self.check_rewards = check_rewards
        self.observation_to_state = observation_to_state
        self.tensorboard_log = None if tensorboard_log is None else Path(tensorboard_log)
        self.verbose = verbose
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed)
        self.rng = np.random.default_rng(self.seed)
        self.acting_rng = np.random.default_rng([self.seed, 1])  # apart: acting does not change what is learned
        self.num_episodes = 0
        self.num_timesteps = 0
        self.num_updates = 0
        self.interrupted = False
        self.run_folder: Path | None = None
        self.certificate: Certificate | None = None
        self.target: Target | None = None
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.elapsed = 0.0  # seconds spent in learn, over all calls and resumptions
        self.session = (0.0, 0, 0.0)  # seconds and steps when the current call began, and its clock
        self._mode = "robust"
        self._logger: Logger = Logger()
        self._given = (pmdp, objective)  # by the user; else the environment's own
        self._pmdp: ParametricMDP | None = None
        self._objective: Objective | None = None
        self.world: World | None = None
        self._experience: Experience | None = None
        self._planner: Planner | None = None
        self._source: Source | None = None
        self._source_state: dict[str, Any] | None = None  # of a checkpoint, until the source is made
        self._env_spec: dict[str, Any] | None = None
        self._sampling: Policy | None = None  # the policy episodes are drawn with
        self._limits: Limits | None = None
        self._unknown_rows: np.ndarray | None = None

    # ------------------------------------------------------------------ what is attached
    def set_env(self, env: Any) -> None:
        """Attach an environment. What was learned stays, so it must have the model that was learned."""
        if self.world is not None and env is self.world.env:
            return
        pmdp, objective = self._given
        world = attach(
            env, pmdp=pmdp, objective=objective or self._objective, state_of=self.observation_to_state,
            compiled=self.compiled, check_rewards=self.check_rewards,
        )  # fmt: skip
        if self._pmdp is not None and self._pmdp.content_hash != world.pmdp.content_hash:
            raise ModelError(f"the environment's model {world.pmdp!r} is not the one learned so far, {self._pmdp!r}")
        if self._experience is None:
            self._start(world.pmdp, world.objective)
        self.world = world
        self._source = self._source_state = None

    def _start(self, pmdp: ParametricMDP, objective: Objective) -> None:
        self._pmdp, self._objective = pmdp, objective
        self._experience = Experience(pmdp)
        self._planner = Planner(pmdp, objective, self.config)
        unknown = ~pmdp.table.is_constant[pmdp.expression]
        self._unknown_rows = np.maximum.reduceat(unknown, pmdp.row_ptr[:-1])

    def get_env(self) -> Any:
        return None if self.world is None else self.world.env

    @property
    def env(self) -> Any:
        return self.get_env()

    @property
    def pmdp(self) -> ParametricMDP:
        return self._require(self._pmdp)

    @property
    def objective(self) -> Objective:
        return self._require(self._objective)

    @property
    def experience(self) -> Experience:
        return self._require(self._experience)

    @property
    def planner(self) -> Planner:
        return self._require(self._planner)

    @property
    def logger(self) -> Logger:
        return self._logger

    @property
    def observation_space(self) -> Any:
        return self.get_env().observation_space

    @property
    def action_space(self) -> Any:
        return self.get_env().action_space

    @staticmethod
    def _require(thing: Any) -> Any:
        if thing is None:
            raise ModelError("the agent has no environment yet: call learn(env, budget) or set_env(env)")
        return thing

    def require_anytime(self, why: str) -> None:
        """Raise unless the guarantee holds at data-dependent times."""
        if not self.config.is_anytime:
            raise ModelError(
                f"{why} is not allowed with {self.config.confidence!r}: its guarantee holds only for a number of "
                "samples fixed in advance; choose confidence='likelihood' or 'anytime'"
            )

    # ------------------------------------------------------------------ learning
    def learn(
        self,
        env: Any = None,
        budget: int | None = None,
        *,
        unit: str = "episodes",
        stop_when_gap: float | None = None,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str = "RPL",
        reset_num_timesteps: bool = False,
        progress_bar: bool = False,
        folder: str | os.PathLike | None = None,
    ) -> RPLAgent:
        """Learn from exactly ``budget`` further episodes (or steps), then certify the robust policy.

        Parameters
        ----------
        unit : ``"episodes"`` or ``"steps"``; a cap in steps may cut the last episode.
        stop_when_gap : end early once upper − lower is this small (refused where that would break the guarantee).
        log_interval : episodes between two certificates while learning; default: points that grow by a quarter each.
        reset_num_timesteps : start the counters and a new log folder; what was learned is kept in any case.
        folder : the run folder itself, in place of a numbered one in ``tensorboard_log``.
        """
        if env is not None:
            self.set_env(env)
        self._require(self.world)
        if reset_num_timesteps:
            self._reset_counters()
        counter = self.num_episodes if unit == "episodes" else self.num_timesteps
        self.target = Target.after(counter, budget, unit, stop_when_gap, log_interval)
        return self._run(callback, progress_bar, tb_log_name, folder)

    def resume(self, callback: Any = None, *, progress_bar: bool = False, budget: int | None = None) -> RPLAgent:
        """Go on with what a loaded agent was doing; ``budget`` is a new total."""
        self._require(self.world)
        if self.target is None:
            raise ModelError("this agent was saved outside learn(): nothing to resume, call learn(budget=...)")
        if budget is not None:
            self.target = self.target.with_goal(budget)
        return self._run(callback, progress_bar, "RPL", None)

    def _run(self, callback: Any, progress_bar: bool, name: str, folder: Any) -> RPLAgent:
        assert self.target is not None
        if self.target.stop_when_gap is not None:
            self.require_anytime("stop_when_gap")
        self._logger = reporting.open_logs(self, name, folder)
        callbacks = CallbackList([as_callback(callback)])
        if self.target.stop_when_gap is not None:
            callbacks.callbacks.append(StopOnGap(self.target.stop_when_gap))
        if self.run_folder is not None and not _has(callbacks, CheckpointCallback):
            callbacks.callbacks.append(CheckpointCallback())
        view = make_view(progress_bar, self.verbose)
        self.session = (self.elapsed, self.num_timesteps, time.perf_counter())
        self.interrupted = False
        callbacks.init_callback(self)
        view.start()
        try:
            with Interrupt(view.message) as interrupt:
                callbacks.on_training_start(locals(), globals())
                self._loop(callbacks, view, interrupt)
                self.mode = "robust"
                callbacks.on_training_end()
        except Exception:
            self._keep()  # what was learned is saved before the error is shown
            raise
        finally:
            self.elapsed = self.session[0] + time.perf_counter() - self.session[2]
            view.stop()
        self._keep()
        return self

    def _loop(self, callbacks: CallbackList, view: View, interrupt: Interrupt) -> None:
        target = self.target
        assert target is not None
        if self._source is None:
            self._source = self._require(self.world).source(self.experience, self.rng, self._fresh_seed())
            if self._source_state is not None:
                self._source.set_state(self._source_state)
                self._source_state = None
        if self._limits is None:
            self._update(callbacks)
        certified_at = -1
        go_on = True
        while go_on and not target.is_done(self.num_episodes, self.num_timesteps) and not self.interrupted:
            assert self._limits is not None
            callbacks.on_rollout_start()
            log_at = next_log(self.num_episodes, target.log_interval)
            self._collect(self._order(self._limits, target, interrupt))
            if self._limits.reached(self.experience.rows, self.experience.expressions, self.num_episodes):
                if not target.is_done(self.num_episodes, self.num_timesteps):
                    self._update(callbacks)
            go_on = callbacks.on_step()
            callbacks.on_rollout_end()
            if self.num_episodes >= log_at:
                certified_at = self.num_timesteps
                go_on = self._certify(callbacks, view) and go_on
            view.show(reporting.status(self))
        if certified_at != self.num_timesteps or self.certificate is None:
            self._certify(callbacks, view)

    def _fresh_seed(self) -> int:
        """Of a new source: never the agent's own stream, and never one that data were drawn with before.

        Actions and outcomes drawn with equal random numbers, or the same numbers drawn twice, are not the independent
        samples that the guarantee is about.
        """
        return int(np.random.SeedSequence([self.seed, 2, self.experience.counts.total]).generate_state(1, np.uint64)[0])

    def _order(self, limits: Limits, target: Target, interrupt: Interrupt) -> Order:
        """What to collect next: until the next update, certificate or the end."""
        episodes = self.num_episodes
        waiting = episodes < limits.not_before
        pause = min(
            next_log(episodes, target.log_interval) - episodes,
            limits.not_before - episodes if waiting else NEVER,
            NEVER if limits.episodes is None else max(1, limits.episodes - episodes),
        )
        assert self._sampling is not None
        return Order(
            self._sampling, Limits() if waiting else limits, pause, *target.left(episodes, self.num_timesteps),
            lambda: interrupt.requested,
        )  # fmt: skip

    def _collect(self, order: Order) -> None:
        assert self._source is not None
        start, done = time.perf_counter(), Collected()
        try:
            self._source.collect(order, done)
        finally:  # also after an error: every step in `done` was observed and counted
            self.num_episodes += done.episodes
            self.num_timesteps += done.steps
            self.returns.extend(done.returns[-WINDOW:])
            self.lengths.extend(done.lengths[-WINDOW:])
            self.interrupted = self.interrupted or done.interrupted
            self.planner.seconds["sampling"] += time.perf_counter() - start

    def _update(self, callbacks: CallbackList) -> None:
        """New sampling policy from all data, new limits from the schedule."""
        if isinstance(self.schedule, Never):
            self._sampling = Policy.uniform(self.pmdp)
        else:
            optimistic = self.planner.plan(self.experience.counts)
            if optimistic is not None:
                self._sampling = optimistic.at(0).mixed(self.pmdp, self.weight)
        self.num_updates += 1
        self._limits = self.schedule.limits(self._progress())
        callbacks.on_update()

    def _progress(self) -> Progress:
        data = self.experience
        assert self._unknown_rows is not None
        return Progress(
            self.num_episodes, self.num_timesteps, self.num_updates, data.rows.copy(), data.expressions.copy(),
            self._unknown_rows, ~self.pmdp.table.is_constant,
        )  # fmt: skip

    # ------------------------------------------------------------------ certificates
    def certify(self) -> Certificate:
        """The robust policy and its certificate for the data so far."""
        self.certificate = self.planner.certify(self.experience.counts)
        return self.certificate

    def _certify(self, callbacks: CallbackList, view: View) -> bool:
        certificate = self.certify()
        reporting.record(self, certificate)
        go_on = callbacks.on_certificate(certificate)
        self._logger.dump(self.num_episodes)
        if self.run_folder is not None:
            write_certificate(self.run_folder, certificate)
        view.certified(reporting.status(self))
        return go_on

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
    def policy(self) -> Policy:
        """The policy of the current mode."""
        if self.mode == "optimistic":
            if self.planner.optimistic is None:
                self.planner.plan(self.experience.counts)
            return self._require(self.planner.optimistic).policy
        return (self.certificate or self.certify()).policy

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Action(s) for one observation or a batch of them, as in SB3.

        ``state`` counts the steps of each episode; it matters for finite horizons only. In optimistic mode
        ``deterministic=False`` draws from the sampling policy.
        """
        return acting.predict(self, observation, state, episode_start, deterministic)

    # ------------------------------------------------------------------ files
    def save(self, path: str | os.PathLike) -> None:
        """Everything needed to go on exactly: a zip of JSON and npz, written atomically."""
        checkpoint.write(path, *capture(self))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        env: Any = None,
        *,
        pmdp: ParametricMDP | None = None,
        observation_to_state: StateOf | None = None,
        schedule: Schedule | None = None,
        tensorboard_log: str | os.PathLike | None = None,
        verbose: int = 0,
    ) -> RPLAgent:
        """A saved agent. Without ``env`` and ``pmdp`` a registered environment is made again by its id.

        A damaged file is an error, unless the one before it is still there: then that is used, with a warning.
        """
        state, arrays = checkpoint.read_latest(path)
        settings = settings_from_state(state, schedule)
        agent = cls(
            **settings, pmdp=pmdp, observation_to_state=observation_to_state, tensorboard_log=tensorboard_log,
            verbose=verbose,
        )  # fmt: skip
        if env is None and pmdp is None:
            env = make_env(state.get("env"))
        if env is not None:
            agent.set_env(env)
        else:
            agent._start(pmdp, settings["objective"])  # type: ignore[arg-type]
        restore(agent, state, arrays)
        return agent

    def _reset_counters(self) -> None:
        self.num_episodes = self.num_timesteps = self.num_updates = 0
        self.elapsed = 0.0
        self.run_folder, self._limits = None, None
        self._logger.close()
        self._logger = Logger()

    def _keep(self) -> None:
        if self.run_folder is not None:
            self.save(self.run_folder / "checkpoint.zip")


def _has(callbacks: Any, kind: type) -> bool:
    if isinstance(callbacks, CallbackList):
        return any(_has(callback, kind) for callback in callbacks.callbacks)
    return isinstance(callbacks, kind)
