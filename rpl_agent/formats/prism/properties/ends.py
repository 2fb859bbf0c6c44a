"""States where a property is decided: exploration stops there, however large the rest of the model is."""

from __future__ import annotations

from dataclasses import replace

from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.parser import parse_properties
from rpl_agent.formats.prism.language.scope import Command, Program, Update
from rpl_agent.formats.prism.language.typed import Node, Type, apply


def opposite(expression: ast.Expression) -> ast.Expression:
    """The negation, without a double one."""
    if isinstance(expression, ast.Apply) and expression.operator == "!":
        return expression.arguments[0]
    if isinstance(expression, ast.Literal):
        return ast.Literal(expression.position, not expression.value)
    return ast.Apply(expression.position, "!", (expression,))


def reachability(path: ast.Expression) -> tuple[ast.Expression, ast.Expression | None, bool] | None:
    """(target, avoid, complement) of a path formula that is reachability of states or the complement of it; else None.

    A bound on the number of steps does not matter here.
    """
    if not isinstance(path, ast.Temporal) or path.operator == "X" or path.low is not None:
        return None
    if any(map(ast.is_temporal, path.arguments)):
        return None
    left, right = path.left, path.right
    if path.operator in ("F", "U"):
        return right, None if left is None else opposite(left), False
    if path.operator == "G":
        return opposite(right), None, True
    assert left is not None
    if path.operator == "W":  # not (left W right) = (not right) U (not left and not right)
        return ast.Apply(path.position, "&", (opposite(left), opposite(right))), right, True
    return opposite(right), left, True  # not (left R right) = (not left) U (not right)


def without_the_rest(program: Program, wanted: str | ast.Property) -> Program:
    """The program in which plays stay where a property is decided; unchanged if that is not known.

    The property's value at the initial states is the same: it depends on plays only until they reach the target or
    what is to be avoided, and targets pay nothing.
    """
    try:
        end = _end(parse_properties(wanted) if isinstance(wanted, str) else [wanted], program)
    except PrismError:  # errors of a property are reported when it is answered
        return program
    if end is None or end.is_literal:
        return program
    more = apply("!", (end,), end.position)
    modules = tuple(
        tuple(replace(c, guard=apply("&", (c.guard, more), c.guard.position)) for c in module)
        for module in program.modules
    )
    stay = Command("", 1, None, end, (Update(None, (), end.position),), end.position)
    return replace(program, modules=(*modules, (stay,)))


def _end(found: list[ast.Property], program: Program) -> Node | None:
    """Where the only property is decided, for plays from the initial states."""
    if len(found) != 1 or found[0].filter is not None:
        return None
    path = found[0].path
    if isinstance(path, ast.RewardPath):
        return None if path.target is None else _node(path.target, program)
    while isinstance(path, ast.Apply) and path.operator == "!" and ast.is_temporal(path):
        path = path.arguments[0]
    known = reachability(path)
    if known is None:
        return None
    parts = tuple(_node(e, program) for e in known[:2] if e is not None)
    return parts[0] if len(parts) == 1 else apply("|", parts, parts[0].position)


def _node(expression: ast.Expression, program: Program) -> Node:
    """A state formula over variables; "init" and "deadlock" are not such formulas."""
    node = program.scope.resolve(expression)
    if node.type is not Type.BOOL:
        raise PrismError("not a state formula", expression.position)
    return node
