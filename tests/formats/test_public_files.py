"""`benchmarks.public_models` on a small folder: which files, which constants, which published results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import public_files as files
from benchmarks.public_models import agrees, judge, summary

MODEL = """dtmc
const int N;
const double p;
module m
  x : [0..N];
  [] x<N -> p:(x'=x+1) + 1-p:(x'=0);
  [] x=N -> true;
endmodule
"""
PROPERTIES = """const int k;
// RESULT (N=2,k=2): p^2
// RESULT (N=3): p^3
// RESULT: ?
P=? [ F<=k x=N ]

P=? [ F & ]
// no state satisfies it
// RESULT (N=2): 0
filter(max, P=? [ F x>N ])
// RESULT: Error:not,supported
S=? [ x=N ]
// RESULT (p=0.5,N=2): false
// RESULT (N=3): true
P<=0.2 [ F<=3 x=N ]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "walk.pm").write_text(MODEL)
    (tmp_path / "deep" / "walk.pm.props").write_text(PROPERTIES)
    (tmp_path / "deep" / "walk.pm.props.args").write_text("-const N=2:3,p=0.5 -const k=2 -h\n# -const N=9\n-param p\n")
    (tmp_path / "deep" / "notes.props").write_text("P=? [ F x=N ]")
    (tmp_path / "deep" / "queue.pm").write_text("ctmc\nmodule m x:[0..1]; [] true -> 2:(x'=1); endmodule")
    (tmp_path / "copy").mkdir()
    for name in ("walk.pm", "walk.pm.props", "walk.pm.props.args", "notes.props"):
        (tmp_path / "copy" / name).write_text((tmp_path / "deep" / name).read_text())
    return tmp_path


def test_a_folder_is_read_as_prism_reads_it(folder):
    (path,) = files.model_files(folder)  # no CTMC, and the copy once
    assert [p.name for p in files.property_files(path)] == ["notes.props", "walk.pm.props"]
    props = path.with_name("walk.pm.props")
    assert files.runs(props) == [{"N": "2", "p": "0.5", "k": "2"}, {"N": "3", "p": "0.5", "k": "2"}]
    assert files.conditions(PROPERTIES) == [{"N": "2", "k": "2"}, {"N": "3"}, {"N": "2"}, {"p": "0.5", "N": "2"}]
    at = PROPERTIES.index("P=? [ F<=k")
    comment = files.comment_before(PROPERTIES, at)
    assert files.published(comment, {"N": "2", "k": "2"}) == "p^2"
    assert files.published(comment, {"N": "3", "k": "2"}) == "p^3"
    assert files.published(comment, {"N": "2", "k": "3"}) == "?"


def test_published_results_are_numbers():
    values = {"p": "0.5", "N": "3"}
    for text, wanted in [
        ("1/8", 0.125), ("p^2", 0.25), ("(1-p)/N", 1 / 6), ("1.5E-3", 0.0015), ("~0.25", 0.25),
        ("Infinity", float("inf")), ("true", True), ("[0.1,0.2]", (0.1, 0.2)), ("?", None), ("NaN", None),
        ("Error:x", None),
        ("q", None),
        ("[(1,2),(3,4)]", None),
    ]:  # fmt: skip
        assert files.number(text, values) == pytest.approx(wanted), text


def test_conditional_results_and_yes_or_no_are_compared(folder):
    pytest.importorskip("stormpy")
    (path,) = files.model_files(folder)
    rows = judge(path, 1000)
    json.dumps(rows)
    assert [r["constants"] for r in rows] == [{"N": "2", "p": "0.5"}, {"N": "3", "p": "0.5"}]
    assert all(r["counts"] == r["storm_counts"] for r in rows)
    first, second = ([p for p in r["properties"] if p.get("result")] for r in rows)
    assert [p.get("published") for p in first] == [0.25, 0.0, None, False]
    assert [agrees(p, "published") for p in first] == [True, True, None, True]
    assert [p.get("published") for p in second] == [0.125, None, True]
    assert agrees(second[0], "published") is False  # F<=2 x=3 is 0, not p^3: a wrong result is seen
    assert [agrees(p) for p in first if "storm" in p] == [True, True]  # a value and a yes or no
    found = summary(rows)
    assert (found["files"], found["runs"], found["loaded by both"]) == (1, 2, 2)
    assert (found["different"], found["different from a published result"]) == (0, 1)


def test_a_model_with_parameters_is_compared_as_one(tmp_path):
    pytest.importorskip("stormpy")
    (tmp_path / "open.pm").write_text(MODEL)
    (tmp_path / "open.pctl").write_text("P=? [ F<=4 x=N ]")
    (row,) = judge(tmp_path / "open.pm", 1000)
    assert row["parameters"] == ["p"] and row["counts"] == row["storm_counts"]
    assert len({p["constants"]["p"] for p in row["properties"]}) == 2
    assert [agrees(p) for p in row["properties"]] == [True, True]
