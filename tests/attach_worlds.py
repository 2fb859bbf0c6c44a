"""Environments as a stranger would write them: plain Gymnasium, no word about models."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent.core.model import Domain, Objective, ParametricMDP, build

FAIL, REPAIR = 0.1, 0.9


class Machine(gym.Env):
    """Observation 0 is broken, 1 is fine; it starts fine, breaks with 0.1 per step and is repaired with 0.9.

    Ten steps; a step that begins broken costs 1.
    """

    STEPS = 10

    def __init__(self, show: Any = lambda state, day: np.array([state, day]), space: Any = None):
        self.show = show
        self.observation_space = space or gym.spaces.MultiDiscrete([2, self.STEPS + 1])
        self.action_space = gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.day = 1, 0
        return self.show(self.state, self.day), {}

    def step(self, action):
        cost = 1.0 - self.state
        chance = FAIL if self.state else REPAIR
        if self.np_random.random() < chance:
            self.state = 1 - self.state
        self.day += 1
        return self.show(self.state, self.day), -cost, self.day == self.STEPS, False, {}


def machine_model(name: Any = lambda state, day: (state, day), **keywords: Any) -> tuple[ParametricMDP, Objective]:
    """The structure of `Machine`, with states called as the user likes."""
    original = {}

    def value(state: int, day: int) -> Any:
        original[name(state, day)] = (state, day)
        return name(state, day)

    def actions(called: Any) -> dict[str, dict[Any, str]]:
        state, day = original[called]
        if day == Machine.STEPS:
            return {"go": {called: "1"}}
        change, stay = ("fail", "1 - fail") if state else ("repair", "1 - repair")
        return {"go": {value(1 - state, day + 1): change, value(state, day + 1): stay}}

    pmdp = build(
        value(1, 0), actions, domain=Domain.box(["fail", "repair"]),
        labels={"over": lambda s: original[s][1] == Machine.STEPS},
        rewards={"cost": lambda s, a: float(original[s][1] < Machine.STEPS and original[s][0] == 0)}, name="machine",
        **keywords,
    )  # fmt: skip
    return pmdp, Objective.cost("cost", target="over")


class Broken(gym.Wrapper):
    """Spoils one part of what reset or step return, from a given step on."""

    def __init__(self, env: gym.Env, *, reset: Any = None, step: Any = None, after: int = 25):
        super().__init__(env)
        self._reset, self._step, self._after, self._count = reset, step, after, 0

    def reset(self, **keywords):
        returned = self.env.reset(**keywords)
        return returned if self._reset is None else self._reset(*returned)

    def step(self, action):
        self._count += 1
        returned = self.env.step(action)
        return returned if self._step is None or self._count < self._after else self._step(*returned)
