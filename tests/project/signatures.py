"""Write `rpl_agent/signatures.json`: python -m tests.project.signatures (compiles what is not compiled yet)."""

from __future__ import annotations

import json
from typing import Any

from rpl_agent.cli.warm_up import run_briefly
from rpl_agent.dispatcher import Kernel
from rpl_agent.preparing import RECORD, RUNS, encode


def record() -> dict[str, list[list[Any]]]:
    """The lists, from runs in this process, which must not have compiled or loaded any kernel before."""
    lists: dict[str, list[list[Any]]] = {}
    seen: list[list[Any]] = []
    add = Kernel.add_overload

    def listen(self: Kernel, result: Any) -> None:
        seen.append([self.py_func.__module__, self.py_func.__name__, [encode(a) for a in result.signature.args]])
        add(self, result)

    Kernel.add_overload = listen
    try:
        for run in RUNS:
            run_briefly(run)
            lists[run] = list(seen)
    finally:
        Kernel.add_overload = add
    return lists


if __name__ == "__main__":
    lists = (f'"{run}": [\n' + ",\n".join(map(json.dumps, entries)) + "\n]" for run, entries in record().items())
    RECORD.write_text("{\n" + ",\n".join(lists) + "\n}\n")  # one kernel a line
