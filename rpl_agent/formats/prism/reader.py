"""`load`: a PRISM file, values for its constants and ranges for its parameters, to a `ParametricMDP`.

Ranges come from the caller (``parameters={"p": (0.1, 0.9)}``, on the command line ``--param p=0.1:0.9``) or from
comments in the file, so that the file stays readable by PRISM and Storm::

    // range p 0.1 0.9
    // constraint p + q <= 1

A parameter without a range lies in [0, 1]. For affine models the constraints that keep every probability in [0, 1]
are added to the domain; a model with polynomials of higher degree that can leave [0, 1] is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError, RPLWarning
from rpl_agent.formats.prism import syntax as ast
from rpl_agent.formats.prism.assemble import assemble, row_position
from rpl_agent.formats.prism.errors import NOWHERE, Position, PrismError
from rpl_agent.formats.prism.explore import Graph, Machine, Progress, explore, expressions
from rpl_agent.formats.prism.parser import parse_expression, parse_model, parse_properties
from rpl_agent.formats.prism.probability import Pool
from rpl_agent.formats.prism.properties import objective_of
from rpl_agent.formats.prism.scope import Number, Program, Scope, link
from rpl_agent.formats.prism.typed import evaluate
from rpl_agent.model.domain import Domain
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.polynomial import Polynomial
from rpl_agent.model.validation import expression_range, require_valid, restrict_domain

_RANGE = re.compile(r"//\s*range\s+(\S+)\s+(\S+)\s+(\S+)\s*$")
_CONSTRAINT = re.compile(r"//\s*constraint\s+(.*\S)\s*$")


@dataclass
class PrismModel:
    """A loaded model.

    Attributes
    ----------
    pmdp : the parametric MDP. Replaced by one with more labels when a property brings a new state formula.
    program : the resolved file, for further properties.
    objectives : objectives of the properties asked for, by their name or text.
    default_property : the first property of the ``.props`` file beside the model, if there is one.
    """

    pmdp: ParametricMDP
    program: Program
    source: str = "<text>"
    objectives: dict[str, Objective] = field(default_factory=dict)
    default_property: str | None = None

    def objective(self, text: str | None = None) -> tuple[ParametricMDP, Objective]:
        """The model and the objective of a property; without one, the first in the ``.props`` file beside the model."""
        if text is None:
            if not self.default_property:
                raise PrismError("no property given, and no .props file beside the model", NOWHERE, self.source)
            text = self.default_property
        objective = load_property(self, text)
        return self.pmdp, objective


def load(
    path: str | Path,
    constants: Mapping[str, Number] | None = None,
    parameters: Mapping[str, tuple[float, float]] | None = None,
    properties: str | Iterable[str] = (),
    *,
    max_states: int | None = None,
    progress: Progress | None = None,
) -> PrismModel:
    """Read a PRISM file. See `loads` for the arguments."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PrismError(f"cannot read the file: {error}", NOWHERE, str(path)) from None
    model = loads(text, constants, parameters, properties, source=path.name, max_states=max_states, progress=progress)
    beside = path.with_suffix(".props")
    if beside != path and beside.is_file():
        model.default_property = _first_property(beside)
    return model


def _first_property(path: Path) -> str | None:
    """The text of the first property of a file (one property per line, comments with //)."""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.split("//")[0].strip()
        if text:
            return text
    return None


def loads(
    text: str,
    constants: Mapping[str, Number] | None = None,
    parameters: Mapping[str, tuple[float, float]] | None = None,
    properties: str | Iterable[str] = (),
    *,
    source: str = "<text>",
    max_states: int | None = None,
    progress: Progress | None = None,
) -> PrismModel:
    """Read a model from text.

    Parameters
    ----------
    constants : values for constants without one. An undefined ``const double`` that gets none is a parameter.
    parameters : ranges (low, high) for parameters; they take precedence over ``// range`` comments.
    properties : PRISM properties to turn into objectives.
    max_states : refuse larger models (by default, those that do not fit in half of the free memory).
    progress : called now and then with the numbers of states expanded and found.

    Raises
    ------
    PrismError
        With line and column, for anything that is wrong or not supported.
    """
    syntax = parse_model(text, source)
    try:
        program = link(syntax, constants or {})
        domain = _domain(text, program, parameters or {})
        pool = Pool()
        initial = np.array([[v.initial for v in program.variables]], dtype=np.int64).reshape(1, -1)
        graph, machine = explore(program, initial, max_states, progress)
        chances = [[u.probability for u in c.updates] for c in machine.commands]
        expression = expressions(graph, machine, pool, chances)
        model, row_combination = assemble(program, graph, machine, pool, expression, domain, Path(source).stem)
        model = _validated(model, row_combination, graph, machine)
    except PrismError as error:
        raise error.located(source, text) from None
    except RecursionError:
        raise PrismError("definitions nested too deeply", NOWHERE, source, text) from None
    loaded = PrismModel(model, program, source)
    if model.labels["deadlock"].any():
        count = int(model.labels["deadlock"].sum())
        warnings.warn(
            f"{source}: {count} state(s) without an enabled command got a self-loop", RPLWarning, stacklevel=2
        )
    for item in [properties] if isinstance(properties, str) else properties:
        load_property(loaded, item)
    return loaded


def load_property(model: PrismModel, text: str) -> Objective:
    """The objective of one PRISM property.

    State formulas that are no label of the model are added to ``model.pmdp`` as labels named by their text, so use
    ``model.pmdp`` after this call.
    """
    try:
        found = parse_properties(text)
        if len(found) != 1:
            raise PrismError(f"one property expected, {len(found)} found", found[1].position if found else NOWHERE)
        objective, model.pmdp = objective_of(found[0], model.program, model.pmdp)
        objective.resolve(model.pmdp)
    except PrismError as error:
        raise error.located("<property>", text) from None
    except ModelError as error:
        raise PrismError(str(error), NOWHERE, "<property>", text) from None
    model.objectives[found[0].name or text] = objective
    return objective


# -- domain -----------------------------------------------------------------------------------------------------------
def _domain(text: str, program: Program, given: Mapping[str, tuple[float, float]]) -> Domain:
    names = program.parameters
    for name in given:
        if name not in names:
            known = ", ".join(names) or "none"
            raise PrismError(f"the model has no parameter '{name}' (parameters: {known})", NOWHERE)
    ranges: dict[str, tuple[float, float]] = {}
    constraints: list[tuple[str, Position]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _RANGE.search(line):
            position = Position(number, match.start(1) + 1)
            name, low, high = match.groups()
            if name not in names:
                if name in program.scope.constants:
                    continue  # given a value this time
                raise PrismError(f"'{name}' in a range comment is not a constant of the model", position)
            try:
                ranges[name] = (float(low), float(high))
            except ValueError:
                raise PrismError(f"'{low} {high}' is not a range", position) from None
        elif match := _CONSTRAINT.search(line):
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


def _validated(model: ParametricMDP, row_combination: np.ndarray, graph: Graph, machine: Machine) -> ParametricMDP:
    """The model on a domain where it is valid; defects are reported at the command that causes them."""
    low, high = expression_range(model.table, model.domain)
    if ((low < -1e-9) | (high > 1 + 1e-9)).any() and model.table.is_affine and model.num_parameters:
        model = replace(model, domain=restrict_domain(model.table, model.domain))
    try:
        require_valid(model)
    except ModelError as error:
        row = _first_bad_row(model)
        position = None if row is None else row_position(row, row_combination, graph, machine)
        lines = str(error).splitlines()
        raise PrismError("\n".join(line.strip() for line in (lines[1:] or lines)), position or NOWHERE) from None
    return model


def _first_bad_row(model: ParametricMDP) -> int | None:
    """The first row that does not sum to one, or has an expression outside [0, 1]."""
    sums = [sum((model.table.polynomial(int(f)) for f in model.expression[a:b]), Polynomial.constant(0))
            for a, b in zip(model.row_ptr[:2000], model.row_ptr[1:2001], strict=False)]  # fmt: skip
    for row, total in enumerate(sums):
        if total != Polynomial.constant(1):
            return row
    low, high = expression_range(model.table, model.domain)
    bad = np.flatnonzero(((low < -1e-9) | (high > 1 + 1e-9))[model.expression])
    return int(model.transition_row[bad[0]]) if len(bad) else None
