"""Noise in the user's own words, as arguments of the agent: ``RPLAgent(env, noise=…, key=…, effect=…, rewards=…)``.

These arguments define a tied model (`build_noise`), made when the environment is attached: from the states in which it
starts, through everything that ``effect`` leads to. Every step is compared with it, so a successor or a reward that was
not stated is an error that names the step; probabilities that are not shared refute the model by its e-value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rpl_agent.agent.world.observations import is_vector, name_of, representative, time_limit
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.core.model.building.noise import build_noise, chances_of
from rpl_agent.core.model.states import canonical

#: The state after an end, and how often the environment is reset to see where it starts.
OVER, RESETS = "over", 64
#: The key of a start that differs from episode to episode.
START = "start"


@dataclass(frozen=True)
class NoiseWords:
    """What the user says about an environment's chance.

    noise : key -> the labels that may be drawn.
    effect : (state, action, label) -> the successor, None where the episode ends.
    rewards : (state, action, successor) -> the reward; the successor is None after an end.
    end : state -> whether episodes end there. Then ``effect`` and ``rewards`` name these states, too, in place of None:
        ends that pay differently, such as a goal and a hole, are different states.
    key : (state, action) -> the key of its noise, None if nothing is drawn; may be left out if there is one key only.
    """

    noise: Mapping[Hashable, Sequence[Any]]
    effect: Callable[[Any, Any, Any], Any]
    rewards: Callable[[Any, Any, Any], float]
    key: Callable[[Any, Any], Hashable] | None = None
    discount: float | None = None
    end: Callable[[Any], bool] | None = None

    @classmethod
    def of(cls, noise: Any, key: Any, effect: Any, rewards: Any, discount: float | None, end: Any) -> NoiseWords | None:
        """The given words; None if there are none. If some are missing, the error names them."""
        if noise is None and key is None and effect is None:
            return None
        if not callable(effect):
            raise ModelError("noise and key need effect=..., a function of (state, action, label): the successor")
        if not isinstance(noise, Mapping):
            raise ModelError("effect needs noise={key: labels}: what may be drawn, such as {'wind': ['calm', 'gust']}")
        if not callable(rewards):
            raise ModelError("effect needs rewards=..., a function of (state, action, successor), None after an end")
        if START in noise:
            raise ModelError(f"the key {START!r} is taken by the start: give the noise another name")
        if end is not None and not callable(end):
            raise ModelError(
                f"with effect, end=... is a function of the state, whether episodes end there, not {end!r}"
            )
        return cls(noise, effect, rewards, key, discount, end)

    def model(self, env: Any, state_of: Callable[[Any], Any] | None) -> ParametricMDP:
        """The model that the words define, from the starts of the environment."""
        numbers, starts = _actions(env), _starts(env, state_of)
        words, initial = dict(self.noise), starts[0]
        if len(starts) > 1:
            words[START] = starts
            initial = dict(chances_of(words)[0][START])

        def key(state: Any, action: Any) -> Hashable:
            if self._is_over(state):
                return None
            return self.key(state, action) if self.key is not None else next(iter(self.noise))

        def effect(state: Any, action: Any, label: Any) -> Any:
            return state if self._is_over(state) else self._after(state, action, label)

        def reward(state: Any, action: Any, after: Any) -> float:
            if self._is_over(state):
                return 0.0
            return float(self.rewards(state, action, None if after == OVER else after))

        if self.key is None and len(self.noise) != 1:
            raise ModelError(f"noise has {len(self.noise)} keys: pass key=..., a function of (state, action)")
        found = build_noise(
            initial,
            lambda state: numbers[:1] if self._is_over(state) else numbers,
            noise=words,
            effect=effect,
            key=key,
            labels={OVER: self._is_over},
            rewards={"reward": reward},
            name=name_of(env),
        )
        return replace(
            found, assumption=f"noise, effect and rewards are as stated; episodes start in {_listed(starts)}"
        )

    def _is_over(self, state: Any) -> bool:
        """Whether episodes end in a state of the model."""
        return state == OVER if self.end is None else bool(self.end(state))

    def _after(self, state: Any, action: Any, label: Any) -> Any:
        """The state of the model that follows."""
        after = self.effect(state, action, label)
        if after is not None:
            return canonical(after)
        if self.end is not None:
            raise ModelError(
                f"effect({state!r}, {action!r}, {label!r}) is None, but end=... says in which states episodes end: "
                "return that state"
            )
        return OVER

    def meaning_of_end(self, model: ParametricMDP) -> Any:
        """The state that ``terminated`` means; None if the last observation tells it, or if episodes never end."""
        return OVER if self.end is None and model.labels[OVER].any() else None

    def objective(self, env: Any, model: ParametricMDP) -> Objective:
        """The return until an end: discounted, or up to the time limit."""
        target = OVER if model.labels[OVER].any() else None
        if self.discount is not None:
            return Objective.discounted("reward", self.discount, target=target)
        with representative(env) as inner:
            limit = time_limit(env, inner)
        if limit is None and target is None:
            raise ModelError(f"{name_of(env)} never ends and has no time limit: pass discount=...")
        return Objective.reward("reward", target=target, horizon=limit)


def _actions(env: Any) -> list[int]:
    from gymnasium.spaces import Discrete

    space = env.single_action_space if is_vector(env) else env.action_space
    if not isinstance(space, Discrete):
        raise ModelError(f"effect needs Discrete actions, {name_of(env)} has {space}: pass pmdp=build_noise(...)")
    return [int(space.start) + k for k in range(int(space.n))]


def _starts(env: Any, state_of: Callable[[Any], Any] | None) -> list[Any]:
    found: dict[Any, None] = {}
    with representative(env) as inner:
        for k in range(RESETS):
            observation, _ = inner.reset(seed=k)
            found[canonical(observation if state_of is None else state_of(observation))] = None
    return list(found)


def _listed(starts: list[Any]) -> str:
    shown = ", ".join(map(repr, starts[:3])) + ", …" * (len(starts) > 3)
    return shown if len(starts) == 1 else f"one of the {len(starts)} states seen in {RESETS} resets ({shown})"
