"""A properties file as single statements, so that one that cannot be read does not hide the others."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE = re.compile(r'//[^\n]*|"[^"\n]*"|[;()\[\]{}]|\s+|[A-Za-z_]\w*|.', re.DOTALL)
#: what a statement begins with, on a line of its own, where the one before has no semicolon
_BEGINS = re.compile(r'(P|R|S|A|E)(max|min){0,2}\b(?=\s*[=<>\[{])|(filter|multi|const|label|formula)\b|"\w+"\s*:')
_UNFINISHED = "&|+-*/=<>!?:,("


@dataclass(frozen=True)
class Statement:
    """A declaration or a property of a file: its text, and where it begins (from 0)."""

    text: str
    start: int

    @property
    def is_declaration(self) -> bool:
        return re.match(r"(const|label|formula)\b", self.text) is not None

    def padded(self, file: str) -> str:
        """The text at its own place, so that lines and columns are those of the file."""
        before = file[: self.start]
        return "\n" * before.count("\n") + " " * (self.start - before.rfind("\n") - 1) + self.text


def statements(text: str) -> list[Statement]:
    """The statements of a properties file, in their order."""
    found: list[Statement] = []
    begin, end, depth, is_new_line = -1, 0, 0, True

    def close() -> None:
        nonlocal begin, depth
        if begin >= 0:
            found.append(Statement(text[begin:end], begin))
        begin, depth = -1, 0

    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.isspace() or piece.startswith("//"):
            is_new_line |= "\n" in piece
            continue
        if is_new_line and depth == 0 and begin >= 0 and text[end - 1] not in _UNFINISHED:
            if _BEGINS.match(text, match.start()):
                close()
        is_new_line = False
        if begin < 0:
            begin = match.start()
        end = match.end()
        if piece == ";":
            close()
            continue
        depth += (piece in "([{") - (piece in ")]}") if len(piece) == 1 else 0
    close()
    return found
