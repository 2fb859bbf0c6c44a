"""Any environment with a table ``P[s][a]``: its graph is known, and every probability is a separate parameter.

Successors, rewards and ends are read from the table; probabilities are not, only which outcomes are possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Binding, Domain, Objective, Polynomial, build, paying

#: Up to this many parameters the agent's own default is the best method.
FEW = 6


def bind_table(env: Any) -> Binding:
    """The model of a table. "return" is what it pays; where all of that are costs, "cost" is the same without sign."""
    table = env.unwrapped.P
    graph, ends = _graph(table)
    rewards = [r for rows in graph.values() for ways in rows.values() for _, r in ways]
    costs = min(rewards) < 0 and max(rewards) <= 0
    signs = {"return": 1.0, "cost": -1.0} if costs else {"return": 1.0}
    domain = _Simplices()

    def actions(state: Any) -> dict[int, dict[Any, Polynomial]]:
        if state in ends:
            return {a: {state: Polynomial.constant(1)} for a in graph[state]}
        return {a: domain.row(f"p_{state}_{a}", _successors(ways, signs)) for a, ways in graph[state].items()}

    def least(sign: float) -> Callable[[Any, int], float]:
        return lambda state, action: 0.0 if state in ends else min(sign * r for _, r in graph[state][int(action)])

    start = domain.row("start", dict.fromkeys(_starts(env, graph, ends)))
    for state in graph:  # parameters are named by their rows: describe all of them first
        actions(state)
    pmdp = build(
        start if len(start) > 1 else next(iter(start)),
        actions,
        domain=domain.domain(),
        labels={"end": lambda s: s in ends},
        rewards={name: least(sign) for name, sign in signs.items()},
        name=type(env.unwrapped).__name__.removesuffix("Env"),
        validate=False,  # rows are simplices by construction, and there may be thousands of them
    )
    returns = Objective.reward("return", target="end" if ends else None, horizon=0)  # or as many as a time limit says
    objective = None if not ends else Objective.cost("cost", target="end") if costs else replace(returns, horizon=None)
    # Rows that share nothing are blocks of their own, whose sets no coupling narrows; a few of them are one small set.
    method = None if pmdp.num_parameters <= FEW else ("likelihood", "rectangular")
    return Binding(
        pmdp,
        objective,
        _number,
        lambda before, action, observation, *_: _number(observation),
        method=method,
        paid=pmdp.on_transitions(pmdp.row_reward("return")),
        returns=returns,
    )


def _graph(table: Any) -> tuple[dict[int, dict[int, list[tuple[int, float]]]], set[int]]:
    """state -> action -> distinct (successor, reward), and the states in which episodes end."""
    graph: dict[int, dict[int, list[tuple[int, float]]]] = {}
    ends: set[int] = set()
    going: set[int] = set()
    for state, rows in dict(table).items() if hasattr(table, "items") else enumerate(table):
        graph[int(state)] = {}
        for action, outcomes in dict(rows).items() if hasattr(rows, "items") else enumerate(rows):
            ways = {(int(s), float(r)): None for _, s, r, _ in outcomes}
            graph[int(state)][int(action)] = list(ways)
            for _, successor, _, done in outcomes:
                (ends if done else going).add(int(successor))
    both = ends & going
    if both:
        raise ModelError(f"the table P ends episodes in state {min(both)} on some ways and not on others")
    return graph, ends


def _successors(ways: list[tuple[int, float]], signs: dict[str, float]) -> dict[Any, None]:
    """The successors of a row; of two ways to one state, the one that pays more pays the difference on arrival."""
    least = {name: min(sign * r for _, r in ways) for name, sign in signs.items()}
    return {paying(s, **{name: sign * r - least[name] for name, sign in signs.items()}): None for s, r in ways}


def _starts(env: Any, graph: dict[int, Any], ends: set[int]) -> list[int]:
    """Where episodes may begin: the support of the environment's own distribution, else anywhere."""
    chances = getattr(env.unwrapped, "initial_state_distrib", None)
    if chances is None:
        return [s for s in graph if s not in ends]
    return np.flatnonzero(np.asarray(chances) > 0).tolist()


class _Simplices:
    """One parameter for all but the last outcome of every row."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.rows: dict[str, list[str]] = {}

    def row(self, prefix: str, outcomes: dict[Any, None]) -> dict[Any, Polynomial]:
        found = list(outcomes)
        names = [f"{prefix}_{k}" for k in range(len(found) - 1)]
        self.names.update(dict.fromkeys(names))
        if len(names) > 1:
            self.rows[prefix] = names
        chances = [Polynomial.parameter(name) for name in names]
        rest = Polynomial.constant(1)
        for chance in chances:
            rest = rest - chance
        return dict(zip(found, [*chances, rest], strict=True))

    def domain(self) -> Domain:
        place = {name: i for i, name in enumerate(self.names)}
        A = np.zeros((len(self.rows), len(place)))
        for k, names in enumerate(self.rows.values()):
            A[k, [place[name] for name in names]] = 1.0
        box = Domain.box(tuple(self.names) or ("unused",))
        return box.with_constraints(A, np.ones(len(A))) if len(A) else box


def _number(observation: Any) -> int:
    return observation.__index__()
