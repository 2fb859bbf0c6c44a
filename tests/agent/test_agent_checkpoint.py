"""Checkpoint files: whole or detected as broken, never executed, the previous one kept."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from rpl_agent.agent.storage import checkpoint
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.core.errors import RPLWarning

STATE = {"a": 1, "nested": {"b": [1, 2.5, None]}}
ARRAYS = {"x": np.arange(1000), "y": np.linspace(0, 1, 17)}


def same(result, state=STATE):
    read_state, arrays = result
    return read_state == state and all(np.array_equal(arrays[k], v) for k, v in ARRAYS.items())


def test_round_trip_and_previous(tmp_path):
    path = tmp_path / "deep" / "c.zip"
    checkpoint.write(path, STATE, ARRAYS)
    assert same(checkpoint.read(path))
    checkpoint.write(path, {"a": 2}, ARRAYS)
    assert checkpoint.read(path)[0] == {"a": 2}
    assert same(checkpoint.read(checkpoint.previous_path(path)))
    assert sorted(p.name for p in path.parent.iterdir()) == ["c.zip", "c.zip.previous"]


def test_equal_contents_give_equal_bytes():
    assert checkpoint.pack(STATE, ARRAYS) == checkpoint.pack(dict(reversed(STATE.items())), ARRAYS)


@pytest.mark.parametrize("cut", [0, 10, 0.5, -1])
def test_cut_files_are_detected_and_the_previous_is_used(tmp_path, cut):
    path = tmp_path / "c.zip"
    checkpoint.write(path, STATE, ARRAYS)
    checkpoint.write(path, {"a": 2}, ARRAYS)
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data))] if isinstance(cut, float) else data[:cut])
    with pytest.raises(CheckpointError):
        checkpoint.read(path)
    with pytest.warns(RPLWarning, match="using the previous checkpoint"):
        assert same(checkpoint.read_latest(path))
    # writing again must not push the broken file over the good previous one
    checkpoint.write(path, {"a": 3}, ARRAYS)
    assert same(checkpoint.read(checkpoint.previous_path(path))) and checkpoint.read(path)[0] == {"a": 3}


def test_every_flipped_byte_is_detected_or_harmless(tmp_path):
    path = tmp_path / "c.zip"
    checkpoint.write(path, STATE, {"x": np.arange(20)})
    data = bytearray(path.read_bytes())
    detected = 0
    for position in range(0, len(data), 7):
        broken = bytearray(data)
        broken[position] ^= 0xFF
        path.write_bytes(broken)
        try:
            state, arrays = checkpoint.read(path)
        except CheckpointError:
            detected += 1
        else:  # bytes that zip readers ignore, such as time stamps
            assert state == STATE and np.array_equal(arrays["x"], np.arange(20))
    assert detected > len(data) / 7 * 0.5


def test_no_pickle_is_ever_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([Bomb()], dtype=object))
    import hashlib

    members = {"state.json": json.dumps(STATE).encode(), "arrays.npz": buffer.getvalue()}
    manifest = {
        "format": checkpoint.FORMAT, "version": checkpoint.VERSION,
        "sha256": {k: hashlib.sha256(v).hexdigest() for k, v in members.items()},
    }  # fmt: skip
    path = tmp_path / "hostile.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(name, data)
    with pytest.raises(CheckpointError):
        checkpoint.read(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("content", ["", "not a zip", pickle.dumps({"a": 1}), "other zip", "bomb", "missing"])
def test_other_files_are_refused_clearly(tmp_path, content):
    path = tmp_path / "c.zip"
    if content == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hello.txt", "hi")
    elif content == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", b"{}")
            archive.writestr("arrays.npz", b"0")
            archive.writestr("state.json", b"0" * 50_000_000)
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("state.json")
            assert info.file_size > 500 * info.compress_size
    elif content != "missing":
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=r"no checkpoint|damaged|not a checkpoint|refused"):
        checkpoint.read(path)


WRITER = """
import sys
import numpy as np
from rpl_agent.agent.storage import checkpoint
arrays = {"x": np.arange(50_000)}
k = 0
while True:
    k += 1
    checkpoint.write(sys.argv[1], {"k": k}, arrays)
    print(k, flush=True)
"""


def test_kill_9_while_writing_leaves_a_whole_checkpoint(tmp_path, sized):
    path = tmp_path / "c.zip"
    for attempt in range(sized(1, 3)):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        last = 0
        for line in process.stdout:
            last = int(line)
            if last >= 3 + 2 * attempt:
                process.kill()
                break
        rest = process.stdout.read().split()
        last = int(rest[-1]) if rest else last
        process.wait()
        state, arrays = checkpoint.read(path)
        assert state["k"] in (last, last + 1) and len(arrays["x"]) == 50_000
