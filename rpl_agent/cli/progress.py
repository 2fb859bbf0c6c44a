"""`progress_bar`: what a long command is doing, on a terminal and nowhere else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What is done, how much of it is done, and how much there is; None if that is not known.
Show = Callable[[str, int, int | None], None]


@contextmanager
def progress_bar(arguments: argparse.Namespace) -> Iterator[Show]:
    """A function that moves a bar on stderr; it does nothing with --json, or where stderr is no terminal."""
    if arguments.json or not sys.stderr.isatty():
        yield lambda what, done, number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def show(what: str, done: int, number: int | None) -> None:
            current = bar.tasks[-1] if bar.tasks else None
            if current is None or current.description != what:
                if current is not None:
                    bar.remove_task(current.id)
                bar.add_task(what, total=number)
            bar.update(bar.task_ids[-1], completed=done, total=number)

        yield show
