"""`sketch`: play an environment and write a Python file of what was seen, with the facts that may be stated as lines to
edit. The model stays open: nothing is assumed about states and outcomes that were not seen, and every certificate says
what the facts assume.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from rpl_agent.agent.world.observations import (
    Env,
    environment_spec,
    is_vector,
    name_of,
    require_environment,
    time_limit,
)
from rpl_agent.agent.world.plays import LONGEST
from rpl_agent.core.errors import ModelError, front_door, require_count
from rpl_agent.core.model.states import canonical

#: The most states for which a sketch is useful.
MOST_STATES = 5_000
#: The discount of a file whose environment has no time limit.
DISCOUNT = 0.99
#: state -> number of the action -> (successor, reward) -> how often; None after an end
Seen = dict[Any, dict[int, Counter[tuple[Any, float]]]]

HEAD = '''"""What {episodes} episodes ({steps} steps) of random actions showed of {name}, and facts that you may state.

{seen}
Nothing is assumed about what was not seen. Every fact that you state in make() buys data; every certificate says what
it assumes, and a step that contradicts a fact ends the run. Then: rpl train {file}:make
"""

{code}

#: state -> number of the action -> successor -> how often; None is the end of an episode. Seen, not assumed.
SEEN = {{
'''
TAIL = '''}}


def seen_after(state, action):
    """What followed a pair; everything that was seen where the pair was not."""
    return SEEN.get(state, {{}}).get(action) or [*SEEN, None]


def make():
    """The environment, and what the agent is told about it."""
    facts = {{
        # the least and the largest reward of a step; EDIT: {least:g} to {most:g} were seen
        "rewards": {rewards},
        # of the return; without it the return counts up to the time limit{limit}
        {discount}
        # the least and the largest return from any state on, if you know more than the rewards say
        # "returns": (0, 1),
        # every action has one outcome in every state; seen: true of {single:,} of {pairs:,} pairs
        # "deterministic": True,
        # nothing can follow a pair but what was seen
        # "successors": seen_after,
        # rows that share one unknown noise; a model, with "rewards" a function of (state, action, successor):
        # "noise": {{"wind": ["calm", "gust"]}}, "key": lambda state, action: "wind",
        # "effect": lambda state, action, label: state,
    }}
    return environment(), facts
'''


@front_door
def sketch(env: Env, *, episodes: int = 500, seed: int = 0, file: str = "sketch.py", code: str | None = None) -> str:
    """The text of a Python file with what ``episodes`` episodes showed, and a function ``make`` with facts to edit.

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
    require_count("episodes", episodes)
    if is_vector(env) or not isinstance(env.action_space, Discrete):
        raise ModelError(f"a sketch needs a single environment with Discrete actions, which {name_of(env)} is not")
    seen, steps = _play(env, episodes, seed)
    limit = time_limit(env, env)
    if code is None:
        code = f"import gymnasium as gym\n\n\ndef environment():\n    return {_remade(env, limit)}\n"
    pairs = [ways for rows in seen.values() for ways in rows.values()]
    paid = [reward for ways in pairs for _, reward in ways]
    least, most = min(paid), max(paid)
    head = HEAD.format(name=name_of(env), episodes=episodes, steps=steps, seen=_told(env, seen), file=file, code=code)
    tail = TAIL.format(
        least=least,
        most=most,
        rewards=(least, most) if least < most else (min(least, 0.0), max(most, 0.0)) if least else (0.0, 1.0),
        limit="" if limit is None else f" of {limit:,} steps",
        discount=f'"discount": {DISCOUNT},' if limit is None else f'# "discount": {DISCOUNT},',
        single=sum(len(ways) == 1 for ways in pairs),
        pairs=len(pairs),
    )
    return head + "".join(_rows(seen)) + tail


def _remade(env: Any, limit: int | None) -> str:
    """The expression that makes a registered environment again, with its keywords and time limit."""
    import gymnasium as gym

    spec = environment_spec(env)
    if spec is None:
        return "...  # make your environment here"
    if spec["kwargs"] is None:
        return f"...  # gym.make({spec['id']!r}, …) with your keywords, which are not plain data"
    keywords = dict(spec["kwargs"])
    if limit is not None and limit != gym.spec(spec["id"]).max_episode_steps:
        keywords["max_episode_steps"] = limit
    return f"gym.make({', '.join([repr(spec['id']), *(f'{name}={value!r}' for name, value in keywords.items())])})"


def _play(env: Any, episodes: int, seed: int) -> tuple[Seen, int]:
    rng, steps = np.random.default_rng(seed), 0
    seen: Seen = defaultdict(lambda: defaultdict(Counter))
    for episode in range(episodes):
        observation, info = env.reset(seed=seed if episode == 0 else None)
        state = canonical(observation)
        for _ in range(LONGEST):
            allowed = np.arange(env.action_space.n)
            if "action_mask" in info:
                allowed = np.flatnonzero(info["action_mask"])
            action = int(rng.choice(allowed))
            observation, reward, over, cut, info = env.step(action + int(env.action_space.start))
            after = None if over else canonical(observation)
            seen[state][action][after, float(reward)] += 1
            state, steps = after, steps + 1
            if over or cut:
                break
        if len(seen) > MOST_STATES:
            raise ModelError(
                f"{name_of(env)} showed more than {MOST_STATES} states in {episode + 1} episodes: too many for a file"
            )
    return seen, steps


def _rows(seen: Seen) -> list[str]:
    """Lines of SEEN."""
    lines = []
    for state, rows in seen.items():
        lines.append(f"    {state!r}: {{\n")
        for action in sorted(rows):
            after: Counter[Any] = Counter()
            for (successor, _), times in rows[action].items():
                after[successor] += times
            shown = ", ".join(f"{successor!r}: {times}" for successor, times in after.most_common())
            lines.append(f"        {action}: {{{shown}}},\n")
        lines.append("    },\n")
    return lines


def _told(env: Any, seen: Seen) -> str:
    """How much was seen, and what was not."""
    pairs = sum(len(rows) for rows in seen.values())
    reached = {after for rows in seen.values() for ways in rows.values() for after, _ in ways} - {None} - set(seen)
    missing = len(seen) * int(env.action_space.n) - pairs
    return (
        f"Seen: {len(seen)} states and {pairs} pairs of state and action. Not seen: {missing} pairs of these states, "
        f"and anything beyond.\n{len(reached)} states were reached and never left."
    )
