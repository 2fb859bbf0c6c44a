"""Play an environment with uniformly random actions, before anything is learned.

`check_model` compares it with a model, row by row. It does not stop at the first contradiction: everything is
counted and compared with the declared model, and each difference comes with a fix. A clean check is not a guarantee
(a certificate is); it shows that the model is worth learning with.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.world.attach import Attachment, attach
from rpl_agent.agent.world.observations import Env, is_vector, require_environment
from rpl_agent.agent.world.plays import finished, over_at_once, way_taken
from rpl_agent.core.errors import ModelError, require_count
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.guarantee.likelihood.estimate import point_estimate

#: Report frequencies that deviate from the declared ones by more than this many standard errors.
FAR = 5.0
#: Abandon an episode without an end after this many steps.
LONGEST = 1_000


@dataclass(frozen=True)
class ModelCheck:
    """The result of a comparison: a line per outcome of every row that was played, and problems."""

    lines: list[str]
    problems: list[str]
    episodes: int
    steps: int
    rows_played: int
    rows: int

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        share = f"{self.rows_played} of {self.rows} state-action pairs were played"
        found = [f"{len(self.problems)} thing(s) look wrong:", *(f"  - {text}" for text in self.problems)]
        last = found if self.problems else ["nothing looks wrong"]
        return "\n".join([*self.lines, f"{self.episodes} episodes, {self.steps} steps; {share}", *last])


class _Seen:
    """Observations, by rows of the model."""

    def __init__(self, world: Attachment):
        self.world, self.pmdp = world, world.pmdp
        self.over_at_once = over_at_once(world.pmdp, world.objective.resolve(world.pmdp))
        self.starts: Counter[int] = Counter()
        self.ways: dict[int, Counter[tuple[int, float]]] = defaultdict(Counter)  # row -> (successor, reward) -> times
        self.ended: Counter[int] = Counter()  # states in which the environment terminated
        self.lacking: dict[int, list[int]] = {}  # state -> actions of the environment that it lacks
        self.strange: dict[str, str] = {}  # observation -> what to do
        self.steps = 0

    def read(self, observation: Any, read: Callable[[], int]) -> int | None:
        try:
            return read()
        except Exception as error:
            shown = repr(observation)[:60]
            self.strange[shown] = (
                f"the observation {shown} is not a state of the model ({error}): add the state, map it with "
                "observation_to_state=..., or name the state that an end means with end=..."
            )
            return None

    def run_episode(self, rng: np.random.Generator, seed: int | None) -> None:
        env, reader, pmdp = self.world.env, self.world.reader, self.pmdp
        observation, info = env.reset(seed=seed)
        state = self.read(observation, lambda: reader.first(observation, info))
        if state is None:
            return
        self.starts[state] += 1
        for _ in range(0 if self.over_at_once[state] else LONGEST):
            if state not in self.lacking:
                self.lacking[state] = self.world.actions.lacking(pmdp, state, info.get("action_mask"))
            row = int(rng.integers(pmdp.state_ptr[state], pmdp.state_ptr[state + 1]))
            action, before = int(pmdp.action[row]), state
            observation, reward, over, cut, info = env.step(int(self.world.actions.numbers[action]))
            self.steps += 1
            state = self.read(observation, lambda: reader.next(before, action, observation, reward, bool(over), info))  # noqa: B023
            if state is None:
                return
            self.ways[row][state, float(reward)] += 1
            self.ended[state] += bool(over)
            if over or cut:
                return


def check_model(
    env: Env,
    pmdp: ParametricMDP | None = None,
    objective: Objective | str | None = None,
    *,
    episodes: int = 200,
    seed: int = 0,
    observation_to_state: Any = None,
    action_to_env: Any = None,
    end: Any = None,
) -> ModelCheck:
    """Play an environment and compare it with a model, as `RPLAgent` would use both; ``print`` the result.

    Declared frequencies come from known probabilities, or from the parameters that fit all observations.

    Examples
    --------
    >>> import gymnasium as gym
    >>> found = check_model(gym.make("FrozenLake-v1"), episodes=50)
    >>> found.problems
    []
    """
    require_environment(env)
    require_count("episodes", episodes)
    if is_vector(env):
        raise ModelError("check a single environment, not a vector environment")
    world = attach(
        env,
        pmdp=pmdp,
        objective=objective,
        state_of=observation_to_state,
        action_to_env=action_to_env,
        end=end,
    )
    seen, rng = _Seen(world), np.random.default_rng(seed)
    for episode in range(episodes):
        seen.run_episode(rng, seed if episode == 0 else None)
    lines, problems = _compare(seen)
    shown = int((~world.pmdp.is_silent[world.pmdp.row_state]).sum())
    return ModelCheck(lines, [*seen.strange.values(), *problems], episodes, seen.steps, len(seen.ways), shown)


def _compare(seen: _Seen) -> tuple[list[str], list[str]]:
    pmdp = seen.pmdp
    problems = _starts(seen) + _ends(seen) + _lacking(seen)
    found: dict[int, Counter[int]] = {row: Counter() for row in sorted(seen.ways)}
    for row, ways in found.items():
        for (after, reward), times in seen.ways[row].items():
            t, problem = _transition(seen, row, after, reward, times)
            problems += [problem] if problem else []
            if t is not None:
                ways[t] += times
    numbers = [t for ways in found.values() for t in ways.elements()]
    counts = Counts(pmdp)
    counts.add_transitions(np.array(numbers, dtype=np.int64))
    fit = point_estimate(pmdp, counts)
    declared = None if fit is None else pmdp.instantiate(fit).probability
    lines: list[str] = []
    for row, ways in found.items():
        some, wrong = _row(pmdp, row, ways, sum(seen.ways[row].values()), declared)
        lines, problems = lines + some, problems + wrong
    return lines, problems


def _row(
    pmdp: ParametricMDP, row: int, ways: Counter[int], total: int, declared: np.ndarray | None
) -> tuple[list[str], list[str]]:
    """Declared and observed frequencies of a row that was played ``total`` times."""
    lines, problems = [f"{pmdp.row_name(row)}: {total} times"], []
    for t in range(int(pmdp.row_ptr[row]), int(pmdp.row_ptr[row + 1])):
        expression, after = pmdp.table.polynomial(int(pmdp.expression[t])), int(pmdp.visible_successor[t])
        p = float(expression.constant_value()) if expression.is_constant else np.nan
        if declared is not None:
            p = float(declared[t])
        said = str(expression) if expression.is_constant else f"{expression} ≈ {p:.3g}"
        share = ways[t] / total
        lines.append(f"    to {pmdp.state_name(after)}: declared {said}, seen {share:.3g} ({ways[t]} times)")
        if abs(share - p) > FAR * np.sqrt(max(p * (1 - p), 1 / total) / total):
            cure = "write its true value" if expression.is_constant else "give the row a parameter of its own"
            problems.append(
                f"{pmdp.row_name(row)} leads to {pmdp.state_name(after)} in {share:.3g} of {total} steps; declared is "
                f"{said}: {cure}"
            )
    return lines, problems


def _transition(seen: _Seen, row: int, after: int, reward: float, times: int) -> tuple[int | None, str | None]:
    """The transition that was made, and its problem if any."""
    pmdp, paid = seen.pmdp, seen.world.paid
    low, high = int(pmdp.row_ptr[row]), int(pmdp.row_ptr[row + 1])
    ways = low + np.flatnonzero(pmdp.visible_successor[low:high] == after)
    place = f"{pmdp.row_name(row)} led to {pmdp.state_name(after)} ({times} times)"
    if not len(ways):
        return None, f"{place}, which is not in the row: add that successor"
    if paid is None:  # the objective is not about rewards
        return int(ways[0]), None
    found, _ = way_taken(paid.T, ways.tolist(), reward)
    if found is not None:
        return found, None
    pays = " or ".join(f"{paid[0, t]:g}" for t in ways.tolist())
    text = f"{place} and paid {reward:g}, but declared is {pays}: write {reward:g} (costs are paid as negative rewards)"
    return int(ways[0]), text


def _starts(seen: _Seen) -> list[str]:
    pmdp = seen.pmdp
    return [
        f"{times} episodes start in {pmdp.state_name(state)}, but the model does not: name all starts, "
        "build({state: probability, …}, …)"
        for state, times in seen.starts.items()
        if state not in pmdp.first_states
    ]


def _ends(seen: _Seen) -> list[str]:
    pmdp, objective = seen.pmdp, seen.world.objective
    task = objective.resolve(pmdp)
    over = task.decided | finished(pmdp, task)
    return [
        f"the environment ended {times} times in {pmdp.state_name(state)}, where the model continues: make that state "
        "absorbing, label it as the target, or pass end=... for the state that an end means"
        for state, times in seen.ended.items()
        if times and not over[state] and objective.horizon is None
    ]


def _lacking(seen: _Seen) -> list[str]:
    """One problem for all states that lack actions, because they have one cause."""
    pmdp = seen.pmdp
    task = seen.world.objective.resolve(pmdp)
    over = task.decided | finished(pmdp, task)
    found = {state: actions for state, actions in seen.lacking.items() if actions and not over[state]}
    if not found:
        return []
    state, actions = next(iter(found.items()))
    return [
        f"{len(found)} state(s) lack actions that the environment has and no action_mask forbids, for example "
        f"{pmdp.state_name(state)} the action {actions[0]}: add their rows, or the certificate is only about policies "
        "that use the model's actions"
    ]
