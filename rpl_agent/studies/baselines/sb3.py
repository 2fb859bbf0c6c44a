"""DQN and PPO of stable-baselines3 and MaskablePPO of sb3-contrib, behind the baselines' interface.

The only file that imports them (and so torch), through their public API. Observations are the state
variables scaled to [0, 1]. MaskablePPO gets the action masks; DQN and PPO have no masks, so for them action a in a
state with k enabled actions means the (a mod k)-th enabled one, in training and afterwards.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, ClassVar, TypedDict

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from rpl_agent.agent.storage import checkpoint
from rpl_agent.agent.world.attach import Attachment, attach, shown_numbers
from rpl_agent.agent.world.observations import StateOf
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import ParametricMDP, Policy, StateIndex, gather
from rpl_agent.core.schema import Whole, read

ALGORITHMS: dict[str, Any] = {"dqn": DQN, "ppo": PPO, "maskable-ppo": MaskablePPO}
#: Small networks, because states are a handful of variables; almost no discount, because the objectives have none.
#: The settings won the search of `benchmarks.tuning`. ``rollout``: steps between two updates, over all
#: environments.
_COMMON: dict[str, Any] = {"gamma": 0.999, "policy_kwargs": {"net_arch": [64, 64]}}
DEFAULTS: dict[str, dict[str, Any]] = {
    "dqn": _COMMON
    | {"learning_starts": 500, "learning_rate": 2e-3, "exploration_fraction": 0.1, "target_update_interval": 250},
    "ppo": _COMMON | {"learning_rate": 1e-3, "rollout": 2048, "batch_size": 128, "ent_coef": 0.02},
    "maskable-ppo": _COMMON | {"learning_rate": 1e-3, "rollout": 2048, "batch_size": 128, "ent_coef": 0.0},
}
#: States per forward pass when the whole policy is read out.
READ_OUT = 65_536
#: States of a model without variables that a network can tell apart by one input each.
MOST_COLUMNS = 2_000


class SavedAgent(TypedDict):
    """state.json of an agent."""

    learner: str
    seed: Whole
    model: str
    episodes: Whole
    timesteps: Whole


def state_features(pmdp: ParametricMDP) -> np.ndarray:
    """(S, V) float32, the state variables scaled to [0, 1]; of a model without them one column per state."""
    if not pmdp.variables:
        if pmdp.num_states > MOST_COLUMNS:
            raise ModelError(f"{pmdp!r} has no state variables to learn from: name them, build(…, variables=[…])")
        return np.eye(pmdp.num_states, dtype=np.float32)
    columns = []
    for values in pmdp.variables.values():
        low, high = float(values.min()), float(values.max())
        columns.append((values - low) / (high - low if high > low else 1.0))
    return np.stack(columns, axis=1).astype(np.float32)


class FeatureEnv(gym.Wrapper):
    """Turns states into features; without masks, actions are numbered among the enabled ones.

    Observations are read as by the agent (``world.reader``), so wrappers and mappings apply here too.
    """

    def __init__(self, world: Attachment, features: np.ndarray, masked: bool):
        super().__init__(world.env)  # type: ignore[arg-type]  # gym.Wrapper refuses vectors
        pmdp = world.pmdp
        self.world, self.pmdp, self.features, self.masked = world, pmdp, features, masked
        self.observation_space = gym.spaces.Box(0.0, 1.0, features.shape[1:], np.float32)
        self.action_space = gym.spaces.Discrete(pmdp.num_actions)
        self.state = pmdp.initial_state

    def reset(self, **keywords: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**keywords)
        self.state = self.world.reader.first(observation)
        return self.features[self.state], info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        action = int(action) if self.masked else remap(self.pmdp, self.state, int(action))
        observation, reward, terminated, truncated, info = self.env.step(int(self.world.actions.numbers[action]))
        self.state = self.world.reader.next(self.state, action, observation)
        return self.features[self.state], reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        return self.pmdp.action_mask(self.state).astype(bool)


def remap(pmdp: ParametricMDP, state: int, action: int) -> int:
    """The enabled action for an action number in a state."""
    low, high = pmdp.state_ptr[state], pmdp.state_ptr[state + 1]
    return int(pmdp.action[low + action % (high - low)])


class _Budget(BaseCallback):
    """Stops after a number of episodes and reports checkpoints on the way.

    The algorithms' own schedules run in time steps; the number of steps for the budget is not known in advance, so
    their total is re-estimated after every episode.
    """

    def __init__(self, agent: SB3Agent, end: int, checkpoints: Sequence[int], report: Callable[[Any], None] | None):
        super().__init__()
        self.agent, self.end, self.report = agent, end, report
        self.began, self.first_step = agent.num_episodes, agent.num_timesteps
        self.pending = sorted({int(c) for c in checkpoints if agent.num_episodes < c < end})

    def _on_step(self) -> bool:
        dones = self.locals["dones"]
        self.agent.num_timesteps += len(dones)
        if not np.any(dones):
            return True
        self.agent.num_episodes += int(np.sum(dones))
        share = (self.end - self.began) / (self.agent.num_episodes - self.began)
        steps = self.agent.num_timesteps - self.first_step
        self.model._total_timesteps = self.model._num_timesteps_at_start + max(round(steps * share), steps + 1)
        while self.pending and self.pending[0] <= self.agent.num_episodes:
            self.pending.pop(0)
            if self.report is not None:
                self.report(self.agent)
        return self.agent.num_episodes < self.end


class SB3Agent:
    """One algorithm by name ("dqn", "ppo", "maskable-ppo"); further keywords go to its constructor.

    With ``num_envs`` above 1 it learns from that many copies of the environment in parallel, which costs less per
    step; episodes that end in the same step count together, so a budget may be exceeded by ``num_envs`` − 1. Copies
    come from ``make_env``, or from the environment's specification. ``attachment``: further keywords of `attach`.
    """

    name: ClassVar[str] = "sb3"

    def __init__(
        self,
        algorithm: str,
        *,
        seed: int = 0,
        num_envs: int = 1,
        tensorboard_log: str | None = None,
        observation_to_state: StateOf | None = None,
        attachment: Mapping[str, Any] | None = None,
        make_env: Callable[[], gym.Env] | None = None,
        **keywords: Any,
    ):
        if algorithm not in ALGORITHMS:
            raise ModelError(f"algorithm {algorithm!r} is not one of {sorted(ALGORITHMS)}")
        if num_envs < 1:
            raise ModelError(f"num_envs {num_envs} must be at least one")
        self.algorithm, self.seed, self.num_envs, self.keywords = algorithm, seed, num_envs, keywords
        self.tensorboard_log = tensorboard_log
        self.attachment = {"state_of": observation_to_state, **(attachment or {}), "compiled": False}
        self.make_env = make_env
        self.num_episodes = 0
        self.num_timesteps = 0
        self.certificate: Any = None
        self.model: Any = None

    @property
    def masked(self) -> bool:
        return self.algorithm == "maskable-ppo"

    def set_env(self, env: gym.Env) -> None:
        """Attach an environment with a known model, as the agent does; the model provides the features."""
        self.world = attach(env, **self.attachment)
        self.pmdp: ParametricMDP = self.world.pmdp
        self.features = state_features(self.pmdp)
        self._env = FeatureEnv(self.world, self.features, self.masked)
        if self.model is None:
            self.model = ALGORITHMS[self.algorithm](
                "MlpPolicy",
                self._copies(),
                seed=self.seed,
                device="cpu",
                tensorboard_log=self.tensorboard_log,
                **self._settings(),
            )
        else:
            self.model.set_env(self._copies())

    def _settings(self) -> dict[str, Any]:
        """The constructor's keywords: the defaults mean the same per time step for any number of environments."""
        arguments = {**DEFAULTS[self.algorithm], **self.keywords}
        if self.algorithm == "dqn":  # one gradient step for every eight time steps
            return {"train_freq": max(1, 8 // self.num_envs), "gradient_steps": max(1, self.num_envs // 8)} | arguments
        return {"n_steps": max(2, arguments.pop("rollout") // self.num_envs)} | arguments

    def _copies(self) -> Any:
        """The environment, or several in parallel: the given one and others made from its specification."""
        if self.num_envs == 1:
            return self._env
        specification, make = self.world.env.spec, self.make_env
        if make is None and specification is None:
            raise ModelError("num_envs above 1 needs make_env, or an environment made by gymnasium.make")

        def copy() -> gym.Env:
            made = gym.make(specification) if make is None else make()  # type: ignore[arg-type]
            return FeatureEnv(attach(made, **self.attachment), self.features, self.masked)

        return DummyVecEnv([lambda: self._env] + [copy] * (self.num_envs - 1))

    def learn(
        self,
        env: gym.Env,
        budget: int,
        *,
        checkpoints: Sequence[int] = (),
        callback: Callable[[Any], None] | None = None,
    ) -> SB3Agent:
        """Learn from ``budget`` further episodes: exactly that many with one environment."""
        if budget < 1:
            raise ModelError(f"budget {budget} must be at least one episode")
        if self.model is None or self._env.env is not env:
            self.set_env(env)
        longest = env.spec.max_episode_steps if env.spec is not None and env.spec.max_episode_steps else 1000
        control = _Budget(self, self.num_episodes + int(budget), checkpoints, callback)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # networks this small are slower with more, and results would depend on the machine
        try:
            first = self.num_episodes == 0
            self.model.learn(int(budget) * longest, callback=control, reset_num_timesteps=first)
        finally:
            torch.set_num_threads(threads)
        if callback is not None:
            callback(self)
        return self

    # ------------------------------------------------------------------ the policy
    @property
    def policy(self) -> Policy:
        """The deterministic policy over all states, read out in batches."""
        if self.model is None:
            raise ModelError("no environment yet: call learn or set_env first")
        pieces = range(0, self.pmdp.num_states, READ_OUT)
        states = [np.arange(begin, min(begin + READ_OUT, self.pmdp.num_states)) for begin in pieces]
        return Policy.deterministic(np.concatenate([self._rows(some, True) for some in states]))

    def _rows(self, states: np.ndarray, deterministic: bool) -> np.ndarray:
        """(n,) the rows that the network picks in states (n,)."""
        pmdp, extra = self.pmdp, {}
        enabled, ptr = gather(pmdp.state_ptr, states)
        if self.masked:
            mask = extra["action_masks"] = np.zeros((len(states), pmdp.num_actions), dtype=bool)
            mask[np.repeat(np.arange(len(states)), np.diff(ptr)), pmdp.action[enabled]] = True
        actions, _ = self.model.predict(self.features[states], deterministic=deterministic, **extra)
        if self.masked:
            return np.array([pmdp.find_row(int(s), int(a)) for s, a in zip(states, actions)])
        return pmdp.state_ptr[states] + actions % np.diff(ptr)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, Any]:
        """Action(s) of the environment for one observation or an array of them."""
        if self.model is None:
            raise ModelError("no environment yet: call learn or set_env first")
        single = np.ndim(observation) == len(self.world.env.observation_space.shape or ())
        states = [self.world.reader.first(item) for item in ([observation] if single else observation)]
        chosen = self.pmdp.action[self._rows(np.array(states), deterministic)]
        actions = np.array([int(self.world.actions.numbers[a]) for a in chosen])
        return (actions[0] if single else actions), state

    # ------------------------------------------------------------------ files
    def save(self, path: str | os.PathLike) -> None:
        """The agent's checkpoint format, with SB3's own archive as an array of bytes."""
        if self.model is None:
            raise ModelError("nothing to save: call learn first")
        buffer = BytesIO()
        self.model.save(buffer)
        state = {
            "learner": f"sb3:{self.algorithm}",
            "seed": self.seed,
            "model": self.pmdp.content_hash,
            "episodes": self.num_episodes,
            "timesteps": self.num_timesteps,
        }
        checkpoint.write(path, state, {"sb3": np.frombuffer(buffer.getvalue(), dtype=np.uint8)})

    @classmethod
    def load(cls, path: str | os.PathLike, env: gym.Env, *, observation_to_state: StateOf | None = None) -> SB3Agent:
        """Load a saved agent. SB3's archive contains pickled parts: load only files you trust."""
        state, arrays = checkpoint.read_latest(path)
        saved = read(state, SavedAgent, os.fspath(path))
        kind, _, algorithm = saved["learner"].partition(":")
        if kind != "sb3" or algorithm not in ALGORITHMS or "sb3" not in arrays:
            raise DataError(f"{os.fspath(path)!r} holds a {saved['learner']}, not an SB3 agent")
        agent = cls(algorithm, seed=saved["seed"], observation_to_state=observation_to_state)
        if attach(env, state_of=observation_to_state, compiled=False).pmdp.content_hash != saved["model"]:
            raise DataError(f"{os.fspath(path)!r} was learned on another model")
        agent.model = ALGORITHMS[agent.algorithm].load(BytesIO(arrays["sb3"].tobytes()), device="cpu")
        agent.num_episodes, agent.num_timesteps = saved["episodes"], saved["timesteps"]
        agent.set_env(env)
        return agent


# ---------------------------------------------------------------------- policies of others
def load_policy(path: str, algorithm: str | None = None) -> Any:
    """A model that Stable-Baselines3 or sb3-contrib saved. Loading one runs code that the file contains.

    algorithm : the name of its class; by default what the settings in the file belong to.
    """
    import sb3_contrib
    import stable_baselines3

    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file")
    name = algorithm or _algorithm_of(path)
    kind: Any = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name, None)
    if not hasattr(kind, "load"):
        raise ModelError(f"{name!r} is not an algorithm of Stable-Baselines3 or sb3-contrib, for example PPO")
    try:
        return kind.load(path, device="cpu")
    except Exception as error:
        raise DataError(
            f"{path} cannot be loaded as {name}: {error}; name the algorithm that saved it with --algorithm"
        ) from error


def require_same_spaces(model: Any, env: gym.Env) -> None:
    """Raise unless a model of Stable-Baselines3 was trained with the spaces of an environment."""
    for name in ("observation", "action"):
        trained, played = getattr(model, f"{name}_space"), getattr(env, f"{name}_space")
        if trained != played:
            raise ModelError(f"the policy was trained with the {name} space {trained}, the environment has {played}")


#: Settings that only one algorithm stores, the most specific first.
_SETTINGS = {
    "exploration_fraction": "DQN",
    "target_entropy": "SAC",
    "policy_delay": "TD3",
    "clip_range": "PPO",
    "gae_lambda": "A2C",
}


def _algorithm_of(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
            policy = str(data.get("policy_class", {}).get("__module__", ""))
    except checkpoint.UNREADABLE as error:
        raise DataError(f"{path} is not a model saved by Stable-Baselines3: {error}") from None
    for part, name in (("maskable", "MaskablePPO"), ("recurrent", "RecurrentPPO")):
        if part in policy:
            return name
    found = next((name for setting, name in _SETTINGS.items() if setting in data), None)
    if found is None:
        raise DataError(f"{path} does not say which algorithm saved it: name it with --algorithm, for example PPO")
    return found


# ---------------------------------------------------------------------- any policy of SB3 as a table
def from_sb3(
    model: Any,
    env: gym.Env,
    *,
    observation_of: Callable[[int], Any] | None = None,
    observation_to_state: StateOf | None = None,
    deterministic: bool = True,
    attachment: Mapping[str, Any] | None = None,
) -> Policy:
    """The policy of a model of Stable-Baselines3, or of its zip file, as a policy over the states of ``env``.

    Parameters
    ----------
    model : an algorithm with ``predict``, or the path of what it saved (load only files you trust: they contain code).
    env : the environment that it was trained on, with a known model.
    observation_of : number of a state -> what the environment shows there; found from the observation space if omitted.
    deterministic : the most likely action; False: the network's probabilities (PPO, A2C and MaskablePPO).
    attachment : further keywords of `attach`, such as ``pmdp`` if the environment does not carry its model.

    Raises
    ------
    ModelError
        The policy takes an action that is not enabled, or reaches a state whose observation is not known.

    >>> import gymnasium, rpl_envs, stable_baselines3
    >>> env = gymnasium.make("FrozenLake-v1")
    >>> from_sb3(stable_baselines3.PPO("MlpPolicy", env, device="cpu"), env).is_deterministic
    True
    """
    if isinstance(model, (str, os.PathLike)):
        model = load_policy(os.fspath(model))
        require_same_spaces(model, env)
    world = attach(env, **{"state_of": observation_to_state, **(attachment or {}), "compiled": False})
    pmdp, names = world.pmdp, {int(number): a for a, number in enumerate(world.actions.numbers)}
    shown = _observations(world) if observation_of is None else None
    entries: list[tuple[Any, Any, float]] = []
    for state in np.flatnonzero(~pmdp.is_silent).tolist():
        observation = observation_of(state) if observation_of is not None else shown.get(state) if shown else None
        if observation is None or pmdp.state_ptr[state + 1] - pmdp.state_ptr[state] == 1:
            continue
        mask = np.zeros(int(world.env.action_space.n), bool)  # type: ignore[attr-defined]
        mask[world.actions.numbers - world.actions.first] = pmdp.action_mask(state)
        for number, weight in _choices(model, observation, mask, deterministic):
            if number not in names:
                raise ModelError(f"the policy takes action {number}, which the model does not have")
            entries.append((StateIndex(state), pmdp.action_names[names[number]], weight))
    return Policy.from_table(pmdp, entries)


def _observations(world: Attachment) -> dict[int, Any]:
    """state -> its observation: every observation of a discrete space is read, or the states' values are shown."""
    pmdp, space, numbers = world.pmdp, world.env.observation_space, shown_numbers(world)
    if numbers is not None:
        return {state: number for number, state in reversed(numbers.items())}  # the first number of each state
    values = [pmdp.state_value(s) for s in np.flatnonzero(~pmdp.is_silent).tolist()]
    candidates = [np.asarray(value, dtype=space.dtype) for value in values] if space.shape else values
    found: dict[int, Any] = {}
    for candidate in candidates:
        try:
            found.setdefault(world.reader.first(candidate), candidate)
        except ModelError:  # shown in no state of the model
            continue
    return found


def _choices(model: Any, observation: Any, mask: np.ndarray, deterministic: bool) -> list[tuple[int, float]]:
    """(action number, weight) of a policy at one observation."""
    extra = {"action_masks": mask} if isinstance(model, MaskablePPO) else {}
    if deterministic:
        action, _ = model.predict(observation, deterministic=True, **extra)
        return [(int(action), 1.0)]
    if not hasattr(model.policy, "get_distribution"):
        raise ModelError(f"{type(model).__name__} has no action probabilities: pass deterministic=True")
    tensor, _ = model.policy.obs_to_tensor(np.asarray(observation))
    weights = model.policy.get_distribution(tensor, **extra).distribution.probs.detach().numpy().ravel()
    return [(k, float(weight)) for k, weight in enumerate(weights) if weight > 0.0]
