"""What `rpl watch` does: the learned policy acts in its world, in place on a terminal, as text, or as an animation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from rpl_agent.agent.output.animation import EpisodeFrame, write_animation
from rpl_agent.errors import ModelError
from rpl_agent.jsonable import jsonable

#: Steps shown in a second, if nothing else is asked for.
FPS = 4.0


def play(agent: Any, env: Any, episodes: int, *, seed: int = 0) -> Iterator[EpisodeFrame]:
    """The frames of episodes in which the agent's current mode acts, each as soon as it is there."""
    _check_render_mode(env)
    names = agent.pmdp.action_names
    for episode in range(1, episodes + 1):
        observation, _ = env.reset(seed=seed) if episode == 1 else env.reset()
        yield EpisodeFrame(_render(env), episode, 0, None, 0.0)
        memory, step, total, over = None, 0, 0.0, False
        while not over:
            action, memory = agent.predict(observation, memory, np.array([step == 0]), deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(int(action))
            step, total, over = step + 1, total + float(reward), bool(terminated or truncated)
            yield EpisodeFrame(_render(env), episode, step, names[int(action)], total, over, over and not terminated)


def _check_render_mode(env: Any) -> None:
    mode, known = getattr(env, "render_mode", None), env.metadata.get("render_modes", [])
    if mode is None:
        raise ModelError("watching needs an environment with a render mode, e.g. render_mode='ansi' or 'rgb_array'")
    if mode not in known:
        what, instead = ("text", "an output .gif, .mp4 or .html") if mode == "ansi" else ("pictures", "no output")
        raise ModelError(f"{env.spec.id if env.spec else 'this world'} draws no {what}: ask for {instead}")


def _render(env: Any) -> Any:
    try:
        return env.render()
    except DependencyNotInstalled as error:  # Gymnasium names the package
        raise ModelError(f"this world cannot be drawn: {error}") from None


def watch(
    agent: Any,
    env: Any,
    run: str | Path,
    *,
    episodes: int = 1,
    output: str | Path | None = None,
    seed: int = 1,
    mode: str = "robust",
    fps: float = FPS,
    live: bool = False,
) -> dict[str, Any]:
    """The policy of a run acting: frames as text, drawn in place (``live``), or written as .gif, .mp4 or .html."""
    agent.mode = mode
    steps = play(agent, env, episodes, seed=seed)
    frames = list(steps) if output is not None or not live else list(_shown_in_place(steps, fps))
    returns = [frame.total for frame in frames if frame.over]
    actions = [frame.action for frame in frames]
    result = {"run": str(run), "mode": mode, "frames": len(frames), "returns": returns, "actions": actions}
    if output is not None:
        write_animation(Path(output), frames, fps, f"{agent.pmdp.name}: the {mode} policy of {Path(run).name}")
        result |= {"output": str(output), "text": f"wrote {len(frames)} frames to {output}; returns {returns}"}
    else:
        texts = [] if live else [f"{frame.caption}\n{frame.picture}" for frame in frames]
        result["text"] = "\n\n".join([*texts, f"returns: {returns}"])
    return jsonable(result)


def _shown_in_place(frames: Iterator[EpisodeFrame], fps: float) -> Iterator[EpisodeFrame]:
    """The same frames, each drawn over the one before; the last one stays on the screen."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="crop") as view:
        for frame in frames:
            picture = Text.from_ansi(str(frame.picture), no_wrap=True, overflow="crop")
            # the caption stands above the picture, where a low terminal does not cut it
            view.update(Group(Text(frame.caption, style="bold", no_wrap=True, overflow="crop"), picture), refresh=True)
            yield frame
            time.sleep(1 / fps)
