"""`load`: from a PRISM file, values for its constants and ranges for its parameters to a `ParametricMDP`.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.core.errors import ModelError, RPLWarning, as_path, listed
from rpl_agent.core.model import Domain, Objective, ParametricMDP, Reward, restrict_domain, validate
from rpl_agent.core.model.building.unknown import hide_parameters
from rpl_agent.core.model.building.validation import (
    TOLERANCE,
    expression_range,
    messages,
    normalised,
    scaling_hint,
    warn_of_scaling,
)
from rpl_agent.core.native.memory import give_back_memory
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver.problem import require_end
from rpl_agent.formats.prism.explore.assemble import assemble, row_position
from rpl_agent.formats.prism.explore.explorer import Graph, Progress, explore, expressions
from rpl_agent.formats.prism.explore.lower import Machine, initial_states
from rpl_agent.formats.prism.explore.probability import Bounds, IntervalBounds, Pool
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import NOWHERE, PrismError
from rpl_agent.formats.prism.language.parser import parse_model, parse_properties, parse_property_file
from rpl_agent.formats.prism.language.scope import Number, Program
from rpl_agent.formats.prism.language.typed import Node
from rpl_agent.formats.prism.language.unknown import COMMANDS, ROWS, link_unknown, parameter_domain
from rpl_agent.formats.prism.properties.ends import without_the_rest
from rpl_agent.formats.prism.properties.queries import Query, query_of

if TYPE_CHECKING:
    from rpl_agent.core.relaxations.umdp import UncertainMDP

#: for ``only_for`` of `load`: the first property of the file beside the model, whichever it is
FIRST = "<first property>"
_QUOTED = re.compile(r'\s*"(?P<name>\w+)"\s*;?\s*')


@dataclass
class PrismModel:
    """A loaded model."""

    pmdp: ParametricMDP  # for an interval model only the skeleton: see ``bounds``
    program: Program  # the resolved file, for further properties
    source: str = "<text>"
    #: those of the properties file beside the model or given to `load_properties`; one that cannot be read is replaced
    #: by its error, which is raised when it is used
    properties: list[ast.Property | PrismError] = field(default_factory=list)
    bounds: Bounds | None = None  # on the probabilities of an interval model
    #: reward structures that contain a parameter, as functions of the parameters: ``pmdp`` has the others
    parametric_rewards: dict[str, Callable[[np.ndarray], Reward]] = field(default_factory=dict)
    truth: np.ndarray | None = None  # (d,) the file's own numbers of what was made unknown; never for a learner

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the file: its constants of type double without a value."""
        return self._domain.parameters

    @property
    def _domain(self) -> Domain:
        return self.pmdp.domain if self.bounds is None else self.bounds.domain

    def theta(self, values: Mapping[str, float]) -> np.ndarray:
        """(d,) the model's parameter vector for values of the file's parameters."""
        names = self.parameters
        if set(values) != set(names):
            raise ModelError(f"give a value for each parameter ({listed(names)}), and for no other")
        return np.array([values[name] for name in names], dtype=float)

    def uncertain(self, theta: np.ndarray | None = None) -> UncertainMDP:
        """An interval model as an uncertain MDP, at parameters or for the widest intervals over their domain."""
        from rpl_agent.core.relaxations.umdp import UncertainMDP

        if self.bounds is None:
            raise PrismError("this model has no intervals", NOWHERE, self.source)
        return UncertainMDP.from_intervals(self.pmdp, *self.bounds.at(theta))

    def query(self, text: str | ast.Property | PrismError | None = None, theta: np.ndarray | None = None) -> Query:
        """Translate a property: its text, its name in quotes, or one of ``properties`` (by default the first of these).

        ``theta`` gives values to rewards that contain parameters.
        """
        if text is None:
            if not self.properties:
                raise PrismError("no property given, and no .props file beside the model", NOWHERE, self.source)
            text = self.properties[0]
        if isinstance(text, str) and (alone := _QUOTED.fullmatch(text)):
            text = self._named(alone["name"])
        if isinstance(text, PrismError):
            raise text
        found, shown = ([text], "") if isinstance(text, ast.Property) else (parse_properties(text), text)
        if len(found) != 1:
            place = found[1].position if found else NOWHERE
            raise PrismError(f"expected one property, found {len(found)}", place, "<property>", shown)
        pmdp = self.pmdp
        if theta is not None:
            values = {name: reward(theta) for name, reward in self.parametric_rewards.items()}
            pmdp = replace(pmdp, rewards={**pmdp.rewards, **values}) if values else pmdp
        try:
            query = query_of(found[0], self.program, pmdp)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RPLWarning)  # the solver warns
                require_end(query.pmdp, query.objective.resolve(query.pmdp))
        except PrismError as error:
            raise error.located("<property>", shown) from None
        except ModelError as error:
            raise PrismError(str(error), NOWHERE, "<property>", shown) from None
        return query

    def _named(self, name: str) -> ast.Property:
        """The property of the properties file with a name."""
        named = {found.name: found for found in self.properties if isinstance(found, ast.Property) and found.name}
        if name not in named:
            known = f" (known: {listed(named)})" if named else ""
            reason = f'no property that can be read is called "{name}"{known}'
            raise PrismError(f'{reason}; a label is asked by filter(state, "{name}", "init")', NOWHERE, "<property>")
        return named[name]

    def objective(self, text: str | None = None) -> tuple[ParametricMDP, Objective]:
        """The model and the objective of a property, for learning; by default the first of the properties file.

        State formulas that are not labels of the model become labels of the returned one, named by their text.
        A property that is answered through another one (``G`` through the probability of leaving, linear-time formulas
        through a product with an automaton) yields that one, with a warning.
        """
        query = self.query(text)
        if self.bounds is not None and not self.bounds.is_learnable:
            raise PrismError(
                "this is an interval model: its uncertainty is given, nothing is learned (rpl solve gives its "
                "robust and optimistic values)",
                NOWHERE,
                self.source,
            )
        if query.comparison:
            raise PrismError(
                "a comparison with a threshold is answered by rpl solve; write =? here", NOWHERE, text or ""
            )
        if query.filter not in ("state", "range"):
            raise PrismError(
                f"the filter '{query.filter}' is answered by rpl solve; what is learned is the value of one state",
                NOWHERE,
                text or "",
            )
        if query.complement:
            warnings.warn(
                f"the property is answered as 1 - v with v = {query.objective.describe()}; all values are those of v",
                RPLWarning,
                stacklevel=3,
            )
        if len(query.states) > 1:
            warnings.warn(
                f"{len(query.states)} initial states: values are those of the first, "
                f"{query.pmdp.state_name(query.pmdp.initial_state)}",
                RPLWarning,
                stacklevel=3,
            )
        return query.pmdp, query.objective


def load(path: str | Path, constants: Mapping[str, Number] | None = None, *more: Any, **options: Any) -> PrismModel:
    """Read a PRISM file, and the properties file NAME.props beside it; further arguments are those of `loads`.

    ``constants`` may also name constants of the properties file.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "coin.prism"
    >>> commands = "[] s=0 -> p:(s'=1) + 1-p:true; [] s=1 -> true;"
    >>> _ = path.write_text(f"dtmc const double p; module coin s:[0..1]; {commands} endmodule")
    >>> load_prism(path, parameters={"p": (0.2, 0.8)}).objective("P=? [F<=9 s=1]")[1].describe()
    'Pmax=? [ F<=9 "s=1" ]'
    """
    path = as_path(path, "path")
    text = _read(path)
    beside = path.with_suffix(".props")
    given, wanted = dict(constants or {}), None
    if beside != path and beside.is_file():
        wanted = parse_property_file(_read(beside), beside.name)
        for_them = {c.name: given.pop(c.name) for c in wanted.constants if c.name in given}
    if options.get("only_for") is FIRST:
        options["only_for"] = None if wanted is None else partial(_for_the_first, wanted, for_them)
    model = loads(text, given, *more, source=path.name, **options)
    if wanted is not None:
        load_properties(model, beside, for_them)
    return model


def _for_the_first(found: ast.File, constants: Mapping[str, Number], program: Program) -> Program:
    """The program for the first property of a file alone, see `without_the_rest`."""
    first = found.properties[0] if found.properties else None
    if not isinstance(first, ast.Property):
        return program
    try:
        scope = program.scope.extended(found, constants)
    except PrismError:  # reported when the properties are loaded
        return program
    return without_the_rest(replace(program, scope=scope), first)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PrismError(f"cannot read the file: {error}", NOWHERE, str(path)) from None


def load_properties(
    model: PrismModel, path: str | Path, constants: Mapping[str, Number] | None = None
) -> list[ast.Property | PrismError]:
    """Read a properties file: properties, and constants, formulas and labels for them; kept in ``model.properties``."""
    path = Path(path)
    text = _read(path)
    found = parse_property_file(text, path.name)
    try:
        scope = model.program.scope.extended(found, constants or {})
    except PrismError as error:
        raise error.located(path.name, text) from None
    model.program, model.properties = replace(model.program, scope=scope), list(found.properties)
    return model.properties


def loads(
    text: str,
    constants: Mapping[str, Number] | None = None,
    parameters: Mapping[str, tuple[float, float]] | None = None,
    *,
    source: str = "<text>",
    max_states: int | None = None,
    progress: Progress | None = None,
    unknown: str | Sequence[str] | None = None,
    tie_modules: bool = False,
    normalise: bool = False,
    only_for: str | Callable[[Program], Program] | None = None,
) -> PrismModel:
    """Read a model from text.

    Parameters
    ----------
    constants : values for constants without one. An undefined ``const double`` that gets none is a parameter.
    parameters : ranges (low, high) for parameters; they take precedence over ``// range`` comments.
    max_states : refuse larger models (by default, those that do not fit in half of the free memory).
    progress : called occasionally with the numbers of states expanded and found.
    unknown : what to hide from the learner: ``"commands"`` (each probabilistic command is one unknown distribution),
        ``"rows"`` (each row of each state is), or names of constants. The file's numbers become ``truth``.
    tie_modules : commands of renamed modules share the distributions of their base.
    normalise : scale rows whose rounded numbers sum to 1 only up to 1e-5; a warning says how many.
    only_for : a property; plays stay where it is decided, and what lies behind is not explored. The model then answers
        no other one. Or a function that makes such a program; for `load`, ``FIRST``: the first of the properties file.

    Anything wrong or unsupported is a `PrismError` with line and column.
    """
    try:
        program, unknowns = link_unknown(
            parse_model(text, source), constants or {}, unknown, tie_modules, TOLERANCE if normalise else Fraction(0)
        )
        if only_for is not None:
            program = only_for(program) if callable(only_for) else without_the_rest(program, only_for)
        domain, pool = unknowns.domain(parameter_domain(text, program, parameters or {})), Pool()
        graph, machine = explore(program, initial_states(program), max_states, progress)
        ends = [expressions(graph, machine, pool, chances) for chances in _chances(program, machine)]
        graph = replace(graph, branch=graph.branch[:0].copy())  # of no more use, and as large as the model
        made = assemble(program, graph, machine, pool, ends, domain, Path(source).stem)
        model, sums = normalised(made.model) if normalise and made.bounds is None else (made.model, [])
        if unknown != COMMANDS or unknowns.kept:  # distributions on simplices and their products are valid as they are
            model = _validated(model, made.row_combination, graph, machine, made.bounds)
        warn_of_scaling(source, [*unknowns.scaled, *sums])
    except PrismError as error:
        raise error.located(source, text) from None
    except RecursionError:
        raise PrismError("definitions nested too deeply", NOWHERE, source, text) from None
    truth = unknowns.theta(model.table.parameters)
    if unknown == ROWS:
        hidden = hide_parameters(model)
        model, truth = hidden.pmdp, hidden.theta
    more = (made.bounds, made.parametric_rewards, truth)
    loaded = PrismModel(model, made.program, source, [], *more)
    if count := int(model.labels["deadlock"].sum()):
        warnings.warn(
            f"{source}: {count} state(s) without an enabled command got a self-loop", RPLWarning, stacklevel=2
        )
    del graph, machine, ends, made
    give_back_memory(model.num_transitions)
    return loaded


def _chances(program: Program, machine: Machine) -> list[list[list[Node | None]]]:
    """The probabilities of all updates by command; for intervals their lower and their upper ends."""
    low = [[u.probability for u in c.updates] for c in machine.commands]
    if not program.has_intervals:
        return [low]
    return [low, [[u.upper or u.probability for u in c.updates] for c in machine.commands]]


def _validated(
    model: ParametricMDP, row_combination: np.ndarray, graph: Graph, machine: Machine, bounds: IntervalBounds | None
) -> ParametricMDP:
    """The model on a domain where it is valid; defects are reported at the command that causes them."""
    if bounds is not None:
        lower, upper = bounds.at(None)
        try:
            Intervals(model, lower, upper)
        except ModelError as error:
            row = _first_row_without_distribution(model, lower, upper)
            position = None if row is None else row_position(row, row_combination, graph, machine)
            raise PrismError(str(error) + _ranges_needed(bounds.domain.parameters), position or NOWHERE) from None
        return model
    domain = model.domain
    if model.table.is_affine and model.num_parameters:
        model = replace(model, domain=restrict_domain(model.table, domain))
    if defects := validate(model):
        row = min((d.row for d in defects if d.kind == defects[0].kind and d.row is not None), default=None)
        position = None if row is None else row_position(row, row_combination, graph, machine)
        reason = "\n".join(messages(defects)) + scaling_hint(model)
        low, high = expression_range(model.table, domain)
        left = np.flatnonzero((low < -1e-9) | (high > 1 + 1e-9))
        names = sorted({name for f in left for name in model.table.polynomial(int(f)).parameters})
        raise PrismError(reason + _ranges_needed(names), position or NOWHERE)
    return model


def _ranges_needed(names: Sequence[str]) -> str:
    """How to keep probabilities that depend on these parameters in [0, 1]."""
    if not names:
        return ""
    return f"\ngive ranges that keep it in [0, 1]: {' '.join(f'--param {n}=LO:HI' for n in names[:3])}" + (
        f" … ({len(names)} parameters)" if len(names) > 3 else ""
    )


def _first_row_without_distribution(model: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> int | None:
    """The first row with bounds (F,) outside [0, 1], or which no distribution satisfies."""
    low, high = lower[model.expression], upper[model.expression]
    outside = np.logical_or.reduceat((low < 0.0) | (high > 1.0) | (low > high), model.row_ptr[:-1])
    least, most = np.add.reduceat(low, model.row_ptr[:-1]), np.add.reduceat(high, model.row_ptr[:-1])
    bad = np.flatnonzero(outside | (least > 1.0 + 1e-9) | (most < 1.0 - 1e-9))
    return int(bad[0]) if len(bad) else None
