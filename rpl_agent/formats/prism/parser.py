"""Text to syntax tree, by an LALR parser of lark. Every failure is a `PrismError` with line and column."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from rpl_agent.formats.prism import syntax as ast
from rpl_agent.formats.prism.errors import Position, PrismError
from rpl_agent.formats.prism.grammar import GRAMMAR, KEYWORDS, TOKEN_NAMES, UNSUPPORTED, declared_keywords

# A literal such as 1e999999999 would be an exact integer of a billion digits.
MAX_EXPONENT = 300
MAX_DIGITS = 300


def parse_model(text: str, source: str = "<text>") -> ast.ModelFile:
    """Parse a whole PRISM model file."""
    return _parse("model", text, source)


def parse_properties(text: str, source: str = "<property>") -> list[ast.Property]:
    """Parse one or several properties."""
    return _parse("properties", text, source)


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
    got = "end of the text" if token.type == "$END" else f"'{token}'"
    if token.type in KEYWORDS.values():
        got += " (a reserved word of the PRISM language)"
    names = sorted(TOKEN_NAMES.get(name, name) for name in error.accepts or error.expected)
    expected = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"unexpected {got}; expected {'one of ' if len(names) > 1 else ''}{expected}"


def _end_aware(error: UnexpectedToken, text: str) -> Position:
    if error.token.type == "$END":
        lines = text.rstrip().splitlines() or [""]
        return Position(len(lines), len(lines[-1]) + 1)
    return Position(error.line, error.column)


def _word(token: Token) -> Token:
    """Turn reserved words into their tokens, and refuse by name those that have no meaning here."""
    word = str(token)
    if word in UNSUPPORTED:
        raise PrismError(f"'{word}': {UNSUPPORTED[word]}", _at(token))
    if word in KEYWORDS:
        return Token.new_borrow_pos(KEYWORDS[word], word, token)
    return token


@cache
def _lark() -> Lark:
    return Lark(
        GRAMMAR + declared_keywords(),
        parser="lalr",
        lexer="basic",
        start=["model", "properties", "expression"],
        transformer=_Builder(),
        lexer_callbacks={"NAME": _word},
        maybe_placeholders=False,
    )


def _at(token: Token) -> Position:
    return Position(token.line or 1, token.column or 1)


def _number(token: Token) -> ast.Number:
    text = str(token)
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 6 or (exponent and abs(int(exponent)) > MAX_EXPONENT):
        raise PrismError(f"number '{text[:40]}' is out of range", _at(token))
    return ast.Number(_at(token), Fraction(text), text.isdigit())


@v_args(inline=True)
class _Builder(Transformer):
    """Builds the tree bottom-up while lark parses (no recursion: nesting cannot overflow Python's stack here)."""

    # -- expressions ----------------------------------------------------------------------------------------------
    def number(self, token: Token) -> ast.Expression:
        return _number(token)

    def boolean_value(self, token: Token) -> ast.Expression:
        return ast.Boolean(_at(token), token == "true")

    def name(self, token: Token) -> ast.Expression:
        return ast.Name(_at(token), str(token))

    def label_name(self, token: Token) -> ast.Expression:
        return ast.LabelName(_at(token), token[1:-1])

    def parenthesis(self, _left: Token, inner: ast.Expression, _right: Token) -> ast.Expression:
        return inner

    def prefix(self, token: Token, argument: ast.Expression) -> ast.Expression:
        return ast.Apply(_at(token), "neg" if token == "-" else "!", (argument,))

    def binary(self, left: ast.Expression, operator: Token, right: ast.Expression) -> ast.Expression:
        return ast.Apply(_at(operator), str(operator), (left, right))

    def chain(self, *items: Any) -> ast.Expression:
        return ast.Apply(_at(items[1]), str(items[1]), tuple(items[::2]))

    def total(self, *items: Any) -> ast.Expression:
        terms = [items[0]]
        for operator, term in zip(items[1::2], items[2::2], strict=True):
            terms.append(term if operator == "+" else ast.Apply(_at(operator), "neg", (term,)))
        return ast.Apply(_at(items[1]), "+", tuple(terms))

    def scaled(self, *items: Any) -> ast.Expression:
        # a * b / c * d: flat products, each division closing what stands to its left.
        factors, position = [items[0]], _at(items[1])
        for operator, factor in zip(items[1::2], items[2::2], strict=True):
            if operator == "*":
                factors.append(factor)
            else:
                left = factors[0] if len(factors) == 1 else ast.Apply(position, "*", tuple(factors))
                factors = [ast.Apply(_at(operator), "/", (left, factor))]
        return factors[0] if len(factors) == 1 else ast.Apply(position, "*", tuple(factors))

    def conditional(self, test: Any, token: Token, yes: Any, _colon: Token, no: Any) -> ast.Expression:
        return ast.Apply(_at(token), "?:", (test, yes, no))

    def function_name(self, token: Token) -> Token:
        return token

    old_function_name = function_name

    def call(self, function: Token, *items: Any) -> ast.Expression:
        if function == "log":
            raise PrismError(
                "'log' is not supported: probabilities and rewards are exact rational numbers", _at(function)
            )
        arguments = tuple(items[1::2])
        low, high = {"pow": (2, 2), "mod": (2, 2), "min": (1, 10**6), "max": (1, 10**6)}.get(str(function), (1, 1))
        if not low <= len(arguments) <= high:
            raise PrismError(f"'{function}' takes {low} argument(s), {len(arguments)} given", _at(function))
        return ast.Apply(_at(function), str(function), arguments)

    def old_call(self, _func: Token, _left: Token, function: Token, *items: Any) -> ast.Expression:
        if str(function) not in ("pow", "mod", "floor", "ceil", "round", "log", "min", "max"):
            raise PrismError(f"unknown function '{function}'", _at(function))
        return self.call(function, *items)

    # -- declarations ---------------------------------------------------------------------------------------------
    def model_type(self, token: Token) -> tuple[str, Position]:
        return ("mdp" if token in ("mdp", "nondeterministic") else "dtmc"), _at(token)

    def constant_type(self, token: Token) -> str:
        return str(token)

    def constant(self, *items: Any) -> ast.Constant:
        kind = items[1] if type(items[1]) is str else "int"
        name = next(i for i in items if isinstance(i, Token) and i.type == "NAME")
        value = next((i for i in items if isinstance(i, ast.Expression)), None)
        return ast.Constant(str(name), kind, value, _at(name))

    def formula(self, _w: Token, name: Token, _eq: Token, value: Any, _end: Token) -> ast.Formula:
        return ast.Formula(str(name), value, _at(name))

    def label(self, _w: Token, name: Token, _eq: Token, value: Any, _end: Token) -> ast.Label:
        return ast.Label(name[1:-1], value, _at(name))

    def init_block(self, word: Token, _value: Any, _end: Token) -> None:
        raise PrismError("'init … endinit' is not supported: give every variable one initial value", _at(word))

    def bounded(self, _left: Token, low: Any, _dots: Token, high: Any, _right: Token) -> tuple[Any, Any]:
        return low, high

    def boolean(self, _word: Token) -> tuple[None, None]:
        return None, None

    def unbounded(self, word: Token) -> None:
        raise PrismError("unbounded 'int' variables are not supported: give a range [low..high]", _at(word))

    def initial(self, _word: Token, value: Any) -> Any:
        return value

    def variable(self, name: Token, _colon: Token, bounds: tuple[Any, Any], *rest: Any) -> ast.Variable:
        initial = rest[0] if isinstance(rest[0], ast.Expression) else None
        return ast.Variable(str(name), bounds[0], bounds[1], initial, _at(name))

    def global_variable(self, _word: Token, variable: ast.Variable) -> ast.Variable:
        return variable

    def action(self, left: Token, *rest: Token) -> tuple[str | None, Position]:
        return (str(rest[0]) if len(rest) == 2 else None), _at(left)

    def assignment(self, _left: Token, name: Token, _eq: Token, value: Any, _right: Token) -> ast.Assignment:
        return ast.Assignment(name.rstrip("'").strip(), value, _at(name))

    def assignments(self, *items: Any) -> tuple[ast.Assignment, ...]:
        return tuple(i for i in items if isinstance(i, ast.Assignment))

    def certain_update(self, assignments: tuple[ast.Assignment, ...]) -> ast.Update:
        return ast.Update(None, assignments, assignments[0].position if assignments else Position(1, 1))

    def likely_update(self, probability: Any, _colon: Token, assignments: tuple[ast.Assignment, ...]) -> ast.Update:
        return ast.Update(probability, assignments, probability.position)

    def updates(self, *items: Any) -> tuple[ast.Update, ...]:
        return tuple(i for i in items if isinstance(i, ast.Update))

    def command(self, action: Any, guard: Any, _arrow: Token, updates: Any, _end: Token) -> ast.Command:
        return ast.Command(action[0], guard, updates, action[1])

    def module(self, _word: Token, name: Token, *items: Any) -> ast.Module:
        variables = tuple(i for i in items if isinstance(i, ast.Variable))
        commands = tuple(i for i in items if isinstance(i, ast.Command))
        return ast.Module(str(name), variables, commands, _at(name))

    def pair(self, old: Token, _eq: Token, new: Token) -> tuple[str, str]:
        return str(old), str(new)

    def renaming(self, _word: Token, name: Token, _eq: Token, base: Token, *rest: Any) -> ast.Renaming:
        return ast.Renaming(str(name), str(base), tuple(r for r in rest if type(r) is tuple), _at(name))

    def reward_item(self, *items: Any) -> ast.RewardItem:
        on_transition = type(items[0]) is tuple
        guard, value = (i for i in items if isinstance(i, ast.Expression))
        action, position = items[0] if on_transition else (None, guard.position)
        return ast.RewardItem(on_transition, action, guard, value, position)

    def rewards(self, word: Token, *items: Any) -> ast.Rewards:
        name = next((i[1:-1] for i in items if isinstance(i, Token) and i.type == "STRING"), None)
        return ast.Rewards(name, tuple(i for i in items if isinstance(i, ast.RewardItem)), _at(word))

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
            of(ast.Rewards),
        )

    # -- properties -----------------------------------------------------------------------------------------------
    def probability_operator(self, *tokens: Token) -> tuple[str, str | None, Position]:
        return _sense(tokens), None, _at(tokens[0])

    def reward_operator(self, *tokens: Token) -> tuple[str, str | None, Position]:
        name = next((t[1:-1] for t in tokens if t.type == "STRING"), None)
        return _sense(tokens), name, _at(tokens[0])

    def comparison(self, token: Token) -> Token:
        return token

    def threshold(self, operator: Any, _comparison: Token, *_rest: Any) -> None:
        raise PrismError("only queries with '=?' are supported, not comparisons with a threshold", operator[2])

    def bound(self, operator: Token, value: Any) -> tuple[Any, bool]:
        return value, operator == "<"

    def eventually(self, _f: Token, *items: Any) -> tuple[str, Any, Any, Any, bool]:
        bound, strict = items[0] if len(items) == 2 else (None, False)
        return "F", None, items[-1], bound, strict

    def until(self, left: Any, _u: Token, *items: Any) -> tuple[str, Any, Any, Any, bool]:
        bound, strict = items[0] if len(items) == 2 else (None, False)
        return "U", left, items[-1], bound, strict

    def reward_until(self, _f: Token, target: Any) -> tuple[str, Any, Any, Any, bool]:
        return "F", None, target, None, False

    def cumulative(self, _c: Token, _op: Token, bound: Any) -> tuple[str, Any, Any, Any, bool]:
        return "C", None, None, bound, False

    def total_reward(self, word: Token) -> None:
        raise PrismError("the total reward 'C' without a bound is not supported: use F target or C<=k", _at(word))

    def other_path(self, *items: Any) -> None:
        word = next(i for i in items if isinstance(i, Token))
        raise PrismError(f"the path operator '{word}' is not supported (F, U, F<=k, U<=k and C<=k are)", _at(word))

    def probability(self, operator: Any, _q: Token, _l: Token, path: Any, _r: Token) -> ast.Property:
        kind, left, right, bound, strict = path
        return ast.Property("P", operator[0], None, kind, left, right, bound, strict, operator[2])

    def reward(self, operator: Any, _q: Token, _l: Token, path: Any, _r: Token) -> ast.Property:
        kind, left, right, bound, strict = path
        return ast.Property("R", operator[0], operator[1], kind, left, right, bound, strict, operator[2])

    def property(self, *items: Any) -> ast.Property:
        found = next(i for i in items if isinstance(i, ast.Property))
        name = items[0][1:-1] if isinstance(items[0], Token) and items[0].type == "STRING" else None
        return ast.Property(**{**found.__dict__, "name": name})

    def properties(self, *items: ast.Property) -> list[ast.Property]:
        return list(items)


def _sense(tokens: tuple[Token, ...]) -> str:
    words = [str(t) for t in tokens]
    senses = {w[-3:] for w in words if w in ("max", "min", "Pmax", "Pmin", "Rmax", "Rmin")}
    if len(senses) > 1:
        raise PrismError("both 'max' and 'min' in one operator", _at(tokens[0]))
    return senses.pop() if senses else ""
