"""`rpl`: the command line. One file per group of commands; `main` only dispatches."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rpl_agent.errors import DataError, ModelError


def build_parser() -> argparse.ArgumentParser:
    from rpl_agent.cli import certify, experiments, export, inspect, training

    parser = argparse.ArgumentParser(
        prog="rpl",
        description="Learn a certified policy for a system whose structure is known and whose parameters are not.",
        epilog="Every command has --help and --json. A model is an id (rpl/Aircraft-20x10-v0) or --model FILE.prism.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (inspect, certify, training, experiments, export):
        group.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; problems with the input are one clear message and exit status 2."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments) or 0)
    except (ModelError, DataError, FileNotFoundError) as error:
        print(f"rpl {arguments.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # e.g. `rpl info … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
