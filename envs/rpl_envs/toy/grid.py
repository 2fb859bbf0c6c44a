"""What worlds on a grid share: moves that go astray to the left or right with equal probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rpl_agent.core.model import Polynomial

Cell = tuple[int, int]
Row = dict[Any, Polynomial]  # successor -> probability


def slipping(
    names: Sequence[str], land: Callable[[str], Any], forward: Polynomial, sideways: Polynomial
) -> Mapping[str, Row]:
    """Rows of all moves: ``land(name)`` is where a move leads, neighbours in ``names`` are left and right of it."""
    choices: dict[str, Row] = {}
    for i, name in enumerate(names):
        row: Row = {}
        for turned, chance in (
            (names[i - 1], sideways),
            (name, forward),
            (names[(i + 1) % len(names)], sideways),
        ):
            successor = land(turned)
            row[successor] = row.get(successor, Polynomial({})) + chance
        choices[name] = row
    return choices
