"""The one error of the PRISM reader: what is wrong, and at which line and column of the file."""

from __future__ import annotations

from typing import NamedTuple

from rpl_agent.errors import ModelError


class Position(NamedTuple):
    """A place in the source text, both numbers counted from one as editors do."""

    line: int
    column: int


NOWHERE = Position(1, 1)


class PrismError(ModelError):
    """A PRISM file or property that cannot be read.

    reason : what is wrong, without the place.
    line, column : the place, counted from one, in ``source``: a file name, ``"<text>"`` or ``"<property>"``.
    """

    def __init__(self, reason: str, position: Position = NOWHERE, source: str = "<text>", text: str | None = None):
        self.reason = reason
        self.line, self.column = int(position[0]), int(position[1])
        self.source = source
        message = f"{source}:{self.line}:{self.column}: {reason}"
        lines = text.splitlines() if text else []
        if 0 < self.line <= len(lines):
            shown = lines[self.line - 1][:200].replace("\t", " ")
            message += f"\n    {shown}\n    {' ' * min(self.column - 1, len(shown))}^"
        super().__init__(message)

    def located(self, source: str, text: str) -> PrismError:
        """The same error with the file name and the offending line shown."""
        return PrismError(self.reason, Position(self.line, self.column), source, text)
