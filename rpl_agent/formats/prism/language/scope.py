"""From names to meanings: constants, parameters, formulas, variables, renaming. Makes a `Program` to explore."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rpl_agent.core.errors import RPLWarning, listed
from rpl_agent.core.model.polynomial import exact
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import NOWHERE, Position, PrismError
from rpl_agent.formats.prism.language.typed import (
    Node,
    Type,
    apply,
    interpret,
    literal,
    parameter,
    variable,
)

Number = int | float | str | Fraction | Decimal | bool

# Values of variables and of integer expressions.
MAX_BITS = 62


@dataclass(frozen=True)
class StateVariable:
    """A variable of the state vector with its inclusive range (booleans are 0..1)."""

    name: str
    index: int
    low: int
    high: int
    initial: int
    is_boolean: bool
    module: int | None  # None for global variables
    position: Position

    @property
    def size(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True)
class Update:
    """One probabilistic branch; probability None means one; `upper` is the upper end of a probability interval."""

    probability: Node | None
    assignments: tuple[tuple[int, Node], ...]  # by variable index
    position: Position
    upper: Node | None = None


@dataclass(frozen=True)
class Command:
    module: str
    number: int  # among the commands of its module, from 1
    action: str | None
    guard: Node
    updates: tuple[Update, ...]
    position: Position


@dataclass(frozen=True)
class RewardItem:
    on_transition: bool
    action: str | None
    guard: Node
    value: Node
    position: Position


@dataclass(frozen=True)
class Program:
    """A resolved model: everything is typed, no names are left."""

    kind: str
    parameters: tuple[str, ...]
    variables: tuple[StateVariable, ...]
    modules: tuple[tuple[Command, ...], ...]
    labels: dict[str, Node]
    rewards: dict[str, tuple[RewardItem, ...]]
    scope: Scope
    initial: Node | None = None  # the predicate of init … endinit

    @property
    def has_intervals(self) -> bool:
        return any(u.upper is not None for module in self.modules for c in module for u in c.updates)


class Scope:
    """The meanings of names. Formulas are expanded where they are used, after a module's renaming, as in PRISM."""

    def __init__(self, model: ast.File, constants: Mapping[str, Number]):
        self.constants: dict[str, ast.Constant] = {}
        self.formulas: dict[str, ast.Formula] = {}
        self.variables: dict[str, StateVariable] = {}
        self.labels: dict[str, Node] = {}
        self.parameters = tuple(
            c.name for c in model.constants if c.value is None and c.type == "double" and c.name not in constants
        )
        self._given = dict(constants)
        self._memo: dict[tuple[str, int], Node] = {}
        self._open: list[str] = []
        self.of_the_model: Scope | None = None  # for a properties file: the names without it
        for item in (*model.constants, *model.formulas):
            self.declare(item)
        for name in constants:
            if name not in self.constants:
                raise PrismError(f"the model has no constant '{name}' to define", NOWHERE)
        for constant in model.constants:
            self._name(constant.name, constant.position, {})

    def declare(self, item: Any) -> None:
        """Declare a variable, constant or formula with a unique name."""
        homes: dict[type, dict] = {
            StateVariable: self.variables,
            ast.Constant: self.constants,
            ast.Formula: self.formulas,
        }
        if any(item.name in home for home in homes.values()):
            raise PrismError(f"the name '{item.name}' is used twice", item.position)
        homes[type(item)][item.name] = item

    def resolve(self, expression: ast.Expression, renaming: Mapping[str, str] | None = None) -> Node:
        """A typed expression; names are first passed through the module's renaming."""
        if isinstance(expression, ast.Literal):
            return literal(expression.value, expression.position)
        if isinstance(expression, ast.Name):
            return self._name(expression.name, expression.position, renaming or {})
        if isinstance(expression, ast.LabelName):
            if expression.name not in self.labels:
                known = listed(f'"{n}"' for n in self.labels)
                raise PrismError(f'unknown label "{expression.name}" (known: {known})', expression.position)
            return self.labels[expression.name]
        if isinstance(expression, ast.Temporal):
            raise PrismError(
                f"the path operator '{expression.operator}' may only stand in a property", expression.position
            )
        assert isinstance(expression, ast.Apply)
        arguments = tuple(self.resolve(a, renaming) for a in expression.arguments)
        return apply(expression.operator, arguments, expression.position)

    def _name(self, name: str, position: Position, renaming: Mapping[str, str]) -> Node:
        name = renaming.get(name, name)
        if name in self.variables:
            v = self.variables[name]
            return variable(v.index, Type.BOOL if v.is_boolean else Type.INT, position)
        if name not in self.constants and name not in self.formulas:
            raise PrismError(f"unknown name '{name}'", position)
        key = (name, id(renaming) if name in self.formulas and renaming else 0)
        if key not in self._memo:
            if name in self._open:
                chain = " -> ".join([*self._open[self._open.index(name) :], name])
                raise PrismError(f"'{name}' is defined by itself: {chain}", position)
            self._open.append(name)
            try:
                if name in self.constants:
                    self._memo[key] = self._constant(self.constants[name])
                else:
                    self._memo[key] = self.resolve(self.formulas[name].value, renaming)
            finally:
                self._open.pop()
        return self._memo[key]

    def _constant(self, constant: ast.Constant) -> Node:
        if constant.name in self._given:
            return literal(_convert(self._given[constant.name], constant), constant.position, Type(constant.type))
        if constant.value is None:
            if constant.type == "double":
                return parameter(constant.name, constant.position)
            raise PrismError(
                f"the constant '{constant.name}' of type {constant.type} has no value: define it (only undefined "
                "constants of type double become parameters)",
                constant.position,
            )
        node = self.resolve(constant.value)
        if not node.is_literal and not node.parametric:
            interpret(node, ())  # names the operation that failed
            raise PrismError(f"the value of constant '{constant.name}' is not constant", constant.value.position)
        allowed = {"int": (Type.INT,), "double": (Type.INT, Type.DOUBLE), "bool": (Type.BOOL,)}[constant.type]
        if node.type not in allowed:
            raise PrismError(
                f"type error: constant '{constant.name}' is {constant.type}, its value {node.type.value}",
                constant.position,
            )
        if node.is_literal and constant.type == "double":
            return literal(Fraction(node.value), constant.position)
        return node

    def extended(self, found: ast.File, constants: Mapping[str, Number]) -> Scope:
        """The model's names and those of a properties file, with values for constants of that file."""
        scope = copy(self.of_the_model or self)
        scope.of_the_model = self.of_the_model or self
        scope.constants, scope.formulas = dict(scope.constants), dict(scope.formulas)
        scope.labels, scope._memo, scope._given = dict(scope.labels), dict(scope._memo), {**scope._given, **constants}
        for item in (*found.constants, *found.formulas):
            scope.declare(item)
        for name in constants:
            if name not in {c.name for c in found.constants}:
                raise PrismError(f"the properties have no constant '{name}' to define", NOWHERE)
        for label in found.labels:
            scope.label(label)
        return scope

    def label(self, label: ast.Label) -> None:
        """Add a label, once."""
        if label.name in self.labels or label.name in ("init", "deadlock"):
            raise PrismError(f'the label "{label.name}" is defined twice', label.position)
        self.labels[label.name] = _typed(label.value, Type.BOOL, "a label", self, {})

    def number(self, expression: ast.Expression, what: str, renaming: Mapping[str, str] | None = None) -> int:
        """A constant integer, for bounds, initial values and step bounds."""
        node = self.resolve(expression, renaming)
        if not node.is_literal or node.type is not Type.INT:
            raise PrismError(f"{what} must be a constant integer", expression.position)
        return int(node.value)


def _convert(value: Number, constant: ast.Constant) -> bool | int | Fraction:
    try:
        if constant.type == "bool":
            if isinstance(value, str):
                return {"true": True, "false": False}[value]
            return bool(value)
        number = exact(value)
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise PrismError(
            f"{value!r} is not a value for the {constant.type} constant '{constant.name}'", constant.position
        ) from None
    if constant.type == "int":
        if number.denominator != 1:
            raise PrismError(f"{value!r} is not an integer for the constant '{constant.name}'", constant.position)
        return int(number)
    return number


def link(model: ast.File, constants: Mapping[str, Number]) -> Program:
    """Resolve a parsed file against values for (some of) its constants."""
    if not model.modules:
        raise PrismError("the model has no module", NOWHERE)
    scope = Scope(model, constants)
    modules = _expand(model.modules)
    variables: list[StateVariable] = []
    for owner, (declared, renaming) in [
        (None, (model.variables, {})),
        *((i, (m.variables, r)) for i, (m, r) in enumerate(modules)),
    ]:
        for declaration in declared:
            variables.append(_variable(declaration, owner, len(variables), renaming, scope))
            scope.declare(variables[-1])
    commands = tuple(
        tuple(_command(c, n + 1, module.name, index, renaming, scope) for n, c in enumerate(module.commands))
        for index, (module, renaming) in enumerate(modules)
    )
    for label in model.labels:
        scope.label(label)
    actions = {c.action for module in commands for c in module if c.action is not None}
    _warn_of_renamings(model, scope, actions)
    rewards: dict[str, tuple[RewardItem, ...]] = {}
    for number, block in enumerate(model.rewards):
        name = block.name or f"rewards_{number + 1}"
        if name in rewards:
            raise PrismError(f'the reward structure "{name}" is defined twice', block.position)
        rewards[name] = tuple(_reward(item, scope, actions) for item in block.items)
    return Program(
        model.kind,
        scope.parameters,
        tuple(variables),
        commands,
        dict(scope.labels),
        rewards,
        scope,
        _initial(model, scope),
    )


def _initial(model: ast.File, scope: Scope) -> Node | None:
    """The predicate of init … endinit, which replaces all initial values of variables."""
    if not model.initial:
        return None
    if len(model.initial) > 1:
        raise PrismError("init … endinit is given twice", model.initial[1].position)
    declared = [v for m in model.modules if isinstance(m, ast.Module) for v in m.variables]
    for v in (*model.variables, *declared):
        if v.initial is not None:
            raise PrismError(f"'{v.name}' has an initial value, but the model has init … endinit", v.position)
    return _typed(model.initial[0].predicate, Type.BOOL, "init … endinit", scope, {})


def _expand(modules: tuple[ast.Module | ast.Renaming, ...]) -> list[tuple[ast.Module, dict[str, str]]]:
    """Each module with its renaming."""
    known: dict[str, tuple[ast.Module, dict[str, str]]] = {}
    for module in modules:
        if module.name in known:
            raise PrismError(f"the module '{module.name}' is defined twice", module.position)
        if isinstance(module, ast.Module):
            known[module.name] = (module, {})
            continue
        if module.base not in known:
            raise PrismError(
                f"unknown module '{module.base}' (a module is renamed after its definition)", module.position
            )
        base, inner = known[module.base]
        pairs = dict(module.pairs)
        if len(pairs) < len(module.pairs):
            raise PrismError("a name is renamed twice", module.position)
        for v in base.variables:
            if inner.get(v.name, v.name) not in pairs:
                raise PrismError(f"variable '{inner.get(v.name, v.name)}' must be renamed", module.position)
        # names of the base text first pass through the inner renaming
        renaming = {old: pairs.get(new, new) for old, new in inner.items()} | {
            o: n for o, n in pairs.items() if o not in inner
        }
        known[module.name] = (replace(base, name=module.name, position=module.position), renaming)
    return list(known.values())


def _warn_of_renamings(model: ast.File, scope: Scope, actions: Collection[str]) -> None:
    """Warn of renamed names that the model does not have: PRISM and Storm accept them, but they may be typos."""
    known = {*scope.variables, *scope.constants, *scope.formulas, *actions}
    known |= {c.action for m in model.modules if isinstance(m, ast.Module) for c in m.commands if c.action}
    for module in model.modules:
        for old, _ in module.pairs if isinstance(module, ast.Renaming) else ():
            if old not in known:
                place = f"{module.position.line}:{module.position.column}"
                warnings.warn(
                    f"{place}: module '{module.name}' renames '{old}', a name that the model does not have",
                    RPLWarning,
                    stacklevel=2,
                )


def _variable(
    v: ast.Variable, owner: int | None, index: int, renaming: Mapping[str, str], scope: Scope
) -> StateVariable:
    name = renaming.get(v.name, v.name)
    if v.bounds[0] is None or v.bounds[1] is None:
        initial = scope.resolve(v.initial, renaming) if v.initial else literal(False, v.position)
        if not initial.is_literal or initial.type is not Type.BOOL:
            raise PrismError(f"the initial value of '{name}' must be a constant boolean", v.position)
        return StateVariable(name, index, 0, 1, int(initial.value), True, owner, v.position)

    low, high = (scope.number(end, f"a bound of '{name}'", renaming) for end in v.bounds if end is not None)
    if low > high:
        raise PrismError(f"variable '{name}' has the empty range [{low}..{high}]", v.position)
    if max(abs(low), abs(high)) >= 2**MAX_BITS:
        raise PrismError(f"the range [{low}..{high}] of '{name}' is too large", v.position)
    initial_value = scope.number(v.initial, f"the initial value of '{name}'", renaming) if v.initial else low
    if not low <= initial_value <= high:
        raise PrismError(f"the initial value {initial_value} of '{name}' is outside [{low}..{high}]", v.position)
    return StateVariable(name, index, low, high, initial_value, False, owner, v.position)


def _typed(expression: ast.Expression, kind: Type, what: str, scope: Scope, renaming: Mapping[str, str]) -> Node:
    node = scope.resolve(expression, renaming)
    if node.type is not kind:
        raise PrismError(f"type error: {what} must be {kind.value}, this is {node.type.value}", expression.position)
    return node


def _command(
    c: ast.ParsedCommand, number: int, module: str, owner: int, renaming: Mapping[str, str], scope: Scope
) -> Command:
    action = renaming.get(c.action, c.action) if c.action is not None else None
    guard = _typed(c.guard, Type.BOOL, "a guard", scope, renaming)
    updates = []
    for update in c.updates:
        probability, upper = (
            None if end is None else _number(end, "a probability", update.position, scope, renaming)
            for end in (update.probability, update.upper)
        )
        assignments: dict[int, Node] = {}
        for a in update.assignments:
            name = renaming.get(a.variable, a.variable)
            if name not in scope.variables:
                raise PrismError(f"unknown variable '{name}' in an assignment", a.position)
            target = scope.variables[name]
            if target.module not in (None, owner):
                raise PrismError(f"module '{module}' may not change '{name}', a variable of another module", a.position)
            if target.module is None and action is not None:
                raise PrismError(
                    f"a command with an action name may not change the global variable '{name}'", a.position
                )
            if target.index in assignments:
                raise PrismError(f"'{name}' is assigned twice in one update", a.position)
            value = scope.resolve(a.value, renaming)
            if value.type is not (Type.BOOL if target.is_boolean else Type.INT):
                wanted = "bool" if target.is_boolean else "int"
                raise PrismError(f"type error: '{name}' is {wanted}, its new value is {value.type.value}", a.position)
            assignments[target.index] = value
        updates.append(Update(probability, tuple(assignments.items()), update.position, upper))
    return Command(module, number, action, guard, tuple(updates), c.position)


def _number(expression: ast.Expression, what: str, position: Position, scope: Scope, names: Mapping[str, str]) -> Node:
    node = scope.resolve(expression, names)
    if node.type is Type.BOOL:
        raise PrismError(f"type error: {what} must be a number, this is bool", position)
    return node


def _reward(item: ast.ParsedRewardItem, scope: Scope, actions: Collection[str]) -> RewardItem:
    if item.action is not None and item.action not in actions:
        known = listed(sorted(actions))
        raise PrismError(f"no command has the action '{item.action}' of this reward (known: {known})", item.position)
    guard = _typed(item.guard, Type.BOOL, "a reward's guard", scope, {})
    value = _number(item.value, "a reward", item.value.position, scope, {})
    return RewardItem(item.on_transition, item.action, guard, value, item.position)
