"""`Parser`: argparse with one-line errors, and with options that are added only when their command is chosen.

Building all commands must import nothing heavy, but some options are described by the code they belong to (the names of
confidence sets, the defaults of a function). `Parser.later` takes a function that adds such options; it is called when
this parser parses or prints its help, never for the other commands.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from rpl_agent.core.errors import RPLWarning

#: exit status of what Ctrl-C ended
INTERRUPTED = 130
#: Largest seed that numpy, Gymnasium and Stable-Baselines3 all accept.
LARGEST_SEED = 2**32 - 1
#: No run is longer; larger numbers are typing errors (and would not fit the counters).
LARGEST_COUNT = 10**15
#: Bytes of a name that leave room for endings: file systems allow 255.
LONGEST_NAME = 200


class UsageError(Exception):
    """The command line is invalid."""


class Parser(argparse.ArgumentParser):
    """Raises errors as `UsageError`; options can be added late; ``run`` is the function of a command."""

    def __init__(
        self, *arguments: Any, run: Callable[[argparse.Namespace], Any] | None = None, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **keywords})
        self._later: list[Callable[[], None]] = []
        if run is not None:
            self.set_defaults(run=run)
            self.add_argument("--json", action="store_true", help="print one JSON object, for errors too")

    def later(self, add: Callable[[], None]) -> None:
        """Call ``add`` before this parser is used."""
        self._later.append(add)

    def complete(self) -> None:
        while self._later:
            self._later.pop(0)()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        found, others = super().parse_known_args(args, namespace)
        if others:  # argparse leaves them to the parser of all commands, whose help has none of this one's options
            near = difflib.get_close_matches(others[0], re.findall(r"--[\w-]+", self.format_help()), 1, cutoff=0.8)
            hint = f"; the nearest is {near[0]}" if near else ""
            self.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return found, others

    def format_help(self) -> str:
        self.complete()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {_with_nearest(message)} (see {self.prog} --help)")


def _with_nearest(message: str) -> str:
    """Put the nearest choice after argparse's list of all choices."""
    found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if not found:
        return message
    near = difflib.get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), 1)
    return message + (f"; the nearest is {near[0]}" if near else "")


class Options(Protocol):
    """A parser or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> Any: ...


def add_call(parser: Options, function: Callable, options: Mapping[str, str | tuple[str, dict]]) -> None:
    """Add one option per keyword of ``function`` (or field of a dataclass), with the function's default.

    ``options`` maps the keyword to its help, and to arguments of ``add_argument`` beyond the signature.
    """
    signature = inspect.signature(function)
    for name, given in options.items():
        text, extra = (given, {}) if isinstance(given, str) else given
        parameter = signature.parameters[name]
        default, kind = parameter.default, str(parameter.annotation).removesuffix(" | None")
        usual: dict[str, dict] = {"int": {"type": count, "metavar": "N"}, "bool": {"action": "store_true"}}
        usual["Sequence[str]"] = {"nargs": "+", "metavar": "NAME"}
        if default is not None and default is not False:
            shown = f"{default:g}" if isinstance(default, float) else default
            text += f" (default {' '.join(shown) if isinstance(shown, tuple) else shown})"
        settings = {**usual.get(kind, {}), **extra}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, help=text.replace("%", "%%"), **settings)


def call(function: Callable[..., Any], arguments: argparse.Namespace, *positional: Any, **given: Any) -> Any:
    """Call ``function`` with the options named like its keywords; ``given`` ones take precedence."""
    names = list(inspect.signature(function).parameters)[len(positional) :]
    named = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    return function(*positional, **(named | given))


# ---------------------------------------------------------------------- values: each an error of one line
def _number(text: str, accepts: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not accepts(value):
        raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
    return value


def _whole(text: str, low: int, high: int, wanted: str) -> int:
    return int(_number(text, lambda v: math.isfinite(v) and v == int(v) and low <= v <= high, wanted))


def count(text: str) -> int:
    """A whole number of at least 1; ``1e5`` and ``20_000`` are numbers too."""
    return _whole(text, 1, LARGEST_COUNT, "a whole number from 1 to 10^15")


def seed(text: str) -> int:
    return _whole(text, 0, LARGEST_SEED, f"a seed, a whole number from 0 to {LARGEST_SEED}")


def between(low: float, high: float, *, closed: bool = False) -> Callable[[str], float]:
    """A number in (low, high), or [low, high] if ``closed``."""
    interval = f"from {low:g} to {high:g}" if closed else f"above {low:g} and below {high:g}"
    wanted = "a finite number " + interval.removesuffix(" and below inf")
    return lambda text: _number(text, lambda v: low <= v <= high if closed else low < v < high, wanted)


class Output(str):
    """The name of a file that a command writes."""


def output_file(*endings: str) -> Callable[[str], Output]:
    """A writable file, checked before minutes are spent on its contents."""

    def convert(text: str) -> Output:
        path = Path(text)
        try:
            if not text or path.is_dir():
                raise argparse.ArgumentTypeError(f"{text!r} is a folder; give a file ending in {' or '.join(endings)}")
            if path.suffix.lower() not in endings:
                raise argparse.ArgumentTypeError(f"{text!r} does not end in {' or '.join(endings)}")
            if not path.parent.is_dir():
                raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to")
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{_short(text)}: {error.strerror}") from None
        if len(path.name.encode()) > LONGEST_NAME:
            raise argparse.ArgumentTypeError(f"the name {_short(text)} is too long")
        return Output(text)

    return convert


def require_other_outputs(arguments: argparse.Namespace) -> None:
    """Refuse to write over a file that is read, or written by another option."""
    values = [value if isinstance(value, list) else [value] for value in vars(arguments).values()]
    texts = [text for value in values for text in value if isinstance(text, str)]
    files = [text for text in texts if isinstance(text, Output) or os.path.isfile(text)]
    for output in (text for text in files if isinstance(text, Output)):
        if any(os.path.realpath(text) == os.path.realpath(output) for text in files if text is not output):
            raise UsageError(f"{output} is a file that another option reads or writes: name another one")


def regret_goal(text: str) -> str:
    """A number, or a share of the value like 1%."""
    from rpl_agent.agent.schedule import RegretGoal
    from rpl_agent.core.errors import ModelError

    try:
        RegretGoal.parse(text)
    except ModelError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def folder_name(text: str) -> str:
    """A plain folder name."""
    if len(text.encode()) > LONGEST_NAME:
        raise argparse.ArgumentTypeError(f"the name {_short(text)} is longer than {LONGEST_NAME} bytes")
    if not text.strip() or text in (".", "..") or any(c in text for c in "/\\\0"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a plain folder name")
    return text


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


# ---------------------------------------------------------------------- errors
def plain_warnings() -> None:
    """Print our warnings on one line each, once, without their source location."""
    seen: set[str] = set()
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, RPLWarning):
            usual(message, category, *place, **more)
        elif str(message) not in seen:
            seen.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    warnings.showwarning = show


def report_error(argv: Sequence[str] | None, message: str) -> None:
    """Print one line on stderr; with --json one JSON object on stdout instead."""
    message = message.strip()
    if "--json" in (sys.argv[1:] if argv is None else argv):
        print(json.dumps({"error": message}), flush=True)
    else:
        print(message, file=sys.stderr)
