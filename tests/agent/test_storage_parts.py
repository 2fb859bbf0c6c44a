"""Storage part by part: files that are replaced whole, names, ages, sizes, and values that come back as they were."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections import namedtuple
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from rpl_agent.agent.storage import checkpoint, pace, state
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.agent.storage.state import OpaqueValue, from_plain, model_from_data, model_to_data, plain
from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from rpl_agent.core.files import write_whole
from rpl_agent.core.model import build
from rpl_agent.core.model.states import START, Paid


# ====================================================================== files
def test_constants_of_the_format():
    assert (checkpoint.VERSION, checkpoint.READABLE) == (3, (2, 3))
    assert (checkpoint.MAX_BYTES, checkpoint.FREE_BYTES, checkpoint.MAX_RATIO) == (8 << 30, 64 << 20, 200)
    assert checkpoint.STALE_SECONDS == 3600.0 and (pace.SHARE, pace.CHEAP) == (0.03, 0.02)


def test_a_text_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    place = tmp_path / "run.json"
    write_whole(place, "old\r\n")
    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_whole(place, "new")
    assert place.read_bytes() == b"old\r\n" and [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_links_stay_links_and_what_is_not_a_file_is_written_to(tmp_path):
    place, link, pipe = tmp_path / "run.json", tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(place)
    write_whole(link, b"text")
    assert link.is_symlink() and place.read_text() == "text"
    os.mkfifo(pipe)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(read, 99) == b"through" and pipe.is_fifo()
    os.close(read)


def full_disk(*given) -> None:
    raise OSError(28, "no space")


def test_the_source_of_a_run_comes_back(tmp_path):
    checkpoint.write_run(tmp_path, {"id": "a"}, 7)
    assert checkpoint.read_source(tmp_path) == {"id": "a"} and (tmp_path / "run.json").read_text().endswith("}\n")
    with pytest.raises(FileNotFoundError, match="it has no run"):
        checkpoint.read_source(tmp_path / "none")


def filled(folder: Path) -> None:
    (folder / "a").write_text("a")


def test_folders_have_the_name_that_was_given_or_the_next_free_number(tmp_path):
    logs = tmp_path / "logs"
    for name in ("../a", "a/b", "..", "/tmp"):
        with pytest.raises(ModelError, match="plain folder name"):
            checkpoint.new_folder(logs, name, "run", filled)
    assert checkpoint.new_folder(logs, "mine", "run", filled) == logs / "mine"
    assert [checkpoint.new_folder(logs, None, "run", filled).name for _ in range(2)] == ["run_1", "run_2"]
    assert stat.S_IMODE((logs / "mine").stat().st_mode) == 0o755
    with pytest.raises(ModelError, match="exists: choose another"):
        checkpoint.new_folder(logs, "mine", "run", filled)
    with pytest.raises(OSError, match="no space"):
        checkpoint.new_folder(logs, "other", "run", full_disk)
    assert sorted(p.name for p in logs.iterdir()) == ["mine", "run_1", "run_2"]


def test_only_free_names_are_taken(tmp_path, monkeypatch):
    numbers = count()

    def folder(*names: str) -> Path:
        made = tmp_path / f"part{next(numbers)}"
        made.mkdir()
        for name in names:
            (made / name).write_text("")
        return made

    (tmp_path / "file").write_text("")
    assert checkpoint._rename(folder("a"), tmp_path / "new") and (tmp_path / "new" / "a").is_file()
    assert checkpoint._rename(folder("a"), folder()) and not checkpoint._rename(folder("a"), folder("b"))
    assert not checkpoint._rename(folder("a"), tmp_path / "file")
    with pytest.raises(ModelError, match="cannot be made"):
        checkpoint._rename(folder("a"), tmp_path / "none" / "new")
    empty, other = folder(), folder("a")
    monkeypatch.setattr(os, "rename", full_disk)
    assert not checkpoint._rename(other, empty)  # another process was faster


def test_what_is_an_hour_old_is_left_over(tmp_path, monkeypatch):
    now = 1e9
    monkeypatch.setattr(checkpoint.time, "time", lambda: now)
    for name, age in {"a.part": 3599.0, "b.part": 3600.0, "c.part": 1e6, "d": 1e6}.items():
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (now - age, now - age))
    checkpoint.remove_stale(tmp_path, "*.part")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.part", "d"]


def test_a_checkpoint_is_written_beside_its_place_and_readable_by_all(tmp_path, monkeypatch):
    seen, place, sync = [], tmp_path / "c.zip", os.fsync

    def watched(handle: int) -> None:
        seen.append(sorted(p.name for p in tmp_path.iterdir()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    checkpoint.write(place, {}, {})
    (temporary,) = seen[0]
    assert Path(temporary).match("c.zip.*.part") and stat.S_IMODE(place.stat().st_mode) == 0o644
    assert checkpoint.previous_path(place) == tmp_path / "c.zip.previous"
    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(CheckpointError, match="no space; the last one remains valid"):
        checkpoint.write(place, {"a": 1}, {})
    with pytest.raises(CheckpointError, match=r"no space$"):
        checkpoint.write(tmp_path / "d.zip", {"a": 1}, {})
    assert checkpoint.read(place) == ({}, {}) and not list(tmp_path.glob("*.part"))


def test_only_what_this_process_wrote_is_not_read_again(tmp_path, monkeypatch):
    place, read, seen = tmp_path / "c.zip", checkpoint.read, []
    monkeypatch.setattr(checkpoint, "read", lambda path: seen.append(path) or read(path))
    assert not checkpoint._is_as_written(place)
    checkpoint.write(place, {"k": 0}, {})
    assert checkpoint._is_as_written(place)
    before = len(seen)
    checkpoint.write(place, {"k": 1}, {})
    assert len(seen) == before
    place.write_bytes(checkpoint.previous_path(place).read_bytes())  # a whole one, of another process
    assert not checkpoint._is_as_written(place)
    checkpoint.write(place, {"k": 2}, {})
    assert len(seen) == before + 1 and read(checkpoint.previous_path(place))[0] == {"k": 0}


def test_where_files_cannot_be_linked_the_previous_one_is_kept_all_the_same(tmp_path, monkeypatch):
    place = tmp_path / "c.zip"
    checkpoint.write(place, {"k": 0}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["c.zip"]
    checkpoint._keep_previous(place)
    assert place.is_file() and sorted(p.name for p in tmp_path.iterdir()) == ["c.zip", "c.zip.previous"]
    monkeypatch.setattr(os, "link", full_disk)
    checkpoint.write(place, {"k": 1}, {})
    assert checkpoint.read(checkpoint.previous_path(place))[0] == {"k": 0} and checkpoint.read(place)[0] == {"k": 1}


def test_names_without_an_ending_get_one(tmp_path):
    assert checkpoint.zipped(tmp_path / "a") == tmp_path / "a.zip"
    assert checkpoint.zipped(tmp_path / "a.b") == tmp_path / "a.b"


# ====================================================================== contents of files
def members(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def repacked(place: Path, parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(place, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_each_member_has_its_checksum_and_the_format_its_version(tmp_path):
    place = tmp_path / "c.zip"
    whole = members(checkpoint.pack({"a": 1}, {"x": np.arange(3)}))
    manifest = json.loads(whole["manifest.json"])
    assert manifest["types"] == {"x": "<i8"} and manifest["version"] == 3
    repacked(place, whole)
    assert checkpoint.read(place)[0] == {"a": 1}
    other = members(checkpoint.pack({"a": 2}, {"x": np.arange(4)}))
    for name in ("state.json", "arrays.npz"):
        repacked(place, {**whole, name: other[name]})
        with pytest.raises(CheckpointError, match=f"the checksum of {name} is wrong"):
            checkpoint.read(place)
    for change, sentence in (
        ({"format": "other"}, "is not a checkpoint of rpl_agent"),
        ({"version": 1}, "has version 1; this package reads versions up to 3"),
        ({"version": 4}, "has version 4"),
        ({"types": {"x": "<f8"}}, "is not one of <f8"),
    ):
        repacked(place, {**whole, "manifest.json": json.dumps({**manifest, **change}).encode()})
        with pytest.raises(CheckpointError, match=sentence):
            checkpoint.read(place)
    repacked(place, {**whole, "manifest.json": json.dumps({**manifest, "version": 2}).encode()})
    assert checkpoint.read(place)[0] == {"a": 1}
    listed = members(checkpoint.pack([1], {}))  # type: ignore[arg-type]
    repacked(place, listed)
    with pytest.raises(CheckpointError, match="its state is not an object"):
        checkpoint.read(place)
    repacked(place, {"state.json": b"{}", "manifest.json": b"{}"})
    with pytest.raises(CheckpointError, match="it holds"):
        checkpoint.read(place)


def test_one_compressed_array_among_others_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, method in (("x.npy", zipfile.ZIP_STORED), ("y.npy", zipfile.ZIP_DEFLATED)):
            array = io.BytesIO()
            np.save(array, np.arange(3))
            archive.writestr(name, array.getvalue(), compress_type=method)
    with pytest.raises(CheckpointError, match="compressed twice"):
        checkpoint._read_arrays(buffer.getvalue(), tmp_path)


def test_files_may_expand_so_far(monkeypatch):
    assert checkpoint._most_bytes(0) == 64 << 20 and checkpoint._most_bytes(10) == (64 << 20) + 2000
    assert checkpoint._most_bytes(1 << 40) == 8 << 30


def test_integers_are_narrowed_and_nothing_else():
    for array, kind in (
        (np.array([0, 255]), "u1"), (np.array([0, 256]), "u2"), (np.array([-1, 5]), "i2"),
        (np.array([-1, 200]), "i2"), (np.array([0.0, 1.0]), "f8"), (np.array([1], np.int16), "u1"),
        (np.array([1], np.int8), "i1"), (np.array([True]), "b1"), (np.zeros(0, np.int64), "i8"),
    ):  # fmt: skip
        assert checkpoint._narrowed(array).dtype == np.dtype(kind)
    assert checkpoint._widened(np.array([1], np.uint8), "<i8").dtype == np.int64
    for array, kind in ((np.array([1.5]), "<i8"), (np.array([1]), "<f8"), (np.array([1.5]), "<f8")):
        with pytest.raises(ValueError, match="is not one of"):
            checkpoint._widened(array, kind)


def test_without_a_previous_checkpoint_the_damage_is_said(tmp_path):
    place = tmp_path / "c.zip"
    place.write_text("half")
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.read_latest(place)
    checkpoint.write(checkpoint.previous_path(place), {"k": 0}, {})
    with pytest.warns(RPLWarning, match=r"using the previous checkpoint c.zip.previous"):
        assert checkpoint.read_latest(place)[0] == {"k": 0}


def test_contents_that_shrink_too_far_are_stored_as_they_are(monkeypatch):
    monkeypatch.setattr(checkpoint, "FREE_BYTES", 1000)
    monkeypatch.setattr(checkpoint, "MAX_RATIO", 2)
    assert len(checkpoint.pack({}, {"x": np.zeros(10_000)})) > 80_000
    monkeypatch.setattr(checkpoint, "MAX_RATIO", 1000)
    assert len(checkpoint.pack({}, {"x": np.zeros(10_000)})) < 8_000


# ====================================================================== pace
def test_writes_take_a_small_share_of_the_time(monkeypatch):
    now = 100.0
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)

    def after(took: float, waited: float, least: float = 0.0) -> bool:
        nonlocal now
        found = pace.Pace(least)
        with found.measured():
            now += took
        now += waited
        return found.is_due()

    assert pace.Pace().is_due() and pace.Pace(50.0).is_due()  # the first one is
    assert after(0.015, 0.0) and after(0.0, 0.0)  # free
    assert not after(0.3, 9.9) and after(0.3, 10.1)  # 3 %
    assert not after(0.015, 4.9, 5.0) and after(0.015, 5.1, 5.0)
    assert not after(0.3, 6.0, 5.0) and after(0.25, 0.25 / 0.03 + 1e-9) and after(0.0, 8.0, 8.0)


# ====================================================================== values of states and models
Place = namedtuple("Place", "x y")


@pytest.mark.parametrize(
    "value",
    [
        START, None, True, False, 0, -3, "text", 0.1, float("inf"), (), (1, 2), (1.5, "a", (None, True)), Place(1, 2.5),
        (Place("a", (1,)), 3), Paid("after", (("gain", 0.1), ("loss", -2.0))), Paid((1, 2), ()),
    ],
)  # fmt: skip
def test_values_come_back_as_they_were(value):
    stored = json.loads(json.dumps(plain(value)))
    found = from_plain(stored)
    assert found == value and type(found).__name__ == type(value).__name__
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        assert found._fields == value._fields


def test_numbers_of_numpy_are_numbers_and_other_things_keep_their_text():
    assert plain(np.int64(3)) == 3 and plain(np.bool_(True)) is True and plain(np.float64(0.5)) == plain(0.5)
    shown = from_plain(plain(frozenset({1})))
    assert isinstance(shown, OpaqueValue) and repr(shown) == "frozenset({1})"

    class Pair(tuple):
        __slots__ = ()

    assert from_plain(plain(Pair((1, 2)))) == OpaqueValue("(1, 2)")

    class Named:
        _fields = ("x",)

        def __repr__(self) -> str:
            return "named"

    assert from_plain(plain(Named())) == OpaqueValue("named")


def model(share: str = "p"):
    def actions(s):
        return {"stay": {s: 1}} if s else {"go": {1: share, 2: f"1 - {share}"}}

    return build(0, actions, domain=["p"], labels={"won": lambda s: s == 1}, name="small")


@pytest.mark.parametrize("share", ["p", "0.1*p", "p*(1/3)**30*(1/7)**20"])
def test_models_come_back_with_every_digit(share):
    pmdp = model(share)
    data, arrays = model_to_data(pmdp)
    data = json.loads(json.dumps(data))
    found = model_from_data(data, arrays)
    assert found.content_hash == pmdp.content_hash and list(found.state_values) == list(pmdp.state_values)
    with pytest.raises(DataError, match="is damaged: its hash is"):
        model_from_data({**data, "hash": "0"}, arrays)
    bare = replace(pmdp, state_values=None)
    assert model_from_data(*model_to_data(bare)).state_values is None


def test_a_checkpoint_without_a_model_says_so():
    with pytest.raises(CheckpointError, match="holds no model"):
        state.stored_model({"model": 3}, {})
    data, arrays = model_to_data(model())
    named = {f"model.{name}": array for name, array in arrays.items()}
    assert state.stored_model({"model": data}, {**named, "model": np.zeros(1)}).content_hash == model().content_hash
