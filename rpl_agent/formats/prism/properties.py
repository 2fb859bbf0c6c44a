"""PRISM properties to objectives: ``Pmax=? [F "goal"]``, ``U``, ``F<=k``, ``R{"cost"}min=? [F "done"]``, ``C<=k``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpl_agent.formats.prism import syntax as ast
from rpl_agent.formats.prism.assemble import state_mask
from rpl_agent.formats.prism.errors import PrismError
from rpl_agent.formats.prism.scope import Program
from rpl_agent.formats.prism.typed import Type
from rpl_agent.model.objective import Kind, Objective, Sense
from rpl_agent.model.pmdp import ParametricMDP

_WEAK_TO_STRONG = ("?:", "=>", "<=>", "|", "&", "!", "=", "!=", "<", "<=", ">", ">=", "+", "*", "/", "neg")


def objective_of(found: ast.Property, program: Program, pmdp: ParametricMDP) -> tuple[Objective, ParametricMDP]:
    """The objective, and the model with labels added for its state formulas."""
    sense = _sense(found, program)
    horizon = None
    if found.bound is not None:
        horizon = program.scope.number(found.bound, "a step bound") - (1 if found.strict else 0)
        if horizon < 1:
            raise PrismError(f"the step bound allows {horizon} steps; at least 1 is needed", found.bound.position)
    target = avoid = None
    if found.right is not None:
        target, pmdp = _label(found.right, program, pmdp)
    if found.left is not None:
        left = found.left
        if isinstance(left, ast.Apply) and left.operator == "!":
            outside: ast.Expression = left.arguments[0]
        else:
            outside = ast.Apply(left.position, "!", (left,))
        if not (isinstance(left, ast.Boolean) and left.value):
            avoid, pmdp = _label(outside, program, pmdp)
    if found.quantity == "P":
        return Objective(Kind.REACH, sense, target, avoid=avoid, horizon=horizon), pmdp
    reward = found.reward
    if reward is None:
        if not pmdp.rewards:
            raise PrismError("the model has no rewards", found.position)
        reward = next(iter(program.rewards))
    if reward not in pmdp.rewards:
        known = ", ".join(f'"{n}"' for n in pmdp.rewards) or "none"
        raise PrismError(f'unknown reward structure "{reward}" (known: {known})', found.position)
    return Objective(Kind.REWARD, sense, target, reward_name=reward, horizon=horizon), pmdp


def _sense(found: ast.Property, program: Program) -> Sense:
    if found.sense:
        return Sense(found.sense)
    if program.kind == "mdp":
        raise PrismError(f"in an mdp write {found.quantity}max=? or {found.quantity}min=?", found.position)
    # A DTMC has one policy. As a cost, a reward until a target that may be missed is infinite, as in PRISM.
    return Sense.MAX if found.quantity == "P" else Sense.MIN


def _label(expression: ast.Expression, program: Program, pmdp: ParametricMDP) -> tuple[str, ParametricMDP]:
    """The name of the label for a state formula, added to the model if it is new."""
    if isinstance(expression, ast.LabelName):
        _known(expression, pmdp)
        return expression.name, pmdp
    name = unparse(expression)
    if name in pmdp.labels:
        return name, pmdp
    columns = [np.asarray(pmdp.variables[v.name], dtype=np.int64) for v in program.variables]
    return name, replace(pmdp, labels={**pmdp.labels, name: _mask(expression, program, pmdp, columns)})


def _known(label: ast.LabelName, pmdp: ParametricMDP) -> np.ndarray:
    if label.name not in pmdp.labels:
        known = ", ".join(f'"{n}"' for n in sorted(pmdp.labels))
        raise PrismError(f'unknown label "{label.name}" (known: {known})', label.position)
    return pmdp.labels[label.name]


def _mask(expression: ast.Expression, program: Program, pmdp: ParametricMDP, columns: list[np.ndarray]) -> np.ndarray:
    """(S,) bool. Boolean structure is followed here because "init" and "deadlock" are no expressions over variables."""
    if isinstance(expression, ast.LabelName):
        return _known(expression, pmdp)
    if isinstance(expression, ast.Apply) and expression.operator in ("&", "|", "!", "=>", "<=>"):
        masks = [_mask(a, program, pmdp, columns) for a in expression.arguments]
        if expression.operator == "&":
            return np.logical_and.reduce(masks)
        if expression.operator == "|":
            return np.logical_or.reduce(masks)
        if expression.operator == "!":
            return ~masks[0]
        return ~masks[0] | masks[1] if expression.operator == "=>" else masks[0] == masks[1]
    node = program.scope.resolve(expression)
    if node.type is not Type.BOOL:
        raise PrismError(f"type error: a state formula must be bool, this is {node.type.value}", expression.position)
    return state_mask(node, program, columns, pmdp.num_states)


def unparse(expression: ast.Expression, outer: int = -1) -> str:
    """PRISM text of an expression: the name of the label made for it."""
    if isinstance(expression, ast.Number):
        value = expression.value
        return str(value.numerator) if value.denominator == 1 else str(float(value))
    if isinstance(expression, ast.Boolean):
        return str(expression.value).lower()
    if isinstance(expression, ast.Name):
        return expression.name
    if isinstance(expression, ast.LabelName):
        return f'"{expression.name}"'
    assert isinstance(expression, ast.Apply)
    operator, arguments = expression.operator, expression.arguments
    if operator not in _WEAK_TO_STRONG:
        return f"{operator}({', '.join(unparse(a) for a in arguments)})"
    level = _WEAK_TO_STRONG.index(operator)
    parts = [unparse(a, level) for a in arguments]
    if operator == "?:":
        text = f"{parts[0]} ? {parts[1]} : {parts[2]}"
    elif operator == "neg":
        text = f"-{parts[0]}"
    elif operator == "!":
        text = f"!{parts[0]}"
    else:
        tight = operator in ("=", "!=", "<", "<=", ">", ">=", "*", "/")
        text = (operator if tight else f" {operator} ").join(parts)
    return f"({text})" if level <= outer else text
