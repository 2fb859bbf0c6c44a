"""The syntax tree of a PRISM file, as written: names are not resolved and nothing is evaluated.

Nodes compare by identity, so that later passes can share and memoise them. Chains of ``+``, ``*``, ``&`` and ``|``
are one node with many arguments: a label with a thousand alternatives is flat, and `MAX_DEPTH` only limits real
nesting. Fields are in the order of the grammar's rules, on which `parser` relies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from rpl_agent.formats.prism.language.grammar import Position, PrismError

# Later passes recurse over expressions; Python's limit is 1000 frames, of which each level uses up to three.
MAX_DEPTH = 150


@dataclass(frozen=True, eq=False)
class Expression:
    """Base of all expressions; `depth` is the height of the tree below the node."""

    position: Position
    depth: int = field(init=False, default=1)


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A boolean, an integer, or a decimal as an exact fraction."""

    value: bool | int | Fraction


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
class Temporal(Apply):
    """A path operator F, G, X (one argument), U, W or R (two) with its step bounds.

    ``low`` and ``high`` are inclusive after `strict_low`, `strict_high` have been taken into account.
    """

    low: Expression | None = None
    high: Expression | None = None
    strict_low: bool = False
    strict_high: bool = False

    @property
    def left(self) -> Expression | None:
        return self.arguments[0] if len(self.arguments) == 2 else None

    @property
    def right(self) -> Expression:
        return self.arguments[-1]


def is_temporal(expression: Expression) -> bool:
    """Whether it contains a path operator."""
    if isinstance(expression, Temporal):
        return True
    return isinstance(expression, Apply) and any(is_temporal(a) for a in expression.arguments)


@dataclass(frozen=True)
class Declared:
    """Anything with a position in the file."""

    position: Position


@dataclass(frozen=True)
class Constant(Declared):
    name: str
    type: str  # "int", "double" or "bool"
    value: Expression | None


@dataclass(frozen=True)
class Formula(Declared):
    name: str
    value: Expression


@dataclass(frozen=True)
class Label(Declared):
    name: str
    value: Expression


@dataclass(frozen=True)
class Variable(Declared):
    """A state variable; the bounds are (None, None) for a boolean one."""

    name: str
    bounds: tuple[Expression | None, Expression | None]
    initial: Expression | None


@dataclass(frozen=True)
class Assignment(Declared):
    variable: str
    value: Expression


@dataclass(frozen=True)
class ParsedUpdate(Declared):
    """``probability : (x'=…) & (y'=…)``; no probability means one; `upper` is the right end of ``[low, high]``."""

    probability: Expression | None
    upper: Expression | None
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class ParsedCommand(Declared):
    action: str | None
    guard: Expression
    updates: tuple[ParsedUpdate, ...]


@dataclass(frozen=True)
class Module(Declared):
    name: str
    variables: tuple[Variable, ...]
    commands: tuple[ParsedCommand, ...]


@dataclass(frozen=True)
class Renaming(Declared):
    """``module B = A [x=y, …] endmodule``."""

    name: str
    base: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ParsedRewardItem(Declared):
    """One line of a rewards block; `on_transition` with action None is for unlabelled commands (``[] g : v;``)."""

    on_transition: bool
    action: str | None
    guard: Expression
    value: Expression


@dataclass(frozen=True)
class ParsedRewards(Declared):
    name: str | None
    items: tuple[ParsedRewardItem, ...]


@dataclass(frozen=True)
class InitialStates(Declared):
    """``init … endinit``."""

    predicate: Expression


@dataclass(frozen=True)
class RewardPath:
    """The kind of an R operator: "F" (a target), "Fc" (the same, but plays may miss it), "C" or "I"."""

    kind: str
    target: Expression | None = None
    bound: Expression | None = None
    strict: bool = False


@dataclass(frozen=True)
class Property(Declared):
    """A parsed property."""

    quantity: str  # "P" or "R"
    sense: str  # "max", "min" or "" (unspecified)
    nature: str  # the same: the second word of ``Pmaxmin``
    reward: str | int | None
    path: Expression | RewardPath
    comparison: str = ""  # "" for ``=?``, else ``<``, ``<=``, ``>`` or ``>=`` with a threshold
    threshold: Expression | None = None
    filter: tuple[str, Expression | None] | None = None  # its name and states (None: all); without it the initial ones
    name: str | None = None


@dataclass(frozen=True)
class File:
    """A model or a properties file, declarations in the order of the text."""

    kind: str  # "mdp" or "dtmc", of a model
    constants: tuple[Constant, ...]
    formulas: tuple[Formula, ...]
    labels: tuple[Label, ...]
    variables: tuple[Variable, ...]  # global ones
    modules: tuple[Module | Renaming, ...]
    rewards: tuple[ParsedRewards, ...]
    initial: tuple[InitialStates, ...]
    properties: tuple[Property | PrismError, ...]  # one that cannot be read is replaced by its error

    @staticmethod
    def of(kind: str, items: tuple[object, ...]) -> File:
        kinds = (Constant, Formula, Label, Variable, (Module, Renaming), ParsedRewards, InitialStates)
        parts = [tuple(i for i in items if isinstance(i, k)) for k in (*kinds, (Property, PrismError))]
        return File(kind, *parts)  # type: ignore[arg-type]
