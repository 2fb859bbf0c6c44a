"""Episodes as files: .gif (Pillow), .mp4 (ffmpeg) and .html, a page of its own with a slider."""

from __future__ import annotations

import base64
import html
import io
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from rpl_agent.errors import DataError, ModelError

ENDINGS = (".gif", ".mp4", ".html")
#: Pixels of the line below a picture that says which action was taken.
CAPTION = 26


@dataclass(frozen=True)
class EpisodeFrame:
    """One picture of an episode with what led to it."""

    picture: Any  # what env.render() gives: a text, or (H, W, 3) uint8
    episode: int  # from 1
    step: int  # 0 before the first action
    action: str | None  # the action that led here; None at the start
    total: float  # the return so far
    over: bool = False
    cut: bool = False  # over, but only because of a time limit

    @property
    def caption(self) -> str:
        words = [f"episode {self.episode}", f"step {self.step}", f"action {self.action or '–'}"]
        end = " (cut by the time limit)" if self.cut else " (over)" if self.over else ""
        return "   ".join([*words, f"return {self.total:.6g}{end}"])


def write_animation(path: Path, frames: Sequence[EpisodeFrame], fps: float, title: str) -> None:
    """The ending of ``path`` decides the format."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ModelError(f"{str(path)!r} does not end in {', '.join(ENDINGS)}")
    if ending == ".html":
        path.write_text(_page(frames, fps, title), encoding="utf-8")
        return
    images = _captioned(frames)
    if ending == ".gif":
        images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 / fps), loop=0)
    else:
        _write_mp4(path, images, fps)


def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ModelError("animations need pillow: pip install 'rpl-agent[plot]'") from None
    return Image, ImageDraw, ImageFont


def _captioned(frames: Sequence[EpisodeFrame]) -> list[Any]:
    """Images of one size with the caption below; the picture of a plain model grows with its labels."""
    Image, ImageDraw, ImageFont = _pillow()
    pictures = [np.asarray(frame.picture, dtype=np.uint8) for frame in frames]
    height, width = (max(picture.shape[k] for picture in pictures) for k in (0, 1))
    size = (width + width % 2, height + CAPTION + (height + CAPTION) % 2)  # video wants even numbers
    font, images = ImageFont.load_default(13), []
    for frame, picture in zip(frames, pictures):
        image = Image.new("RGB", size, "white")
        image.paste(Image.fromarray(picture), (0, 0))
        ImageDraw.Draw(image).text((10, size[1] - CAPTION + 5), frame.caption, fill=(38, 50, 56), font=font)
        images.append(image)
    return images


def ffmpeg() -> str:
    """The program that writes videos: imageio-ffmpeg's own, or the one on the path."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # not installed, or installed without the program
        found = shutil.which("ffmpeg")
    if found is None:
        raise ModelError("writing .mp4 needs ffmpeg: install it, or pip install imageio-ffmpeg (.gif and .html do not)")
    return found


def _write_mp4(path: Path, images: Sequence[Any], fps: float) -> None:
    width, height = images[0].size
    command = [
        ffmpeg(), "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
        "-r", f"{fps:g}", "-i", "-", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path.resolve()),
    ]  # fmt: skip
    done = subprocess.run(command, input=b"".join(image.tobytes() for image in images), capture_output=True)
    if done.returncode:
        path.unlink(missing_ok=True)
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise DataError(f"ffmpeg could not write {path}: {words[-1] if words else f'status {done.returncode}'}")


def _page(frames: Sequence[EpisodeFrame], fps: float, title: str) -> str:
    """One file with everything in it: no network, no other files."""
    shown = [{"picture": _png(frame.picture), "caption": frame.caption} for frame in frames]
    data = json.dumps({"fps": fps, "frames": shown}).replace("</", "<\\/")  # a script ends at the first "</"
    template = Template(files("rpl_agent.agent.output").joinpath("player.html").read_text(encoding="utf-8"))
    return template.substitute(title=html.escape(title), last=len(frames) - 1, data=data)


def _png(picture: np.ndarray) -> str:
    Image, _, _ = _pillow()
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(picture, dtype=np.uint8)).quantize(128).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
