"""Episodes of an environment without a model: every step is counted, every state numbered at its first visit."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np

from rpl_agent.agent.discovery.repeats import Outcome, RepetitionWatch, ResetWatch
from rpl_agent.agent.discovery.world import OpenWorld
from rpl_agent.agent.sampling.experience import Request, SampledBatch
from rpl_agent.agent.sampling.step_checker import checked_flag, checked_reward, unpack_step
from rpl_agent.agent.sampling.stepping import ACTIVE, OPENING, OUTSIDE, OVER, EnvSource
from rpl_agent.agent.world.when_attached import require
from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.repetition import RepeatedChanceError
from rpl_agent.core.model.states import canonical
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.played import OpenEpisode, OpenPolicy, PlayedPolicy
from rpl_agent.guarantee.open_world.values import UpperValues

#: The share of episodes that play the fixed policy, until it is known which bound is wider; the others explore.
FIRST_SHARE = 0.5
#: A row is as good as the best of its state up to this share of the range of returns.
TIE = 1e-9
#: Steps between two looks for Ctrl-C.
LOOKS = 64
#: Types of whole numbers: equal ones are the same key of a dictionary, so each is its own canonical form.
WHOLE = (int, np.int64, np.int32)
#: Types of rewards that may be part of a key.
PAID = (float, int, np.float64, np.float32)
#: Outcomes that are looked up at once; the others take a little longer, and less memory.
MOST_FOLLOWED = 1 << 16
Where = Callable[[], str]


class Choices(dict[int, "int | list[int]"]):
    """The row to take in a state, or several, of which the one tried least is taken; asked for once."""

    def __init__(self, ask: Callable[[int], list[int]], data: OpenData):
        super().__init__()
        self._ask, self._data = ask, data

    def __missing__(self, state: int) -> int | list[int]:
        first = state * self._data.actions
        rows = [first + action for action in self._ask(state)]
        found = self[state] = rows[0] if len(rows) == 1 else rows
        return found


class OpenExperience:
    """Everything seen so far, and who plays: the explorer, or the policy that is fixed (`open_world.played`)."""

    def __init__(self, assumptions: Assumptions, upper: UpperValues, actions: int):
        self.assumptions, self.upper = assumptions, upper
        self.data = OpenData(actions)
        self.played: PlayedPolicy | None = None
        self.watch = ResetWatch()
        self.repetitions = RepetitionWatch()
        self.refuted: str | None = None  # the step that contradicts what is assumed
        self.begun = 0  # episodes
        self.share, self.credit = FIRST_SHARE, 0.0  # of episodes that play the fixed policy, and how much is due
        self.update_at = 0  # steps
        self.choices: dict[int, Choices] = {}  # by layer
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
        self.choices.clear()

    def explore(self, state: int, layer: int) -> int:
        """The action whose bound is largest; among equal ones the one tried least."""
        found, actions = self.explorer(layer)[state], self.data.actions
        return (found if isinstance(found, int) else min(found, key=self.data.visits.__getitem__)) % actions

    def explorer(self, layer: int) -> Choices:
        """What `explore` chooses, by state."""
        found = self.choices.get(layer)
        if found is None:
            found = self.choices[layer] = Choices(partial(self._best, layer), self.data)
        return found

    def _best(self, layer: int, state: int) -> list[int]:
        """The actions with the largest bound."""
        actions = self.data.actions
        if state >= self.upper.values.shape[1]:
            return list(range(actions))
        bounds = self.upper.rows[layer, state * actions : (state + 1) * actions].tolist()  # few: lists are faster
        low, high = self.assumptions.overall
        least = max(bounds) - TIE * (high - low)
        return [action for action, bound in enumerate(bounds) if bound >= least]

    def frequency(self, step: Outcome) -> float:
        """The share of a row's visits that had this outcome."""
        return self.data.counts[step[1]] / self.data.visits[step[0]]

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
        self._has_chance = not world.assumptions.deterministic
        self._judged: list[tuple[PlayedPolicy, OpenEpisode] | None] = [None] * len(self._lanes)
        self._playing: OpenPolicy | None = None  # by the only lane
        self._rules: dict[int, Choices] = {}  # of that policy, by layer
        self._powers: list[float] = []  # of the discount
        # what followed before, by (row, reward, observation), at an end by (row, reward): the outcome's number, the
        # successor's, and the reward
        self._followed: dict[tuple[Any, ...], tuple[int, int, float]] = {}
        # the step of an episode, from 0, that ends it if the environment does not
        self._last = min(world.assumptions.horizon or math.inf, world.longest or math.inf) - 1

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
        if experience.played is not None and experience.is_turn():
            episode = experience.played.begin(experience.assumptions.overall)
            episode.last = lane.state
            self._judged[i] = experience.played, episode
        experience.begun += 1

    def _leave(self, i: int, cut: bool) -> None:
        """End a judged episode; an abandoned one counts as cut after its last step."""
        judged, self._judged[i] = self._judged[i], None
        if judged is not None:
            judged[1].end(cut)

    def _step(self, request: Request, done: SampledBatch, seen: list[int]) -> None:
        recorded = not self._records or len(self._opening) >= OPENING
        if self._single and recorded and self._lanes[0].phase is ACTIVE:
            self._play_on(request, done)
        else:
            super()._step(request, done, seen)

    def _play_on(self, request: Request, done: SampledBatch) -> None:
        """Steps of a single environment until its episode is over: `_step`, with care only where it is needed."""
        lane, where = self._lanes[0], self._wheres[0]
        while lane.phase is ACTIVE and done.steps < request.steps_left:
            step = self._familiar(min(LOOKS, request.steps_left - done.steps), done)
            if step is not None and not self._ends_as_before(*step, done):
                self._tick += 1
                row, (observation, reward, ended, cut, self._info) = step
                ends = checked_flag(ended, "terminated", where), checked_flag(cut, "truncated", where)
                self._advance(0, row, observation, checked_reward(reward, where), ends, request, done, [])
                if ends[0] or ends[1]:
                    lane.phase = OVER
            if request.interrupted():
                break
        done.due |= self._seen.data.total >= self._seen.update_at

    def _ends_as_before(self, row: int, returned: Any, done: SampledBatch) -> bool:
        """Count a step that ends the episode with an outcome that came before; False if it is another."""
        _, reward, ended, cut, info = returned
        if ended is not True or cut is not False or type(reward) not in PAID:
            return False
        found = self._followed.get((row, reward))
        if found is None:
            return False
        self._tick, self._info = self._tick + 1, info
        self._seen.data.again(found[0], row)
        self._compare(0, row, found[0])
        self._moved(0, found[2], END, (True, False), done)
        return True

    def _familiar(self, most: int, done: SampledBatch) -> tuple[int, Any] | None:
        """Count up to this many steps; return the first that needs care, uncounted, as (row, what ``step`` returned).

        That is one that ends the episode, or whose outcome never came before: all others agree with all facts.
        """
        lane, where, data, step = self._lanes[0], self._wheres[0], self._seen.data, self._env.step
        commands, horizon = self._world.actions, self._world.assumptions.horizon
        actions, counts, visits, followed = data.actions, data.counts, data.visits, self._followed.get
        tried = visits.__getitem__
        choices_of, size, last = self._chooser(), 0.0, self._last
        path: list[Outcome] = []
        choices, state, watched = choices_of(0), lane.state, self._is_watched
        first = length = lane.length
        total, value, weights = lane.total, lane.value, self._weights(first + most)
        try:
            for length in range(first, first + most):
                if horizon is not None:
                    choices = choices_of(max(horizon - 1 - length, 0))
                chosen = choices[state]
                row = chosen if isinstance(chosen, int) else min(chosen, key=tried)
                returned = step(commands[row % actions])
                try:
                    observation, reward, ended, cut, _ = returned
                    found = followed((row, reward, observation))
                except (TypeError, ValueError):  # not five values, or one that is no key of a dictionary
                    lane.length, found = length, None  # errors name the step
                    observation, reward, ended, cut, _ = unpack_step(returned, where)
                if ended is not False or cut is not False:
                    lane.length = length
                    if checked_flag(ended, "terminated", where) or checked_flag(cut, "truncated", where):
                        return row, returned
                if found is None:
                    lane.length = length
                    found = self._find(row, observation, reward)
                if found is None or length >= last:
                    return row, returned
                entry, after, paid = found
                counts[entry] += 1
                visits[row] += 1
                if watched:
                    path.append((row, entry))
                state = after
                if paid:
                    gain = weights[length] * paid
                    total += paid
                    value += gain
                    size += gain if gain > 0.0 else -gain
            length = first + most
            return None
        finally:
            lane.total, lane.value = total, value
            self._went_on(first, length, state, size, path, done)

    def _find(self, row: int, observation: Any, reward: Any) -> tuple[int, int, float] | None:
        """The numbers of an outcome that came before and of its successor, and its reward; None if it never came."""
        where, data = self._wheres[0], self._seen.data
        after, paid = data.state(self._world.state(observation, where)), checked_reward(reward, where)
        entry = data.outcome_of((row, paid, after))
        if entry is None:
            return None
        # a whole number that is observed is the state
        plain = self._world.state_of is None and type(observation) in WHOLE
        if plain and len(self._followed) < MOST_FOLLOWED:
            self._followed[row, paid, observation] = entry, after, paid
        return entry, after, paid

    def _weights(self, number: int) -> list[float]:
        """At least this many powers of the discount."""
        while len(self._powers) < number:
            self._powers.append(self._discount ** len(self._powers))
        return self._powers

    @property
    def _is_watched(self) -> bool:
        """Whether episodes are compared; without chance their agreement says nothing."""
        return self._has_chance and self._seen.repetitions.compares_episodes

    def _went_on(
        self, first: int, length: int, state: int, size: float, path: list[Outcome], done: SampledBatch
    ) -> None:
        """Note where the steps from ``first`` to ``length``, which are counted, led; and compare those of the path."""
        lane, judged, experience, taken = self._lanes[0], self._judged[0], self._seen, length - first
        lane.state, lane.length = state, length
        self._tick += taken
        experience.data.total += taken
        done.steps += taken
        if judged is not None:
            judged[1].last, judged[1].steps = state, length
            judged[1].earned, judged[1].size = lane.value, judged[1].size + size
        if path:
            self._refuse(lambda: experience.repetitions.add_alone(0, first == 0, path, experience.frequency))

    def _chooser(self) -> Callable[[int], Choices]:
        """What the only lane does, by layer."""
        judged = self._judged[0]
        if judged is None:
            return self._seen.explorer
        if self._playing is not judged[0].policy:
            self._playing, self._rules = judged[0].policy, {}
        return self._rule

    def _rule(self, layer: int) -> Choices:
        """What the policy that is played does."""
        found, policy = self._rules.get(layer), require(self._playing)
        if found is None:
            found = self._rules[layer] = Choices(lambda state: [policy.action(state, layer)], self._seen.data)
        return found

    def _choose(self, i: int) -> int:
        lane, judged = self._lanes[i], self._judged[i]
        layer = self._layer(lane.length if lane.phase is ACTIVE else 0)
        if judged is not None and lane.phase is ACTIVE:
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
        if lane.phase is not ACTIVE or done.steps >= request.steps_left:
            lane.state, lane.phase = lane.state if ends[0] else after, OUTSIDE
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
            if after == END and len(self._followed) < MOST_FOLLOWED:
                self._followed[row, reward] = entry, after, reward
            self._compare(i, row, entry)
            self._moved(i, reward, after, ends, done)
        except DataError as error:  # no certificate may rest on what is assumed any more
            experience.refuted = str(error)
            raise

    def _compare(self, i: int, row: int, entry: int) -> None:
        """Refuse chance that repeats itself, in copies of the environment or in its episodes."""
        if self._single and not self._is_watched:
            return
        begins, watch = self._lanes[i].length == 0, self._seen.repetitions
        self._refuse(lambda: watch.add(i, self._tick, begins, (row, entry), self._seen.frequency))

    def _refuse(self, compare: Callable[[], None]) -> None:
        try:
            compare()
        except RepeatedChanceError as error:
            self._seen.refuted = str(error)
            raise

    def _moved(self, i: int, reward: float, after: int, ends: tuple[bool, bool], done: SampledBatch) -> None:
        """Go on after a step that was counted: move the lane, and end its episode if it is over."""
        lane, judged, assumed = self._lanes[i], self._judged[i], self._seen.assumptions
        weight = assumed.discount**lane.length
        lane.total += reward
        lane.value += weight * reward
        lane.length += 1
        lane.state = lane.state if after == END else after
        done.steps += 1
        if judged is not None:
            judged[1].add(reward, weight)
            judged[1].last = lane.state
        over = ends[0] or (assumed.horizon is not None and lane.length >= assumed.horizon)
        if over or ends[1] or (self._world.longest is not None and lane.length >= self._world.longest):
            self._leave(i, cut=not over)
            done.end(lane.number, lane.total, lane.length, lane.value, not over)
            lane.phase = OVER if self._mode == "DISABLED" else OUTSIDE
            self._check_return(lane.value, weight * assumed.discount, over, self._wheres[i])

    def _check_return(self, earned: float, left: float, over: bool, where: Where) -> None:
        try:
            self._seen.assumptions.check_return(earned, left, over, where)
        except DataError as error:
            self._seen.refuted = str(error)
            raise
