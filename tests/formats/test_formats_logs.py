"""Logs: the same transitions from every source, in bounded memory, and nothing skipped in silence."""

from __future__ import annotations

import csv
import random
import re
import shutil
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rpl_agent.core.errors import DataError, RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import SPLIT_MARKS
from rpl_agent.core.evidence.repetition import WindowCodes
from rpl_agent.core.model import build
from rpl_agent.formats import log_sources, logs, prism
from rpl_agent.formats.logs import log_steps, read_log, simulate_log

MODELS = Path(__file__).parents[2] / "examples" / "models"
HEADER = "level,broken,shift,action,next_level,next_broken,next_shift\n"


@pytest.fixture(scope="module")
def pmdp():
    return prism.load(MODELS / "maintenance.prism").pmdp


@pytest.fixture(scope="module")
def steps(pmdp, tmp_path_factory) -> tuple[Path, np.ndarray]:
    """A log of 40 episodes, and its (n, 3) state, action and successor numbers."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    rows = simulate_log(path, pmdp, [0.4, 0.03], episodes=40, max_steps=30, stop=pmdp.labels["over"], seed=3)
    number = {v: s for s, v in enumerate(zip(*(np.asarray(c).tolist() for c in pmdp.variables.values()), strict=True))}
    action = {name: i for i, name in enumerate(pmdp.action_names)}
    with open(path, newline="") as file:
        lines = list(csv.reader(file))[1:]
    table = [(number[tuple(map(int, r[:3]))], action[r[3]], number[tuple(map(int, r[4:7]))]) for r in lines]
    assert rows == len(table) == 40 * 30
    return path, np.array(table)


def test_logs_of_spreadsheets_begin_with_a_mark(pmdp, steps, tmp_path):
    path, _ = steps
    (tmp_path / "marked.csv").write_text("\ufeff" + path.read_text(), encoding="utf-8")
    found = read_log(pmdp, tmp_path / "marked.csv").counts.transitions
    np.testing.assert_array_equal(found, read_log(pmdp, path).counts.transitions)


def write_numbers(path: Path, table: np.ndarray) -> None:
    path.write_text("state,action,next_state,comment\n" + "".join(f"{s},{a},{t},x\n" for s, a, t in table))


def expected(pmdp, table: np.ndarray) -> Counts:
    counts = Counts(pmdp, schedule="geometric")
    counts.add_many(*table.T)
    return counts


def test_csv_with_variables_and_with_numbers(pmdp, steps, tmp_path):
    path, table = steps
    log = read_log(pmdp, path)
    np.testing.assert_array_equal(log.counts.transitions, expected(pmdp, table).transitions)
    assert (log.rows, log.quarantined) == (1200, 0)
    assert [m.total for m in log.counts.marks] == [64, 256, 1024]
    write_numbers(tmp_path / "numbers.csv", table)
    again = read_log(pmdp, tmp_path / "numbers.csv")
    np.testing.assert_array_equal(again.counts.transitions, log.counts.transitions)


def test_blocks_change_nothing(pmdp, steps, monkeypatch):
    path, table = steps
    monkeypatch.setattr(log_sources, "BLOCK", 7)
    log = read_log(pmdp, path)
    whole = expected(pmdp, table)
    np.testing.assert_array_equal(log.counts.transitions, whole.transitions)
    for a, b in zip(log.counts.marks, whole.marks, strict=True):
        assert a.total == b.total
        np.testing.assert_array_equal(a.successes, b.successes)


def test_split_schedule_marks_at_its_shares(pmdp, steps, monkeypatch):
    path, table = steps
    monkeypatch.setattr(log_sources, "BLOCK", 50)
    counts = read_log(pmdp, path, schedule="split").counts
    assert [m.total for m in counts.marks if m.weight] == [round(share * len(table)) for share in SPLIT_MARKS]
    assert len(counts.marks) > 20 and counts.total == len(table)
    for mark in counts.marks:
        first = Counts(pmdp, schedule="shares")
        first.add_many(*table[: mark.total].T)
        np.testing.assert_array_equal(mark.successes, first.successes)
        np.testing.assert_array_equal(mark.trials, first.trials)
        assert mark.progress == mark.total / len(table)


def test_parquet(pmdp, steps, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    _, table = steps
    names = [pmdp.action_names[a] for a in table[:, 1]]
    columns = {"state": table[:, 0], "action": pyarrow.array(names).dictionary_encode(), "next_state": table[:, 2]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "log.parquet", row_group_size=100)
    log = read_log(pmdp, tmp_path / "log.parquet")
    np.testing.assert_array_equal(log.counts.transitions, expected(pmdp, table).transitions)
    split = read_log(pmdp, tmp_path / "log.parquet", schedule="split").counts
    assert [m.total for m in split.marks if m.weight] == [round(share * len(table)) for share in SPLIT_MARKS]
    columns["next_state"] = np.where(np.arange(len(table)) == 5, 0, table[:, 2])
    parquet.write_table(pyarrow.table(columns), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"bad.parquet row 6: "):
        read_log(pmdp, tmp_path / "bad.parquet")
    (tmp_path / "no.parquet").write_text("nothing")
    with pytest.raises(DataError, match=r"no.parquet: "):
        read_log(pmdp, tmp_path / "no.parquet")


def test_damaged_parquet_files_are_named(pmdp, steps, tmp_path):
    """A change of any byte, or a file that ends too early, is an error of this file, or goes unnoticed in its data."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    _, table = steps
    columns = {"state": table[:, 0], "action": [pmdp.action_names[a] for a in table[:, 1]], "next_state": table[:, 2]}
    path, draw, refused = tmp_path / "log.parquet", random.Random(1), 0
    parquet.write_table(pyarrow.table(columns), path)
    content = path.read_bytes()
    for k in range(200):
        damaged = bytearray(content if k % 7 else content[: draw.randrange(len(content))])
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            read_log(pmdp, path)
        except DataError as error:
            refused += 1
            assert "log.parquet" in str(error)
    assert refused > 50
    names = ["state", "action", "next_state", "next_state"]
    parquet.write_table(pyarrow.Table.from_arrays([*map(pyarrow.array, [*columns.values(), table[:, 0]])], names), path)
    with pytest.raises(DataError, match=r"log.parquet names a column twice"):
        read_log(pmdp, path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variables", [False, True])
def test_minari(pmdp, steps, tmp_path, monkeypatch, variables):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari = pytest.importorskip("minari", reason="minari is not installed")
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    _, table = steps
    columns = np.column_stack([np.asarray(c) for c in pmdp.variables.values()])
    buffers = []
    for k in range(40):
        episode = table[30 * k : 30 * (k + 1)]
        states = np.concatenate([episode[:, 0], episode[-1:, 2]])
        ends = [False] * 29 + [True]
        buffers.append(
            EpisodeBuffer(
                observations=columns[states].astype(np.int64) if variables else states,
                actions=episode[:, 1],
                rewards=[0.0] * 30,
                terminations=ends,
                truncations=[False] * 30,
            )
        )
    space = spaces.MultiDiscrete([5, 2, 31]) if variables else spaces.Discrete(pmdp.num_states)
    name = f"maintenance/{'variables' if variables else 'numbers'}-v0"
    minari.create_dataset_from_buffers(
        name,
        buffers,
        observation_space=space,
        action_space=spaces.Discrete(pmdp.num_actions),
        algorithm_name="uniform",
        data_format="arrow",
    )
    log = read_log(pmdp, f"minari:{name}")
    np.testing.assert_array_equal(log.counts.transitions, expected(pmdp, table).transitions)
    with pytest.raises(DataError, match="minari dataset 'maintenance/none-v0'"):
        read_log(pmdp, "minari:maintenance/none-v0")


def forbidden_rows() -> list[tuple[str, str]]:
    return [
        ("0,0,0,full,0,0,2", r"action 'full' never leads to \(level=0, broken=0, shift=2\)"),
        ("0,0,0,repair,0,0,1", "action 'repair' is not enabled"),
        ("0,0,0,fly,0,0,1", "the model has no action 'fly'"),
        ("0,0,0,17,0,0,1", r"the model has no action 17 \(it has 5\)"),
        ("9,0,0,full,0,0,1", r"the model has no state \(level=9, broken=0, shift=0\)"),
        ("0,0,zero,full,0,0,1", "shift = 'zero' is not a whole number"),
        ("0,0,0.5,full,0,0,1", "shift = '0.5' is not a whole number"),
        (f"0,0,{2**63},full,0,0,1", f"shift = '{2**63}' is not a whole number of 64 bits"),
        ("0,0,0,1e300,0,0,1", "the model has no action '1e300'"),
        ("0,0,0,full,0,0", "6 fields, the header has 7"),
    ]


@pytest.mark.parametrize(("row", "reason"), forbidden_rows())
def test_forbidden_rows_fail_with_their_line(pmdp, tmp_path, row, reason):
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "0,0,0,full,0,0,1\n\n" + row + "\n")
    with pytest.raises(DataError, match="1 of 2 rows contradict the model; nothing was used") as caught:
        read_log(pmdp, path)
    assert caught.match(f"log.csv:4: .*{reason}")


@pytest.mark.parametrize("number", [-1, 10**3, 2**32, 2**63 - 1, 2**64])
@pytest.mark.parametrize("column", ["state", "next_state"])
def test_numbers_of_no_state_fail_with_their_line(pmdp, tmp_path, number, column):
    row = {"state": 0, "action": "full", "next_state": 1} | {column: number}
    path = tmp_path / "log.csv"
    path.write_text("state,action,next_state\n0,full,1\n{state},{action},{next_state}\n".format(**row))
    with pytest.raises(DataError, match=rf"log.csv:3: .*{number}"):
        read_log(pmdp, path)


def test_quarantine_keeps_every_forbidden_row(pmdp, tmp_path):
    path = tmp_path / "log.csv"
    rows = [row for row, _ in forbidden_rows()]
    path.write_text(HEADER + "false,false,0,full,true,false,1\n" + "\n".join(rows) + "\n")
    with pytest.warns(RPLWarning, match="10 of 11 rows contradict the model and were written to"):
        log = read_log(pmdp, path, quarantine=tmp_path / "bad.csv")
    assert (log.counts.total, log.rows, log.quarantined) == (1, 11, 10)
    with open(tmp_path / "bad.csv", newline="") as file:
        kept = list(csv.DictReader(file))
    assert [line["place"] for line in kept] == [f"log.csv:{k}" for k in range(3, 13)]
    assert kept[2]["reason"] == "the model has no action 'fly'"
    assert kept[2]["action"] == "fly"


def test_many_forbidden_rows_are_counted(pmdp, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "0,0,0,fly,0,0,1\n" * 50)
    with pytest.raises(DataError, match=r"50 of 50 rows(.|\n)*log.csv:11: (.|\n)*… and 40 more"):
        read_log(pmdp, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no header line"),
        ("a,a\n1,2\n", "names a column twice"),
        ("state,next_state\n0,1\n", "no column 'action'"),
        ("state,action\n0,1\n", "needed are state, next_state, or level, broken, shift with next_level"),
        (HEADER, "the log contains no transition"),
        (HEADER + '0,0,0,"full,0,0,1\n', "unexpected end of data"),
    ],
)
def test_unusable_files(pmdp, tmp_path, text, reason):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=reason):
        read_log(pmdp, path)


def test_unknown_sources(pmdp, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_log(pmdp, tmp_path / "none.csv")
    (tmp_path / "log.xlsx").write_text("")
    with pytest.raises(DataError, match=r"a log is a .csv, .tsv or .parquet file"):
        read_log(pmdp, tmp_path / "log.xlsx")


def test_memory_does_not_grow_with_the_log(pmdp, tmp_path, monkeypatch):
    monkeypatch.setattr(log_sources, "BLOCK", 500)
    monkeypatch.setattr(log_sources, "PIECE", 500)
    monkeypatch.setattr(log_sources, "ORDERED", 500)

    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.csv"
        path.write_text("state,action,next_state\n" + "0,0,1\n" * rows)
        tracemalloc.start()
        log = read_log(pmdp, path)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert log.counts.total == rows
        return used

    peak(500)
    assert peak(20_000) < 1.5 * peak(1_000) + 50_000


# ---------------------------------------------------------------------- the same steps twice
@pytest.mark.parametrize("block", [1 << 16, 500])
@pytest.mark.parametrize("how", ["twice", "overlap", "tail"])
def test_rows_read_twice_are_noticed_and_named(pmdp, steps, tmp_path, monkeypatch, block, how):
    table = steps[1]
    monkeypatch.setattr(log_sources, "BLOCK", block)
    joined = {
        "twice": np.concatenate([table, table]),
        "overlap": np.concatenate([table[:900], table[300:]]),
        "tail": np.concatenate([table, table[-600:]]),
    }[how]
    path = tmp_path / "joined.csv"
    write_numbers(path, joined)
    with pytest.raises(DataError, match=r"usable row \d+ repeats row \d+.*nothing was used") as caught:
        read_log(pmdp, path)
    later, earlier = map(int, re.findall(r"\d+", str(caught.value).split("usable")[1])[:2])
    assert later > earlier and np.array_equal(joined[later - 16 : later], joined[earlier - 16 : earlier])


def copies(table: np.ndarray, how: str, rng: np.random.Generator) -> np.ndarray:
    """Eight times the same 40 episodes of 30 rows."""
    episodes = np.split(table, 40)
    if how == "rows in a row":
        return np.repeat(table, 8, axis=0)
    if how == "episodes in a row":
        return np.concatenate([episode for episode in episodes for _ in range(8)])
    if how == "shuffled copies":
        return np.concatenate([episodes[k] for _ in range(8) for k in rng.permutation(40)])
    if how == "all episodes shuffled":
        return np.concatenate([episodes[k] for k in rng.permutation(np.repeat(np.arange(40), 8))])
    if how == "rows shuffled":
        return np.concatenate([rng.permutation(table) for _ in range(8)])
    if how == "two chunks of five":
        return np.concatenate([part for k in range(0, 40, 5) for part in 2 * episodes[k : k + 5]])
    assert how == "chunks of seven rows"
    return np.concatenate([table[k : k + 7] for k in range(0, len(table), 7) for _ in range(8)])


COPIES = (
    "rows in a row", "episodes in a row", "shuffled copies", "all episodes shuffled", "rows shuffled",
    "two chunks of five", "chunks of seven rows",
)  # fmt: skip


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("how", COPIES)
def test_copies_are_noticed_however_they_are_ordered(pmdp, steps, tmp_path, how, marked):
    """With a column that lets every row begin an episode of its own, only chance can tell."""
    table = copies(steps[1], how, np.random.default_rng(0))
    path = tmp_path / "copies.csv"
    write_numbers(path, table)
    if marked:
        lines = [f"{s},{a},{t},{k}" for k, (s, a, t) in enumerate(table.tolist())]
        path.write_text("state,action,next_state,episode\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError, match="nothing was used"):
        read_log(pmdp, path)


def test_rows_of_an_episode_follow_each_other(pmdp, steps, tmp_path):
    table = steps[1]
    path = tmp_path / "log.csv"
    write_numbers(path, np.delete(table, 45, axis=0))
    with pytest.raises(
        DataError, match=r"1 of 1199 rows contradict(.|\n)*log.csv:47: begins in .*, but the previous row led to"
    ):
        read_log(pmdp, path)
    with pytest.warns(RPLWarning, match="1 of 1199 rows contradict"):
        assert read_log(pmdp, path, quarantine=tmp_path / "bad.csv").counts.total == 1198
    episodes = np.repeat(np.arange(40), 30)
    lines = [f"{s},{a},{t},{e}" for (s, a, t), e in zip(table.tolist(), episodes.tolist())]
    header = "state,action,next_state,episode\n"
    path.write_text(header + "\n".join(lines[:30] + lines[37:60]) + "\n")  # an episode of which only the end was kept
    assert read_log(pmdp, path).counts.total == 53
    path.write_text(header + "\n".join(lines[:7] + lines[8:30]) + "\n")
    with pytest.raises(DataError, match=r"log.csv:9: begins in "):
        read_log(pmdp, path)


def coin_model():
    """States and actions with keys of their own, in an order that is not that of the numbers."""
    rows = {5: {2: {9: "p", 7: "1-p"}, 1: {7: 1}}, 9: {2: {5: 1}}, 7: {2: {5: 1}}}
    return build(5, lambda s: rows[s], domain=["p"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_logs_speak_in_the_keys_of_the_model(tmp_path, kind):
    """State 9 is not the state number 9, and action 1 is not the second action; 2.5 is no state."""
    pmdp = coin_model()
    rows = [(5, 2, 9), (9, 2, 5), (5, 2, 7), (7, 2, 5), (5, 1, 7)]
    path = tmp_path / f"log.{kind}"

    def write(rows):
        if kind == "csv":
            path.write_text("state,action,next_state\n" + "".join(f"{s},{a},{t}\n" for s, a, t in rows))
            return
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(dict(zip(("state", "action", "next_state"), zip(*rows)))), path)

    write(rows)
    counts = read_log(pmdp, path).counts
    for s, a, t in rows:
        row = pmdp.find_row(pmdp.state_index(s), pmdp.action_keys.index(a))
        assert counts.transitions[pmdp.find_transition(row, pmdp.state_index(t))] == rows.count((s, a, t))
    write([(5, 2, 9), (9, 2, 5), (5, 3, 9)])
    with pytest.raises(DataError, match=r"the model has no action '?3"):
        read_log(pmdp, path)
    write([(5.5, 2, 9)])
    with pytest.raises(DataError, match=r"the model has no state '?5\.5"):
        read_log(pmdp, path)


def test_a_text_of_two_states_names_neither(tmp_path):
    """Both would be counted as the last one."""
    pmdp = build(0, lambda s: {"go": {1: "p", "1": "1-p"}} if s == 0 else {"stay": {s: 1}}, domain=["p"])
    path = tmp_path / "log.csv"
    path.write_text("state,action,next_state\n0,go,1\n")
    with pytest.raises(DataError, match="next_state: several states are written as '1'"):
        read_log(pmdp, path)


@pytest.mark.parametrize("names", ["10", "210", "ab10"])
def test_a_number_is_the_action_of_that_name_in_every_format(tmp_path, names):
    """The action "1" of a CSV file is 1 in a column of whole numbers, wherever the model lists it."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    pmdp = build(
        5, lambda s: {name: {6: f"p{name}", 7: f"1-p{name}"} for name in names} if s == 5 else {names[0]: {s: 1}},
        domain=[f"p{name}" for name in names],
    )  # fmt: skip
    text, table = tmp_path / "log.csv", tmp_path / "log.parquet"
    text.write_text("state,action,next_state\n5,1,6\n5,0,7\n5,0,7\n")
    parquet.write_table(pyarrow.table({"state": [5, 5, 5], "action": [1, 0, 0], "next_state": [6, 7, 7]}), table)
    counts = read_log(pmdp, table).counts
    assert counts.transitions[pmdp.find_transition(pmdp.find_row(0, names.index("0")), pmdp.state_index(7))] == 2
    assert np.array_equal(counts.transitions, read_log(pmdp, text).counts.transitions)
    parquet.write_table(pyarrow.table({"state": [5], "action": [len(names)], "next_state": [6]}), table)
    with pytest.raises(DataError, match=f"has no action {len(names)}"):
        read_log(pmdp, table)


def test_simulated_logs_have_the_values_of_states(tmp_path):
    pmdp = coin_model()
    rows = simulate_log(tmp_path / "log.csv", pmdp, [0.3], episodes=20, max_steps=10)
    assert {line.split(",")[0] for line in (tmp_path / "log.csv").read_text().split()[1:]} <= {"5", "7", "9"}
    assert read_log(pmdp, tmp_path / "log.csv").counts.total == rows


@pytest.mark.parametrize("episodes", [400, pytest.param(1500, marks=pytest.mark.nightly)])
def test_honest_logs_are_not_accused(pmdp, tmp_path, episodes):
    """Also not where long stretches are nearly deterministic."""
    for seed, theta in enumerate(([0.4, 0.03], [0.3, 0.011], [0.2, 0.02])):
        path = tmp_path / f"{seed}.csv"
        simulate_log(path, pmdp, theta, episodes=episodes, max_steps=30, stop=pmdp.labels["over"], seed=seed)
        assert read_log(pmdp, path).counts.total == episodes * 30


def test_fingerprints_are_those_of_the_windows():
    rows = np.random.default_rng(0).integers(0, 5, 400)
    codes = WindowCodes(7)
    prints = np.concatenate([codes.add(rows[:100]), codes.add(rows[100:]), codes.add(rows[:1])])[7:]
    windows = np.lib.stride_tricks.sliding_window_view(rows, 7)
    same = (windows[:, None] == windows[None]).all(axis=2)
    assert np.array_equal(prints[:, None] == prints[None], same)


def test_minari_without_its_file_reader_is_explained(monkeypatch):
    def load_dataset(name):
        raise ImportError("h5py is not installed")

    monkeypatch.setitem(sys.modules, "minari", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(DataError, match=r"h5py is not installed\): pip install 'minari\[hdf5\]'"):
        list(log_sources.open_log("minari:some/data-v0"))


@pytest.mark.parametrize("cut", [30, 450, 461])  # between episodes, and within one
def test_a_log_in_pieces_is_the_whole_log(pmdp, steps, tmp_path, cut):
    path, table = steps
    parts = [tmp_path / "part1.csv", tmp_path / "part2.csv"]
    for part, rows in zip(parts, (table[:cut], table[cut:]), strict=True):
        write_numbers(part, rows)
    whole, pieces = read_log(pmdp, path), read_log(pmdp, parts)
    np.testing.assert_array_equal(pieces.counts.transitions, whole.counts.transitions)
    assert pieces.rows == whole.rows
    assert [mark.total for mark in pieces.counts.marks] == [mark.total for mark in whole.counts.marks]
    split = read_log(pmdp, parts, schedule="split")
    assert [mark.total for mark in split.counts.marks] == [
        mark.total for mark in read_log(pmdp, path, schedule="split").counts.marks
    ]


def test_a_piece_given_twice_is_noticed(pmdp, steps, tmp_path):
    with pytest.raises(DataError, match="repeat"):
        read_log(pmdp, [steps[0], steps[0]])
    shutil.copy(steps[0], tmp_path / "copy.csv")
    with pytest.raises(DataError, match=r"usable row .* repeats row"):
        read_log(pmdp, [steps[0], tmp_path / "copy.csv"])
    with pytest.raises(DataError, match="at least one file"):
        read_log(pmdp, [])


@pytest.mark.parametrize("read", [read_log, log_steps])
def test_a_short_piece_given_twice_is_noticed_under_any_name(pmdp, tmp_path, read):
    """Few rows have too little chance to tell a copy from a coincidence, but a file is the same by any name."""
    short, link = tmp_path / "short.csv", tmp_path / "link.csv"
    short.write_text(HEADER + "0,0,0,full,0,0,1\n")
    link.hardlink_to(short)
    for again in (short, tmp_path / "." / "short.csv", link):
        with pytest.raises(DataError, match=f"{re.escape(again.name)} is given twice"):
            read(pmdp, [short, again])


@pytest.mark.parametrize("column", [["3", "-1", "3", "x"], [3, -1, 3, "x"], [3, -1, 3, 0.5]])
def test_values_are_read_one_by_one_or_once_each(column):
    """-1 is a number like any other; what is none has a reason."""
    reasons = {}
    found = logs._each(column, logs._whole, lambda value: f"{value!r} is wrong", reasons)
    assert found.tolist() == [3, -1, 3, -1] and reasons == {3: f"{column[3]!r} is wrong"}


def test_texts_are_looked_up_once():
    asked = []

    def convert(value):
        asked.append(value)
        return len(value)

    assert logs._each(["flip", "no"] * 500, convert, str, {}).sum() == 3000 and sorted(asked) == ["flip", "no"]


def test_texts_of_parquet_are_read_once_each(pmdp, tmp_path):
    """Dictionaries and plain texts mean the same; a text that is no action is named in every row that has it."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "log.csv"
    simulate_log(path, pmdp, [0.4, 0.03], episodes=20, max_steps=10, stop=pmdp.labels["over"], seed=3)
    lines = [line.split(",") for line in path.read_text().splitlines()]
    columns = {name: [row[k] for row in lines[1:]] for k, name in enumerate(lines[0])}
    typed = {name: pyarrow.array(c if name == "action" else [int(v) for v in c]) for name, c in columns.items()}
    wanted = read_log(pmdp, path).counts.transitions
    for action in (typed["action"], typed["action"].dictionary_encode()):
        parquet.write_table(pyarrow.table({**typed, "action": action}), tmp_path / "log.parquet")
        assert np.array_equal(read_log(pmdp, tmp_path / "log.parquet").counts.transitions, wanted)
    wrong = ["jump" if k in (2, 5) else text for k, text in enumerate(columns["action"])]
    parquet.write_table(pyarrow.table({**typed, "action": pyarrow.array(wrong)}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"2 of \d+ rows(.|\n)*row 3: the model has no action 'jump'(.|\n)*row 6"):
        read_log(pmdp, tmp_path / "bad.parquet")


def test_a_copy_far_into_a_long_log_is_found_at_its_end(pmdp, monkeypatch):
    """Long logs are tested now and then, and always at the end."""
    monkeypatch.setattr(log_sources, "ORDERED", 0)
    monkeypatch.setattr(log_sources, "LOOK_AGAIN", 1e9)
    rng = np.random.default_rng(0)
    rows = np.flatnonzero(np.diff(pmdp.row_ptr) > 1)
    once = pmdp.row_ptr[rng.choice(rows, 4000)] + rng.integers(0, 2, 4000)
    repeated = log_sources.RepeatedRows(pmdp)
    for part in (once[:2000], once[2000:], once):
        repeated.add(part, np.zeros(len(part), dtype=bool))
        repeated._look()
    with pytest.raises(DataError, match="repeats row"):
        repeated.finish()


def test_spaces_behind_commas_are_no_part_of_a_value(tmp_path):
    """Names in the header were stripped, values were not."""
    model = build(0, lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}, domain=["p"])
    path = tmp_path / "log.csv"
    path.write_text("state, action, next_state\n0, flip, 1\n0, flip, 2\n")
    assert read_log(model, path).counts.total == 2
