"""`rpl`: the command line. One file per group of commands; `main` only dispatches.

Building the parser imports nothing heavy, so `rpl --help` is instant; each command imports what it needs.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

from rpl_agent import __version__
from rpl_agent.cli import parser as options
from rpl_agent.cli.parser import INTERRUPTED
from rpl_agent.core.errors import DataError, ModelError

#: exit status for wrong input, and for a defect
WRONG, DEFECT = 2, 1


def build_parser() -> options.Parser:
    from rpl_agent.cli import certify, experiments, improve, inspect, plan, training

    parser = options.Parser(
        prog="rpl",
        description="Learn a certified policy for a system with known structure and unknown parameters.",
        epilog="Every command has --help and --json. A model is an id (rpl/Aircraft-20x10-v0) or --model FILE.prism.",
    )
    parser.add_argument("--version", action="version", version=f"rpl_agent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (inspect, certify, improve, plan, training, experiments):
        group.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; input errors print one clear message and exit with status 2."""
    if argv is None:  # the command itself, not a program that calls it
        options.plain_warnings()
    try:
        arguments = build_parser().parse_args(argv)
    except options.UsageError as error:
        options.report_error(argv, str(error))
        return WRONG
    except KeyboardInterrupt:  # while a command loads what its options need
        options.report_error(argv, "rpl: stopped")
        return INTERRUPTED
    words = sys.argv[1:] if argv is None else argv
    arguments.given = {word.partition("=")[0] for word in words if word.startswith("--")}  # values never start with --
    name = f"rpl {arguments.command}"
    try:
        options.require_other_outputs(arguments)
        status = int(arguments.run(arguments) or 0)
        sys.stdout.flush()  # a closed pipe is noticed here, not when Python ends
        return _interrupted(argv) if status == INTERRUPTED else status
    except (ModelError, DataError, options.UsageError) as error:
        options.report_error(argv, f"{name}: {error}")
        return WRONG
    except BrokenPipeError:  # e.g. `rpl info … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # no such file, no permission, no space, a name too long
        where = f" {error.filename!r}" if error.filename is not None else ""
        options.report_error(argv, f"{name}: {(error.strerror or str(error))}{where}")
        return WRONG
    except MemoryError as error:
        options.report_error(argv, f"{name}: out of memory: {str(error) or 'the model or the data are too large'}")
        return WRONG
    except KeyboardInterrupt as interrupt:  # a run says how to continue
        options.report_error(argv, f"{name}: stopped; {interrupt}".rstrip("; "))
        return _interrupted(argv)
    except Exception as error:  # a defect: the traceback is for the bug report, the JSON for the calling program
        traceback.print_exc()
        if arguments.json:
            options.report_error(argv, f"{name}: {type(error).__name__}: {error}")
        return DEFECT


def _interrupted(argv: Sequence[str] | None) -> int:
    """The status of an interrupted command, which further signals do not disturb: Python would print a traceback."""
    if argv is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return INTERRUPTED
