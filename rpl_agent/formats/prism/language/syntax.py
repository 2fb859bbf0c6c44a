"""The syntax tree of a PRISM file, as written: names are not resolved and nothing is evaluated.

Nodes compare by identity, so that later passes can share and memoise them. Chains of ``+``, ``*``, ``&`` and ``|``
are one node with many arguments: a label with a thousand alternatives is then flat, and `MAX_DEPTH` only meets real
nesting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from rpl_agent.formats.prism.language.errors import Position, PrismError

# Later passes recurse over expressions; Python's own limit is 1000 frames, of which each level uses up to three.
MAX_DEPTH = 150


@dataclass(frozen=True, eq=False)
class Expression:
    """Base of all expressions; `depth` is the height of the tree below the node."""

    position: Position
    depth: int = field(init=False, default=1)


@dataclass(frozen=True, eq=False)
class NumberLiteral(Expression):
    value: Fraction
    is_integer: bool


@dataclass(frozen=True, eq=False)
class Boolean(Expression):
    value: bool


@dataclass(frozen=True, eq=False)
class Name(Expression):
    name: str


@dataclass(frozen=True, eq=False)
class LabelName(Expression):
    """``"goal"`` in a property."""

    name: str


@dataclass(frozen=True, eq=False)
class Apply(Expression):
    """An operator or function with its arguments: ``+ * - neg / & | ! => <=> = != < <= > >= ?: min max ...``."""

    operator: str
    arguments: tuple[Expression, ...]

    def __post_init__(self) -> None:
        depth = 1 + max((a.depth for a in self.arguments), default=0)
        if depth > MAX_DEPTH:
            raise PrismError(f"expression nested more than {MAX_DEPTH} levels deep", self.position)
        object.__setattr__(self, "depth", depth)


@dataclass(frozen=True, eq=False)
class Temporal(Expression):
    """A path operator F, G, X, U, W or R with its step bounds; ``left`` is None for F, G and X.

    ``low`` and ``high`` are inclusive after `strict_low`, `strict_high` have been taken into account.
    """

    operator: str
    left: Expression | None
    right: Expression
    low: Expression | None = None
    high: Expression | None = None
    strict_low: bool = False
    strict_high: bool = False

    def __post_init__(self) -> None:
        depth = 1 + max(e.depth for e in (self.left, self.right) if e is not None)
        if depth > MAX_DEPTH:
            raise PrismError(f"expression nested more than {MAX_DEPTH} levels deep", self.position)
        object.__setattr__(self, "depth", depth)

    @property
    def is_bounded(self) -> bool:
        return self.low is not None or self.high is not None


def is_temporal(expression: Expression) -> bool:
    """Whether a path operator occurs in it."""
    if isinstance(expression, Apply):
        return any(is_temporal(a) for a in expression.arguments)
    return isinstance(expression, Temporal)


@dataclass(frozen=True)
class Constant:
    name: str
    type: str  # "int", "double" or "bool"
    value: Expression | None
    position: Position


@dataclass(frozen=True)
class Formula:
    name: str
    value: Expression
    position: Position


@dataclass(frozen=True)
class Label:
    name: str
    value: Expression
    position: Position


@dataclass(frozen=True)
class Variable:
    """A state variable; `low` and `high` are None for a boolean one."""

    name: str
    low: Expression | None
    high: Expression | None
    initial: Expression | None
    position: Position


@dataclass(frozen=True)
class Assignment:
    variable: str
    value: Expression
    position: Position


@dataclass(frozen=True)
class ParsedUpdate:
    """``probability : (x'=…) & (y'=…)``; no probability means one; `upper` is the right end of ``[low, high]``."""

    probability: Expression | None
    assignments: tuple[Assignment, ...]
    position: Position
    upper: Expression | None = None


@dataclass(frozen=True)
class ParsedCommand:
    action: str | None
    guard: Expression
    updates: tuple[ParsedUpdate, ...]
    position: Position


@dataclass(frozen=True)
class Module:
    name: str
    variables: tuple[Variable, ...]
    commands: tuple[ParsedCommand, ...]
    position: Position


@dataclass(frozen=True)
class Renaming:
    """``module B = A [x=y, …] endmodule``."""

    name: str
    base: str
    pairs: tuple[tuple[str, str], ...]
    position: Position


@dataclass(frozen=True)
class ParsedRewardItem:
    """One line of a rewards block; `on_transition` with action None is for unlabelled commands (``[] g : v;``)."""

    on_transition: bool
    action: str | None
    guard: Expression
    value: Expression
    position: Position


@dataclass(frozen=True)
class ParsedRewards:
    name: str | None
    items: tuple[ParsedRewardItem, ...]
    position: Position


@dataclass(frozen=True)
class InitialStates:
    """``init … endinit``."""

    predicate: Expression
    position: Position


@dataclass(frozen=True)
class ModelFile:
    """A parsed file: declarations in the order of the text."""

    kind: str  # "mdp" or "dtmc"
    constants: tuple[Constant, ...]
    formulas: tuple[Formula, ...]
    labels: tuple[Label, ...]
    variables: tuple[Variable, ...]  # global ones
    modules: tuple[Module | Renaming, ...]
    rewards: tuple[ParsedRewards, ...]
    initial: tuple[InitialStates, ...] = ()


@dataclass(frozen=True)
class RewardPath:
    """What an R operator is about: "F" (a target), "Fc" (the same, but plays may miss it), "C" or "I"."""

    kind: str
    target: Expression | None = None
    bound: Expression | None = None
    strict: bool = False


@dataclass(frozen=True)
class Property:
    """A parsed property.

    quantity : "P" or "R".
    sense, nature : "max", "min" or "" (not said); nature is the second word of ``Pmaxmin``.
    comparison : "" for ``=?``, else ``<``, ``<=``, ``>`` or ``>=`` with a threshold.
    filter : name of a filter and the states it is about (None: all of them); without a filter the initial ones.
    """

    quantity: str
    sense: str
    nature: str
    reward: str | int | None
    path: Expression | RewardPath
    position: Position
    comparison: str = ""
    threshold: Expression | None = None
    filter: tuple[str, Expression | None] | None = None
    name: str | None = None


@dataclass(frozen=True)
class PropertyFile:
    """A parsed properties file; a property that cannot be read is the error that says why."""

    constants: tuple[Constant, ...]
    formulas: tuple[Formula, ...]
    labels: tuple[Label, ...]
    properties: tuple[Property | PrismError, ...]
