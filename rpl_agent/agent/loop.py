"""The loop of `RPLAgent.learn`: sample, update, certify, until the target is met.

source ─► experience ─► Session.plan ─► sampling policy ─► source …          (the loop)
              └───────► Session.update_certificate ─► certificate, policy               (log points, the end)

Whatever differs with and without a model is in the session.
"""

from __future__ import annotations

import math
from typing import Any

from rpl_agent.agent.callbacks import CallbackList
from rpl_agent.agent.output import views
from rpl_agent.agent.output.logger import write_certificate, write_open_proved, write_proved
from rpl_agent.agent.sampling.experience import Request, SampledBatch
from rpl_agent.agent.sampling.interrupt import Interrupt
from rpl_agent.agent.sampling.stream import Stream
from rpl_agent.agent.schedule import NEVER, Limits, RegretGoal, Target, next_log
from rpl_agent.agent.session import Session
from rpl_agent.agent.storage.pace import Pace
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
            go_on = self._certify(is_quick=not target.is_done(session.episodes, session.steps))
        while go_on and not target.is_done(session.episodes, session.steps) and not session.interrupted:
            limits = session.limits
            assert limits is not None
            interrupt.asked()
            callbacks.on_rollout_start()
            log_at = next_log(session.episodes, target.log_interval)
            self._collect(source, self._request(limits, target, interrupt))
            session.bet(self._progress(target))
            if session.is_update_due:
                if not target.is_done(session.episodes, session.steps):
                    self._update()
            go_on = callbacks.on_step()
            callbacks.on_rollout_end()
            if session.episodes >= log_at:
                certified_at = session.steps
                is_last = target.is_done(session.episodes, session.steps)
                go_on = self._certify(is_quick=not is_last) and go_on
            self._view.show(session)
        interrupt.asked()
        if certified_at != session.steps or session.certificate is None:
            self._certify()
        if not self._is_written and session.certificate is not None:
            self._write(session.certificate)
        self._prove()

    def _prove(self) -> None:
        """Write the proof of a complete run's certificate."""
        session, folder = self._session, self._agent.run_folder
        if folder is None or session.certificate is None or session.interrupted:
            return
        session.seconds.setdefault("proof", 0.0)
        with timed(session.seconds, "proof"):
            self._view.message("writing the proof of the certificate")
            certificate = session.certificate
            if isinstance(session, Session):
                counts, earlier = session.experience.counts, session.earlier
                session.certificate = write_proved(folder, session.pmdp, counts, certificate, earlier, PROVED)
            else:
                session.certificate = write_open_proved(folder, session, certificate, PROVED)

    def _is_due(self, target: Target) -> bool:
        """Whether the run is at a log point whose certificate is still to come."""
        session = self._session
        if session.episodes == 0 or next_log(session.episodes - 1, target.log_interval) != session.episodes:
            return False
        return session.certificate is None or session.certificate.samples != session.samples

    def _request(self, limits: Limits, target: Target, interrupt: Interrupt) -> Request:
        """The next request: until the next update, certificate or the end."""
        episodes, (sampling, until_change) = self._session.episodes, self._session.next_policy()
        waiting = episodes < limits.not_before
        pause = min(
            until_change,
            next_log(episodes, target.log_interval) - episodes,
            limits.not_before - episodes if waiting else NEVER,
            NEVER if limits.episodes is None else max(1, limits.episodes - episodes),
            self._callbacks.every_episodes or NEVER,
            self._session.until_bet(target),
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
        grown = session.samples / found.samples
        if target.stop_when_gap is not None and 0.0 < found.gap < math.inf:
            share = max(share, min(grown * (target.stop_when_gap / found.gap) ** 2, NEARLY))
        if target.stop_when_regret is not None and 0.0 < found.regret < math.inf:
            wanted = RegretGoal.parse(target.stop_when_regret).most(found.lower, found.upper)
            share = max(share, min(grown * wanted / found.regret, NEARLY))
        return share

    def _collect(self, source: Stream, request: Request) -> None:
        session, done = self._session, SampledBatch()
        before = session.samples
        with timed(session.seconds, "sampling"):
            try:
                source.collect(request, done)
            except BaseException:
                done.steps = session.samples - before  # exactly the steps that were counted
                session.recount()
                raise
            finally:
                session.add(done)

    def _update(self) -> None:
        """Set the policy of the coming episodes from all data."""
        self._session.plan(self._agent)
        self._callbacks.on_update()

    def _certify(self, is_quick: bool = False) -> bool:
        session = self._session
        certificate = session.update_certificate(is_quick)
        with timed(session.seconds, "logging"):
            views.record(session, self._agent.logger, certificate)
            go_on = self._callbacks.on_certificate(certificate)
            self._agent.logger.dump(session.episodes)
            self._is_written = self._files.is_due()
            if self._is_written:
                self._write(certificate)
            self._view.certified(session)
        return go_on

    def _write(self, certificate: Any) -> None:
        if self._agent.run_folder is not None:
            with self._files.measured():
                write_certificate(self._agent.run_folder, certificate)
