"""`Recorder`: an environment that remembers how its episodes began and how the last of them went.

Played again, the last calls show whether an environment that was made anew stands where the old one stood; the first
ones show whether it starts with the same random numbers every time it is made. Only actions and a digest of
what was observed are kept: never ``info``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.interrupt import calls_environment, interruptible
from rpl_agent.agent.sampling.sources import generator_state, set_generator

#: Calls kept of the opening, and at least this many of the end (where there were as many); an episode longer than the
#: last number leaves no end to play again.
OPENING = 512
TAIL = 512
LONGEST = 4096

#: A call: ("reset", seed or None, digest) or ("step", action, digest).
Call = tuple[str, Any, Any]


class Recorder:
    """Passes everything through and records ``reset`` and ``step``; of a vector environment the opening only."""

    def __init__(self, env: Any, keep_tail: bool = True):
        self._env, self._keep_tail = env, keep_tail
        self.opening: list[Call] = []
        self._pieces: list[tuple[Any, list[Call]]] = []  # (generator's state before its first reset, calls)
        self._dropped = False  # whether calls before the first piece were forgotten

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    @property
    def unwrapped(self) -> Any:
        return self._env.unwrapped

    def reset(self, **keywords: Any) -> Any:
        if self._keep_tail and (not self._pieces or len(self._pieces[-1][1]) >= TAIL):
            self._pieces.append((generator_state(self._env), []))
            if len(self._pieces) > 2:
                del self._pieces[0]
                self._dropped = True
        returned = _answer(self._env.reset, **keywords)
        if keywords.get("options") is None:
            self._record(("reset", keywords.get("seed"), digest(_seen(returned, 1))))
        else:
            self.opening.extend([("end", None, None)] * (OPENING - len(self.opening)))  # cannot be played again
        return returned

    def step(self, action: Any) -> Any:
        returned = _answer(self._env.step, action)
        played = action.tolist() if isinstance(action, np.ndarray) else int(action)
        self._record(("step", played, digest(_seen(returned, 5))))
        return returned

    def _record(self, call: Call) -> None:
        if len(self.opening) < OPENING:
            self.opening.append(call)
        if self._pieces:
            self._pieces[-1][1].append(call)
            if len(self._pieces[-1][1]) > LONGEST:
                self._pieces, self._dropped = [], True
        elif not self._keep_tail:
            self._dropped = True

    def get_state(self) -> dict[str, Any]:
        """JSON: the opening, and the end with the random state it began with."""
        tail = [call for _, calls in self._pieces for call in calls]
        return {
            "opening": [list(call) for call in self.opening if call[0] != "end"],
            "tail": [list(call) for call in tail],
            "anchor": self._pieces[0][0] if self._pieces else None,
            "whole": not self._dropped,  # the tail is everything there was
        }


@calls_environment
def _answer(method: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What an environment answers, and nothing else: what comes after it may not be left."""
    return method(*arguments, **keywords)


@interruptible
def plays_again(env: Any, calls: list[Any], anchor: Any = None) -> bool:
    """Whether an environment answers recorded calls as it did; stops at the first difference.

    ``anchor`` is a state for its generator, set before the first call.
    """
    if anchor is not None:
        set_generator(env.unwrapped.np_random, anchor)
    for kind, value, expected in calls:
        if kind == "reset":
            seen = digest(_seen(env.reset() if value is None else env.reset(seed=value), 1))
        else:
            returned = env.step(np.asarray(value) if isinstance(value, list) else value)
            seen = digest(_seen(returned, 5))
        if seen != expected:
            return False
    return True


def _seen(returned: Any, length: int) -> Any:
    """What is recorded of a call; the reader sorts out improper answers."""
    if not isinstance(returned, tuple):
        return repr(returned)
    return returned[:1] if length == 1 else (returned[0], returned[2:4])


def reseeded(calls: list[Any], seed: int) -> list[Any]:
    """Recorded calls with another seed in the first reset."""
    return [[calls[0][0], seed, calls[0][2]], *calls[1:]] if calls else []


def digest(value: Any) -> str:
    """A short fingerprint of what was observed."""
    found = hashlib.blake2b(digest_size=8)
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            found.update(str(key).encode())
            _feed(found, value[key])
    elif isinstance(value, (tuple, list)):
        found.update(b"(")
        for item in value:
            _feed(found, item)
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        found.update(value.tobytes())
    else:
        found.update(str(value.item() if isinstance(value, np.generic) else value).encode() + b";")
