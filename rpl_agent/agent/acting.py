"""From observations to actions: SB3's ``predict`` for one observation or a batch of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.errors import ModelError

if TYPE_CHECKING:
    from rpl_agent.agent.rpl import RPLAgent


def predict(
    agent: RPLAgent, observation: Any, state: Any, episode_start: Any, deterministic: bool
) -> tuple[np.ndarray, Any]:
    """See `RPLAgent.predict`."""
    single = np.ndim(observation) == _observation_ndim(agent)
    observations = [observation] if single else list(observation)
    steps = np.zeros(len(observations), dtype=np.int64) if state is None else np.atleast_1d(state[0]).copy()
    if episode_start is not None:
        steps[np.atleast_1d(np.asarray(episode_start, dtype=bool))] = 0
    policy, rng = agent.policy, None
    if agent.mode == "optimistic" and not deterministic and policy.is_deterministic:
        policy, rng = policy.at(0).mixed(agent.pmdp, agent.weight), agent.acting_rng
    start = 0 if agent.world is None else agent.world.action_start
    states = [_state(agent, item) for item in observations]
    actions = [start + policy.action(agent.pmdp, s, rng, int(k)) for s, k in zip(states, steps)]
    result = np.array(actions, dtype=np.int64)
    return (result[0] if single else result), (steps + 1,)


def _observation_ndim(agent: RPLAgent) -> int:
    """Dimensions of one observation: an array with one more is a batch."""
    if agent.world is None:
        return 0
    env = agent.world.env
    space = getattr(env, "single_observation_space", None) or env.observation_space
    return 0 if space.shape is None else len(space.shape)


def _state(agent: RPLAgent, observation: Any) -> int:
    mapping = agent.observation_to_state if agent.world is None else agent.world.state_of
    index = int(observation if mapping is None else mapping(observation))
    if not 0 <= index < agent.pmdp.num_states:
        raise ModelError(f"observation {observation!r} is no state of {agent.pmdp!r}")
    return index
