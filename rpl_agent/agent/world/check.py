"""Play an environment with uniformly random actions, before anything is learned.

`check_model` compares it with a model, row by row. It does not stop at the first contradiction: everything is
counted and compared with the declared model, and each difference comes with a fix. A clean check is not a guarantee
(a certificate is); it shows that the model is worth learning with.

`sketch` writes a Python file with an untied model of the observations, ready to edit. Every outcome of every state and
action that was played gets its own parameter. Write the same name twice for equal probabilities,
and a number for a known one. Unobserved outcomes are missing, and the file says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.world.attach import Attachment, attach
from rpl_agent.agent.world.observations import Env, is_vector, name_of, require_environment, time_limit
from rpl_agent.agent.world.plays import finished, over_at_once, way_taken
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.core.model.states import canonical
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
    _require_episodes(episodes)
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


#: Mark rows that were played less often: outcomes may be missing.
FEW = 20
#: The most states for which a sketch is useful.
MOST_STATES = 5_000
OVER = "over"
Seen = dict[Any, dict[int, Counter[tuple[Any, float]]]]

#: What a certificate of a sketched model takes for granted.
ASSUMPTION = (
    "this model is a sketch: the bounds assume that states, actions and outcomes which did not occur in {episodes} "
    "episodes of random actions do not exist"
)
HEAD = '''"""A sketch of the model of {name}, from {episodes} episodes ({steps} steps) of actions drawn at random.

{warning}
Every outcome has a parameter of its own. Write one name where probabilities are the same, and a number you know.
Then: rpl check {file}:make, and rpl train {file}:make
"""

{make}

from dataclasses import replace

from rpl_agent import Domain, Objective, build
from rpl_agent.core.model import paying

#: Every certificate says so. Set it to None once you know that ROWS has all states, actions and outcomes.
ASSUMPTION = {assumption!r}
#: state -> action -> (successor, reward, probability); {over!r} is the end of an episode
ROWS = {{
'''
TAIL = '''}}
STARTS = {starts}


def make():
    """The environment, and what the agent has to know about it."""
    drawn = [[p for _, _, p in ways] for rows in ROWS.values() for ways in rows.values()]
    drawn += [list(STARTS.values())] if isinstance(STARTS, dict) else []
    domain = Domain.box(tuple({{p: None for chances in drawn for p in chances if str(p).isidentifier()}}))
    for chances in drawn:
        named = [p for p in chances if str(p).isidentifier()]
        if len(named) > 1:  # together at most 1
            domain = domain.with_simplex(named)

    def actions(state):
        return {{
            action: {{paying(after, reward=reward): chance for after, reward, chance in ways}}
            for action, ways in ROWS.get(state, {{{first!r}: [(state, 0.0, 1)]}}).items()
        }}

    pmdp = build(
        STARTS, actions, domain=domain, labels={{"over": lambda state: state == {over!r}}},
        rewards={{"reward": lambda state, action: 0.0}}, name={name!r},
    )
    pmdp = replace(pmdp, assumption=ASSUMPTION)
    return environment(), {{"pmdp": pmdp, "objective": {objective}{end}}}
'''


def sketch(env: Env, *, episodes: int = 500, seed: int = 0, file: str = "sketch.py", code: str | None = None) -> str:
    """The text of a Python file with a model of ``episodes`` observed episodes, and a function ``make``.

    Parameters
    ----------
    file : its future name, for its own instructions.
    code : lines that define ``environment()``; by default from the registered id.

    Examples
    --------
    >>> import gymnasium as gym
    >>> text = sketch(gym.make("FrozenLake-v1"), episodes=20)
    >>> "def make" in text and "def environment" in text
    True
    """
    from gymnasium.spaces import Discrete

    require_environment(env)
    _require_episodes(episodes)
    if is_vector(env) or not isinstance(env.action_space, Discrete):
        raise ModelError(f"a sketch needs a single environment with Discrete actions, which {name_of(env)} is not")
    seen, starts, steps = _play(env, episodes, seed)
    spec, limit = getattr(env, "spec", None), time_limit(env, env)
    ends = any(after == OVER for rows in seen.values() for ways in rows.values() for after, _ in ways)
    if code is None:
        made = f"gym.make({spec.id!r})" if spec is not None else "...  # make your environment here"
        code = f"import gymnasium as gym\n\n\ndef environment():\n    return {made}\n"
    target = repr("over") if ends else None
    asked = f'Objective.reward("reward", target={target}, horizon={limit})'
    if limit is None:
        asked = f'Objective.reward("reward", target={target})' if ends else 'Objective.discounted("reward", 0.99)'
    first = int(env.action_space.start)
    head = HEAD.format(
        name=name_of(env),
        episodes=episodes,
        steps=steps,
        warning=_unseen(env, seen),
        file=file,
        make=code,
        over=OVER,
        assumption=ASSUMPTION.format(episodes=episodes),
    )
    begins = dict(zip(starts, _chances(len(starts), "start"), strict=True))
    tail = TAIL.format(
        starts=repr(begins if len(begins) > 1 else next(iter(begins))),
        first=first,
        over=OVER,
        name=name_of(env),
        objective=asked,
        end=f', "end": {OVER!r}' if ends else "",
    )
    return head + "".join(_rows(seen)) + tail


def _require_episodes(episodes: Any) -> None:
    if not hasattr(episodes, "__index__") or isinstance(episodes, bool) or episodes < 1:
        raise ModelError(f"episodes {episodes!r} must be a whole number, at least 1")


def _play(env: Any, episodes: int, seed: int) -> tuple[Seen, Counter[Any], int]:
    rng, steps = np.random.default_rng(seed), 0
    seen: Seen = defaultdict(lambda: defaultdict(Counter))
    starts: Counter[Any] = Counter()
    for episode in range(episodes):
        observation, info = env.reset(seed=seed if episode == 0 else None)
        state = canonical(observation)
        starts[state] += 1
        for _ in range(LONGEST):
            allowed = np.arange(env.action_space.n)
            if "action_mask" in info:
                allowed = np.flatnonzero(info["action_mask"])
            action = int(rng.choice(allowed) + env.action_space.start)
            observation, reward, over, cut, info = env.step(action)
            after = OVER if over else canonical(observation)
            seen[state][action][after, float(reward)] += 1
            state, steps = after, steps + 1
            if over or cut:
                break
        if len(seen) > MOST_STATES:
            raise ModelError(
                f"{name_of(env)} showed more than {MOST_STATES} states in {episode + 1} episodes: too many for a file"
            )
    return seen, starts, steps


def _chances(outcomes: int, prefix: str, first: int = 0) -> list[Any]:
    """Separate parameters for all outcomes but the last."""
    names = [f"{prefix}{first + k}" for k in range(outcomes - 1)]
    return [*names, " - ".join(["1", *names]) if names else 1]


def _rows(seen: Seen) -> list[str]:
    """Lines of ROWS, with the observed counts beside each outcome."""
    lines, number = [], 0
    for state, rows in seen.items():
        lines.append(f"    {state!r}: {{\n")
        for action in sorted(rows):
            ways, total = rows[action].most_common(), sum(rows[action].values())
            chances = _chances(len(ways), "p", number)
            number += len(ways) - 1
            few = f"  # played {total} times only" if total < FEW else ""
            lines.append(f"        {action}: [{few}\n")
            for ((after, reward), times), chance in zip(ways, chances, strict=True):
                lines.append(f"            ({after!r}, {reward!r}, {chance!r}),  # {times} of {total}\n")
            lines.append("        ],\n")
        lines.append("    },\n")
    return lines


def _unseen(env: Any, seen: Seen) -> str:
    """What was not observed."""
    pairs = sum(len(rows) for rows in seen.values())
    few = sum(sum(ways.values()) < FEW for rows in seen.values() for ways in rows.values())
    reached = {after for rows in seen.values() for ways in rows.values() for after, _ in ways} - {OVER} - set(seen)
    missing = len(seen) * int(env.action_space.n) - pairs
    return (
        f"Observed {len(seen)} states and {pairs} pairs of state and action. Not observed: {missing} pairs of these "
        f"states, and anything beyond.\n{few} pairs were played fewer than {FEW} times: some outcomes may be missing. "
        f"{len(reached)} states were reached and never left.\n"
    )
