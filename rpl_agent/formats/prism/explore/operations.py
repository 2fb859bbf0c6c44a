"""The operations of tapes, shared by the numpy interpreter (`tape`) and the compiled one (`_explore_kernels`)."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """Operations; those above CONSTANT take steps as arguments, FLOOR and CEIL a plain divisor as their second."""

    CONSTANT = 0  # a
    COLUMN = 1  # variable a
    LOOKUP = 2  # value of the plain evaluator, table a
    ADD = 3
    MULTIPLY = 4
    MINIMUM = 5
    MAXIMUM = 6
    FLOOR = 7
    CEIL = 8
    MOD = 9
    POWER = 10
    IF = 11
    AND = 12
    OR = 13
    NOT = 14
    EQUAL = 15
    NOT_EQUAL = 16
    LESS = 17
    LESS_EQUAL = 18
