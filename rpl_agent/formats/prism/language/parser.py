"""From text to a syntax tree, by lark's LALR parser. Every failure is a `PrismError` with line and column.

A properties file that cannot be read is split into statements, so that one bad property does not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from rpl_agent.core.errors import listed
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.grammar import (
    GRAMMAR,
    KEYWORDS,
    NOWHERE,
    TOKEN_NAMES,
    UNSUPPORTED,
    UNSUPPORTED_OPERATORS,
    Position,
    PrismError,
)

_PIECE = re.compile(r'//[^\n]*|"[^"\n]*"|[;()\[\]{}]|\s+|[A-Za-z_]\w*|.', re.DOTALL)
#: beginnings of a statement on its own line, if the previous one has no semicolon
_BEGINS = re.compile(r'(P|R|S|A|E)(max|min){0,2}\b(?=\s*[=<>\[{])|(filter|multi|const|label|formula)\b|"\w+"\s*:')
_UNFINISHED = "&|+-*/=<>!?:,("


@dataclass(frozen=True)
class Statement:
    """A declaration or a property of a file: its text, and where it begins (from 0)."""

    text: str
    start: int

    @property
    def is_declaration(self) -> bool:
        return re.match(r"(const|label|formula)\b", self.text) is not None

    def padded(self, file: str) -> str:
        """The text padded to its place, so that lines and columns are those of the file."""
        before = file[: self.start]
        return "\n" * before.count("\n") + " " * (self.start - before.rfind("\n") - 1) + self.text


def statements(text: str) -> list[Statement]:
    """The statements of a properties file, in order."""
    found: list[Statement] = []
    begin, end, depth, is_new_line = -1, 0, 0, True

    def close() -> None:
        nonlocal begin, depth
        if begin >= 0:
            found.append(Statement(text[begin:end], begin))
        begin, depth = -1, 0

    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.isspace() or piece.startswith("//"):
            is_new_line |= "\n" in piece
            continue
        if is_new_line and depth == 0 and begin >= 0 and text[end - 1] not in _UNFINISHED:
            if _BEGINS.match(text, match.start()):
                close()
        is_new_line = False
        if begin < 0:
            begin = match.start()
        end = match.end()
        if piece == ";":
            close()
            continue
        depth += (piece in "([{") - (piece in ")]}") if len(piece) == 1 else 0
    close()
    return found


# A literal such as 1e999999999 would be an exact integer of a billion digits.
MAX_EXPONENT = 300
MAX_DIGITS = 300
#: least and largest number of arguments of functions
ARGUMENTS = {"pow": (2, 2), "mod": (2, 2), "min": (1, 10**6), "max": (1, 10**6)}
ARGUMENTS |= dict.fromkeys(("floor", "ceil", "round"), (1, 1))
_SENSES = ("max", "min", "maxmax", "maxmin", "minmax", "minmin")


def parse_model(text: str, source: str = "<text>") -> ast.File:
    """Parse a whole PRISM model file."""
    return _parse("model", text, source)


def parse_properties(text: str, source: str = "<property>") -> list[ast.Property]:
    """Parse one or several properties."""
    return _parse("properties", text, source)


def parse_property_file(text: str, source: str = "<properties>") -> ast.File:
    """Parse a properties file: properties, and constants, formulas and labels for them.

    A property that cannot be read is replaced by its error, in its place among the others.
    """
    try:
        return _parse("property_file", text, source)
    except PrismError:
        return ast.File.of("", tuple(item for s in statements(text) for item in _statement(s, text, source)))


def _statement(statement: Statement, text: str, source: str) -> tuple[object, ...]:
    """The items of one statement of a properties file, or its error."""
    try:
        found = _parse("property_file", statement.padded(text), source)
    except PrismError as error:
        if statement.is_declaration:
            raise error.located(source, text) from None
        return (error.located(source, text),)
    return (*found.constants, *found.formulas, *found.labels, *found.properties)


def parse_expression(text: str, source: str = "<expression>") -> ast.Expression:
    """Parse a single expression."""
    return _parse("expression", text, source)


def _parse(start: str, text: str, source: str) -> Any:
    try:
        return _lark().parse(text, start=start)
    except PrismError as error:
        raise error.located(source, text) from None
    except UnexpectedCharacters as error:
        reason = f"unexpected character {text[error.pos_in_stream or 0]!r}"
        raise PrismError(reason, Position(error.line, error.column), source, text) from None
    except UnexpectedToken as error:
        reason = _unsupported(error, start, text) or _unexpected(error)
        raise PrismError(reason, _end_aware(error, text), source, text) from None


#: Operators for the number of a property; only the one in front of it is supported.
_OPERATOR = re.compile(r"[PR](max|min)*")
#: a property within a text that begins with something else
_PROPERTY = re.compile(r"(?<!\w)([PR](max|min)*(\s*\{[^}]*\})?\s*(max|min)*\s*(=\s*\?|[<>])|[AE]\s*\[)")
#: operators between properties
_BETWEEN = set("+ - * / ^ = != < <= > >= & | => <=> ?".split())
#: tokens that begin an expression, and a text that is only the name of a property
_TERMS, _NAME_ALONE = ("NUMBER", "LEFT_PAREN", "NOT", "MINUS", "MIN", "MAX"), re.compile(r'\s*"\w+"\s*')
OVER_ANSWERS = (
    "arithmetic and logic over properties are not supported: answer each of them by itself and combine the bounds "
    "(1 - Pmax=? [ F a ] is Pmin=? [ G !a ])"
)


def _unsupported(error: UnexpectedToken, start: str, text: str) -> str:
    """The message for a construct that is valid but not supported; empty if the text is wrong."""
    token, before = str(error.token), text[: error.token.start_pos or 0]
    if start == "model" and token == "{" and not before.strip():
        return (
            "this looks like a JANI file; only the PRISM language and DRN are read "
            "(storm --jani FILE --exportbuild model.drn writes DRN)"
        )
    if start == "model":
        return ""
    if _OPERATOR.fullmatch(token) and before.strip():
        return (
            f"the operator {token[0]} within a formula is not supported: answer it first, and use a label or a formula "
            "for the states where it holds"
        )
    if token == "|" and before.endswith("|"):
        return "conditional probabilities, P=? [ a || b ], are not supported: divide P=? [ a & b ] by P=? [ b ]"
    if token == "<" and not before.strip():
        return "coalitions of players, <<…>>, are not supported"
    operator = re.search(r"(?<!\w)(A|E|LTL)\s*$", before) if token == "[" else None
    if operator is not None:
        return UNSUPPORTED_OPERATORS[operator[1]]
    begins = not before.strip() and error.token.type in _TERMS
    joins = token in _BETWEEN and before.rstrip().endswith(("]", ")", '"'))
    is_about_properties = _PROPERTY.search(text) or _NAME_ALONE.fullmatch(before)
    return OVER_ANSWERS if (begins or joins) and is_about_properties else ""


def _unexpected(error: UnexpectedToken) -> str:
    token = error.token
    accepted = error.accepts or error.expected
    if token in UNSUPPORTED_OPERATORS:
        return UNSUPPORTED_OPERATORS[str(token)]
    if token.type in ("X", "F", "G") and "LEFT_PAREN" in accepted:
        return f"unexpected '{token}': a path operator within a formula needs its own brackets, ({token} …)"
    if token.type in ("U", "W", "R") and "RIGHT_BRACKET" in accepted:
        return f"unexpected '{token}': put brackets around one of the two path operators, as in (a {token} b) {token} c"
    got = "end of the text" if token.type == "$END" else f"'{token}'"
    if token.type in KEYWORDS.values():
        got += " (a reserved word of the PRISM language)"
    names = sorted(TOKEN_NAMES.get(name, name) for name in accepted)
    return f"unexpected {got}; expected {'one of ' if len(names) > 1 else ''}{listed(names)}"


def _end_aware(error: UnexpectedToken, text: str) -> Position:
    if error.token.type == "$END":
        lines = text.rstrip().splitlines() or [""]
        return Position(len(lines), len(lines[-1]) + 1)
    return Position(error.line, error.column)


def _word(token: Token) -> Token:
    """Turn reserved words into their tokens, and refuse those that are unsupported."""
    word = str(token)
    if word in UNSUPPORTED:
        raise PrismError(f"'{word}': {UNSUPPORTED[word]}", at(token))
    if word in KEYWORDS:
        return Token.new_borrow_pos(KEYWORDS[word], word, token)
    return token


@cache
def _lark() -> Lark:
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        start=["model", "properties", "property_file", "expression"],
        transformer=_Builder(),
        lexer_callbacks={"NAME": _word},
    )


def at(child: Any) -> Position:
    """The position of a token or a node."""
    return Position(child.line or 1, child.column or 1) if isinstance(child, Token) else child.position


def _plain(child: Any) -> Any:
    """The text of a token, without quotes and primes."""
    return child.strip("\"'").strip() if isinstance(child, Token) else child


def _placed(kind: Callable[..., Any]) -> Callable[..., Any]:
    """A rule whose children are the fields of its node, positioned at the first of them."""
    return lambda _builder, *children: kind(at(children[0]), *map(_plain, children))


def _marked(kind: Callable[..., Any]) -> Callable[..., Any]:
    """The same if the first child only marks the position of the node."""
    return lambda _builder, mark, *children: kind(at(mark), *map(_plain, children))


def _items(_builder: Any, *children: Any) -> tuple[Any, ...]:
    return tuple(map(_plain, children))


@v_args(inline=True)
class _Builder(Transformer):
    """Builds the tree bottom-up while lark parses (no recursion: nesting cannot overflow Python's stack here)."""

    name, label_name, formula = _placed(ast.Name), _placed(ast.LabelName), _placed(ast.Formula)
    label, assignment = _placed(ast.Label), _placed(ast.Assignment)
    init_block, interval_update = _marked(ast.InitialStates), _marked(ast.ParsedUpdate)
    updates, pair, bounded, properties = _items, _items, _items, _items

    # -- expressions ----------------------------------------------------------------------------------------------
    def number(self, token: Token) -> ast.Expression:
        text = str(token)
        mantissa, _, exponent = text.lower().partition("e")
        if len(mantissa) > MAX_DIGITS or len(exponent) > 6 or (exponent and abs(int(exponent)) > MAX_EXPONENT):
            raise PrismError(f"number '{text[:40]}' is out of range", at(token))
        return ast.Literal(at(token), int(text) if text.isdigit() else Fraction(text))

    def boolean_value(self, token: Token) -> ast.Expression:
        return ast.Literal(at(token), token == "true")

    def prefix(self, token: Token, argument: ast.Expression) -> ast.Expression:
        return ast.Apply(at(token), "neg" if token == "-" else "!", (argument,))

    def binary(self, left: ast.Expression, operator: Token, right: ast.Expression) -> ast.Expression:
        return ast.Apply(at(operator), "pow" if operator == "^" else str(operator), (left, right))

    def chain(self, *items: Any) -> ast.Expression:
        return ast.Apply(at(items[1]), str(items[1]), tuple(items[::2]))

    def total(self, *items: Any) -> ast.Expression:
        terms = [items[0]]
        for operator, term in zip(items[1::2], items[2::2], strict=True):
            terms.append(term if operator == "+" else ast.Apply(at(operator), "neg", (term,)))
        return ast.Apply(at(items[1]), "+", tuple(terms))

    def scaled(self, *items: Any) -> ast.Expression:
        # a * b / c * d: flat products, each division applies to everything to its left.
        factors, position = [items[0]], at(items[1])
        for operator, factor in zip(items[1::2], items[2::2], strict=True):
            if operator == "*":
                factors.append(factor)
            else:
                left = factors[0] if len(factors) == 1 else ast.Apply(position, "*", tuple(factors))
                factors = [ast.Apply(at(operator), "/", (left, factor))]
        return factors[0] if len(factors) == 1 else ast.Apply(position, "*", tuple(factors))

    def conditional(self, test: Any, token: Token, yes: Any, no: Any) -> ast.Expression:
        return ast.Apply(at(token), "?:", (test, yes, no))

    def call(self, function: Token, *arguments: ast.Expression) -> ast.Expression:
        if function == "log":
            raise PrismError(
                "'log' is not supported: probabilities and rewards are exact rational numbers", at(function)
            )
        if str(function) not in ARGUMENTS:
            raise PrismError(f"unknown function '{function}'", at(function))
        low, high = ARGUMENTS[str(function)]
        if not low <= len(arguments) <= high:
            raise PrismError(f"'{function}' takes {low} argument(s), {len(arguments)} given", at(function))
        return ast.Apply(at(function), str(function), arguments)

    # -- declarations ---------------------------------------------------------------------------------------------
    def constant(self, kind: Token | None, name: Token, value: Any) -> ast.Constant:
        return ast.Constant(at(name), str(name), str(kind or "int"), value)

    def boolean(self, _word: Token) -> tuple[None, None]:
        return None, None

    def unbounded(self, word: Token) -> None:
        raise PrismError("unbounded 'int' variables are not supported: give a range [low..high]", at(word))

    def variable(self, name: Token, bounds: tuple[Any, Any], _init: Token | None, initial: Any) -> ast.Variable:
        return ast.Variable(at(name), str(name), bounds, initial)

    def action(self, left: Token, name: Token | None) -> tuple[Position, str | None]:
        return at(left), _plain(name)

    def assignments(self, *items: Any) -> tuple[ast.Assignment, ...]:
        return tuple(i for i in items if not isinstance(i, Token))  # the word true means none

    def certain_update(self, assignments: tuple[ast.Assignment, ...]) -> ast.ParsedUpdate:
        return ast.ParsedUpdate(at(assignments[0]) if assignments else NOWHERE, None, None, assignments)

    def likely_update(self, chance: ast.Expression, assignments: tuple[ast.Assignment, ...]) -> ast.ParsedUpdate:
        return ast.ParsedUpdate(at(chance), chance, None, assignments)

    def command(self, action: tuple[Position, str | None], guard: Any, updates: Any) -> ast.ParsedCommand:
        return ast.ParsedCommand(*action, guard, updates)

    def module(self, name: Token, *items: Any) -> ast.Module:
        variables = tuple(i for i in items if isinstance(i, ast.Variable))
        commands = tuple(i for i in items if isinstance(i, ast.ParsedCommand))
        return ast.Module(at(name), str(name), variables, commands)

    def renaming(self, name: Token, base: Token, *pairs: tuple[str, str]) -> ast.Renaming:
        return ast.Renaming(at(name), str(name), str(base), pairs)

    def reward_item(self, action: tuple[Position, str | None] | None, guard: Any, value: Any) -> ast.ParsedRewardItem:
        position, name = action or (guard.position, None)
        return ast.ParsedRewardItem(position, action is not None, name, guard, value)

    def rewards(self, word: Token, name: Token | None, *items: ast.ParsedRewardItem) -> ast.ParsedRewards:
        return ast.ParsedRewards(at(word), _plain(name), items)

    def model(self, *items: Any) -> ast.File:
        kinds = [i for i in items if isinstance(i, Token)]
        if len(kinds) > 1:
            raise PrismError("the model type is given twice", at(kinds[1]))
        is_chain = bool(kinds) and kinds[0] in ("dtmc", "idtmc", "probabilistic")
        return ast.File.of("dtmc" if is_chain else "mdp", items)

    def property_file(self, *items: Any) -> ast.File:
        return ast.File.of("", items)

    # -- paths ----------------------------------------------------------------------------------------------------
    def bound(self, operator: Token, value: Any) -> dict[str, Any]:
        if operator == "=":
            return self.window(value, value)
        side = "high" if operator in ("<", "<=") else "low"
        return {side: value, f"strict_{side}": operator in ("<", ">")}

    def window(self, low: Any, high: Any) -> dict[str, Any]:
        return {"low": low, "high": high}

    def unary_path(self, operator: Token, bound: dict[str, Any] | None, argument: Any) -> ast.Expression:
        if operator == "X" and bound:
            raise PrismError("the path operator 'X' takes no bound", at(operator))
        return ast.Temporal(at(operator), str(operator), (argument,), **bound or {})

    def binary_path(self, left: Any, operator: Token, bound: dict[str, Any] | None, right: Any) -> ast.Expression:
        return ast.Temporal(at(operator), str(operator), (left, right), **bound or {})

    def reward_until(self, path: Any) -> ast.RewardPath:
        if not (isinstance(path, ast.Temporal) and path.operator == "F" and path.low is path.high is None):
            raise PrismError("a reward needs one of: F target, Fc target, C, C<=k or I=k", path.position)
        return ast.RewardPath("F", path.right)

    def named_reward_until(self, name: Token, target: Any) -> ast.RewardPath:
        if name != "Fc":
            raise PrismError(f"unknown path operator '{name}' (F, Fc, C, C<=k and I=k are known)", at(name))
        return ast.RewardPath("Fc", target)

    def cumulative(self, kind: Token, operator: Token | None, bound: Any) -> ast.RewardPath:
        return ast.RewardPath(str(kind), None, bound, operator == "<")

    def steady_state(self, word: Token, *rest: Any) -> None:
        raise PrismError(f"the steady-state {'operator' if rest else 'reward'} 'S' is not supported", at(word))

    # -- properties -----------------------------------------------------------------------------------------------
    def probability_operator(self, *tokens: Token) -> dict[str, Any]:
        return {"quantity": "P", "reward": None, "position": at(tokens[0]), **_senses(tokens)}

    def reward_operator(self, *items: Any) -> dict[str, Any]:
        tokens = tuple(i for i in items if isinstance(i, Token))
        index = next((i for i in items if isinstance(i, ast.Expression)), None)
        reward = getattr(index, "name" if isinstance(index, ast.LabelName) else "value", None)
        if index is not None and type(reward) not in (str, int):
            raise PrismError("a reward structure must be given by name or number", index.position)
        return {"quantity": "R", "reward": reward, "position": at(tokens[0]), **_senses(tokens)}

    def question(self, operator: Token, *threshold: Any) -> dict[str, Any]:
        return {"comparison": str(operator), "threshold": threshold[0]} if threshold else {}

    def probability(self, operator: dict, question: dict, path: Any, *filters: Any) -> ast.Property:
        return ast.Property(**operator, **question, path=path, filter=_old_filter(filters, question))

    reward = probability

    def filtered(self, name: Token, found: ast.Property, states: Any = None) -> ast.Property:
        if found.filter is not None:
            raise PrismError("a filter within a filter is not supported", at(name))
        return replace(found, filter=(str(name), states))

    def filtered_implication(
        self, name: Token, premise: Any, sign: Token, found: Any, more: Any = None
    ) -> ast.Property:
        """For all states: those that satisfy the premise have the property."""
        if name not in ("forall", "&"):
            raise PrismError(f"the filter '{name}' of an implication is not supported (forall is)", at(sign))
        return self.filtered(name, found, premise if more is None else ast.Apply(at(sign), "&", (premise, more)))

    def filtered_formula(self, name: Token, formula: Any, states: Any = None) -> ast.Property:
        """A formula holds iff it is surely reached within zero steps."""
        path = ast.Temporal(formula.position, "F", (formula,), high=ast.Literal(formula.position, 0))
        found = ast.Property(formula.position, "P", "", "", None, path, ">=", ast.Literal(formula.position, 1))
        return self.filtered(name, found, states)

    def property(self, name: Token | None, found: ast.Property) -> ast.Property:
        return replace(found, name=_plain(name))


def _old_filter(items: tuple[Any, ...], question: dict[str, Any]) -> tuple[str, Any] | None:
    """``{states}{min}`` at the end of a path, as in older files."""
    if not items:
        return None
    states = next((i for i in items if isinstance(i, ast.Expression)), None)
    names = [i for i in items if isinstance(i, Token)]
    if states is None or len(names) > 1 or len(items) > 1 + len(names):
        place = at(names[0]) if names else items[0].position
        raise PrismError("one filter {states}{min} or {states}{max} expected", place)
    return (str(names[0]) if names else "forall" if question else "state"), states


def _senses(tokens: tuple[Token, ...]) -> dict[str, str]:
    """The agent's sense and nature's: ``max`` and ``min`` of ``Pmaxmin``."""
    found = [w for t in tokens if (w := str(t)[1:] if str(t)[:1] in "PR" else str(t)) in _SENSES]
    if len(found) > 1:
        raise PrismError("both 'max' and 'min' in one operator", at(tokens[0]))
    word = found[0] if found else ""
    return {"sense": word[:3], "nature": word[3:]}
