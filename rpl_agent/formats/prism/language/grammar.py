"""The grammar of the PRISM language, its reserved words and names of its tokens for messages; `PrismError`, which says
what is wrong at which line and column of a file.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

from rpl_agent.core.errors import ModelError


class Position(NamedTuple):
    """A place in the source text; line and column count from one, as in editors."""

    line: int
    column: int


NOWHERE = Position(1, 1)


class PrismError(ModelError):
    """A PRISM file or property that cannot be read.

    reason : what is wrong, without the place.
    line, column : the place, counted from one, in ``source``: a file name, ``"<text>"`` or ``"<property>"``.
    """

    def __init__(self, reason: str, position: Position = NOWHERE, source: str = "<text>", text: str | None = None):
        self.reason = reason
        self.line, self.column = int(position[0]), int(position[1])
        self.source = source
        message = f"{source}:{self.line}:{self.column}: {reason}"
        lines = text.splitlines() if text else []
        if 0 < self.line <= len(lines):
            shown = lines[self.line - 1][:200].replace("\t", " ")
            message += f"\n    {shown}\n    {' ' * min(self.column - 1, len(shown))}^"
        super().__init__(message)

    def located(self, source: str, text: str) -> PrismError:
        """The same error with the file name and the offending line shown."""
        return PrismError(self.reason, Position(self.line, self.column), source, text)


GRAMMAR = files("rpl_agent.formats.prism.language").joinpath("grammar.lark").read_text()

# Words with a meaning in the grammar: the lexer turns a NAME with this spelling into the token of that name. Those that
# begin with an underscore are hidden from the tree builder.
_SILENT = ("const", "formula", "label", "global", "endinit", "module", "endmodule", "endrewards", "func", "filter")
KEYWORDS = {
    word: f"_{word.upper()}" if word in _SILENT else word.upper()
    for word in (
        "mdp dtmc nondeterministic probabilistic const int double bool formula label global init endinit "
        "imdp idtmc module endmodule rewards endrewards true false min max func Pmax Pmin P Rmax Rmin R F U G X W C "
        "I S filter Pmaxmax Pmaxmin Pminmax Pminmin Rmaxmax Rmaxmin Rminmax Rminmin maxmax maxmin minmax minmin"
    ).split()
}

# Words of the PRISM language that are refused, with the reason.
UNSUPPORTED = {
    "ctmc": "continuous-time Markov chains are not supported (only mdp and dtmc)",
    "stochastic": "continuous-time Markov chains are not supported (only mdp and dtmc)",
    "pta": "probabilistic timed automata are not supported (only mdp and dtmc)",
    "popta": "partially observable timed automata are not supported (only mdp and dtmc)",
    "pomdp": "partially observable MDPs are not supported (only mdp and dtmc)",
    "smg": "stochastic games are not supported (only mdp and dtmc)",
    "csg": "concurrent stochastic games are not supported (only mdp and dtmc)",
    "tsg": "turn-based stochastic games are not supported (only mdp and dtmc)",
    "tptg": "timed games are not supported (only mdp and dtmc)",
    "ma": "Markov automata are not supported (only mdp and dtmc)",
    "clock": "clock variables are not supported",
    "invariant": "clock invariants are not supported",
    "endinvariant": "clock invariants are not supported",
    "system": "system … endsystem is not supported: modules synchronise on all shared action names",
    "endsystem": "system … endsystem is not supported: modules synchronise on all shared action names",
    "observable": "observables are not supported",
    "observables": "observables are not supported",
    "endobservables": "observables are not supported",
    "rate": "constants of type rate are not supported",
    "prob": "constants of type prob are not supported: write double",
    "multi": "a multi-objective property is not one of these: give all of it as --property 'multi(…)' to rpl solve, "
    "rpl certify or rpl train",
}

# Property operators that are names everywhere else, with what to write instead.
UNSUPPORTED_OPERATORS = {
    "A": "the operator A is not supported: A [ G a ] is P<=0 [ F !a ]",
    "E": "the operator E is not supported: E [ F a ] is Pmax>0 [ F a ] (in a dtmc P>0)",
    "LTL": "the operator LTL is not supported",
}

# Names of tokens in error messages; tokens with a fixed spelling use it.
TOKEN_NAMES = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": 'a quoted name like "goal"',
    "PRIMED": "an assignment x'=…",
    "FUNCTION": "a function",
    "$END": "the end of the text",
}
TOKEN_NAMES |= {name: f"'{text}'" for name, text in re.findall(r'^([A-Z_]+): "(.*)"$', GRAMMAR, re.M)}
TOKEN_NAMES |= {token: f"'{word}'" for word, token in KEYWORDS.items()}
# With the ``%declare`` line for the tokens that the lexer makes from names.
GRAMMAR += "%declare " + " ".join(sorted(set(KEYWORDS.values()))) + "\n"
