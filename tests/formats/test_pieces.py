"""Pieces of logs counted by Ray on a local cluster: the same integers as in one process."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import build
from rpl_agent.formats.logs import read_log
from rpl_agent.formats.pieces import count_pieces, ray_session

pytestmark = [  # ray starts in 10 s, and takes a second to import
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
]


@pytest.fixture(scope="module")
def coin():
    return build(0, lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}, domain=["p"])


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("pieces"), np.random.default_rng(1)
    found = []
    for k in range(5):
        rows = [f"0,flip,{1 + int(draw)}" for draw in rng.random(200 + k) < 0.3]
        found.append(folder / f"part{k}.csv")
        found[-1].write_text("\n".join(["state,action,next_state", *rows]) + "\n")
    return found


def test_any_number_of_workers_counts_the_same(coin, pieces):
    merged = Counts(coin).merge(*(read_log(coin, piece).counts for piece in pieces))
    for jobs in (1, 2):
        found = count_pieces(coin, pieces, jobs=jobs)
        assert found.rows == merged.total == found.counts.total and found.quarantined == 0
        assert (found.counts.transitions == merged.transitions).all()
        assert [mark.total for mark in found.counts.marks] == [mark.total for mark in merged.marks]
    assert (merged.transitions == read_log(coin, pieces).counts.transitions).all()


def test_bad_pieces_are_named(coin, pieces, tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("state,action,next_state\n0,flip,7\n")
    copy = tmp_path / "copy.csv"
    copy.write_bytes(pieces[0].read_bytes())
    with ray_session(1):
        with pytest.raises(DataError, match=r"wrong\.csv"):
            count_pieces(coin, [*pieces, wrong])
        with pytest.raises(DataError, match=r"copy\.csv has the same contents as .*part0\.csv"):
            count_pieces(coin, [*pieces, copy])
    with pytest.raises(DataError, match="needs a list of files"):
        count_pieces(coin, [])
