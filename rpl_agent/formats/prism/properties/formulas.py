"""State formulas as masks and labels, path formulas as automata, and both as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rpl_agent.errors import listed
from rpl_agent.formats.prism.explore.assemble import state_mask
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import Type
from rpl_agent.formats.prism.properties import automaton as ltl
from rpl_agent.model import ParametricMDP

#: how operators are written, from weak to strong
_TEXT = {
    "?:": "{} ? {} : {}", "=>": " => ", "<=>": " <=> ", "|": " | ", "&": " & ", "!": "!{}", "=": "=", "!=": "!=",
    "<": "<", "<=": "<=", ">": ">", ">=": ">=", "+": " + ", "*": "*", "/": "/", "neg": "-{}",
}  # fmt: skip
_STRENGTH = {operator: level for level, operator in enumerate(_TEXT)}
_CONNECTIVES: dict[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "&": np.logical_and.reduce, "|": np.logical_or.reduce, "!": lambda masks: ~masks[0],
    "=>": lambda masks: ~masks[0] | masks[1], "<=>": lambda masks: masks[0] == masks[1],
}  # fmt: skip


def opposite(expression: ast.Expression) -> ast.Expression:
    """The negation, without a double one."""
    if isinstance(expression, ast.Apply) and expression.operator == "!":
        return expression.arguments[0]
    if isinstance(expression, ast.Literal):
        return ast.Literal(expression.position, not expression.value)
    return ast.Apply(expression.position, "!", (expression,))


def labelled(expression: ast.Expression, program: Program, pmdp: ParametricMDP) -> tuple[str, ParametricMDP]:
    """The name of the label for a state formula, added to the model if it is new."""
    mask = mask_of(expression, program, pmdp)
    if isinstance(expression, ast.LabelName):
        name = expression.name
    else:  # a label, a formula and a variable may have one name, and one text two meanings (constants of properties)
        name = f"({expression.name})" if isinstance(expression, ast.Name) else unparse(expression)
        while name in pmdp.labels and not np.array_equal(pmdp.labels[name], mask):
            name = f"({name})"
    if name in pmdp.labels:
        return name, pmdp
    return name, replace(pmdp, labels={**pmdp.labels, name: mask})


def mask_of(expression: ast.Expression, program: Program, pmdp: ParametricMDP) -> np.ndarray:
    """(S,) bool: where a state formula holds."""
    columns = [np.asarray(pmdp.variables[v.name], dtype=np.int64) for v in program.variables]
    return _mask(expression, program, pmdp, columns)


def _mask(expression: ast.Expression, program: Program, pmdp: ParametricMDP, columns: list[np.ndarray]) -> np.ndarray:
    """Boolean structure is followed here because "init" and "deadlock" are not expressions over variables."""
    if isinstance(expression, ast.LabelName):
        if expression.name in pmdp.labels:
            return pmdp.labels[expression.name]
        if expression.name in program.scope.labels:  # of the properties file
            return state_mask(program.scope.labels[expression.name], program, columns, pmdp.num_states)
        known = listed(f'"{n}"' for n in sorted(pmdp.labels))
        raise PrismError(f'unknown label "{expression.name}" (known: {known})', expression.position)
    if isinstance(expression, ast.Apply) and expression.operator in _CONNECTIVES:
        return _CONNECTIVES[expression.operator]([_mask(a, program, pmdp, columns) for a in expression.arguments])
    node = program.scope.resolve(expression)
    if node.type is not Type.BOOL:
        raise PrismError(f"type error: a state formula must be bool, this is {node.type.value}", expression.position)
    return state_mask(node, program, columns, pmdp.num_states)


# -- linear time ------------------------------------------------------------------------------------------------------
def linear_time(
    path: ast.Expression, program: Program, pmdp: ParametricMDP, steps: Callable[..., int]
) -> tuple[ltl.Automaton, np.ndarray, bool]:
    """The automaton of a path formula or of its negation, the letter (S,) of every state, and whether it is negated."""
    atoms: list[ast.Expression] = []
    formula = _normal(path, atoms, True, lambda bound, strict: steps(bound, strict, program))
    negative = not ltl.is_cosafe(formula)
    if negative:
        formula = ltl.negated(formula)
        if not ltl.is_cosafe(formula):
            raise PrismError(
                "this path formula is neither co-safe nor safe (it mixes unbounded 'F' or 'U' with unbounded 'G', 'W' "
                "or 'R'), which is not supported",
                path.position,
            )
    masks = np.array([mask_of(a, program, pmdp) for a in atoms]).reshape(len(atoms), pmdp.num_states)
    letters, letter = np.unique(masks.T, axis=0, return_inverse=True)
    try:
        return ltl.build(formula, letters.tolist()), letter.reshape(-1), negative
    except (ltl.TooLarge, RecursionError):
        raise PrismError("the automaton of this path formula is too large", path.position) from None


def _normal(e: ast.Expression, atoms: list[ast.Expression], positive: bool, steps: Callable[..., int]) -> ltl.Formula:
    """Negation normal form; state formulas become atoms."""
    if not ast.is_temporal(e):
        atoms.append(e)
        return ("ap" if positive else "not", len(atoms) - 1)
    if isinstance(e, ast.Temporal):
        inner = _normal(e.right, atoms, positive, steps)
        if e.operator == "X":
            return ("X", inner)
        low = 0
        if e.low is not None:
            low = steps(e.low, False) + (1 if e.strict_low else 0)
        high = None if e.high is None else steps(e.high, e.strict_high)
        if e.left is None:
            atoms.append(ast.Literal(e.position, True))
            # F f = true U f, G f = false R f
            return _until(("ap", len(atoms) - 1), inner, low, high, positive, e.operator == "F")
        left = _normal(e.left, atoms, positive, steps)
        if e.operator == "W":  # left W right = right R (left or right)
            both = ("or" if positive else "and", left, inner)
            return ("R" if positive else "U", inner, both, low, high)
        return ("U" if (e.operator == "U") == positive else "R", left, inner, low, high)
    assert isinstance(e, ast.Apply)
    if e.operator == "!":
        return _normal(e.arguments[0], atoms, not positive, steps)
    if e.operator in ("&", "|"):
        parts = [_normal(a, atoms, positive, steps) for a in e.arguments]
        return ("and" if (e.operator == "&") == positive else "or", *parts)
    if e.operator == "=>":
        parts = [_normal(e.arguments[0], atoms, not positive, steps), _normal(e.arguments[1], atoms, positive, steps)]
        return ("or" if positive else "and", *parts)
    if e.operator == "<=>":
        a, b = e.arguments
        yes = ast.Apply(e.position, "&", (a, b))
        no = ast.Apply(e.position, "&", (opposite(a), opposite(b)))
        return _normal(ast.Apply(e.position, "|", (yes, no)), atoms, positive, steps)
    raise PrismError(f"a path operator may not stand under '{e.operator}'", e.position)


def _until(
    true: ltl.Formula, f: ltl.Formula, low: int, high: int | None, positive: bool, eventually: bool
) -> ltl.Formula:
    if eventually == positive:
        return ("U", true, f, low, high)
    return ("R", ("not", true[1]), f, low, high)


# -- text -------------------------------------------------------------------------------------------------------------
def unparse(expression: ast.Expression, outer: int = -1) -> str:
    """PRISM text of an expression: the name of the label made for it."""
    if isinstance(expression, ast.Literal):
        value = expression.value
        if isinstance(value, bool):
            return str(value).lower()
        return str(value.numerator) if value.denominator == 1 else str(float(value))
    if isinstance(expression, ast.Name):
        return expression.name
    if isinstance(expression, ast.LabelName):
        return f'"{expression.name}"'
    if isinstance(expression, ast.Temporal):
        return _unparse_path(expression)
    assert isinstance(expression, ast.Apply)
    operator, arguments = expression.operator, expression.arguments
    if operator not in _TEXT:
        return f"{operator}({', '.join(unparse(a) for a in arguments)})"
    level = _STRENGTH[operator]
    parts = [unparse(a, level) for a in arguments]
    text = _TEXT[operator].format(*parts) if "{}" in _TEXT[operator] else _TEXT[operator].join(parts)
    return f"({text})" if level <= outer else text


def _unparse_path(path: ast.Temporal) -> str:
    bound = ""
    if path.low is not None and path.high is not None:
        bound = f"[{unparse(path.low)},{unparse(path.high)}]"
    elif path.high is not None:
        bound = f"<{'' if path.strict_high else '='}({unparse(path.high)})"
    elif path.low is not None:
        bound = f">{'' if path.strict_low else '='}({unparse(path.low)})"
    left = "" if path.left is None else f"{unparse(path.left)} "
    return f"({left}{path.operator}{bound} {unparse(path.right)})"
