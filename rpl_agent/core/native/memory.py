"""`give_back_memory`: what building and solving needed for a while."""

from __future__ import annotations

from rpl_agent.core.native import core

#: transitions from which freed memory is worth handing back
LARGE = 100_000


def give_back_memory(transitions: int) -> None:
    """Hand what was freed back to the system after work on a model with so many transitions, if they are many.

    The C library would keep it: five times the memory of a model just read.
    """
    if transitions >= LARGE:
        core.give_back()
