"""`RPLAgent`: sample with optimism, update by a schedule, end with a certified policy.

The interface follows Stable-Baselines3 where that makes sense: learn, predict, save, load, set_env, logger, callbacks.
Settings and environment are in attached.py, questions in queries.py, the learned state in a `Session` (session.py),
the loop in loop.py.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from rpl_agent.agent.attached import refuse_arguments
from rpl_agent.agent.callbacks import (
    Callback,
    CallbackList,
    CheckpointCallback,
    StopOnGap,
    StopOnRegret,
    as_callback,
    has_callback,
)
from rpl_agent.agent.discovery.session import OpenSession
from rpl_agent.agent.loop import Loop
from rpl_agent.agent.output import views
from rpl_agent.agent.output.logger import Logger, withdraw_certificate
from rpl_agent.agent.output.tensorboard import TensorBoardCallback
from rpl_agent.agent.queries import QueriedAgent
from rpl_agent.agent.sampling.interrupt import Interrupt
from rpl_agent.agent.sampling.stream import Stream
from rpl_agent.agent.schedule import Schedule, Target
from rpl_agent.agent.storage import checkpoint, open_state
from rpl_agent.agent.storage.checkpoint import CHECKPOINT, write_run
from rpl_agent.agent.storage.state import agent_arguments, capture, read_state, restore, stored_model
from rpl_agent.agent.world.actions import ActionToEnv
from rpl_agent.agent.world.observations import Env, StateOf, make_env
from rpl_agent.agent.world.when_attached import require
from rpl_agent.core.errors import ModelError, RPLWarning, as_path, require_count
from rpl_agent.core.files import make_folder
from rpl_agent.core.model import ParametricMDP
from rpl_agent.guarantee.pipeline import timed


class RPLAgent(QueriedAgent):
    """Learns a certified policy for an environment whose structure is known and whose parameters are not; or, with
    ``returns`` or ``rewards``, for one of which nothing else is known.

    Parameters
    ----------
    env : the environment (or its registered id), here or in `learn`.
    confidence, relaxation, delta, precision : how to certify, see `Config`; or pass ``config`` in place of them.
    pmdp, objective : the model and the goal (an `Objective`, or text as in `Objective.parse`), if the
        environment does not provide them.
    observation_to_state : maps an observation to the value of a state (or to ``StateIndex(number)``), if
        observations are not state values themselves.
    schedule : when to update; default `Doubling(of="state-action")`, the paper's.
    weight : probability of the optimistic action while sampling; the rest is spread over the other enabled ones.
    exploration : ``"certificate"`` draws most episodes where they narrow the certificate fastest, ``"regret"`` where
        the best policy is undecided, the others optimistically; ``"optimistic"`` all of them, as the paper does. Or a
        name given to `register_exploration`, or an object with a method ``plan`` (see `rpl_agent.agent.exploration`).
    compiled : use the compiled simulator of our own environments (same law, far faster).
    check_rewards : compare rewards with the model's; by default if the objective is about rewards, or if the
        environment provides model and objective itself.
    horizon : count only this many steps of a play; ``"env"`` takes the environment's time limit.
    end : the state that ``terminated`` means, if the last observation is not a state of its own (optimal stopping).
    subject_to : limits that the certified policy has to keep, such as "probability of fallen <= 0.05".
    explore_within_limits : play only policies proved to keep the limits, once there is one; else exploration may break
        them.
    action_to_env : the environment's number of each action of the model, ``{"left": 0, …}``, if names, numbers and
        order do not determine it (see `rpl_agent.agent.world.actions`).
    returns, rewards : no model: (low, high) of the return of every play from every state (or a function of the state),
        or of the reward of every step. States are discovered. Needs hashable observations and discrete actions.
    discount : without a model, the discount of the return; by default the environment's time limit is the horizon.
    deterministic, successors : without a model, further facts, see `rpl_agent.guarantee.open_world.assumptions`; a
        step that contradicts one is an error.
    noise, key, effect : a model in your own words: ``noise={key: labels}`` names what may be drawn,
        ``key(state, action)`` which rows share one unknown distribution, ``effect(state, action, label)`` the successor
        (None: the end); with ``rewards(state, action, successor)`` and ``discount``. Where ends pay differently,
        ``end(state)`` says in which states episodes end, and ``effect`` returns these. See `build_noise`.
    tensorboard_log : folder for runs; each `learn` writes to a numbered folder in it.
    seed : for everything random; None draws one and keeps it.

    >>> agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=50)
    >>> agent.num_episodes, agent.certificate.lower <= agent.certificate.upper
    (50, True)
    """

    # ------------------------------------------------------------------ learning
    def learn(
        self,
        env: Env | str | int | None = None,
        budget: int | None = None,
        *,
        total_timesteps: int | None = None,
        unit: str = "episodes",
        stop_when_gap: float | None = None,
        stop_when_regret: float | str | None = None,
        callback: Callback = None,
        log_interval: int | None = None,
        tb_log_name: str = "RPL",
        reset_num_timesteps: bool = False,
        progress_bar: bool = False,
        folder: str | os.PathLike | None = None,
        **unknown: NoReturn,
    ) -> RPLAgent:
        """Learn from exactly ``budget`` further episodes (or steps), then certify the robust policy.

        Parameters
        ----------
        env : an environment to attach; without a model also the budget in episodes, ``learn(10_000)``.
        total_timesteps : SB3's name for a budget in steps (``unit="steps"``); here an exact cap.
        unit : ``"episodes"`` or ``"steps"``; a cap in steps may cut the last episode.
        stop_when_gap : end early once upper − lower is this small (refused where that would break the guarantee).
        stop_when_regret : end early once no policy is better by more than this; ``"1%"`` is a share of the value.
        log_interval : episodes between two certificates while learning; by default points that grow by a quarter each.
        reset_num_timesteps : reset the counters and start a new log folder; what was learned is kept in any case.
        folder : the run folder itself, instead of a numbered one in ``tensorboard_log``.
        """
        refuse_arguments(unknown, RPLAgent.learn)
        if type(env) is int and budget is None and isinstance(self.session, OpenSession):
            env, budget = None, env
        if total_timesteps is not None:
            if budget is not None:
                raise ModelError("give budget or total_timesteps, not both")
            budget, unit = total_timesteps, "steps"
        if env is not None:
            self.set_env(env)  # type: ignore[arg-type]
        require(self.world)
        if reset_num_timesteps:
            self.session.reset_counters()
            self.run_folder, self._logger = None, Logger()
        counter = self.num_episodes if unit == "episodes" else self.num_timesteps
        self.session.target = Target.after(counter, budget, unit, stop_when_gap, log_interval, stop_when_regret)
        return self._run(callback, progress_bar, tb_log_name, folder)

    def resume(self, callback: Callback = None, *, progress_bar: bool = False, budget: int | None = None) -> RPLAgent:
        """Continue what a loaded agent was doing; ``budget`` is a new total."""
        require(self.world)
        target = self.session.target
        if target is None:
            raise ModelError("this agent was saved outside learn(): there is nothing to resume; call learn(budget=...)")
        if budget is not None:
            require_count("budget", budget, target.unit)
            if budget < self.session.done:
                done = f"the {self.session.done:,} {target.unit} that are done"
                raise ModelError(f"budget {budget:,} is a new total, and less than {done}: give at least as many")
            self.session.target = replace(target, goal=int(budget))
        return self._run(callback, progress_bar, "RPL", None)

    def _run(self, callback: Callback, progress_bar: bool, name: str, folder: Any) -> RPLAgent:
        session, target = self.session, self.session.target
        assert target is not None
        for goal in ("stop_when_gap", "stop_when_regret"):
            if getattr(target, goal) is not None:
                session.require_anytime(goal)
        describe = partial(write_run, source=session.env_spec or {}, seed=self.seed)
        if folder is not None:
            self.run_folder = as_path(folder, "folder")
            make_folder(self.run_folder)
            if (self.run_folder / checkpoint.CHECKPOINT).exists() and not session.samples:
                raise ModelError(f"{folder} has a run already: give another folder, or load its agent and go on")
        elif self.run_folder is None and self.tensorboard_log is not None:
            self.run_folder = checkpoint.new_folder(self.tensorboard_log, None, name, describe)
        if self.run_folder is not None and not (self.run_folder / "run.json").is_file():
            describe(self.run_folder)
        self._logger = views.open_logs(self._logger, self.run_folder, session)
        callbacks = self._callbacks(callback, target)
        view = views.make_view(progress_bar, self.verbose)
        session.interrupted = False
        session.clock.begin(session.steps)
        callbacks.init_callback(self)
        view.start()
        try:
            session.refuse_refuted()
            with Interrupt(view.message) as interrupt:  # until the last save
                try:
                    callbacks.on_training_start({"self": self}, {})
                    Loop(callbacks, view).run(self._open_source(), target, interrupt)
                    self.mode = "robust"
                    with timed(session.seconds, "logging"):
                        callbacks.on_training_end()
                except BaseException:  # save what was learned before the error is shown
                    try:
                        self._keep()
                    except checkpoint.CheckpointError as error:
                        warnings.warn(str(error), RPLWarning, stacklevel=3)
                    raise
                self._keep()
        finally:
            session.clock.end()
            view.stop()
            if session.is_refuted and self.run_folder is not None:
                withdraw_certificate(self.run_folder)
        return self

    def _callbacks(self, callback: Callback, target: Target) -> CallbackList:
        callbacks = CallbackList([as_callback(callback)])
        if target.stop_when_gap is not None:
            callbacks.callbacks.append(StopOnGap(target.stop_when_gap))
        if target.stop_when_regret is not None:
            callbacks.callbacks.append(StopOnRegret(target.stop_when_regret))
        if self.run_folder is not None and not has_callback(callbacks, CheckpointCallback):
            callbacks.callbacks.append(CheckpointCallback())
        if self.run_folder is not None:
            callbacks.callbacks.append(TensorBoardCallback())
        return callbacks

    def _open_source(self) -> Stream:
        """The stream of episodes: the current one, or a new one that continues where a checkpoint's ended."""
        session = self.session
        if self._source is None:
            self._source = session.open_stream(require(self.world))
            session.source_state = None
        return self._source

    # ------------------------------------------------------------------ files
    def save(self, path: str | os.PathLike) -> None:
        """Save everything needed to continue: a zip of JSON and npz, written atomically (``.zip`` is added)."""
        source = self._source
        stream = self.session.source_state if source is None else source.get_state()
        if isinstance(self.session, OpenSession):
            contents = open_state.capture_open(self.session, stream, self.mode)
        else:
            contents = capture(self.session, self.schedule, self.settings, stream)
        checkpoint.write(checkpoint.zipped(path), *contents)
        self.session.stored_steps = self.session.steps

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        env: Env | None = None,
        *,
        pmdp: ParametricMDP | None = None,
        observation_to_state: StateOf | None = None,
        action_to_env: ActionToEnv | None = None,
        schedule: Schedule | None = None,
        facts: Mapping[str, Any] | None = None,
        tensorboard_log: str | os.PathLike | None = None,
        verbose: int = 0,
    ) -> RPLAgent:
        """Load a saved agent with its model. Without ``env`` a registered environment is remade by its id, unless
        ``pmdp`` is given instead. ``facts`` are the functions of an agent without a model (``returns``,
        ``successors``), which files do not store.

        A damaged file is an error, unless the previous one still exists: then that is used, with a warning.
        """
        state, arrays = checkpoint.read_latest(path if as_path(path, "path").is_file() else checkpoint.zipped(path))
        if open_state.is_open(state):
            more = {"observation_to_state": observation_to_state, "tensorboard_log": tensorboard_log}
            return open_state.load_open(cls, state, arrays, env, facts or {}, {**more, "verbose": verbose})
        stored = read_state(state, arrays)
        agent = cls(
            **agent_arguments(stored, schedule),
            pmdp=pmdp,
            observation_to_state=observation_to_state,
            action_to_env=action_to_env,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
        )
        agent.session.start(pmdp or stored_model(state, arrays), stored.objective)
        if env is None and pmdp is None:
            env = make_env(stored.session.env_spec)
        if env is not None:
            agent.set_env(env)
        restore(agent.session, stored)
        agent.mode = stored.settings.mode
        return agent

    def _keep(self) -> None:
        if self.run_folder is None:
            return
        try:
            self.save(self.run_folder / CHECKPOINT)
        except checkpoint.CheckpointError as error:
            lost = self.session.steps - self.session.stored_steps
            raise checkpoint.CheckpointError(f"{error}; {lost} steps are not in any checkpoint") from error
