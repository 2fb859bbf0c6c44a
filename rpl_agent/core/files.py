"""`write_whole`: a file has its old content or its new one, whatever happens while it is written; `make_folder`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rpl_agent.core.errors import ModelError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under another name and rename it; text is UTF-8, with its own line ends.

    A link stays one; what is not a file, such as /dev/stdout, is written directly.
    """
    data, target = content.encode() if isinstance(content, str) else content, path.resolve()
    if target.exists() and not target.is_file():
        path.write_bytes(data)
        return
    temporary = target.with_name(target.name + ".part")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder, if there is none yet, and raise if no file can be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ModelError(f"{path} is no folder that can be written to: {error.strerror or error}") from None
