"""From PRISM properties to queries: an objective for the solver, and how its value answers the property.

State formulas become masks and labels, path formulas become automata, and both can be printed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from rpl_agent.core.errors import RPLWarning, listed
from rpl_agent.core.model import Kind, Nature, Objective, ParametricMDP, Reward, Sense, Unreached
from rpl_agent.core.model.building.validation import expression_range
from rpl_agent.core.solver.graph import ANY_ROW, model_graph, moves
from rpl_agent.formats.prism.explore.code import column_of
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import Type
from rpl_agent.formats.prism.properties import automaton as ltl
from rpl_agent.formats.prism.properties.automaton import product
from rpl_agent.formats.prism.properties.ends import reachability

#: spelling of operators, from weak to strong
_TEXT = {
    "?:": "{} ? {} : {}",
    "=>": " => ",
    "<=>": " <=> ",
    "|": " | ",
    "&": " & ",
    "!": "!{}",
    "=": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "+": " + ",
    "*": "*",
    "/": "/",
    "neg": "-{}",
}
_STRENGTH = {operator: level for level, operator in enumerate(_TEXT)}
_CONNECTIVES: dict[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "&": np.logical_and.reduce,
    "|": np.logical_or.reduce,
    "!": lambda masks: ~masks[0],
    "=>": lambda masks: ~masks[0] | masks[1],
    "<=>": lambda masks: masks[0] == masks[1],
}


def labelled(expression: ast.Expression, program: Program, pmdp: ParametricMDP) -> tuple[str, ParametricMDP]:
    """The name of the label for a state formula, added to the model if it is new."""
    mask = mask_of(expression, program, pmdp)
    if isinstance(expression, ast.LabelName):
        name = expression.name
    else:  # a label, a formula and a variable may share a name, and one text two meanings (constants of properties)
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
    """Follows the Boolean structure itself, because "init" and "deadlock" are not expressions over variables."""
    if isinstance(expression, ast.LabelName):
        if expression.name in pmdp.labels:
            return pmdp.labels[expression.name]
        if expression.name in program.scope.labels:  # of the properties file
            return column_of(program.scope.labels[expression.name], program.variables, columns, pmdp.num_states)
        known = listed(f'"{n}"' for n in sorted(pmdp.labels))
        raise PrismError(f'unknown label "{expression.name}" (known: {known})', expression.position)
    if isinstance(expression, ast.Apply) and expression.operator in _CONNECTIVES:
        return _CONNECTIVES[expression.operator]([_mask(a, program, pmdp, columns) for a in expression.arguments])
    node = program.scope.resolve(expression)
    if node.type is not Type.BOOL:
        raise PrismError(f"type error: a state formula must be bool, this is {node.type.value}", expression.position)
    return column_of(node, program.variables, columns, pmdp.num_states)


# -- linear time ------------------------------------------------------------------------------------------------------
def linear_time(path: ast.Expression, program: Program, pmdp: ParametricMDP) -> tuple[ltl.Automaton, np.ndarray, bool]:
    """The automaton of a path formula or of its negation, the letter (S,) of every state, and whether it is negated."""
    atoms: list[ast.Expression] = []
    formula = _normal(path, atoms, program)
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


def _normal(e: ast.Expression, atoms: list[ast.Expression], program: Program) -> ltl.Formula:
    """Negation normal form; state formulas become atoms."""
    if not ast.is_temporal(e):
        atoms.append(e)
        return ("ap", len(atoms) - 1)
    assert isinstance(e, ast.Apply)
    if isinstance(e, ast.Temporal):
        right = _normal(e.right, atoms, program)
        if e.operator == "X":
            return ("X", right)
        low = 0 if e.low is None else _steps(e.low, False, program) + (1 if e.strict_low else 0)
        high = None if e.high is None else _steps(e.high, e.strict_high, program)
        left = _normal(e.left or ast.Literal(e.position, True), atoms, program)
        if e.operator in ("F", "U"):  # F f = true U f
            return ("U", left, right, low, high)
        if e.operator == "W":  # left W right = right R (left or right)
            return ("R", right, ("or", left, right), low, high)
        return ("R", ltl.negated(left) if e.operator == "G" else left, right, low, high)  # G f = false R f
    parts = [_normal(a, atoms, program) for a in e.arguments]
    if e.operator == "!":
        return ltl.negated(parts[0])
    if e.operator in ("&", "|"):
        return ("and" if e.operator == "&" else "or", *parts)
    if e.operator == "=>":
        return ("or", ltl.negated(parts[0]), parts[1])
    if e.operator == "<=>":
        return ("or", ("and", *parts), ("and", *map(ltl.negated, parts)))
    raise PrismError(f"a path operator may not stand under '{e.operator}'", e.position)


# -- text -------------------------------------------------------------------------------------------------------------
def unparse(expression: ast.Expression, outer: int = -1) -> str:
    """PRISM text of an expression, which names the label made for it."""
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


FILTERS = ("min", "max", "avg", "sum", "count", "forall", "exists", "first", "state", "range")
_FILTER_SIGNS = {"&": "forall", "|": "exists", "+": "sum"}


@dataclass(frozen=True)
class Query:
    """A property in terms of an objective on a model.

    pmdp : the model, with labels for the property's formulas; a product with an automaton if the path needs memory.
    objective : solved on ``pmdp``. Its value v answers the property as v, or as 1 - v if ``complement`` is set.
    """

    pmdp: ParametricMDP
    objective: Objective
    complement: bool
    nature: Nature | None  # None if the property does not specify its direction
    comparison: str  # with a threshold, as in ``P>=0.9 [ … ]``, the answer is yes, no, or not decided
    threshold: Fraction | None
    filter: str  # how the answers of the states are combined
    states: np.ndarray  # of ``pmdp``; by default the initial ones


def query_of(found: ast.Property, program: Program, pmdp: ParametricMDP) -> Query:
    """Translate a parsed property for a model."""
    threshold = None
    if found.threshold is not None:
        node = program.scope.resolve(found.threshold)
        if not node.is_literal or node.type is Type.BOOL:
            raise PrismError("a threshold must be a constant number", found.threshold.position)
        threshold = Fraction(node.value)
    sense, nature = _senses(found, program)
    name, states = _filter(found, program, pmdp)
    complement = False
    if isinstance(found.path, ast.RewardPath):
        objective, pmdp = _reward(found, found.path, sense, program, pmdp)
    else:
        path, complement = found.path, False
        while isinstance(path, ast.Apply) and path.operator == "!" and ast.is_temporal(path):
            path, complement = path.arguments[0], not complement
        direct = _direct(path, program, pmdp)
        if direct is None:
            pmdp, label, negative, states = _memory(path, program, pmdp, states)
            complement = complement != negative
            objective = Objective.reach(label, sense=sense.opposite if complement else sense)
        else:
            target, avoid, horizon, negative, pmdp = direct
            complement = complement != negative
            chosen = sense.opposite if complement else sense
            objective = Objective(Kind.REACH, chosen, target, avoid=avoid, horizon=horizon)
    if len(states):
        pmdp = replace(pmdp, initial_state=int(states[0]))
    return Query(pmdp, objective, complement, nature, found.comparison, threshold, name, states)


def _senses(found: ast.Property, program: Program) -> tuple[Sense, Nature | None]:
    """The agent's sense, and nature's direction.

    A comparison must hold for every policy and every nature; with a sense it is about the best value, as in Storm:
    ``Pmax>=0.5`` means that some policy reaches 0.5, whatever nature does.
    """
    nature = found.nature
    if found.comparison:
        against = Sense.MIN if found.comparison in (">", ">=") else Sense.MAX
        if not found.sense:
            return against, Nature.COOPERATIVE
        nature = nature or against.value
    if nature:
        return Sense(found.sense), Nature.COOPERATIVE if nature == found.sense else Nature.ADVERSARIAL
    if found.sense:
        # a chain has no agent: in an interval chain max and min are nature's
        return Sense(found.sense), Nature.COOPERATIVE if program.kind == "dtmc" else None
    if program.kind == "mdp":
        raise PrismError(f"in an mdp write {found.quantity}max=? or {found.quantity}min=?", found.position)
    # As a cost, a reward until a target that may be missed is infinite, as in PRISM.
    return (Sense.MAX if found.quantity == "P" else Sense.MIN), None


def _filter(found: ast.Property, program: Program, pmdp: ParametricMDP) -> tuple[str, np.ndarray]:
    initial = np.flatnonzero(pmdp.labels["init"])
    if found.filter is None:
        return ("forall" if found.comparison else "state" if len(initial) == 1 else "range"), initial
    name = _FILTER_SIGNS.get(found.filter[0], found.filter[0])
    if name not in FILTERS:
        raise PrismError(f"the filter '{name}' is not supported ({', '.join(FILTERS)} are)", found.position)
    if (name in ("forall", "exists", "count")) != bool(found.comparison) and name not in ("first", "state"):
        what = "yes or no" if found.comparison else "a number"
        raise PrismError(f"the filter '{name}' does not fit a property whose answer is {what}", found.position)
    # without a formula the filter applies to all states, in PRISM's order: by the values of their variables
    columns = [np.asarray(values) for values in pmdp.variables.values()]
    states = np.lexsort(columns[::-1]) if columns else np.arange(pmdp.num_states)
    if found.filter[1] is not None:
        states = states[mask_of(found.filter[1], program, pmdp)[states]]
    if not len(states):
        raise PrismError("the filter's states do not occur in the model", found.position)
    if name == "state" and len(states) != 1:
        raise PrismError(f"the filter 'state' needs one state, but {len(states)} satisfy it", found.position)
    if name == "first":
        name, states = "forall" if found.comparison else "state", states[:1]
    return name, states


def _steps(bound: ast.Expression, strict: bool, program: Program) -> int:
    steps = program.scope.number(bound, "a step bound") - (1 if strict else 0)
    if steps < 0:
        raise PrismError(f"the step bound allows {steps} steps", bound.position)
    return steps


# -- probabilities ----------------------------------------------------------------------------------------------------
def _direct(
    path: ast.Expression, program: Program, pmdp: ParametricMDP
) -> tuple[str, str | None, int | None, bool, ParametricMDP] | None:
    """(target, avoid, horizon, complement, model) if the property is plain reachability of labels; else None."""
    known = reachability(path)
    if known is None:
        return None
    assert isinstance(path, ast.Temporal)
    horizon = None if path.high is None else _steps(path.high, path.strict_high, program)
    target, avoid, negative = known
    goal, pmdp = labelled(target, program, pmdp)
    lost = None
    if avoid is not None and not (isinstance(avoid, ast.Literal) and not avoid.value):
        lost, pmdp = labelled(avoid, program, pmdp)
    return goal, lost, horizon, negative, pmdp


def _memory(
    path: ast.Expression, program: Program, pmdp: ParametricMDP, states: np.ndarray
) -> tuple[ParametricMDP, str, bool, np.ndarray]:
    """The product with the automaton of a path formula: (model, label, complement, states)."""
    automaton, letter, negative = linear_time(path, program, pmdp)
    label = f"!({unparse(path)})" if negative else unparse(path)
    made, begin = product(pmdp, automaton, letter, states, label)
    return made, label, negative, begin


# -- rewards ----------------------------------------------------------------------------------------------------------
def _reward(
    found: ast.Property, path: ast.RewardPath, sense: Sense, program: Program, pmdp: ParametricMDP
) -> tuple[Objective, ParametricMDP]:
    name = _reward_name(found, program, pmdp)
    horizon = None if path.bound is None else _steps(path.bound, path.strict, program)
    if path.kind == "I":
        assert horizon is not None
        return Objective.instant(name, horizon, sense=sense), _without_actions(pmdp, name)
    if path.kind == "C":
        if horizon is None:
            return Objective.total(name, sense=sense), pmdp
        return Objective(Kind.REWARD, sense, None, reward_name=name, horizon=horizon), pmdp
    assert path.target is not None
    if ast.is_temporal(path.target):
        raise PrismError("the target of a reward must be a state formula", path.target.position)
    target, pmdp = labelled(path.target, program, pmdp)
    if path.kind == "Fc":
        return Objective.total(name, target=target, sense=sense), pmdp
    missed = sense is Sense.MAX and _can_be_missed(pmdp, pmdp.labels[target])
    unreached = Unreached.INFINITE if missed else None
    return Objective(Kind.REWARD, sense, target, reward_name=name, unreached=unreached), pmdp


def _without_actions(pmdp: ParametricMDP, name: str) -> ParametricMDP:
    """The model in which only states pay a reward: in PRISM, those of transitions do not count at an instant."""
    given = pmdp.rewards[name]
    if np.any(given.row) and not np.any(given.state):
        warnings.warn(f'no state has a reward "{name}", only transitions do: at an instant it is 0', RPLWarning, 2)
    states = Reward(given.state, np.zeros(pmdp.num_rows), given.state_error)
    return replace(pmdp, rewards={**pmdp.rewards, name: states})


def _can_be_missed(pmdp: ParametricMDP, target: np.ndarray) -> bool:
    """Whether some policy may never reach the target, for some parameters of the domain."""
    low, high = expression_range(pmdp.table, pmdp.domain)
    low, high = np.clip(low, 0.0, 1.0)[pmdp.expression], np.clip(high, 0.0, 1.0)[pmdp.expression]
    usable = np.full(pmdp.num_rows, 2, dtype=np.int8)
    return bool(model_graph(pmdp).hold_set(moves(low, high), usable, ANY_ROW, ~target).any())


def _reward_name(found: ast.Property, program: Program, pmdp: ParametricMDP) -> str:
    names = list(program.rewards)
    if not names:
        raise PrismError("the model has no rewards", found.position)
    reward = found.reward
    if reward is None:
        reward = 1
    if isinstance(reward, int):
        if not 1 <= reward <= len(names):
            raise PrismError(f"the model has {len(names)} reward structures, not {reward}", found.position)
        reward = names[reward - 1]
    if reward not in names:
        known = listed(f'"{n}"' for n in names)
        raise PrismError(f'unknown reward structure "{reward}" (known: {known})', found.position)
    if reward not in pmdp.rewards:
        raise PrismError(
            f'the reward structure "{reward}" contains a parameter: give the parameters values (--theta in '
            "rpl solve, or --const), or pay a fixed amount in a state that is entered with that probability",
            found.position,
        )
    return reward
