"""`sketch`: the Python file of an untied model of what was seen of an environment, ready to edit.

Every outcome of every state and action that was played gets a parameter of its own. Whoever knows that two of them are
the same writes the same name twice; whoever knows a number writes the number. What was not seen is not in the file, and
the file says so: it is a start, not a model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from rpl_agent.agent.world.env_facts import is_vector, name_of, time_limit
from rpl_agent.errors import ModelError
from rpl_agent.model.states import canonical

#: Rows that were played less often are marked: outcomes may be missing.
FEW = 20
#: Steps after which an episode without an end is left; states after which a sketch is of no use.
LONGEST, MOST_STATES = 1_000, 5_000
OVER = "over"
Seen = dict[Any, dict[int, Counter[tuple[Any, float]]]]

HEAD = '''"""A sketch of the model of {name}, from {episodes} episodes ({steps} steps) of actions drawn at random.

{warning}
Every outcome has a parameter of its own. Write one name where probabilities are the same, and a number you know.
Then: rpl check {file}:make, and rpl train {file}:make
"""

{make}

from rpl_agent import Domain, Objective, build
from rpl_agent.model import paying

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
    return environment(), {{"pmdp": pmdp, "objective": {objective}{end}}}
'''


def sketch(env: Any, *, episodes: int = 500, seed: int = 0, file: str = "sketch.py", code: str | None = None) -> str:
    """The text of a Python file with a model of what ``episodes`` showed, and a function ``make``.

    Parameters
    ----------
    file : what it will be called, for its own instructions.
    code : lines that define ``environment()``; by default it is made by its registered id.

    Examples
    --------
    >>> import gymnasium as gym
    >>> text = sketch(gym.make("FrozenLake-v1"), episodes=20)
    >>> "def make" in text and "def environment" in text
    True
    """
    from gymnasium.spaces import Discrete

    if is_vector(env) or not isinstance(env.action_space, Discrete):
        raise ModelError(f"a sketch needs a single environment with Discrete actions; {name_of(env)} is none")
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
        name=name_of(env), episodes=episodes, steps=steps, warning=_unseen(env, seen), file=file, make=code, over=OVER
    )
    begins = dict(zip(starts, _chances(len(starts), "start"), strict=True))
    tail = TAIL.format(
        starts=repr(begins if len(begins) > 1 else next(iter(begins))), first=first, over=OVER, name=name_of(env),
        objective=asked, end=f', "end": {OVER!r}' if ends else "",
    )  # fmt: skip
    return head + "".join(_rows(seen)) + tail


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
    """Parameters of their own for all outcomes but the last."""
    names = [f"{prefix}{first + k}" for k in range(outcomes - 1)]
    return [*names, " - ".join(["1", *names]) if names else 1]


def _rows(seen: Seen) -> list[str]:
    """Lines of ROWS, with what was seen beside each outcome."""
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
    """What the file does not know."""
    pairs = sum(len(rows) for rows in seen.values())
    few = sum(sum(ways.values()) < FEW for rows in seen.values() for ways in rows.values())
    reached = {after for rows in seen.values() for ways in rows.values() for after, _ in ways} - {OVER} - set(seen)
    missing = len(seen) * int(env.action_space.n) - pairs
    return (
        f"Seen were {len(seen)} states and {pairs} pairs of state and action. Not seen: {missing} pairs of these "
        f"states, and whatever else there is.\n{few} pairs were played fewer than {FEW} times: some outcomes may lack. "
        f"{len(reached)} states were reached and never left.\n"
    )
