"""Write docs/cli.md and docs/api.md from the parser and the docstrings: `python docs/generate.py`.

`--check` writes nothing and fails if a page is out of date (run by the tests).
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from pathlib import Path

os.environ["COLUMNS"] = "110"  # help texts are wrapped to the terminal: fix its width

import rpl_agent
from rpl_agent.cli import build_parser

DOCS = Path(__file__).resolve().parent


def cli_page() -> str:
    parser = build_parser()
    commands = next(a for a in parser._actions if a.dest == "command").choices
    parts = [
        "# Command line\n",
        "Generated from `rpl --help`; see [training](training.md) and [formats](formats.md) for walks through.\n",
    ]
    for name, command in commands.items():
        parts.append(f"## rpl {name}\n\n```text\n{command.format_help().strip()}\n```\n")
    return "\n".join(parts)


def api_page() -> str:
    parts = ["# API\n", "The public names of `rpl_agent`, from their docstrings.\n"]
    for name in sorted(rpl_agent.__all__):
        member = getattr(rpl_agent, name)
        if inspect.isclass(member):
            parts.append(f"## {name}\n\n{_text(member)}")
            for key, method in inspect.getmembers(member, inspect.isroutine):
                if not key.startswith("_") and method.__doc__ and key in _own(member):
                    parts.append(f"### {name}.{key}{_signature(method)}\n\n{_text(method)}")
        elif inspect.isroutine(member):
            parts.append(f"## {name}{_signature(member)}\n\n{_text(member)}")
    return "\n".join(parts) + "\n"


def _own(member: type) -> set[str]:
    return {key for base in member.__mro__ if base.__module__.startswith("rpl_agent") for key in vars(base)}


def _signature(member) -> str:
    try:
        return str(inspect.signature(member)).replace("'", "")
    except ValueError:
        return "(...)"


def _text(member) -> str:
    return "```text\n" + (inspect.getdoc(member) or "").strip() + "\n```\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, text in (("cli.md", cli_page()), ("api.md", api_page())):
        path = DOCS / name
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"out of date: {stale}; run python docs/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
