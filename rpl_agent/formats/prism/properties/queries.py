"""PRISM properties to queries: an objective of the solver, and how its value answers the property."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from rpl_agent.errors import listed
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import Type
from rpl_agent.formats.prism.properties.automaton import product
from rpl_agent.formats.prism.properties.formulas import labelled, linear_time, mask_of, opposite, unparse
from rpl_agent.model import Kind, Nature, Objective, ParametricMDP, Sense, Unreached
from rpl_agent.model.building.validation import expression_range
from rpl_agent.solver.graph import ANY_ROW, model_graph, moves

FILTERS = ("min", "max", "avg", "sum", "count", "forall", "exists", "first", "state", "range")
_FILTER_SIGNS = {"&": "forall", "|": "exists", "+": "sum"}


@dataclass(frozen=True)
class Query:
    """What a property asks, in terms of an objective on a model.

    pmdp : the model, with labels for the property's formulas; a product with an automaton where the path needs memory.
    objective : solved on ``pmdp``. Its value v answers the property as v, or as 1 - v where ``complement`` is set.
    nature : which way nature pulls in an uncertain model; None where the property does not say.
    comparison, threshold : for ``P>=0.9 [ … ]``: the answer is yes, no, or not decided.
    filter, states : over which states of ``pmdp`` the answer is combined, and how; by default the initial ones.
    """

    pmdp: ParametricMDP
    objective: Objective
    complement: bool
    nature: Nature | None
    comparison: str
    threshold: Fraction | None
    filter: str
    states: np.ndarray
    is_product: bool

    @property
    def is_plain(self) -> bool:
        """Whether the objective's value at the initial state is the answer."""
        return not self.complement and not self.comparison and self.filter == "state" and len(self.states) == 1


def query_of(found: ast.Property, program: Program, pmdp: ParametricMDP) -> Query:
    """A parsed property on a model."""
    threshold = None
    if found.threshold is not None:
        node = program.scope.resolve(found.threshold)
        if not node.is_literal or node.type is Type.BOOL:
            raise PrismError("a threshold must be a constant number", found.threshold.position)
        threshold = Fraction(node.value)
    sense, nature = _senses(found, program)
    name, states = _filter(found, program, pmdp)
    is_product = complement = False
    if isinstance(found.path, ast.RewardPath):
        objective, pmdp = _reward(found, found.path, sense, program, pmdp)
    else:
        path, complement = found.path, False
        while isinstance(path, ast.Apply) and path.operator == "!" and ast.is_temporal(path):
            path, complement = path.arguments[0], not complement
        direct = _direct(path, program, pmdp)
        if direct is None:
            pmdp, label, negative, states = _memory(path, program, pmdp, states)
            complement, is_product = complement != negative, True
            objective = Objective.reach(label, sense=sense.opposite if complement else sense)
        else:
            target, avoid, horizon, negative, pmdp = direct
            complement = complement != negative
            chosen = sense.opposite if complement else sense
            objective = Objective(Kind.REACH, chosen, target, avoid=avoid, horizon=horizon)
    if len(states):
        pmdp = replace(pmdp, initial_state=int(states[0]))
    return Query(pmdp, objective, complement, nature, found.comparison, threshold, name, states, is_product)


def _senses(found: ast.Property, program: Program) -> tuple[Sense, Nature | None]:
    """The agent's sense, and nature's part.

    A comparison must hold for every policy and every nature; with a sense it is about the best value, as in Storm:
    ``Pmax>=0.5`` says that some policy reaches 0.5, whatever nature does.
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
    states = _in_order(pmdp)  # without a formula the filter is about all states
    if found.filter[1] is not None:
        states = states[mask_of(found.filter[1], program, pmdp)[states]]
    if not len(states):
        raise PrismError("the filter's states do not occur in the model", found.position)
    if name == "state" and len(states) != 1:
        raise PrismError(f"the filter 'state' needs one state, {len(states)} satisfy it", found.position)
    if name == "first":
        name, states = "forall" if found.comparison else "state", states[:1]
    return name, states


def _in_order(pmdp: ParametricMDP) -> np.ndarray:
    """(S,) all states in PRISM's order, by the values of their variables: what "first" means."""
    columns = [np.asarray(values) for values in pmdp.variables.values()]
    return np.lexsort(columns[::-1]) if columns else np.arange(pmdp.num_states)


def _steps(bound: ast.Expression, strict: bool, program: Program) -> int:
    steps = program.scope.number(bound, "a step bound") - (1 if strict else 0)
    if steps < 0:
        raise PrismError(f"the step bound allows {steps} steps", bound.position)
    return steps


# -- probabilities ----------------------------------------------------------------------------------------------------
def _direct(
    path: ast.Expression, program: Program, pmdp: ParametricMDP
) -> tuple[str, str | None, int | None, bool, ParametricMDP] | None:
    """(target, avoid, horizon, complement, model) where reachability of labels is all that is asked; else None."""
    if not isinstance(path, ast.Temporal) or path.operator == "X" or path.low is not None:
        return None
    if any(map(ast.is_temporal, path.arguments)):
        return None
    horizon = None if path.high is None else _steps(path.high, path.strict_high, program)
    left, right = path.left, path.right
    if path.operator in ("F", "U"):
        target, avoid, negative = right, None if left is None else opposite(left), False
    elif path.operator == "G":
        target, avoid, negative = opposite(right), None, True
    elif path.operator == "W":  # not (left W right) = (not right) U (not left and not right)
        assert left is not None
        target = ast.Apply(path.position, "&", (opposite(left), opposite(right)))
        avoid, negative = right, True
    else:  # not (left R right) = (not left) U (not right)
        target, avoid, negative = opposite(right), left, True
    goal, pmdp = labelled(target, program, pmdp)
    lost = None
    if avoid is not None and not (isinstance(avoid, ast.Literal) and not avoid.value):
        lost, pmdp = labelled(avoid, program, pmdp)
    return goal, lost, horizon, negative, pmdp


def _memory(
    path: ast.Expression, program: Program, pmdp: ParametricMDP, states: np.ndarray
) -> tuple[ParametricMDP, str, bool, np.ndarray]:
    """The product with the automaton of a path formula: (model, label, complement, states)."""
    automaton, letter, negative = linear_time(path, program, pmdp, _steps)
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
        return Objective.instant(name, horizon, sense=sense), pmdp
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
            f'the reward structure "{reward}" contains a parameter: it has no value until the parameters have '
            "(--theta in rpl solve, or --const)",
            found.position,
        )
    return reward
