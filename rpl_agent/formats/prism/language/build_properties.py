"""The part of the tree builder that is about properties; mixed into the one of `parser`."""

from __future__ import annotations

from typing import Any

from lark import Token, Transformer, v_args

from rpl_agent.formats.prism.language import syntax as ast
from rpl_agent.formats.prism.language.errors import Position, PrismError

_SENSES = ("max", "min", "maxmax", "maxmin", "minmax", "minmin")


def at(token: Token) -> Position:
    return Position(token.line or 1, token.column or 1)


@v_args(inline=True)
class PropertyBuilder(Transformer):
    """Path operators, P and R operators, filters."""

    # -- paths ----------------------------------------------------------------------------------------------------
    def bound(self, operator: Token, value: Any) -> dict[str, Any]:
        if operator == "=":
            return {"low": value, "high": value}
        side = "high" if operator in ("<", "<=") else "low"
        return {side: value, f"strict_{side}": operator in ("<", ">")}

    def window(self, low: Any, high: Any) -> dict[str, Any]:
        return {"low": low, "high": high}

    def unary_path(self, operator: Token, *items: Any) -> ast.Expression:
        bound = items[0] if len(items) == 2 else {}
        if operator == "X" and bound:
            raise PrismError("the path operator 'X' takes no bound", at(operator))
        return ast.Temporal(at(operator), str(operator), None, items[-1], **bound)

    def binary_path(self, left: Any, operator: Token, *items: Any) -> ast.Expression:
        bound = items[0] if len(items) == 2 else {}
        return ast.Temporal(at(operator), str(operator), left, items[-1], **bound)

    # -- reward paths ---------------------------------------------------------------------------------------------
    def reward_until(self, path: Any) -> ast.RewardPath:
        if not (isinstance(path, ast.Temporal) and path.operator == "F" and not path.is_bounded):
            raise PrismError("a reward is asked for until a target: F target, Fc target, C, C<=k or I=k", path.position)
        return ast.RewardPath("F", path.right)

    def named_reward_until(self, name: Token, target: Any) -> ast.RewardPath:
        if name != "Fc":
            raise PrismError(f"unknown path operator '{name}' (F, Fc, C, C<=k and I=k are known)", at(name))
        return ast.RewardPath("Fc", target)

    def cumulative(self, _c: Token, operator: Token, bound: Any) -> ast.RewardPath:
        return ast.RewardPath("C", bound=bound, strict=operator == "<")

    def total_reward(self, _word: Token) -> ast.RewardPath:
        return ast.RewardPath("C")

    def instant(self, _i: Token, _equal: Token, bound: Any) -> ast.RewardPath:
        return ast.RewardPath("I", bound=bound)

    def steady_reward(self, word: Token) -> None:
        raise PrismError("the steady-state reward 'S' is not supported", at(word))

    def steady_state(self, word: Token, *_rest: Any) -> None:
        raise PrismError("the steady-state operator 'S' is not supported", at(word))

    # -- operators ------------------------------------------------------------------------------------------------
    def probability_operator(self, *tokens: Token) -> dict[str, Any]:
        return {"quantity": "P", "reward": None, "position": at(tokens[0]), **_senses(tokens)}

    def reward_operator(self, *items: Any) -> dict[str, Any]:
        tokens = tuple(i for i in items if isinstance(i, Token))
        number = next((i for i in items if isinstance(i, ast.Expression)), None)
        reward: str | int | None = None
        if isinstance(number, ast.LabelName):
            reward = number.name
        elif isinstance(number, ast.NumberLiteral) and number.is_integer:
            reward = int(number.value)
        elif number is not None:
            raise PrismError("a reward structure is given by its name or its number", number.position)
        return {"quantity": "R", "reward": reward, "position": at(tokens[0]), **_senses(tokens)}

    def question(self, operator: Token, *threshold: Any) -> dict[str, Any]:
        return {"comparison": str(operator), "threshold": threshold[0]} if threshold else {}

    def probability(self, operator: dict, question: dict, path: Any, *filters: Any) -> ast.Property:
        return ast.Property(**operator, **question, path=path, filter=_old_filter(filters, question))

    reward = probability

    def filtered(self, name: Token, found: ast.Property, states: Any = None) -> ast.Property:
        if found.filter is not None:
            raise PrismError("a filter within a filter is not supported", at(name))
        return ast.Property(**{**found.__dict__, "filter": (str(name), states)})

    def property(self, *items: Any) -> ast.Property:
        found = next(i for i in items if isinstance(i, ast.Property))
        name = items[0][1:-1] if isinstance(items[0], Token) and items[0].type == "STRING" else None
        return ast.Property(**{**found.__dict__, "name": name})

    def properties(self, *items: ast.Property) -> list[ast.Property]:
        return list(items)

    def property_file(self, *items: Any) -> ast.PropertyFile:
        def of(kind: type) -> tuple[Any, ...]:
            return tuple(i for i in items if isinstance(i, kind))

        return ast.PropertyFile(of(ast.Constant), of(ast.Formula), of(ast.Label), of(ast.Property))


def _old_filter(items: tuple[Any, ...], question: dict[str, Any]) -> tuple[str, Any] | None:
    """``{states}{min}`` at the end of a path, as older files have it."""
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
