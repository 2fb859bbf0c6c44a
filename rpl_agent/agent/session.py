"""`Session`: everything that a run has learned, and its progress.

A checkpoint stores the session (state.py turns it into JSON and arrays); the agent adds what is not learned:
its settings, the environment, the logs. Nothing here reads the agent.

`RunSession` is what every session has: its progress, and what the loop, the views and the logs ask of it. `Session` has
a model; `discovery.session.OpenSession` has none.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.exploration import alternates, block_of
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.agent.exploration.within_limits import WithinLimits
from rpl_agent.agent.planner import Planner
from rpl_agent.agent.sampling.experience import Experience, SampledBatch, StreamState
from rpl_agent.agent.sampling.judge import JudgedPlays, PlayJudge
from rpl_agent.agent.sampling.stream import Stream
from rpl_agent.agent.schedule import NEVER, Limits, Never, Progress, Schedule, Target, schedule_to_dict
from rpl_agent.agent.world.observations import is_vector
from rpl_agent.agent.world.plays import truncation_note
from rpl_agent.agent.world.when_attached import WhenAttached, require
from rpl_agent.core.coupled.regret import same_policy
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import next_share
from rpl_agent.core.model import Limit, Objective, ParametricMDP, Policy
from rpl_agent.core.schema import Natural, Whole
from rpl_agent.guarantee.best_so_far import best_so_far, contradict
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.likelihood.refutation.alternatives import CONTRADICTION, REPEATED, WAYS
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.shown import until_close

#: Number of latest episodes in the rollout/* means (SB3's window).
WINDOW = 100
#: What a certificate assumes if there is a model; the docs page on guarantees has all of it.
ASSUMPTIONS = (
    "The model's structure is right: every transition has the probability that its polynomial gives for one and the "
    "same unknown parameter. Steps are drawn independently given state and action."
)


@dataclass
class RunRecord:
    """The part of every session that checkpoints store, under the same names."""

    seed: Natural  # for everything random
    episodes: Whole = 0
    steps: Whole = 0
    updates: Whole = 0
    cut: Whole = 0  # episodes that a time limit ended before the objective was decided
    time_limit: Whole | None = None  # of the environment
    interrupted: bool = False
    target: Target | None = None
    returns: list[float] = field(default_factory=list)  # of the latest episodes
    lengths: list[Whole] = field(default_factory=list)
    sources: Whole = 0  # streams of episodes started so far, over all resumptions
    env_spec: dict[str, Any] | None = None
    limits: Limits | None = None  # when the next update is due


@dataclass
class SessionRecord(RunRecord):
    """The part of a session with a model that checkpoints store."""

    certificate: Certificate | None = None
    sampling: Policy | None = None  # the policy that draws episodes
    informative: Policy | None = None  # the policy of episodes for the certificate, if any
    lacking: str | None = None  # a note on actions of the environment that the model lacks
    subject_to: tuple[Limit, ...] = ()  # what the certified policy has to keep
    within: WithinLimits | None = None  # what exploration has to keep, if anything
    witness: JudgedPlays = field(default_factory=JudgedPlays)  # plays of a policy that was fixed


class RunSession(ABC):
    """A run so far; ``config`` says how to certify."""

    if TYPE_CHECKING:  # the fields of RunRecord, which subclasses have
        seed: int
        episodes: int
        steps: int
        updates: int
        cut: int
        interrupted: bool
        target: Target | None
        returns: list[float]
        lengths: list[int]
        sources: int
        limits: Limits | None
        certificate: Any
        objective: Objective

    def _begin(self, config: Config) -> None:
        """Set what no checkpoint stores."""
        self.config = config
        self.rng = np.random.default_rng(self.seed)  # for the sampling policy's choices
        self.stored_steps = 0  # number of steps in a checkpoint
        self.source_state: StreamState | None = None  # from a checkpoint, until the stream is restarted
        self.opening: list[Any] = []  # the first calls of the environment, to detect one that repeats them
        self.clock = Clock()
        self.latest = SampledBatch()  # the last episodes that were collected

    # ------------------------------------------------------------------ what the loop asks
    @property
    @abstractmethod
    def samples(self) -> int:
        """Number of steps that are data."""

    @property
    @abstractmethod
    def seconds(self) -> dict[str, float]:
        """Time spent so far by stage."""

    @abstractmethod
    def open_stream(self, world: Any) -> Stream:
        """The episodes of an environment, continuing those of a checkpoint."""

    @abstractmethod
    def next_policy(self) -> tuple[Any, int]:
        """The policy of the next episodes, and how many it is for."""

    @abstractmethod
    def plan(self, agent: Any) -> None:
        """Set the policy of the coming episodes from all data."""

    @property
    @abstractmethod
    def is_update_due(self) -> bool: ...

    @abstractmethod
    def recount(self) -> None:
        """Make counts consistent after an error."""

    @abstractmethod
    def update_certificate(self, is_quick: bool = False) -> Any:
        """The policy and its certificate; at points between (``is_quick``) without what takes seconds."""

    @property
    def is_refuted(self) -> bool:
        """Whether data contradict what earlier certificates assumed, so that none of them holds."""
        return False

    def refuse_refuted(self) -> None:  # noqa: B027  (a model that is refuted still has intervals to fall back on)
        """Raise if no further data can lead to a certificate."""

    def bet(self, progress: float) -> None:  # noqa: B027  (a session may place none)
        """Place bets at this share of the plan."""

    def until_bet(self, target: Target) -> int:
        """Episodes until the next share of the budget at which bets are placed."""
        return NEVER

    # ------------------------------------------------------------------ what the views and logs ask
    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the model or the world."""

    @property
    @abstractmethod
    def assumed(self) -> str:
        """What the certificate assumes, in words."""

    @property
    def skipped(self) -> int:
        """Updates that were skipped, because little was new."""
        return 0

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Tags of a log point beside those of every run."""

    @abstractmethod
    def hyperparameters(self, agent: Any) -> dict[str, Any]:
        """The settings that TensorBoard shows."""

    # ------------------------------------------------------------------ how far it has come
    def fresh_seed(self) -> int:
        """A seed for a new episode stream, distinct from the agent's own and from every seed used before.

        Actions and outcomes drawn with equal random numbers, or the same numbers drawn twice, are not the independent
        samples that the guarantee requires. The number of streams started makes seeds differ even if no
        sample was counted in between.
        """
        sequence = np.random.SeedSequence([self.seed, 2, self.samples, self.sources])
        self.sources += 1
        return int(sequence.generate_state(1, np.uint64)[0])

    @property
    def done(self) -> int:
        """How much of the target is done, in its unit."""
        return self.steps if require(self.target).unit == "steps" else self.episodes

    @property
    def is_done(self) -> bool:
        return require(self.target).is_done(self.episodes, self.steps)

    @property
    def rate(self) -> float:
        """Steps per second of the current call."""
        return (self.steps - self.clock.steps_before) / max(self.clock.current, 1e-9)

    def add(self, done: SampledBatch) -> None:
        """Add a batch to the counters; its transitions are in the experience already."""
        self.episodes += done.episodes
        self.steps += done.steps
        self.cut += done.cut
        self.returns = [*self.returns, *done.returns][-WINDOW:]
        self.lengths = [*self.lengths, *done.lengths][-WINDOW:]
        self.interrupted = self.interrupted or done.interrupted
        self.latest = done

    def reset_counters(self) -> None:
        """Reset the counters; what was learned is kept."""
        self.episodes = self.steps = self.stored_steps = self.updates = self.cut = 0
        self.clock = Clock()
        self.limits = None


class Session(SessionRecord, RunSession):
    """What was learned about one model."""

    pmdp = WhenAttached[ParametricMDP]()
    objective = WhenAttached[Objective]()
    experience = WhenAttached[Experience]()
    planner = WhenAttached[Planner]()
    judge = WhenAttached[PlayJudge]()

    def __init__(self, seed: int, config: Config):
        super().__init__(seed)
        self._begin(config)
        self.earlier: dict[str, Counts] = {}  # the data of its claims ("lower", "upper", "regret"), the best of the run
        self.stored_model: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None  # as stored in checkpoints

    # ------------------------------------------------------------------ the model
    def start(self, pmdp: ParametricMDP, objective: Objective) -> None:
        """Fix the model; nothing is known about it yet."""
        self.pmdp, self.objective = pmdp, objective
        self.experience = Experience(pmdp)
        self.planner = Planner(pmdp, objective, self.config)
        self.judge = PlayJudge(pmdp, objective, self.config)
        unknown = ~pmdp.table.is_constant[pmdp.expression]
        self._unknown_rows = np.maximum.reduceat(unknown, pmdp.row_ptr[:-1])

    @property
    def started(self) -> bool:
        return "pmdp" in vars(self)

    # ------------------------------------------------------------------ what the loop asks
    @property
    def samples(self) -> int:
        return self.experience.counts.total

    @property
    def seconds(self) -> dict[str, float]:
        return self.planner.seconds

    def open_stream(self, world: Any) -> Stream:
        # copies of an environment change their policy in the middle of an episode, and the simulator has one rule
        self.judge.plays = not is_vector(world.env) and not (world.compiled and self.objective.horizon is not None)
        return Stream(world, self.experience, self.rng, self.fresh_seed, self.opening, self.source_state)

    def next_policy(self) -> tuple[Policy, int]:
        """Most episodes narrow the certificate; others are drawn optimistically, or play a policy that was fixed.

        Within limits, all of them are played by one policy.
        """
        assert self.sampling is not None
        if self.within is not None and self.within.policy is not None:
            self.judge.pause()
            return self.within.policy, NEVER
        fixed, until_turn = self.judge.turn(self.witness, self.episodes)
        if fixed is not None:
            return fixed, until_turn
        if self.informative is None:
            return self.sampling, until_turn
        optimistic, until_change = block_of(self.episodes, alternates(self.pmdp))
        return self.sampling if optimistic else self.informative, min(until_change, until_turn)

    def plan(self, agent: Any) -> None:
        """Compute a new sampling policy from all data, and new limits from the schedule."""
        schedule, policy, informative = agent.schedule, None, None
        if isinstance(schedule, Never):
            policy = Policy.uniform(self.pmdp)
        else:
            self.look_for_repetitions()
            optimistic = self.planner.plan(self.experience.counts, agent.exploration, self._sampling_goal())
            if optimistic is not None:
                policy = optimistic.at(0).mixed(self.pmdp, agent.weight)
                informative = self.planner.informative
        self.update(schedule, policy, informative)
        if self.within is not None and not self.episodes:  # limits kept for every parameter need no data
            self._stay_within(self.planner.certificate(self.experience.counts, 0.0, self.subject_to))
            self.within.warn()
        if not self.subject_to:
            self.judge.consider(self.witness, self.experience.counts, self.episodes, self.target)

    def _stay_within(self, certificate: Certificate) -> None:
        """Look for a policy that explores and is proved to keep the limits, from the data of a certificate."""
        assert self.within is not None
        search = self.planner.limit_search(self.experience.counts, self.experience.reward_error, self.subject_to)
        self.within.look(search, certificate, self.informative or self.sampling, self.episodes)

    def add(self, done: SampledBatch) -> None:
        super().add(done)
        self.judge.add(self.witness, done)

    def _sampling_goal(self) -> SamplingGoal | None:
        if not self.episodes:
            return None
        per_step = require(self.target).unit == "steps"
        return SamplingGoal(self.steps if per_step else self.episodes, per_step, self.time_limit)

    def reset_counters(self) -> None:
        self.witness.count_anew(self.episodes)
        super().reset_counters()

    @property
    def is_update_due(self) -> bool:
        return require(self.limits).reached(self.experience.rows, self.experience.expressions, self.episodes)

    def recount(self) -> None:
        self.experience.recount()

    def bet(self, progress: float) -> None:
        self.experience.counts.bet(progress, self.planner.bets)

    def until_bet(self, target: Target) -> int:
        if not self.planner.bets:
            return NEVER
        share = next_share(self.pmdp, target.progress(self.episodes, self.steps))
        return NEVER if share == 1.0 else target.episodes_until(share, self.episodes, self.steps)

    # ------------------------------------------------------------------ what the views and logs ask
    @property
    def name(self) -> str:
        return self.pmdp.name

    @property
    def assumed(self) -> str:
        return ASSUMPTIONS

    def figures(self) -> dict[str, float]:
        visited = int((self.experience.rows > 0).sum())
        return {
            **self.planner.widths(),
            "samples/pairs_visited": visited,
            "samples/pairs_visited_share": visited / max(1, len(self.experience.rows)),
            "samples/updates_skipped": self.planner.skipped,
        }

    @property
    def skipped(self) -> int:
        return self.planner.skipped

    def hyperparameters(self, agent: Any) -> dict[str, Any]:
        return {  # the table shows the first five by name, then the results
            "confidence": self.config.confidence,
            "delta": self.config.delta,
            "exploration": agent.exploration.name,
            "model": self.pmdp.name,
            "relaxation": self.config.relaxation,
            "seed": self.seed,
            "weight": agent.weight,
            "schedule": schedule_to_dict(agent.schedule)["kind"],
        }

    # ------------------------------------------------------------------ updates and certificates
    def update(self, schedule: Schedule, policy: Policy | None, informative: Policy | None = None) -> None:
        """Set new sampling policies (None keeps the old ones) and, from the schedule, the limits of the next update."""
        if policy is not None:
            self.sampling, self.informative = policy, informative
        self.updates += 1
        self.limits = schedule.limits(self._progress())

    def _progress(self) -> Progress:
        data = self.experience
        return Progress(
            self.episodes,
            self.steps,
            self.updates,
            data.rows.copy(),
            data.expressions.copy(),
            self._unknown_rows,
            ~self.pmdp.table.is_constant,
        )

    def look_for_repetitions(self) -> None:
        """Refute the model if the environment repeats the same random draws."""
        repeated = self.experience.watch.look()
        if repeated is not None:
            self.planner.refute(REPEATED, WAYS.index("window" if repeated.startswith("last ") else repeated))

    def update_certificate(self, is_quick: bool = False) -> Certificate:
        """The robust policy and its certificate; for sets that hold at all times, the best of the run so far."""
        counts, error = self.experience.counts, self.experience.reward_error
        self.look_for_repetitions()
        momentary = self.planner.certificate(counts, error, self.subject_to, is_quick)
        if self.certificate is not None and contradict(self.certificate, momentary):
            self.planner.refute(CONTRADICTION)
            momentary = self.planner.certificate(counts, error, self.subject_to, is_quick)
        found = self.judge.improved(self.witness, best_so_far(self.certificate, momentary), error)
        if self.judge.contradicts(self.witness, found, error):
            self.planner.refute(CONTRADICTION)
            found = best_so_far(None, self.planner.certificate(counts, error, self.subject_to, is_quick))
        if not same_policy(found.policy, momentary.policy):  # an earlier one, about which the new data say more
            regret = self.planner.regret_of(found, error)
            if regret.most < found.regret:
                found = replace(found, regret=regret.most, optimal=regret.is_optimal)
                self.earlier["regret"] = counts.copy()
            found = replace(found, undecided=None if regret.undecided is None else len(regret.undecided))
        now = counts.copy()
        for claim in ("lower", "upper", "regret"):
            if claim not in self.earlier or getattr(found, claim) == getattr(momentary, claim):
                self.earlier[claim] = now
        further = until_close(found.regret, found.gap, found.estimate, self.episodes)
        self.lacking = self.lacking or self.experience.lacking
        self.certificate = replace(
            found, truncation=self.truncation, assumptions=self.taken_for_granted, episodes_for=further
        )
        if self.within is not None:
            self._stay_within(self.certificate)
        return self.certificate

    def undecided(self) -> np.ndarray | None:
        """Rows that may still be part of a policy better than the certified one; None if they are not known."""
        counts, error = self.experience.counts, self.experience.reward_error
        if self.planner.uncertainty is None or self.certificate is None:
            self.update_certificate()
        if self.planner.uncertainty is None:  # a loaded run
            self.planner.certificate(counts, error)
        return self.planner.regret_of(require(self.certificate), error).undecided

    @property
    def taken_for_granted(self) -> tuple[str, ...]:
        """What the certificate takes for granted beside the model's structure."""
        return tuple(note for note in (self.pmdp.assumption, self.lacking) if note is not None)

    @property
    def truncation(self) -> str | None:
        """The note on what a time limit means for the guarantee."""
        discounted = self.objective.discount < 1.0  # late rewards hardly count, and every limit cuts such plays
        return None if discounted else truncation_note(self.time_limit, self.cut, self.episodes)

    def require_limits(self) -> None:
        """Raise if exploration is to keep limits, but there are none, or they cannot be proved while data arrive."""
        if self.within is None:
            return
        if not self.subject_to:
            raise ModelError(
                "explore_within_limits (--explore-within-limits) needs limits: give subject_to (--subject-to), "
                "for example 'probability of fallen <= 0.05'"
            )
        self.require_anytime("exploring within limits")

    def require_anytime(self, why: str) -> None:
        """Raise unless the guarantee holds at data-dependent times."""
        if not self.config.is_anytime:
            raise ModelError(
                f"{why} is not allowed with {self.config.confidence!r}: its guarantee holds only for a number of "
                "samples fixed in advance; choose confidence='likelihood' or 'anytime'"
            )


class Clock:
    """Seconds spent learning, over all calls and resumptions, and the steps of the current call."""

    def __init__(self, elapsed: float = 0.0):
        self._before = elapsed
        self._begun: float | None = None
        self.steps_before = 0

    def begin(self, steps: int) -> None:
        self._begun, self.steps_before = time.perf_counter(), steps

    def end(self) -> None:
        self._before, self._begun = self.elapsed, None

    @property
    def current(self) -> float:
        """Seconds of the current call."""
        return 0.0 if self._begun is None else time.perf_counter() - self._begun

    @property
    def elapsed(self) -> float:
        return self._before + self.current
