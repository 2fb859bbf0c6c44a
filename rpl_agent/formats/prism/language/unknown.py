"""Parameters of a file: their domain, and hidden probabilities as parameters, with the file's numbers as their truth.

Ranges and constraints are given by the caller, or in comments of these forms (other comments may contain the words):

    // range p 0.1 0.9
    // constraint p + q <= 1

What can be hidden: *commands*, where every command with several updates is one unknown distribution, tied over all
states in which it fires (one per combination of the variables that its probabilities depend on); *names*, where chosen
constants lose their value; or *rows*, see `model.building.unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import isfinite
from typing import Any

import numpy as np

from rpl_agent.core.errors import listed
from rpl_agent.core.model import Domain, Polynomial
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import NOWHERE, Position, PrismError
from rpl_agent.formats.prism.language.parser import parse_expression
from rpl_agent.formats.prism.language.scope import Command, Number, Program, Scope, StateVariable, link
from rpl_agent.formats.prism.language.typed import Node, Type, apply, interpret, literal, parameter, variable

_RANGE = re.compile(r"//\s*range\s+(\S+)\s+(\S+)\s+(\S+)\s*$")
_CONSTRAINT = re.compile(r"//\s*constraint\s+(.*\S)\s*$")


def parameter_domain(text: str, program: Program, given: Mapping[str, tuple[float, float]]) -> Domain:
    """The domain of a program's parameters: ranges ``given``, else those of comments in the text, else [0, 1]."""
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
                    continue  # has a value this time; or an ordinary comment with the word "range"
                raise PrismError(f"'{name}' in a range comment is not a constant of the model", position)
            try:
                ranges[name] = (float(low), float(high))
            except ValueError:
                raise PrismError(f"'{low} {high}' is not a range", position) from None
        elif (match := _CONSTRAINT.search(line)) and re.search("[<>=]", match.group(1)):
            constraints.append((match.group(1), Position(number, match.start(1) + 1)))
    ranges |= given
    for name, pair in ranges.items():
        if not _is_range(pair):
            raise PrismError(f"{pair} is not a range for the parameter '{name}': write (low, high)", NOWHERE)
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
            value = interpret(node, [0] * len(scope.variables)) if not node.support else None
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


def _is_range(pair: Any) -> bool:
    """Whether this is a pair of finite numbers in order."""
    try:
        low, high = map(float, pair)
    except (TypeError, ValueError):
        return False
    return isfinite(low) and isfinite(high) and low <= high


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


#: A command with state-dependent probabilities has one distribution per combination, up to this many.
MAX_COMBINATIONS = 100

COMMANDS, ROWS = "commands", "rows"


def link_unknown(
    model: ast.File,
    constants: Mapping[str, Number],
    unknown: str | Sequence[str] | None,
    tie_modules: bool,
    tolerance: Fraction = Fraction(0),
) -> tuple[Program, UnknownCommands]:
    """(the program with hidden numbers as parameters, what is known about these)."""
    commands = UnknownCommands(model, tie_modules, tolerance)
    if tie_modules and unknown != COMMANDS:
        raise PrismError("modules can be tied only with unknown commands", NOWHERE)
    if unknown is None or unknown == ROWS:
        return link(model, constants), commands
    if unknown == COMMANDS:
        return commands.program(link(model, constants)), commands
    names = [unknown] if isinstance(unknown, str) else list(unknown)
    model, constants, commands.truth = forget_constants(model, constants, names)
    return link(model, constants), commands


class UnknownCommands:
    """Replaces numbers of commands by parameters; collects their true values and simplices.

    truth : parameter -> value in the file
    simplices : names of the parameters of one distribution, each tuple summing to at most 1
    scaled : sums of distributions within the tolerance of 1 that were scaled
    kept : whether some command is unchanged for some values of variables
    """

    def __init__(self, model: ast.File, tie_modules: bool, tolerance: Fraction):
        self.tolerance, self.kept = tolerance, False
        self.scaled: list[Fraction] = []
        self.root = {m.name: m.name for m in model.modules}
        if tie_modules:
            for module in model.modules:
                if isinstance(module, ast.Renaming):
                    self.root[module.name] = self.root.get(module.base, module.base)
        self.truth: dict[str, Fraction] = {}
        self.simplices: list[tuple[str, ...]] = []
        self._made: dict[tuple[str, int], tuple[Fraction, ...]] = {}

    def program(self, program: Program) -> Program:
        """The same program with parameters for probabilities."""
        modules = tuple(tuple(self._command(c, program) for c in module) for module in program.modules)
        names = (*program.parameters, *self.truth)
        clash = set(program.parameters) & set(self.truth)
        if clash:
            raise PrismError(f"the name '{min(clash)}' is needed for an unknown probability", NOWHERE)
        return replace(program, modules=modules, parameters=names)

    def _command(self, command: Command, program: Program) -> Command:
        nodes = [u.probability for u in command.updates if u.probability is not None]
        if len(command.updates) < 2 or len(nodes) < len(command.updates):
            return command
        if any(u.upper is not None for u in command.updates):
            raise PrismError("an interval command cannot be made unknown", command.position)
        if any(node.parametric for node in nodes):
            raise PrismError("an unknown command may not depend on a parameter: give that a value", command.position)
        support = sorted(frozenset().union(*(node.support for node in nodes)))
        variables = [program.variables[i] for i in support]
        combinations = list(product(*(range(v.low, v.high + 1) for v in variables)))
        if len(combinations) > MAX_COMBINATIONS:
            raise PrismError(
                f"the probabilities depend on {len(combinations)} combinations of variables, more than "
                f"{MAX_COMBINATIONS}: use --unknown rows",
                command.position,
            )
        base = f"{self.root[command.module]}_{command.number}"
        chances: list[Node] = [literal(Fraction(0), command.position, Type.DOUBLE)] * len(nodes)
        for values in reversed(combinations):
            state = [0] * len(program.variables)
            for i, value in zip(support, values):
                state[i] = value
            found = self._distribution(base + "".join(f"_{v}" for v in values), nodes, command.position, state)
            condition = _equals(variables, values, command.position)
            chances = (
                found
                if condition is None
                else [apply("?:", (condition, new, old), command.position) for new, old in zip(found, chances)]
            )
        updates = tuple(replace(u, probability=node) for u, node in zip(command.updates, chances))
        kept = [u for u in updates if u.probability is None or not u.probability.is_literal or u.probability.value != 0]
        return replace(command, updates=tuple(kept))

    def _distribution(self, base: str, given: list[Node], position: Position, state: list[int]) -> list[Node]:
        """Nodes for the updates in one combination of variables; impossible updates stay at 0."""
        numbers: list[Fraction] = []
        try:
            numbers = [Fraction(interpret(node, state)) for node in given]
        except PrismError:
            pass  # the file gives no distribution for this combination: no state may reach it
        total = sum(numbers, Fraction(0))
        if not numbers or any(n < 0 for n in numbers) or abs(total - 1) > self.tolerance:
            self.kept = True
            return given
        if total != 1:
            self.scaled.append(total)
        possible = [k for k, value in enumerate(numbers) if value > 0]
        nodes = [literal(Fraction(0), position, Type.DOUBLE) for _ in numbers]
        if len(possible) == 1:
            nodes[possible[0]] = literal(Fraction(1), position, Type.DOUBLE)
            return nodes
        names = [f"{base}_p{k + 1}" for k in possible[:-1]]
        known = self._made.get((base, len(numbers)))
        if known is None:
            self._made[base, len(numbers)] = tuple(numbers)
            self.truth |= {name: numbers[k] / total for name, k in zip(names, possible)}
            self.simplices.append(tuple(names))
        elif known != tuple(numbers):
            raise PrismError("renamed modules have different probabilities than their base: do not tie them", position)
        rest: Node = literal(Fraction(1), position, Type.DOUBLE)
        for name, k in zip(names, possible):
            nodes[k] = parameter(name, position)
            rest = apply("+", (rest, apply("neg", (nodes[k],), position)), position)
        nodes[possible[-1]] = rest
        return nodes

    def theta(self, parameters: Sequence[str]) -> np.ndarray | None:
        """(d,) the file's numbers; None if some parameter has none."""
        if not parameters or set(parameters) - set(self.truth):
            return None
        return np.array([float(self.truth[name]) for name in parameters])

    def domain(self, domain: Domain) -> Domain:
        """The domain with a sum of at most 1 for each distribution of three or more updates."""
        group = {name: k for k, names in enumerate(self.simplices) for name in names}
        return domain.with_sums(np.array([group.get(name, -1) for name in domain.parameters], dtype=int))


def _equals(variables: Sequence[StateVariable], values: Sequence[int], position: Position) -> Node | None:
    """The condition that all variables have these values; None if there are none."""
    found = None
    for v, value in zip(variables, values):
        kind = Type.BOOL if v.is_boolean else Type.INT
        wanted = literal(bool(value) if v.is_boolean else value, position)
        here = apply("=", (variable(v.index, kind, position), wanted), position)
        found = here if found is None else apply("&", (found, here), position)
    return found


def forget_constants(
    model: ast.File, constants: Mapping[str, Number], names: Sequence[str]
) -> tuple[ast.File, dict[str, Number], dict[str, Fraction]]:
    """(file, constants, truth): the named constants without their values, and those values."""
    declared = {c.name: c for c in model.constants}
    scope = link(model, constants).scope
    truth: dict[str, Fraction] = {}
    for name in names:
        if name not in declared:
            raise PrismError(f"the model has no constant '{name}' to hide (constants: {listed(declared)})", NOWHERE)
        node = scope.resolve(ast.Name(declared[name].position, name))
        if node.parametric:
            raise PrismError(f"the constant '{name}' has no value: it is unknown already", declared[name].position)
        value = interpret(node, [0] * len(scope.variables))
        if isinstance(value, bool) or node.type is not Type.DOUBLE:
            raise PrismError(
                f"only constants of type double can be hidden, and '{name}' is of another type", declared[name].position
            )
        truth[name] = Fraction(value)
    open_constants = tuple(replace(c, value=None) if c.name in truth else c for c in model.constants)
    given = {name: value for name, value in constants.items() if name not in truth}
    return replace(model, constants=open_constants), given, truth
