"""Two ways to draw episodes under a fixed policy, one law: the compiled simulator, and any environment's `step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.errors import DataError, ModelError
from rpl_agent.model import Objective, ParametricMDP, Policy, Simulator, Task


@dataclass(frozen=True)
class World:
    """What a baseline may know of an environment: the skeleton, the objective and how to draw episodes."""

    pmdp: ParametricMDP
    task: Task
    sampler: CompiledSampler | StepSampler

    @property
    def objective(self) -> Objective:
        return self.task.objective


def world(env: Any, seed: int, compiled: bool = True) -> World:
    """Read the public attributes of an environment; the compiled path needs its ``simulator(seed)``."""
    try:
        pmdp, objective = env.get_wrapper_attr("pmdp"), env.get_wrapper_attr("objective")
    except AttributeError as error:
        raise ModelError(f"the environment {env} has no pmdp or no objective: {error}") from None
    if objective.horizon is not None:
        raise ModelError("the tabular baselines plan stationary policies: a finite-horizon objective is not supported")
    task = objective.resolve(pmdp)
    if compiled and env.has_wrapper_attr("simulator"):
        return World(pmdp, task, CompiledSampler(env.get_wrapper_attr("simulator")(seed)))
    return World(pmdp, task, StepSampler(env, pmdp, seed))


class CompiledSampler:
    """Episodes from the compiled simulator."""

    def __init__(self, simulator: Simulator):
        self.simulator = simulator

    def run(
        self, policy: Policy, episodes: int, counts: np.ndarray, row_count: np.ndarray, row_limit: np.ndarray
    ) -> tuple[int, int]:
        """Add to counts (T,) and row_count (R,); stop after an episode in which a row reached its limit.

        Returns (episodes, steps) done.
        """
        batch = self.simulator.run(policy, episodes, counts, row_limit=row_limit, row_count=row_count)
        return batch.episodes, batch.steps

    def get_state(self) -> list[int]:
        return [int(x) for x in self.simulator.state]

    def set_state(self, state: list[int]) -> None:
        self.simulator.state[:] = np.array(state, dtype=np.uint64)


class StepSampler:
    """Episodes by `env.step`; observations are state indices."""

    def __init__(self, env: Any, pmdp: ParametricMDP, seed: int):
        self.env = env
        self.pmdp = pmdp
        self.rng = np.random.default_rng(seed)
        self._seed: int | None = seed

    def run(
        self, policy: Policy, episodes: int, counts: np.ndarray, row_count: np.ndarray, row_limit: np.ndarray
    ) -> tuple[int, int]:
        """As `CompiledSampler.run`."""
        done, steps, stopped = 0, 0, False
        while done < episodes and not stopped:
            for row, transition in self.episode(lambda s: policy.row(self.pmdp, s, self.rng)):
                counts[transition] += 1
                row_count[row] += 1
                stopped |= bool(row_count[row] >= row_limit[row])
                steps += 1
            done += 1
        return done, steps

    def episode(self, choose: Any) -> Any:
        """Play one episode; yields (row, transition) per step."""
        pmdp = self.pmdp
        observation, _ = self.env.reset(seed=self._seed)
        self._seed = None  # seed once, then let the environment's own generator run on
        state, over = int(observation), False
        while not over:
            row = choose(state)
            observation, _, terminated, truncated, _ = self.env.step(int(pmdp.action[row]))
            transition = pmdp.find_transition(row, int(observation))
            if transition < 0:
                raise DataError(f"the model has no successor {int(observation)} at {pmdp.row_name(row)}")
            yield row, transition
            state, over = int(observation), terminated or truncated

    def get_state(self) -> dict[str, Any]:
        return dict(self.rng.bit_generator.state)

    def set_state(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state
        self._seed = None
