"""Long logs: CPU nanoseconds per row of `read_log`, and what 10^9 rows would take, extrapolated.

Episodes of MarsRover (10 x 10) under the uniform policy, written in pieces: Parquet with state numbers and with the
model's variables and action names, and CSV. The tests for repeated chance are part of the time, as always.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import rpl_envs
from rpl_agent.core.model import ParametricMDP
from rpl_agent.formats.logs import read_log

#: rows of a Parquet log, and of a CSV log, by size
ROWS = {"smoke": (20_000, 5_000), "usual": (2_000_000, 200_000), "full": (20_000_000, 1_000_000)}
#: rows of a piece
PIECE = 1_000_000


def rows(smoke: bool = False, full: bool = False) -> list[dict[str, Any]]:
    """One row per kind of file."""
    world = rpl_envs.benchmark("MarsRover-10x10")
    many, few = ROWS["smoke" if smoke else "full" if full else "usual"]
    found = []
    for kind, total in (("numbers.parquet", many), ("names.parquet", many), ("names.csv", few)):
        with tempfile.TemporaryDirectory() as folder:
            pieces = _write(Path(folder), kind, world.pmdp, world.theta, total)
            began = time.process_time()
            log = read_log(world.pmdp, pieces)
            seconds = time.process_time() - began
        found.append(
            {
                "log": kind,
                "pieces": len(pieces),
                "rows": log.rows,
                "CPU s": seconds,
                "ns per row": 1e9 * seconds / log.rows,
                "10^9 rows, extrapolated: CPU min": 1e9 * seconds / log.rows / 60,
            }
        )
    return found


def _write(folder: Path, kind: str, pmdp: ParametricMDP, theta: np.ndarray, total: int) -> list[Path]:
    import pyarrow
    from pyarrow import csv, parquet

    names, suffix = kind.split(".")
    rng, pieces = np.random.default_rng(0), []
    for k, begin in enumerate(range(0, total, PIECE)):
        states, actions, successors = _episodes(pmdp, theta, min(PIECE, total - begin), rng)
        columns: dict[str, Any] = {"state": states, "action": actions, "next_state": successors}
        if names == "names":
            columns = {name: np.asarray(values)[states] for name, values in pmdp.variables.items()}
            columns["action"] = pyarrow.array(np.array(pmdp.action_names)[actions])
            columns |= {f"next_{name}": np.asarray(values)[successors] for name, values in pmdp.variables.items()}
        pieces.append(folder / f"part{k}.{suffix}")
        (parquet.write_table if suffix == "parquet" else csv.write_csv)(pyarrow.table(columns), pieces[-1])
    return pieces


def _episodes(
    pmdp: ParametricMDP, theta: np.ndarray, total: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(states, actions, successors), each (n,) with n ≥ ``total``: plays side by side, from the start to a loop."""
    probability = pmdp.instantiate(theta).probability
    sums, lanes = np.cumsum(probability), max(1, total // 30)
    parts: list[tuple[np.ndarray, ...]] = []
    state, lane, step = np.full(lanes, pmdp.initial_state), np.arange(lanes), 0
    while len(lane) and sum(len(part[0]) for part in parts) < total:
        first, last = pmdp.state_ptr[state], pmdp.state_ptr[state + 1]
        row = first + (rng.random(len(lane)) * (last - first)).astype(np.int64)
        begin, end = pmdp.row_ptr[row], pmdp.row_ptr[row + 1]
        below = np.where(begin > 0, sums[begin - 1], 0.0)
        t = np.searchsorted(sums, below + rng.random(len(lane)) * (sums[end - 1] - below), "right")
        t = np.clip(t, begin, end - 1)
        after = pmdp.successor[t].astype(np.int64)
        parts.append((lane, np.full(len(lane), step), state, pmdp.action[row].astype(np.int64), after))
        going = after != state
        state, lane, step = after[going], lane[going], step + 1
    lanes_, steps, *columns = (np.concatenate(column) for column in zip(*parts))
    order = np.lexsort((steps, lanes_))
    return columns[0][order], columns[1][order], columns[2][order]
