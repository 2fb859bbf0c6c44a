"""Queries to an agent beside learning: actions for observations, bounds per state and action, how much data it
needs, the policy as a table, parameters in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rpl_agent.agent.attached import AttachedAgent
from rpl_agent.agent.discovery.session import OpenSession
from rpl_agent.agent.evaluation import Evaluation, Watcher, evaluate_policy
from rpl_agent.agent.forecast import Forecast, Sampler, forecast
from rpl_agent.agent.schedule import Never
from rpl_agent.agent.storage.state import capture, read_state, restore
from rpl_agent.agent.world.acting import ActingPolicy, predict_action, predict_open
from rpl_agent.agent.world.observations import Env
from rpl_agent.core.errors import ModelError, front_door, require_count, require_kind
from rpl_agent.core.model import Policy, Sense
from rpl_agent.core.model.simulate import absorbing_states, row_visits
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.printed import chance_text, interval_text
from rpl_agent.core.solver.operator import row_bounds
from rpl_agent.core.solver.solution import Solution
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.open_world.ties import ProposedTie

#: steps of a play whose visits are counted
PLAYED_STEPS = 400
Bounds = tuple[np.ndarray, np.ndarray]


class QueriedAgent(AttachedAgent):
    """An agent that is asked; everything here derives from its session."""

    # ------------------------------------------------------------------ acting
    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, Any]:
        """Action(s) for one observation or a batch of them.

        ``state`` counts the steps of each episode; it matters for finite horizons (see `as_policy`). In optimistic
        mode ``deterministic=False`` draws from the sampling policy. The model itself provides ``action_masks``.
        A certified policy that is randomised (limits may need that) is always drawn from: its mode is another policy.
        """
        if isinstance(self.session, OpenSession):
            return predict_open(self, observation, state, episode_start)
        return predict_action(self, observation, state, episode_start, deterministic)

    def as_policy(self, deterministic: bool = True) -> ActingPolicy:
        """The policy as a function of observations with its own step counter; `reset` it at every ``env.reset()``."""
        return ActingPolicy(self, deterministic)

    # ------------------------------------------------------------------ bounds and plans
    def plan(
        self,
        env: Env,
        theta: np.ndarray | Mapping[str, float],
        *,
        gap: float | None = None,
        regret: float | str | None = None,
        episodes: int | Sequence[int] = (),
        policy: Policy | None = None,
        draws: int | None = None,
    ) -> Forecast:
        """The expected gap after n episodes if the parameters are as you guess: how much data do I need?

        Samples nothing from the environment and uses nothing learned. An estimate, not a guarantee.

        Parameters
        ----------
        theta : the guess: numbers (d,), or by name
        gap : the desired upper − lower; the answer is `Forecast.needed`
        regret : the desired regret instead, a number or a share of the value such as "1%"
        episodes : numbers of episodes to forecast, in place of a curve
        policy : the policy that draws the data, instead of this agent
        draws : simulated data sets per number of episodes; None: 3 to 32, more if their gaps differ
        """
        self.set_env(env)
        session = self.session
        if policy is not None:
            require_kind("policy", policy, Policy)
        if policy is None and isinstance(self.schedule, Never):
            policy = Policy.uniform(session.pmdp)
        return forecast(
            session.pmdp,
            session.objective,
            theta,
            session.config,
            Sampler(session.time_limit, self.weight, self.exploration, policy),
            gap=gap,
            regret=regret,
            episodes=[episodes] if np.ndim(episodes) == 0 else list(episodes),  # type: ignore[list-item, arg-type]
            draws=draws,
            seed=session.seed,
        )

    def value_bounds(self, step: int = 0) -> Bounds:
        """(lower (S,), upper (S,)) as for the initial state, for every state, simultaneously with probability ≥ 1 − δ.

        Maximising: the robust policy achieves at least ``lower`` from each state, and no policy more than ``upper``.
        Minimising: it costs at most ``upper``, and no policy less than ``lower``. With a horizon, after ``step``
        steps. These are the bounds of the rectangular relaxation, even if the certificate is tighter.
        """
        low, high = self._sides()
        return _values(low, False, step), _values(high, True, step)

    def q_bounds(self, step: int = 0) -> Bounds:
        """(lower (S, A), upper (S, A)) for the action once, then as in `value_bounds`; nan if it is not enabled."""
        low, high = self._sides()
        pmdp = self.session.pmdp
        tables = []
        for solution, upward in ((low, False), (high, True)):
            q = np.full((pmdp.num_states, pmdp.num_actions), np.nan)
            q[pmdp.row_state, pmdp.action] = _row_values(solution, upward, step)
            tables.append(q)
        return tables[0], tables[1]

    def policy_table(self) -> list[dict[str, Any]]:
        """One row per visible state: number, value and name, the certified policy's first action, bounds.

        Values and actions are those that the model was built with.
        """
        pmdp = self.session.pmdp
        certificate = self.session.certificate or self.session.update_certificate()
        lower, upper = self.value_bounds()
        first = pmdp.solver_step(0)
        return [
            {
                "state": s,
                "value": pmdp.state_value(s),
                "name": pmdp.state_name(s),
                "lower": float(lower[s]),
                "upper": float(upper[s]),
                "action": pmdp.action_keys[certificate.policy.action(pmdp, s, None, first)],
            }
            for s in np.flatnonzero(~pmdp.is_silent).tolist()
        ]

    def undecided_pairs(self) -> list[dict[str, Any]] | None:
        """Where more data would still matter: one row per state-action pair that may be part of a better policy.

        Number and name of the state, the action, the one that the certified policy plays there, its expected visits to
        the state per play at the point estimate, and how often the action was tried. Most visited first; None if the
        pairs are not known, as with a horizon or with little data.
        """
        session = self.session
        pmdp, rows = session.pmdp, session.undecided()
        certificate, estimate = session.certificate, point_estimate(session.pmdp, session.experience.counts)
        if rows is None or certificate is None or certificate.policy.rows is None:
            return None
        states, played = pmdp.row_state[rows], certificate.policy.rows
        visits = np.zeros(pmdp.num_rows)
        if estimate is not None:
            mdp = pmdp.instantiate(estimate)
            visits = row_visits(mdp, certificate.policy, PLAYED_STEPS, absorbing_states(pmdp))
        often, tried = visits[played[states]], session.experience.counts.row_totals[rows]
        names = pmdp.action_names
        return [
            {
                "state": int(states[k]),
                "name": pmdp.state_name(int(states[k])),
                "action": names[pmdp.action[rows[k]]],
                "played": names[pmdp.action[played[states[k]]]],
                "visits": float(often[k]),
                "tried": int(tried[k]),
            }
            for k in np.argsort(-often, kind="stable").tolist()
        ]

    @front_door
    def proposed_ties(self) -> list[ProposedTie]:
        """Without a model: rows whose outcomes look alike, and the gap that knowing it would buy. Nothing is tied."""
        if not isinstance(self.session, OpenSession):
            raise ModelError("ties are proposed without a model: a model says itself which rows share parameters")
        return self.session.proposed_ties()

    @front_door
    def evaluate(
        self,
        env: Env,
        episodes: int,
        *,
        policy: Any = None,
        bounds: tuple[float, float] | None = None,
        seed: int = 0,
        delta: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Evaluation:
        """Play a policy and bound its mean value from the outcomes, without relying on the model.

        Parameters
        ----------
        env : not used for learning; a copy of the one that was.
        policy : the certified one by default; a `Policy` of the model; or anything with SB3's ``predict``, which is
            played in ``env`` as is and valued by what that pays (negative costs, discounted as in the objective).
        bounds : least and most value of one episode, in the objective's unit. By default what the model's
            graph and the time limit allow; without either there is no interval.
        delta : probability that the interval is ever wrong; by default the certificate's.
        progress : called with the number of episodes played and of all of them.
        interrupted : asked while they are played; True ends them early, with an interval that holds then, too.
        """
        if isinstance(self.session, OpenSession):
            policy = self if policy is None else policy
            bounds = self.session.assumptions.overall if bounds is None else bounds
        watcher = Watcher(progress, interrupted)
        return evaluate_policy(
            self, env, episodes, seed=seed, policy=policy, bounds=bounds, delta=delta, watcher=watcher
        )

    def _sides(self) -> tuple[Solution, Solution]:
        """The solutions whose lower and upper values are the bounds."""
        found = self.session.planner.solutions
        if not (isinstance(found.robust, Solution) and isinstance(found.optimistic, Solution)):
            self.session.update_certificate()  # no solutions yet, or only warm starts from a file
        robust, optimistic = found.robust, found.optimistic
        assert isinstance(robust, Solution) and isinstance(optimistic, Solution)
        return (robust, optimistic) if robust.objective.sense is Sense.MAX else (optimistic, robust)

    # ------------------------------------------------------------------ SB3's names
    def set_logger(self, logger: Any) -> None:
        """Also log to ``logger``, anything with SB3's ``record`` and ``dump``; the run folder's own files remain."""
        if not (hasattr(logger, "record") and hasattr(logger, "dump")):
            raise ModelError(f"{type(logger).__name__} is not a logger: it needs record(key, value) and dump(step)")
        self._logger.others.append(logger)

    def get_parameters(self) -> dict[str, Any]:
        """The learned state (counts with their marks, counters, sampling policy) as plain data, as in a checkpoint."""
        state, arrays = capture(self.session, self.schedule, self.settings, None)
        return {"state": state, "arrays": arrays}

    def set_parameters(self, parameters: Mapping[str, Any], exact_match: bool = True) -> None:
        """Load the result of `get_parameters` of an agent with the same model; random streams start afresh."""
        if not isinstance(parameters, Mapping) or not {"state", "arrays"} <= set(parameters):
            raise ModelError("parameters must come from get_parameters() of another agent")
        restore(self.session, read_state(parameters["state"], parameters["arrays"]))
        self._source = self.session.source_state = None

    def __repr__(self) -> str:
        session = self.session
        if not session.started:
            return f"{type(self).__name__}(no environment yet, δ = {session.config.delta:g})"
        text = f"{type(self).__name__}({session.name}: {session.objective.describe()}"
        text += f", {session.episodes:,} episodes"
        certificate = session.certificate
        if certificate is not None:
            bounds = interval_text(certificate.lower, certificate.upper)
            text += f", certified {bounds} at {chance_text(certificate.delta)}"
        return text + ")"


def _moment(solution: Solution, upward: bool, passed: int) -> np.ndarray:
    """(S,) the solver's values after ``passed`` of its steps; a horizon's are stored by steps to go."""
    values = solution.upper_values if upward else solution.lower_values
    return values if values.ndim == 1 else values[len(values) - 1 - passed]


def _values(solution: Solution, upward: bool, step: int) -> np.ndarray:
    """(S,) bounds after ``step`` steps of an episode, in the environment's time; nan in silent states."""
    passed = _passed(solution, step)
    values = _in_steps(solution, _moment(solution, upward, passed), upward)
    pmdp = solution.problem.pmdp
    values[pmdp.is_silent] = np.nan
    if step == 0:
        values[pmdp.initial_state] = solution.upper if upward else solution.lower
    return values


def _row_values(solution: Solution, upward: bool, step: int) -> np.ndarray:
    """(R,) reward plus expectation of every row, rounded outward; decided states keep their value."""
    problem, passed = solution.problem, _passed(solution, step)
    horizon = problem.objective.horizon
    if horizon is not None and passed >= horizon:
        raise ModelError(f"no step is left after step {step} of the horizon")
    q = problem.reward + problem.gamma * row_bounds(problem, _moment(solution, upward, passed + 1), upward)
    finite = np.isfinite(q)
    q[finite] += (1.0 if upward else -1.0) * 4.0 * UNIT_ROUNDOFF * (np.abs(q[finite]) + np.abs(problem.reward[finite]))
    row_state = problem.pmdp.row_state
    q = np.where(problem.task.decided[row_state], _moment(solution, upward, passed)[row_state], q)
    q = _in_steps(solution, q, upward)
    q[problem.pmdp.is_silent[row_state]] = np.nan
    return q


def _passed(solution: Solution, step: int) -> int:
    """Solver steps before a step of an episode."""
    pmdp, horizon = solution.problem.pmdp, solution.problem.objective.horizon
    require_count("step", step, least=0)
    passed, first = pmdp.solver_step(step), pmdp.solver_step(0)
    if horizon is not None and not 0 <= step <= (horizon - first) // pmdp.solver_steps_per_step:
        raise ModelError(f"step {step} is outside the horizon of the objective")
    return passed


def _in_steps(solution: Solution, values: np.ndarray, upward: bool) -> np.ndarray:
    """The solver's values in the environment's time: a random start is one extra step (see `Task`)."""
    problem, side = solution.problem, 1.0 if upward else -1.0
    scaled = problem.task.outward(*[values * problem.gamma ** problem.pmdp.solver_step(0)] * 2)[upward]
    if problem.task.rounding:
        scaled += side * 4.0 * UNIT_ROUNDOFF * np.abs(scaled)
    return scaled
