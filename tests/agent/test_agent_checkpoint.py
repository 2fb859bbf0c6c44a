"""Checkpoint files: whole or detected as broken, never executed, the previous one kept."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import time
import zipfile
import zlib

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

    path, bombs = tmp_path / "hostile.zip", npz(np.savez, x=np.array([Bomb()], dtype=object))
    path.write_bytes(packed({"state.json": json.dumps(STATE).encode(), "arrays.npz": bombs}))
    with pytest.raises(CheckpointError):
        checkpoint.read(path)
    assert not (tmp_path / "executed").exists()


def packed(members):
    """A checkpoint of these members with a right manifest, as small as deflate makes it."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    manifest = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "sha256": sums}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(name, data)
    return out.getvalue()


def npz(save, **arrays):
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def test_files_that_expand_too_far_are_refused(tmp_path, monkeypatch):
    """Both are whole checkpoints but for their size; deflate stayed below the ratio that was refused before."""
    path, zeros = tmp_path / "c.zip", np.zeros(700_000)
    monkeypatch.setattr(checkpoint, "FREE_BYTES", 1 << 20)
    monkeypatch.setattr(checkpoint, "MAX_RATIO", 100)  # fast compression shrinks zeros to a 222nd
    path.write_bytes(packed({"state.json": b"{}", "arrays.npz": npz(np.savez, x=zeros)}))
    with pytest.raises(CheckpointError, match=r"would expand to 5,600,\d+: refused"):
        checkpoint.read(path)
    path.write_bytes(packed({"state.json": b"{}", "arrays.npz": npz(np.savez_compressed, x=zeros)}))
    with pytest.raises(CheckpointError, match="compressed twice: refused"):
        checkpoint.read(path)
    checkpoint.write(path, {}, {"x": zeros})  # one of ours is stored so that it can be read
    assert len(checkpoint.read(path)[1]["x"]) == len(zeros) and path.stat().st_size > zeros.nbytes
    monkeypatch.setattr(checkpoint, "FREE_BYTES", 1 << 24)
    checkpoint.write(path, {}, {"x": zeros})
    assert len(checkpoint.read(path)[1]["x"]) == len(zeros) and path.stat().st_size < zeros.nbytes / 100
    monkeypatch.setattr(checkpoint, "MAX_BYTES", zeros.nbytes)
    with pytest.raises(CheckpointError, match="would expand"):
        checkpoint.read(path)


def test_what_killed_saves_left_is_removed(tmp_path):
    """Of this checkpoint, and only what is old: another process may be writing now."""
    path, old = tmp_path / "c.zip", time.time() - 2 * checkpoint.STALE_SECONDS
    names = {"c.zip.abc.part": old, "c.zip.def.part": time.time(), "other.zip.abc.part": old}
    for name, at in names.items():
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (at, at))
    checkpoint.write(path, STATE, ARRAYS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.zip", "c.zip.def.part", "other.zip.abc.part"]
    half = tmp_path / "logs" / ".half.part"
    half.mkdir(parents=True)
    os.utime(half, (old, old))
    made = checkpoint.new_folder(tmp_path / "logs", "run", "run", lambda folder: (folder / "a").write_text("a"))
    assert [p.name for p in (tmp_path / "logs").iterdir()] == ["run"] and (made / "a").is_file()


@pytest.mark.parametrize("content", ["", "not a zip", pickle.dumps({"a": 1}), "other zip", "missing"])
def test_other_files_are_refused_clearly(tmp_path, content):
    path = tmp_path / "c.zip"
    if content == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hello.txt", "hi")
    elif content != "missing":
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=r"no checkpoint|damaged|not a checkpoint"):
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


def test_integers_are_stored_in_small_types_and_come_back_in_their_own(tmp_path):
    arrays = {
        "counts": np.array([0, 3, 70_000], dtype=np.int64),
        "signed": np.array([-1, 200], dtype=np.int32),
        "both large and negative": np.array([-1, 2**40]),  # numpy's common type of the two is a float
        "weights": np.array([0.5, np.nan]),
        "none": np.zeros(0, dtype=np.int64),
        "flags": np.array([True, False]),
    }
    checkpoint.write(tmp_path / "c.zip", {"a": 1}, arrays)
    found = checkpoint.read(tmp_path / "c.zip")[1]
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_checkpoint_that_was_damaged_after_it_was_written_does_not_become_the_previous_one(tmp_path):
    path = tmp_path / "c.zip"
    for k in range(2):
        checkpoint.write(path, {"k": k}, {})
    good = checkpoint.previous_path(path).read_bytes()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    checkpoint.write(path, {"k": 2}, {})
    assert checkpoint.previous_path(path).read_bytes() == good
    assert checkpoint.read(path)[0] == {"k": 2}


def test_checkpoints_are_compressed_fast():
    """At level 1, a quarter of the time of the default level for a sixth more bytes."""
    numbers = np.random.default_rng(0).integers(0, 50, 100_000)
    packed = checkpoint.pack({}, {"numbers": numbers})
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        (arrays,) = (member for member in archive.infolist() if member.filename == "arrays.npz")
        fast = zlib.compressobj(1, zlib.DEFLATED, -15)
        assert arrays.compress_size == len(fast.compress(archive.read(arrays)) + fast.flush())
