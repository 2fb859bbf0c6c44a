"""Where the parameters of a file may lie: ranges and constraints given by the caller, or in comments.

    // range p 0.1 0.9
    // constraint p + q <= 1

Only these forms count; other comments may contain the words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from rpl_agent.errors import listed
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.errors import NOWHERE, Position, PrismError
from rpl_agent.formats.prism.language.parser import parse_expression
from rpl_agent.formats.prism.language.scope import Program, Scope
from rpl_agent.formats.prism.language.typed import evaluate
from rpl_agent.model.domain import Domain
from rpl_agent.model.polynomial import Polynomial

_RANGE = re.compile(r"//\s*range\s+(\S+)\s+(\S+)\s+(\S+)\s*$")
_CONSTRAINT = re.compile(r"//\s*constraint\s+(.*\S)\s*$")


def parameter_domain(text: str, program: Program, given: Mapping[str, tuple[float, float]]) -> Domain:
    names = program.parameters
    for name in given:
        if name not in names:
            raise PrismError(f"the model has no parameter '{name}' (parameters: {listed(names)})", NOWHERE)
    ranges: dict[str, tuple[float, float]] = {}
    constraints: list[tuple[str, Position]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _RANGE.search(line):
            position = Position(number, match.start(1) + 1)
            name, low, high = match.groups()
            if name not in names:
                if name in program.scope.constants or not (_is_number(low) and _is_number(high)):
                    continue  # given a value this time; or an ordinary comment with the word "range" in it
                raise PrismError(f"'{name}' in a range comment is not a constant of the model", position)
            try:
                ranges[name] = (float(low), float(high))
            except ValueError:
                raise PrismError(f"'{low} {high}' is not a range", position) from None
        elif (match := _CONSTRAINT.search(line)) and re.search("[<>=]", match.group(1)):
            constraints.append((match.group(1), Position(number, match.start(1) + 1)))
    ranges |= given
    for name, (low, high) in ranges.items():
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise PrismError(f"[{low}, {high}] is not a range for the parameter '{name}'", NOWHERE)
    domain = Domain.box({name: ranges.get(name, (0.0, 1.0)) for name in names})
    for constraint, position in constraints:
        domain = _constrained(domain, _half_space(constraint, position, program.scope), position)
    return domain


def _constrained(domain: Domain, difference: Polynomial, position: Position) -> Domain:
    """The part of the domain where an affine polynomial is ≤ 0; in one parameter that is a bound."""
    row = {name: difference.terms.get(((name, 1),), Fraction(0)) for name in domain.parameters}
    constant = difference.constant_value()
    used = [name for name in row if row[name]]
    if not used:
        if constant > 0:
            raise PrismError("this constraint never holds", position)
        return domain
    if len(used) > 1:
        return domain.with_constraints(np.array([[float(c) for c in row.values()]]), np.array([-float(constant)]))
    at, limit = domain.parameters.index(used[0]), float(-constant / row[used[0]])
    lower, upper = domain.lower.copy(), domain.upper.copy()
    if row[used[0]] > 0:
        upper[at] = min(upper[at], limit)
    else:
        lower[at] = max(lower[at], limit)
    if lower[at] > upper[at]:
        raise PrismError(f"this constraint leaves no value for the parameter '{used[0]}'", position)
    return Domain(domain.parameters, lower, upper, domain.A, domain.b)


def _half_space(text: str, position: Position, scope: Scope) -> Polynomial:
    """``left <= right`` over parameters as the affine polynomial left - right."""

    def refuse(reason: str, at: Position = NOWHERE) -> PrismError:
        return PrismError(reason, Position(position.line, position.column + at.column - 1))

    try:
        parsed = parse_expression(text)
        if not isinstance(parsed, ast.Apply) or parsed.operator not in ("<=", ">="):
            raise refuse("a constraint comment has the form: expression <= expression")
        sides = []
        for argument in parsed.arguments:
            node = scope.resolve(argument)
            value = evaluate(node, [0] * len(scope.variables)) if not node.support else None
            if value is None or isinstance(value, bool):
                raise refuse("a constraint comment is about parameters only", argument.position)
            sides.append(value if isinstance(value, Polynomial) else Polynomial.constant(value))
    except PrismError as error:
        if error.line == position.line and error.source == "<text>":
            raise
        raise refuse(error.reason, Position(1, error.column)) from None
    difference = sides[0] - sides[1] if parsed.operator == "<=" else sides[1] - sides[0]
    if difference.degree > 1:
        raise refuse("a constraint must be linear in the parameters")
    return difference


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
