"""Run a sweep: skip what is on disk, spread the rest over workers, keep every row, survive the death of a worker.

The unit of work is a group of tasks that share data; the unit of record is a task. Executors differ only in where a
group runs: a task's seed determines its result. Rows are one JSON object per line, each with everything about one
run; figures and tables need nothing else:

    {"key", "task": what was asked, "result": what came out (equal for equal tasks), "timing": seconds, "run": by what}

Lines are only ever appended. A partial last line (the process died while writing) is ignored and its task rerun.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import platform
import subprocess
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timezone
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from rpl_agent.core.files import make_folder
from rpl_agent.core.schema import jsonable
from rpl_agent.formats.pieces import ray_session
from rpl_agent.guarantee.certificate import versions
from rpl_agent.studies.experiments.suites import Task, group, key

Row = dict[str, Any]
ROWS = "rows.jsonl"
FAILURES = "failures.jsonl"
SPOOL = ".spool"


def number(value: Any) -> float:
    """A number in a row: a float, "inf", "nan", or None for a missing one."""
    return math.nan if value is None else float(value)


def grouped(rows: Iterable[Row], by: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Group rows by the result of a function, in order of appearance."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[by(row)].append(row)
    return groups


def by_kind(rows: Iterable[Row]) -> dict[str, list[Row]]:
    return grouped(rows, lambda row: row["task"]["kind"])


@lru_cache(maxsize=1)
def provenance() -> dict[str, Any]:
    """Facts about the code and the machine, without the machine's name."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "modified": None if changed is None else bool(changed),
        "versions": versions(),
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cpus": os.cpu_count()},
    }


def make_row(key: str, task: dict[str, Any], result: dict[str, Any], timing: dict[str, float]) -> Row:
    finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    row = {"key": key, "task": task, "result": result, "timing": timing, "run": provenance() | {"finished": finished}}
    return jsonable(row)


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append complete lines and flush them to disk; a partial line of a killed process is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        for row in rows:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[Row]:
    """All complete rows of a file (compressed if its name ends with .gz); unreadable lines are skipped."""
    if not path.exists():
        return []
    data = path.read_bytes()
    rows = []
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace").split("\n"):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and {"key", "task", "result"} <= set(row):
            rows.append(row)
    return rows


class Store(dict[str, Row]):
    """The rows of one results folder by key: rows.jsonl, to which new ones are appended, and rows.jsonl.gz if any."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.path, self.spool = self.folder / ROWS, self.folder / SPOOL
        super().__init__({row["key"]: row for part in (self.folder / f"{ROWS}.gz", self.path) for row in read(part)})

    def add(self, rows: Iterable[Row]) -> int:
        """Append rows that are not there yet; return how many were new."""
        new = {row["key"]: row for row in rows if row["key"] not in self}
        if new:
            append(self.path, new.values())
            self.update(new)
        return len(new)

    def all(self, kind: str | None = None) -> list[Row]:
        return [row for row in self.values() if kind is None or row["task"]["kind"] == kind]

    def absorb_spool(self) -> int:
        """Take over what the workers of an interrupted sweep had finished."""
        taken = 0
        if self.spool.is_dir():
            for part in sorted(self.spool.glob("*.jsonl")):
                taken += self.add(row for row in read(part) if "error" not in row)
                part.unlink(missing_ok=True)
            with suppress(OSError):  # another worker's file arrived meanwhile: the next sweep takes it
                self.spool.rmdir()
        return taken


def require_rows(folder: str | os.PathLike) -> Store:
    """A store that has rows; otherwise an error with its location."""
    store = Store(folder)
    if not store:
        raise DataError(f"no rows in {os.fspath(folder)!r}: run `rpl reproduce` or `rpl compare` into it first")
    return store


Group = tuple[str, list[Task]]
EXECUTORS = ("joblib", "ray")
#: Runs at a time, unless the caller says how many.
JOBS = 2
#: Rounds in which all unfinished groups are retried together after a worker died; then one by one.
RETRIES = 2
#: Distinct warnings kept per row.
MAX_WARNINGS = 5


def resolve(kind: str) -> Callable[[Task], tuple[dict[str, Any], dict[str, float]]]:
    """The function of a kind of task: one of ours, or "module:function" for your own experiment."""
    if ":" in kind:
        module, function = kind.split(":", 1)
        return getattr(import_module(module), function)
    from rpl_agent.studies.experiments.tasks import KINDS

    if kind not in KINDS:
        raise ModelError(f"no kind of task {kind!r}; there are {sorted(KINDS)}")
    return KINDS[kind]


def run_group(tasks: Sequence[Task], spool: str | None = None) -> list[Row]:
    """Run tasks one after the other; an exception becomes a row with "error", and the others continue."""
    rows = []
    for task in tasks:
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:  # stored in the row: nobody reads a worker's terminal
            warnings.simplefilter("always", RPLWarning)
            try:
                result, timing = resolve(task["kind"])(task)
                row = make_row(key(task), task, result, timing | {"total": time.perf_counter() - start})
            except Exception as error:
                row = make_row(key(task), task, {}, {"total": time.perf_counter() - start})
                row["error"] = f"{type(error).__name__}: {error}"
        said = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, RPLWarning))
        if said:
            row["warnings"] = list(said)[:MAX_WARNINGS]
        if spool is not None:
            append(Path(spool) / f"{key(tasks[0])}.jsonl", [row])
        rows.append(row)
    return rows


def run_sweep(
    tasks: Sequence[Task],
    output: str | os.PathLike,
    *,
    jobs: int | None = None,
    executor: str = "joblib",
    progress: bool = False,
    retries: int = RETRIES,
) -> list[Row]:
    """Rows of all tasks, in order; tasks already in ``output`` are not rerun.

    jobs : how many run at a time; None: two, or one where joblib is not installed

    Raises DataError at the end with the names of failed tasks; the rows of the others are on disk by then.
    """
    if executor not in EXECUTORS:
        raise ModelError(f"executor {executor!r} is not one of {EXECUTORS}")
    if jobs is None:
        jobs = JOBS if executor != "joblib" or find_spec("joblib") is not None else 1
    if jobs < 1:
        raise ModelError(f"jobs {jobs} must be at least 1")
    if (executor == "ray" or jobs > 1) and find_spec(executor) is None:
        raise ModelError(f"{executor} is not installed: pip install {executor}, or --jobs 1 without it")
    make_folder(Path(output))
    store = Store(output)
    store.absorb_spool()
    keys = [key(task) for task in tasks]
    groups: dict[str, list[Task]] = {}
    for task, k in zip(tasks, keys):
        if k not in store and not any(key(other) == k for other in groups.get(group(task), [])):
            groups.setdefault(group(task), []).append(task)
    failures: list[str] = []
    with _progress_bar(progress) as bar, _session(executor if groups else "none", jobs):
        done = len(tasks) - sum(map(len, groups.values()))
        line = bar.add_task("runs", total=len(tasks), completed=done)
        spool = os.fspath(store.spool) if executor == "joblib" else None  # other machines have other disks
        for name, rows in _with_retries(list(groups.items()), executor, jobs, spool, retries):
            if isinstance(rows, str):
                failures.append(f"{name}: {rows}")
            else:
                good = [row for row in rows if "error" not in row]
                bad = [row for row in rows if "error" in row]
                store.add(good)
                if bad:
                    append(store.folder / FAILURES, bad)
                    failures += [f"{name}: {row['error']}" for row in bad]
            bar.update(line, advance=len(groups[name]), description=name)
        bar.update(line, description="runs")
    store.absorb_spool()
    if failures:
        listed = "\n".join(failures)
        raise DataError(f"{len(failures)} of {len(tasks)} runs failed; start again to retry them:\n{listed}")
    return [store[k] for k in keys if k in store]


def _with_retries(
    groups: list[Group], executor: str, jobs: int, spool: str | None, retries: int
) -> Iterator[tuple[str, list[Row] | str]]:
    """Yield (group, rows) in order of completion; a group whose worker always dies ends as an error text."""
    left = dict(groups)
    for attempt in range(retries + 1):
        # After the last common round each group runs alone, so that one bad group cannot affect others.
        batches = [list(left.items())] if attempt < retries else [[item] for item in left.items()]
        for batch in batches:
            try:
                for name, rows in _execute(batch, executor, jobs, spool):
                    del left[name]
                    yield name, rows
            except WorkerDied as death:
                if attempt == retries:
                    del left[batch[0][0]]
                    yield batch[0][0], f"its worker died {retries + 1} times ({death})"
        if not left:
            return


class WorkerDied(RuntimeError):
    """A worker process ended without a result."""


def _execute(groups: list[Group], executor: str, jobs: int, spool: str | None) -> Iterator[tuple[str, list[Row]]]:
    if executor == "ray":
        return _ray(groups)
    if jobs == 1:
        return (_named_group(group, spool) for group in groups)
    return _joblib(groups, jobs, spool)


def _named_group(group: Group, spool: str | None = None) -> tuple[str, list[Row]]:
    return group[0], run_group(group[1], spool)


def _joblib(groups: list[Group], jobs: int, spool: str | None) -> Iterator[tuple[str, list[Row]]]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

    # One thread per worker: the kernels are serial, and linear algebra would compete for the cores.
    with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
        results = Parallel(return_as="generator_unordered", batch_size=1)(
            delayed(_named_group)(group, spool) for group in groups
        )
        try:
            yield from results
        except (BrokenProcessPool, TerminatedWorkerError) as error:
            raise WorkerDied(str(error).splitlines()[0]) from None


def _ray(groups: list[Group]) -> Iterator[tuple[str, list[Row]]]:
    """As many groups at a time as the cluster has cores."""
    from ray.exceptions import RayError
    from ray.util.multiprocessing import Pool

    with Pool() as pool:
        for found in pool.imap_unordered(_named_group, groups):
            if isinstance(found, RayError):
                raise WorkerDied(type(found).__name__)
            yield found


def _session(executor: str, jobs: int) -> AbstractContextManager[None]:
    """For Ray: a cluster for this sweep, see `ray_session`."""
    return ray_session(jobs) if executor == "ray" else nullcontext()


def _progress_bar(show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not show,
    )
