"""`rpl watch`: the learned policy acts in its world, in place on a terminal, as text, or as an animation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from rpl_agent.agent.discovery.session import OpenSession
from rpl_agent.agent.world.observations import Env, time_limit
from rpl_agent.agent.world.plays import LONGEST_ENDLESS
from rpl_agent.core.errors import ModelError
from rpl_agent.core.schema import jsonable

#: Default frames per second.
FPS = 4.0
#: Height in pixels of the caption below a picture.
CAPTION = 26


@dataclass(frozen=True)
class EpisodeFrame:
    """One picture of an episode and how it came about."""

    picture: Any  # the result of env.render(): text, or (H, W, 3) uint8
    episode: int  # from 1
    step: int  # 0 before the first action
    action: str | None  # the action that led here; None at the start
    total: float  # the return so far
    over: bool = False
    cut: bool = False  # over only because of a time limit
    left: bool = False  # not over, but not shown any further

    @property
    def caption(self) -> str:
        parts = [f"episode {self.episode}", f"step {self.step}", f"action {self.action or '–'}"]
        end = " (cut by the time limit)" if self.cut else " (over)" if self.over else ""
        end = " (not over yet)" if self.left else end
        return "   ".join([*parts, f"return {self.total:.6g}{end}"])


def episode_frames(agent: Any, env: Env, episodes: int, *, seed: int = 0) -> Iterator[EpisodeFrame]:
    """Yield the frames of episodes played in the agent's current mode, as they come."""
    _check_render_mode(env)
    most = _most_steps(agent, env)
    for episode in range(1, episodes + 1):
        observation, _ = env.reset(seed=seed) if episode == 1 else env.reset()
        yield EpisodeFrame(_render(env), episode, 0, None, 0.0)
        memory, step, total, over = None, 0, 0.0, False
        while not over and step < most:
            action, memory = agent.predict(observation, memory, np.array([step == 0]), deterministic=True)
            command, name = _command(agent, action)
            observation, reward, terminated, truncated, _ = env.step(command)
            step, total, over = step + 1, total + float(reward), bool(terminated or truncated)
            left = not over and step >= most
            yield EpisodeFrame(_render(env), episode, step, name, total, over, over and not terminated, left)


def _most_steps(agent: Any, env: Env) -> float:
    """Steps to show of an episode: those that count, because without a time limit it may never end."""
    if time_limit(env, env.unwrapped) is not None:
        return math.inf
    return agent.objective.horizon or LONGEST_ENDLESS


def _command(agent: Any, action: Any) -> tuple[Any, str]:
    """What the environment gets for an action, and its name; without a model actions have none."""
    if isinstance(agent.session, OpenSession):
        return action, str(action)
    return int(action), agent.pmdp.action_names[int(action)]


def _check_render_mode(env: Env) -> None:
    mode, known = getattr(env, "render_mode", None), env.metadata.get("render_modes", [])
    if mode is None:
        raise ModelError("watching needs an environment with a render mode, e.g. render_mode='ansi' or 'rgb_array'")
    if mode not in known:
        what, instead = ("text", "an output .gif") if mode == "ansi" else ("pictures", "no output")
        raise ModelError(f"{env.spec.id if env.spec else 'this world'} cannot draw {what}: use {instead}")


def _render(env: Env) -> Any:
    try:
        return env.render()
    except DependencyNotInstalled as error:  # Gymnasium names the package
        raise ModelError(f"this world cannot be drawn: {error}") from None


def watch(
    agent: Any,
    env: Env,
    run: str | Path,
    *,
    episodes: int = 1,
    output: str | Path | None = None,
    seed: int = 1,
    mode: str = "robust",
    fps: float = FPS,
    live: bool = False,
) -> dict[str, Any]:
    """Show the policy of a run in action: frames as text, drawn in place (``live``), or written as .gif."""
    agent.mode = mode
    steps = episode_frames(agent, env, episodes, seed=seed)
    frames = list(steps) if output is not None or not live else list(_shown_in_place(steps, fps))
    returns = [frame.total for frame in frames if frame.over or frame.left]
    actions = [frame.action for frame in frames]
    result = {"run": str(run), "mode": mode, "frames": len(frames), "returns": returns, "actions": actions}
    if output is not None:
        write_gif(Path(output), frames, fps)
        result |= {"output": str(output), "text": f"wrote {len(frames)} frames to {output}; returns {returns}"}
    else:
        texts = [] if live else [f"{frame.caption}\n{frame.picture}" for frame in frames]
        result["text"] = "\n\n".join([*texts, f"returns: {returns}"])
    return jsonable(result)


def _shown_in_place(frames: Iterator[EpisodeFrame], fps: float) -> Iterator[EpisodeFrame]:
    """The same frames, each drawn over the previous one; the last one stays on the screen."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="crop") as view:
        for frame in frames:
            picture = Text.from_ansi(str(frame.picture), no_wrap=True, overflow="crop")
            # the caption goes above the picture, where a low terminal does not cut it off
            view.update(Group(Text(frame.caption, style="bold", no_wrap=True, overflow="crop"), picture), refresh=True)
            yield frame
            time.sleep(1 / fps)


def write_gif(path: Path, frames: Sequence[EpisodeFrame], fps: float = FPS) -> None:
    """Write frames of one size with captions below; the picture of a plain model grows with its labels."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ModelError("animations need pillow: pip install pillow") from None
    if path.suffix.lower() != ".gif":
        raise ModelError(f"the name of an animation must end in .gif, not {path.name!r}")
    pictures = [np.asarray(frame.picture, dtype=np.uint8) for frame in frames]
    height, width = (max(picture.shape[k] for picture in pictures) for k in (0, 1))
    size = (width, height + CAPTION)
    font, images = ImageFont.load_default(13), []
    for frame, picture in zip(frames, pictures):
        image = Image.new("RGB", size, "white")
        image.paste(Image.fromarray(picture), (0, 0))
        ImageDraw.Draw(image).text((10, size[1] - CAPTION + 5), frame.caption, fill=(38, 50, 56), font=font)
        images.append(image)
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 / fps), loop=0)
