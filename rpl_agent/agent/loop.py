"""The loop of `RPLAgent.learn`: sample, update, certify, until the target is met.

source ─► Experience ─► Planner.plan ─► sampling policy ─► source …          (the loop)
              └───────► Planner.certify ─► Certificate, robust policy        (log points, the end)
"""

from __future__ import annotations

import math

from rpl_agent.agent.callbacks import CallbackList
from rpl_agent.agent.exploration import block_of
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.agent.output import views
from rpl_agent.agent.output.logger import write_certificate, write_proved
from rpl_agent.agent.sampling.experience import Request, SampledBatch
from rpl_agent.agent.sampling.interrupt import Interrupt
from rpl_agent.agent.sampling.stream import Stream
from rpl_agent.agent.schedule import NEVER, Limits, Never, RegretGoal, Target, next_log
from rpl_agent.agent.storage.pace import Pace
from rpl_agent.core.evidence.counts import next_share
from rpl_agent.core.model import Policy
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.pipeline import timed

#: A run ends with a proof if it has at most this many inequalities (seconds); `rpl certify RUN` has no limit.
PROVED = 250_000
#: The largest progress that a run with a gap to stop at reports, because it may still take longer.
NEARLY = 0.9


class Loop:
    """One call of `learn` of the agent that the callbacks observe."""

    def __init__(self, callbacks: CallbackList, view: views.View):
        self._callbacks, self._view = callbacks, view
        self._agent, self._session = callbacks.agent, callbacks.agent.session
        self._files = Pace()
        self._is_written = True  # whether the last certificate is in its file

    def run(self, source: Stream, target: Target, interrupt: Interrupt) -> None:
        session, callbacks = self._session, self._callbacks
        if session.limits is None:
            self._update()
        certified_at = -1
        go_on = True
        if self._is_due(target):  # resumed from a checkpoint that was written just before a certificate
            certified_at = session.steps
            go_on = self._certify()
        while go_on and not target.is_done(session.episodes, session.steps) and not session.interrupted:
            limits = session.limits
            assert limits is not None
            interrupt.asked()
            callbacks.on_rollout_start()
            log_at = next_log(session.episodes, target.log_interval)
            self._collect(source, self._request(limits, target, interrupt))
            data = session.experience
            data.counts.bet(self._progress(target), session.planner.bets)
            if limits.reached(data.rows, data.expressions, session.episodes):
                if not target.is_done(session.episodes, session.steps):
                    self._update()
            go_on = callbacks.on_step()
            callbacks.on_rollout_end()
            if session.episodes >= log_at:
                certified_at = session.steps
                go_on = self._certify() and go_on
            self._view.show(session)
        interrupt.asked()
        if certified_at != session.steps or session.certificate is None:
            self._certify()
        folder = self._agent.run_folder
        if not self._is_written and session.certificate is not None:
            self._write(session.certificate)
        if folder is not None and session.certificate is not None and not session.interrupted:
            with timed(session.planner.seconds, "proof"):
                self._view.message("writing the proof of the certificate")
                counts, certificate = session.experience.counts, session.certificate
                write_proved(folder, session.pmdp, counts, certificate, session.earlier, PROVED)

    def _is_due(self, target: Target) -> bool:
        """Whether the run is at a log point whose certificate is still to come."""
        session = self._session
        if session.episodes == 0 or next_log(session.episodes - 1, target.log_interval) != session.episodes:
            return False
        return session.certificate is None or session.certificate.samples != session.experience.counts.total

    def _request(self, limits: Limits, target: Target, interrupt: Interrupt) -> Request:
        """The next request: until the next update, certificate or the end."""
        episodes, sampling = self._session.episodes, self._session.sampling
        assert sampling is not None
        until_change = NEVER
        if self._session.informative is not None:
            optimistic, until_change = block_of(episodes)
            sampling = sampling if optimistic else self._session.informative
        waiting = episodes < limits.not_before
        pause = min(
            until_change,
            next_log(episodes, target.log_interval) - episodes,
            limits.not_before - episodes if waiting else NEVER,
            NEVER if limits.episodes is None else max(1, limits.episodes - episodes),
            self._callbacks.every_episodes or NEVER,
            self._until_bet(target),
        )
        return Request(
            sampling,
            Limits() if waiting else limits,
            pause,
            *target.left(episodes, self._session.steps),
            interrupt.asked,
        )

    def _progress(self, target: Target) -> float:
        """The completed share of the plan: of the budget, or of the estimated data for what to stop at.

        A function of the data so far. Widths fall with the square root of the data, regrets with the data.
        """
        session = self._session
        share, found = target.progress(session.episodes, session.steps), session.certificate
        if found is None or not found.samples:
            return share
        grown = session.experience.counts.total / found.samples
        if target.stop_when_gap is not None and 0.0 < found.gap < math.inf:
            share = max(share, min(grown * (target.stop_when_gap / found.gap) ** 2, NEARLY))
        if target.stop_when_regret is not None and 0.0 < found.regret < math.inf:
            wanted = RegretGoal.parse(target.stop_when_regret).most(found.lower, found.upper)
            share = max(share, min(grown * wanted / found.regret, NEARLY))
        return share

    def _until_bet(self, target: Target) -> int:
        """Episodes until the next share of the budget at which bets are placed."""
        session = self._session
        if not session.planner.bets:
            return NEVER
        share = next_share(session.pmdp, target.progress(session.episodes, session.steps))
        return NEVER if share == 1.0 else target.episodes_until(share, session.episodes, session.steps)

    def _collect(self, source: Stream, request: Request) -> None:
        session, done = self._session, SampledBatch()
        before = session.experience.counts.total
        with timed(session.planner.seconds, "sampling"):
            try:
                source.collect(request, done)
            except BaseException:
                done.steps = session.experience.counts.total - before  # exactly the steps that were counted
                session.experience.recount()
                raise
            finally:
                session.add(done)

    def _update(self) -> None:
        """Compute a new sampling policy from all data, and new limits from the schedule."""
        session, schedule, policy, informative = self._session, self._agent.schedule, None, None
        if isinstance(schedule, Never):
            policy = Policy.uniform(session.pmdp)
        else:
            session.look_for_repetitions()
            optimistic = session.planner.plan(session.experience.counts, self._agent.exploration, self._sampling_goal())
            if optimistic is not None:
                policy = optimistic.at(0).mixed(session.pmdp, self._agent.weight)
                informative = session.planner.informative
        session.update(schedule, policy, informative)
        self._callbacks.on_update()

    def _sampling_goal(self) -> SamplingGoal | None:
        session = self._session
        if not session.episodes:
            return None
        assert session.target is not None
        per_step = session.target.unit == "steps"
        return SamplingGoal(session.steps if per_step else session.episodes, per_step, session.time_limit)

    def _certify(self) -> bool:
        session = self._session
        certificate = session.certify()
        with timed(session.planner.seconds, "logging"):
            views.record(session, self._agent.logger, certificate)
            go_on = self._callbacks.on_certificate(certificate)
            self._agent.logger.dump(session.episodes)
            self._is_written = self._files.is_due()
            if self._is_written:
                self._write(certificate)
            self._view.certified(session)
        return go_on

    def _write(self, certificate: Certificate) -> None:
        if self._agent.run_folder is not None:
            with self._files.measured():
                write_certificate(self._agent.run_folder, certificate)
