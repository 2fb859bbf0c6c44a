"""Text to syntax tree, by an LALR parser of lark. Every failure is a `PrismError` with line and column."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any

from lark import Lark, Token, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from rpl_agent.errors import listed
from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.build_properties import PropertyBuilder, at
from rpl_agent.formats.prism.language.errors import Position, PrismError
from rpl_agent.formats.prism.language.grammar import (
    GRAMMAR,
    KEYWORDS,
    TOKEN_NAMES,
    UNSUPPORTED,
    UNSUPPORTED_OPERATORS,
    declared_keywords,
)
from rpl_agent.formats.prism.language.statements import Statement, statements

# A literal such as 1e999999999 would be an exact integer of a billion digits.
MAX_EXPONENT = 300
MAX_DIGITS = 300


def parse_model(text: str, source: str = "<text>") -> ast.ModelFile:
    """Parse a whole PRISM model file."""
    return _parse("model", text, source)


def parse_properties(text: str, source: str = "<property>") -> list[ast.Property]:
    """Parse one or several properties."""
    return _parse("properties", text, source)


def parse_property_file(text: str, source: str = "<properties>") -> ast.PropertyFile:
    """Parse a properties file: properties, and constants, formulas and labels for them.

    A property that cannot be read is kept as the error that says why, in its place among the others.
    """
    try:
        return _parse("property_file", text, source)
    except PrismError:
        parts = [_statement(s, text, source) for s in statements(text)]
    of = [list(chain.from_iterable(column)) for column in zip(*parts, strict=True)]
    return ast.PropertyFile(*(tuple(items) for items in of))


def _statement(statement: Statement, text: str, source: str) -> tuple[tuple[Any, ...], ...]:
    """(constants, formulas, labels, properties) of one statement."""
    try:
        found = _parse("property_file", statement.padded(text), source)
    except PrismError as error:
        if statement.is_declaration:
            raise error.located(source, text) from None
        return (), (), (), (error.located(source, text),)
    return found.constants, found.formulas, found.labels, found.properties


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
        raise PrismError(_unexpected(error), _end_aware(error, text), source, text) from None
    except UnexpectedInput as error:  # pragma: no cover - the two cases above are all that LALR raises
        raise PrismError(str(error).splitlines()[0], Position(error.line, error.column), source, text) from None


def _unexpected(error: UnexpectedToken) -> str:
    token = error.token
    accepted = error.accepts or error.expected
    if token in UNSUPPORTED_OPERATORS:
        return f"'{token}': the operator {token} is not supported"
    if token.type in ("X", "F", "G") and "LEFT_PAREN" in accepted:
        return f"unexpected '{token}': a path operator within a formula stands in brackets of its own, ({token} …)"
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
    """Turn reserved words into their tokens, and refuse by name those that have no meaning here."""
    word = str(token)
    if word in UNSUPPORTED:
        raise PrismError(f"'{word}': {UNSUPPORTED[word]}", at(token))
    if word in KEYWORDS:
        return Token.new_borrow_pos(KEYWORDS[word], word, token)
    return token


@cache
def _lark() -> Lark:
    return Lark(
        GRAMMAR + declared_keywords(),
        parser="lalr",
        lexer="basic",
        start=["model", "properties", "property_file", "expression"],
        transformer=_Builder(),
        lexer_callbacks={"NAME": _word},
        maybe_placeholders=False,
    )


def _number(token: Token) -> ast.NumberLiteral:
    text = str(token)
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 6 or (exponent and abs(int(exponent)) > MAX_EXPONENT):
        raise PrismError(f"number '{text[:40]}' is out of range", at(token))
    is_integer = text.isdigit()
    return ast.NumberLiteral(at(token), Fraction(int(text) if is_integer else text), is_integer)


@v_args(inline=True)
class _Builder(PropertyBuilder):
    """Builds the tree bottom-up while lark parses (no recursion: nesting cannot overflow Python's stack here)."""

    # -- expressions ----------------------------------------------------------------------------------------------
    def number(self, token: Token) -> ast.Expression:
        return _number(token)

    def boolean_value(self, token: Token) -> ast.Expression:
        return ast.Boolean(at(token), token == "true")

    def name(self, token: Token) -> ast.Expression:
        return ast.Name(at(token), str(token))

    def label_name(self, token: Token) -> ast.Expression:
        return ast.LabelName(at(token), token[1:-1])

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
        # a * b / c * d: flat products, each division closing what stands to its left.
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
        low, high = {"pow": (2, 2), "mod": (2, 2), "min": (1, 10**6), "max": (1, 10**6)}.get(str(function), (1, 1))
        if not low <= len(arguments) <= high:
            raise PrismError(f"'{function}' takes {low} argument(s), {len(arguments)} given", at(function))
        return ast.Apply(at(function), str(function), arguments)

    def old_call(self, function: Token, *arguments: ast.Expression) -> ast.Expression:
        if str(function) not in ("pow", "mod", "floor", "ceil", "round", "log", "min", "max"):
            raise PrismError(f"unknown function '{function}'", at(function))
        return self.call(function, *arguments)

    # -- declarations ---------------------------------------------------------------------------------------------
    def model_type(self, token: Token) -> tuple[str, Position]:
        return ("mdp" if token in ("mdp", "imdp", "nondeterministic") else "dtmc"), at(token)

    def constant(self, _word: Token, *items: Any) -> ast.Constant:
        value = items[-1] if isinstance(items[-1], ast.Expression) else None
        *kind, name = items if value is None else items[:-1]
        return ast.Constant(str(name), str(kind[0]) if kind else "int", value, at(name))

    def formula(self, _word: Token, name: Token, value: Any) -> ast.Formula:
        return ast.Formula(str(name), value, at(name))

    def label(self, _word: Token, name: Token, value: Any) -> ast.Label:
        return ast.Label(name[1:-1], value, at(name))

    def init_block(self, word: Token, value: Any) -> ast.InitialStates:
        return ast.InitialStates(value, at(word))

    def bounded(self, low: Any, high: Any) -> tuple[Any, Any]:
        return low, high

    def boolean(self, _word: Token) -> tuple[None, None]:
        return None, None

    def unbounded(self, word: Token) -> None:
        raise PrismError("unbounded 'int' variables are not supported: give a range [low..high]", at(word))

    def variable(self, name: Token, bounds: tuple[Any, Any], *initial: Any) -> ast.Variable:
        return ast.Variable(str(name), *bounds, initial[1] if initial else None, at(name))

    def action(self, left: Token, *rest: Token) -> tuple[str | None, Position]:
        return (str(rest[0]) if len(rest) == 2 else None), at(left)

    def assignment(self, name: Token, value: Any) -> ast.Assignment:
        return ast.Assignment(name.rstrip("'").strip(), value, at(name))

    def assignments(self, *items: Any) -> tuple[ast.Assignment, ...]:
        return tuple(i for i in items if isinstance(i, ast.Assignment))

    def certain_update(self, assignments: tuple[ast.Assignment, ...]) -> ast.ParsedUpdate:
        return ast.ParsedUpdate(None, assignments, assignments[0].position if assignments else Position(1, 1))

    def interval(self, left: Token, low: Any, _comma: Token, high: Any, _right: Token) -> tuple[Any, Any, Position]:
        return low, high, at(left)

    def likely_update(self, chance: Any, assignments: tuple[ast.Assignment, ...]) -> ast.ParsedUpdate:
        if type(chance) is tuple:
            return ast.ParsedUpdate(chance[0], assignments, chance[2], chance[1])
        return ast.ParsedUpdate(chance, assignments, chance.position)

    def updates(self, *items: ast.ParsedUpdate) -> tuple[ast.ParsedUpdate, ...]:
        return items

    def command(self, action: Any, guard: Any, updates: Any) -> ast.ParsedCommand:
        return ast.ParsedCommand(action[0], guard, updates, action[1])

    def module(self, name: Token, *items: Any) -> ast.Module:
        variables = tuple(i for i in items if isinstance(i, ast.Variable))
        commands = tuple(i for i in items if isinstance(i, ast.ParsedCommand))
        return ast.Module(str(name), variables, commands, at(name))

    def pair(self, old: Token, new: Token) -> tuple[str, str]:
        return str(old), str(new)

    def renaming(self, name: Token, base: Token, *pairs: tuple[str, str]) -> ast.Renaming:
        return ast.Renaming(str(name), str(base), pairs, at(name))

    def reward_item(self, *items: Any) -> ast.ParsedRewardItem:
        on_transition = type(items[0]) is tuple
        guard, value = (i for i in items if isinstance(i, ast.Expression))
        action, position = items[0] if on_transition else (None, guard.position)
        return ast.ParsedRewardItem(on_transition, action, guard, value, position)

    def rewards(self, word: Token, *items: Any) -> ast.ParsedRewards:
        name = next((i[1:-1] for i in items if isinstance(i, Token) and i.type == "STRING"), None)
        return ast.ParsedRewards(name, tuple(i for i in items if isinstance(i, ast.ParsedRewardItem)), at(word))

    def model(self, *items: Any) -> ast.ModelFile:
        kinds = [i for i in items if type(i) is tuple]
        if len(kinds) > 1:
            raise PrismError("the model type is given twice", kinds[1][1])

        def of(*types: type) -> tuple[Any, ...]:
            return tuple(i for i in items if isinstance(i, types))

        return ast.ModelFile(
            kinds[0][0] if kinds else "mdp",
            of(ast.Constant),
            of(ast.Formula),
            of(ast.Label),
            of(ast.Variable),
            of(ast.Module, ast.Renaming),
            of(ast.ParsedRewards),
            of(ast.InitialStates),
        )
