"""A short loop over lark's tables: most of the time to load a small file is the time to parse it.

Grammars of expressions have a level per strength of operators, so that a name is reduced through a dozen rules that
leave it as it is. Here such reductions are looked up together, once per state and token. Text that does not belong to
the language is left to lark, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lark import Lark, Token
from lark.parsers.lalr_analysis import Shift

from rpl_agent.formats.prism.language.grammar import KEYWORDS, UNSUPPORTED

END = "$END"


class NotInLanguage(Exception):
    """The text is refused by the grammar, or holds a word that is refused by name."""


class TableParser:
    """Parses with the tables, terminals and tree builder of a `Lark` object."""

    def __init__(self, lark: Lark):
        terminals = sorted(
            lark.terminals, key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name)
        )
        self._pattern = re.compile("|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in terminals))
        self._ignored = frozenset(lark.ignore_tokens)
        inner = lark.parser.parser.parser
        table = inner.parse_table
        self._start, self._end = table.start_states, table.end_states
        #: state -> token -> state, or (number of children, what they become, builder, whether that changes anything)
        self._actions: dict[Any, dict[str, Any]] = {}
        self._next: dict[Any, dict[str, Any]] = {}
        for state, entries in table.states.items():
            actions, following = self._actions.setdefault(state, {}), self._next.setdefault(state, {})
            for name, (action, target) in entries.items():
                if action is not Shift:
                    actions[name] = _reduction(target, inner.callbacks[target])
                elif name.isupper():
                    actions[name] = target
                else:
                    following[name] = target
        self._skipped: dict[tuple[Any, str, str], Any] = {}

    def parse(self, text: str, start: str) -> Any:
        """The tree of a text; raises `NotInLanguage` for lark to explain."""
        states: list[Any] = [self._start[start]]
        values: list[Any] = []
        actions, skipped = self._actions, self._skipped
        for token in self._tokens(text):
            kind = token.type
            while True:
                action = actions[states[-1]].get(kind)
                if action is None:
                    if kind == END and states[-1] == self._end[start]:
                        return values[-1]
                    raise NotInLanguage
                if not isinstance(action, tuple):
                    states.append(action)
                    values.append(token)
                    break
                size, name, build, _ = action
                children = values[-size:] if size else []
                if size:
                    del states[-size:], values[-size:]
                values.append(build(children))
                key = (states[-1], name, kind)
                following = skipped.get(key)
                if following is None:
                    following = skipped[key] = self._after(*key)
                states.append(following)
        raise NotInLanguage

    def _after(self, below: Any, name: str, kind: str) -> Any:
        """The state after a reduction to ``name``, and after all that follow it and change nothing."""
        state = self._next[below][name]
        while isinstance(action := self._actions[state].get(kind), tuple) and not action[3]:
            state = self._next[below][action[1]]
        return state

    def _tokens(self, text: str) -> Iterator[Token]:
        position, line, begin = 0, 1, 0
        for match in self._pattern.finditer(text):
            kind, value, at = match.lastgroup, match.group(), match.start()
            assert kind is not None
            if at != position:
                raise NotInLanguage
            position = match.end()
            if kind not in self._ignored:
                if kind == "NAME":
                    if value in UNSUPPORTED:
                        raise NotInLanguage
                    kind = KEYWORDS.get(value, kind)
                yield Token(kind, value, at, line, at - begin + 1)
            if "\n" in value:
                line += value.count("\n")
                begin = at + value.rfind("\n") + 1
        if position != len(text):
            raise NotInLanguage
        yield Token(END, "", position, line, position - begin + 1)


def _reduction(rule: Any, build: Callable[[list[Any]], Any]) -> tuple[int, str, Callable[[list[Any]], Any], bool]:
    """A rule such as ``?sum: product`` hands its only child on."""
    changes = not (
        rule.options.expand1 and not rule.alias and len(rule.expansion) == 1 and not rule.expansion[0].is_term
    )
    return len(rule.expansion), rule.origin.name, build, changes
