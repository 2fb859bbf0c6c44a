"""Episodes of an environment without a model: every step is counted, every state numbered at its first visit."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from rpl_agent.agent.discovery.world import OpenWorld
from rpl_agent.agent.sampling.experience import GeneratorStates, Request, SampledBatch
from rpl_agent.agent.sampling.step_checker import flag, number, unpack_step
from rpl_agent.agent.sampling.stepping import OPENING, EnvSource, Lane, Phase
from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.repetition import RepeatedChanceError
from rpl_agent.core.model.states import canonical
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.values import UpperValues
from rpl_agent.guarantee.open_world.witness import OpenEpisode, PlayedPolicy

#: The share of episodes that play the fixed policy, until it is known which bound is wider; the others explore.
FIRST_SHARE = 0.5
#: A row is as good as the best of its state up to this share of the range of returns.
TIE = 1e-9
#: Steps between two looks for Ctrl-C.
LOOKS = 32
#: Types of whole numbers: equal ones are the same key of a dictionary, so each is its own canonical form.
WHOLE = (int, np.int64, np.int32)
Where = Callable[[], str]


class ResetWatch:
    """Refuses an environment that seeds itself in reset, with one seed or a few in turn: its episodes repeat."""

    def __init__(self) -> None:
        self._states = GeneratorStates()  # after all resets

    def reset(self, before: Any, after: Any) -> None:
        """States of the environment's generator before and after a reset without a seed; None if unknown."""
        if after is not None and self._states.add(after) and before != after:
            raise RepeatedChanceError(
                "the environment seeds itself in reset(), so that its episodes repeat the same chance: no guarantee "
                "holds for such data; seed its generator in reset(seed=...) only"
            )


#: Bits of chance that must agree, from the first comparison and without one exception, to count as repeated.
REPEATED_BITS = 32.0


class AgreementWatch:
    """Refuses chance that repeats itself: the same row has the same outcome again and again, at once or in turn."""

    def __init__(self, what: str):
        self._what, self._bits = what, 0.0
        self.is_open = True  # until one outcome differs: then chance is not repeated

    def compare(self, agrees: bool, share: float) -> None:
        """One comparison of two outcomes of a row; ``share`` of its visits had the first one."""
        self.is_open = self.is_open and agrees
        self._bits -= math.log2(share)
        if self.is_open and self._bits >= REPEATED_BITS:
            raise RepeatedChanceError(
                f"{self._what} repeat the same chance: no guarantee holds for such data; seed them differently"
            )


class EpisodeSteps:
    """The steps of a copy's current and previous episode, compared as long as they are the same."""

    __slots__ = ("current", "earlier", "same")

    def __init__(self) -> None:
        self.earlier: list[tuple[int, int]] = []
        self.current: list[tuple[int, int]] = []
        self.same = True  # so far

    def agrees(self, begins: bool, row: int, entry: int) -> bool | None:
        """Add a step; return whether the previous episode had the same outcome there; None if not comparable."""
        if begins:
            self.earlier, self.current, self.same = self.current, [], True
        at, step = len(self.current), (row, entry)
        self.current.append(step)
        if not self.same or at >= len(self.earlier):
            return None
        before = self.earlier[at]
        self.same = before == step
        return self.same if before[0] == row else None


class RepetitionWatch:
    """Compares steps of neighbouring copies in one tick, and of one copy's episodes as long as they are the same."""

    def __init__(self) -> None:
        self._copies = AgreementWatch("copies of the environment")
        self._episodes = AgreementWatch("episodes of the environment")
        self._latest: dict[int, tuple[int, int, int]] = {}  # by lane: tick, row, outcome
        self._steps: dict[int, EpisodeSteps] = {}  # by lane

    @property
    def compares_episodes(self) -> bool:
        """Whether episodes of one copy are still compared."""
        return self._episodes.is_open

    def add(self, lane: int, tick: int, begins: bool, row: int, entry: int, share: float) -> None:
        """A step of a lane; ``share`` of the row's visits had this outcome."""
        if self._copies.is_open:
            other = self._latest.get(lane - 1)
            if other is not None and other[:2] == (tick, row):
                self._copies.compare(other[2] == entry, share)
            self._latest[lane] = tick, row, entry
        self.add_alone(lane, begins, row, entry, share)

    def add_alone(self, lane: int, begins: bool, row: int, entry: int, share: float) -> None:
        """A step of a lane that has no neighbours, or was compared with them."""
        if self._episodes.is_open:
            steps = self._steps.get(lane) or self._steps.setdefault(lane, EpisodeSteps())
            agrees = steps.agrees(begins, row, entry)
            if agrees is not None:
                self._episodes.compare(agrees, share)


class OpenExperience:
    """Everything seen so far, and who plays: the explorer, or the policy that is fixed (`open_world.witness`)."""

    def __init__(self, assumptions: Assumptions, upper: UpperValues, actions: int):
        self.assumptions, self.upper = assumptions, upper
        self.data = OpenData(actions)
        self.witness: PlayedPolicy | None = None
        self.watch = ResetWatch()
        self.repetitions = RepetitionWatch()
        self.refuted: str | None = None  # the step that contradicts what is assumed
        self.begun = 0  # episodes
        self.share, self.credit = FIRST_SHARE, 0.0  # of episodes that play the fixed policy, and how much is due
        self.update_at = 0  # steps
        self._best: dict[tuple[int, int], list[int]] = {}  # (layer, state): actions with the largest bound
        self._allowed: dict[int, frozenset[Hashable]] = {}  # states that may follow a row

    @property
    def total(self) -> int:
        """Number of steps that are data."""
        return self.data.total

    def is_turn(self) -> bool:
        """Whether the next episode plays the fixed policy: decided by its share, before the episode begins."""
        self.credit += self.share
        if self.credit < 1.0:
            return False
        self.credit -= 1.0
        return True

    def look_again(self) -> None:
        """Forget which actions are best, after new bounds."""
        self._best.clear()

    def explore(self, state: int, layer: int) -> int:
        """The action whose bound is largest; among equal ones the one tried least."""
        actions, found = self.data.actions, self._best.get((layer, state))
        if found is None:
            found = list(range(actions))
            if state < self.upper.values.shape[1]:
                bounds = self.upper.rows[layer, state * actions : (state + 1) * actions]
                low, high = self.assumptions.overall
                found = np.flatnonzero(bounds >= bounds.max() - TIE * (high - low)).tolist()
            self._best[layer, state] = found
        if len(found) == 1:
            return found[0]
        visits = self.data.visits
        return min(found, key=lambda action: visits[state * actions + action])

    def entropy(self) -> float:
        """Mean entropy of a step in bits, by observed frequencies."""
        counts, visits = np.array(self.data.counts, dtype=float), np.array(self.data.visits, dtype=float)
        if not len(counts):
            return 0.0
        return -float(counts @ np.log2(counts / visits[self.data.rows])) / self.data.total

    def count(self, row: int, reward: float, successor: int, where: Where) -> int:
        """Count an outcome, unless it contradicts a fact; return its number."""
        self.assumptions.check_reward(reward, where)
        if self.assumptions.successors is not None:
            self._check_successor(row, successor, where)
        entry = self.data.add(row, reward, successor)
        if self.data.counts[entry] == 1:
            over = successor == END
            after = self.assumptions.after(None if over else self.data.states[successor], over)
            self.assumptions.check_step(self.data.states[row // self.data.actions], reward, after, where)
        if self.assumptions.deterministic and self.data.counts[entry] < self.data.visits[row]:
            raise DataError(
                f"{where()}: {self.row_name(row)} has a second outcome (reward {reward:g}, "
                f"{self._name(successor)}), which refutes deterministic=True"
            )
        return entry

    def _check_successor(self, row: int, successor: int, where: Where) -> None:
        assert self.assumptions.successors is not None
        allowed = self._allowed.get(row)
        if allowed is None:
            state, action = self.data.states[row // self.data.actions], row % self.data.actions
            allowed = self._allowed[row] = frozenset(map(canonical, self.assumptions.successors(state, action)))
        if (None if successor == END else self.data.states[successor]) not in allowed:
            raise DataError(
                f"{where()}: {self._name(successor)} follows {self.row_name(row)}, which refutes successors=..."
            )

    def row_name(self, row: int) -> str:
        return f"action {row % self.data.actions} in state {self.data.states[row // self.data.actions]!r}"

    def _name(self, successor: int) -> str:
        return "the end" if successor == END else f"state {self.data.states[successor]!r}"


class OpenReader:
    """What `EnvSource` asks of a reader of steps, where there is no model to compare them with."""

    def __init__(self, world: OpenWorld, experience: OpenExperience):
        self.world, self.experience = world, experience

    def use(self, policy: Any) -> None:
        """Nothing to set: the experience decides who plays."""

    def begin(self, observation: Any, where: Where, info: Any = None) -> tuple[int, None]:
        return self.experience.data.state(self.world.state(observation, where)), None


class _EveryRow:
    """The environment's action of every row, including rows that were not seen yet."""

    def __init__(self, actions: list[Any]):
        self._actions = actions

    def __getitem__(self, row: int) -> Any:
        return self._actions[row % len(self._actions)]


class OpenSource(EnvSource):
    """Steps environments without a model. A lane plays the fixed policy from the start of an episode to its end."""

    def __init__(
        self, world: OpenWorld, experience: OpenExperience, rng: np.random.Generator, seed: int, opening: list[Any]
    ):
        self._prepare(world.env, OpenReader(world, experience), rng, int(seed % 2**31), opening)
        self._numbers = _EveryRow(world.actions)
        self._world, self._seen, self._discount = world, experience, world.assumptions.discount
        self._judged: list[tuple[PlayedPolicy, OpenEpisode] | None] = [None] * len(self._lanes)

    def _layer(self, length: int) -> int:
        horizon = self._world.assumptions.horizon
        return 0 if horizon is None else max(horizon - 1 - length, 0)

    def _reset(self, keywords: dict[str, Any], lanes: Any) -> None:
        try:
            super()._reset(keywords, lanes)
        except RepeatedChanceError as error:  # what was counted so far repeats itself
            self._seen.refuted = str(error)
            raise

    def _enter(self, i: int, request: Request, done: SampledBatch, seen: list[int]) -> None:
        experience, lane = self._seen, self._lanes[i]
        self._leave(i, cut=True)
        experience.data.starts[lane.state] += 1
        if experience.witness is not None and experience.is_turn():
            episode = experience.witness.begin()
            episode.last = lane.state
            self._judged[i] = experience.witness, episode
        experience.begun += 1

    def _leave(self, i: int, cut: bool) -> None:
        """End a judged episode; an abandoned one counts as cut after its last step."""
        judged, self._judged[i] = self._judged[i], None
        if judged is not None:
            judged[1].end(cut)

    def _step(self, request: Request, done: SampledBatch, seen: list[int]) -> None:
        recorded = not self._records or len(self._opening) >= OPENING
        if self._single and recorded and self._lanes[0].phase is Phase.ACTIVE:
            self._play_on(request, done)
        else:
            super()._step(request, done, seen)

    def _play_on(self, request: Request, done: SampledBatch) -> None:
        """Steps of a single environment until its episode is over: `_step` with everything at hand.

        An outcome that was seen before agrees with all facts, so it is only counted.
        """
        lane, experience, step, where = self._lanes[0], self._seen, self._env.step, self._wheres[0]
        data, commands, horizon = experience.data, self._world.actions, self._world.assumptions.horizon
        actions, number_of, outcome_of, go_on = data.actions, data.number_of, data.outcome_of, self._go_on
        judged, explore, watched = self._judged[0], experience.explore, experience.repetitions.compares_episodes
        policy = None if judged is None else judged[0].policy.action
        plain = () if self._world.state_of is not None else WHOLE  # a whole number that is observed is the state
        last = min(horizon or math.inf, self._world.longest or math.inf) - 1
        while lane.phase is Phase.ACTIVE and done.steps < request.steps_left:
            self._tick += 1
            state, layer = lane.state, 0 if horizon is None else max(horizon - 1 - lane.length, 0)
            action = explore(state, layer) if policy is None else policy(state, layer)
            row = state * actions + action
            observation, reward, ended, cut, self._info = unpack_step(step(commands[action]), where)
            if not (type(ended) is type(cut) is bool):
                ended, cut = flag(ended, "terminated", where), flag(cut, "truncated", where)
            reward = number(reward, where)
            after = END if ended else number_of(observation) if type(observation) in plain else None
            if after is None:
                after = data.state(self._world.state(observation, where))
            entry = outcome_of((row, reward, after))
            if entry is None:
                self._advance_counted(0, row, reward, after, (ended, cut), done)
            else:
                data.again(entry, row)
                if watched:
                    self._compare(0, row, entry, alone=True)
                    watched = experience.repetitions.compares_episodes
                if ended or cut or lane.length >= last:
                    self._moved(0, reward, after, (ended, cut), done)
                else:
                    go_on(lane, judged, reward, after, done)
            if ended or cut:
                lane.phase = Phase.OVER
            if not done.steps % LOOKS and request.interrupted():
                break
        done.due |= data.total >= experience.update_at

    def _go_on(
        self, lane: Lane, judged: tuple[PlayedPolicy, OpenEpisode] | None, reward: float, after: int, done: SampledBatch
    ) -> None:
        """Go on after a step that was counted and did not end the episode."""
        weight = self._discount**lane.length
        lane.total += reward
        lane.value += weight * reward
        lane.length += 1
        lane.state = after
        done.steps += 1
        if judged is not None:
            judged[1].add(reward, weight)
            judged[1].last = after

    def _choose(self, i: int) -> int:
        lane, judged = self._lanes[i], self._judged[i]
        layer = self._layer(lane.length if lane.phase is Phase.ACTIVE else 0)
        if judged is not None and lane.phase is Phase.ACTIVE:
            action = judged[0].policy.action(lane.state, layer)
        else:
            action = self._seen.explore(lane.state, layer)
        return lane.state * self._seen.data.actions + action

    def _advance(
        self,
        i: int,
        row: int,
        observation: Any,
        reward: float,
        ends: tuple[bool, bool],
        request: Request,
        done: SampledBatch,
        seen: list[int],
    ) -> None:
        """Count one step of a lane, if it belongs to one of our episodes."""
        lane, experience, where = self._lanes[i], self._seen, self._wheres[i]
        # what is observed at an end is not a state: nothing follows it
        after = END if ends[0] else experience.data.state(self._world.state(observation, where))
        if lane.phase is not Phase.ACTIVE or done.steps >= request.steps_left:
            lane.state, lane.phase = lane.state if ends[0] else after, Phase.OUTSIDE
            return
        self._advance_counted(i, row, reward, after, ends, done)
        done.due |= experience.data.total >= experience.update_at

    def _advance_counted(
        self, i: int, row: int, reward: float, after: int, ends: tuple[bool, bool], done: SampledBatch
    ) -> None:
        """Compare a step of an episode with what is assumed, count it, and go on."""
        experience = self._seen
        try:
            entry = experience.count(row, reward, after, self._wheres[i])
            self._compare(i, row, entry)
            self._moved(i, reward, after, ends, done)
        except DataError as error:  # no certificate may rest on what is assumed any more
            experience.refuted = str(error)
            raise

    def _compare(self, i: int, row: int, entry: int, alone: bool = False) -> None:
        """Refuse chance that repeats itself, in copies of the environment (unless it is alone) or in its episodes."""
        experience, begins = self._seen, self._lanes[i].length == 0
        share = experience.data.counts[entry] / experience.data.visits[row]
        try:
            if alone:
                experience.repetitions.add_alone(i, begins, row, entry, share)
            else:
                experience.repetitions.add(i, self._tick, begins, row, entry, share)
        except RepeatedChanceError as error:
            experience.refuted = str(error)
            raise

    def _moved(self, i: int, reward: float, after: int, ends: tuple[bool, bool], done: SampledBatch) -> None:
        """Go on after a step that was counted: move the lane, and end its episode if it is over."""
        lane, assumed = self._lanes[i], self._seen.assumptions
        weight = assumed.discount**lane.length
        self._go_on(lane, self._judged[i], reward, lane.state if after == END else after, done)
        over = ends[0] or (assumed.horizon is not None and lane.length >= assumed.horizon)
        if over or ends[1] or (self._world.longest is not None and lane.length >= self._world.longest):
            self._leave(i, cut=not over)
            done.end(lane.number, lane.total, lane.length, lane.value, not over)
            lane.phase = Phase.OVER if self._mode == "DISABLED" else Phase.OUTSIDE
            self._check_return(lane.value, weight * assumed.discount, over, self._wheres[i])

    def _check_return(self, earned: float, left: float, over: bool, where: Where) -> None:
        try:
            self._seen.assumptions.check_return(earned, left, over, where)
        except DataError as error:
            self._seen.refuted = str(error)
            raise
