"""The obvious way to solve small interval models: try every pair of strategies, in rational numbers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from rpl_agent.core.model import Kind, Nature, Objective, Sense
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP, Reward
from rpl_agent.core.model.polynomial import Polynomial
from tests.reference.linear import solve_linear

INF = float("inf")
#: successor -> (lower, upper)
Row = dict[int, tuple[Fraction, Fraction]]


def interval_model(
    rows: list[list[Row]], *, labels: dict[str, set[int]], cost: list[list[float]] | None = None
) -> tuple[ParametricMDP, np.ndarray, np.ndarray]:
    """A model with one parameter per transition, and the bounds: (pmdp, lower (F,), upper (F,)).

    ``rows[s][a]`` maps successors to bounds; ``cost[s][a]`` is the reward "cost".
    """
    states = len(rows)
    flat = [row for choices in rows for row in choices]
    entries = [(j, bounds) for row in flat for j, bounds in sorted(row.items())]
    names = tuple(f"t{k}" for k in range(len(entries)))
    table = ExpressionTable.from_polynomials([Polynomial.parameter(name) for name in names], names)
    state_ptr = np.concatenate([[0], np.cumsum([len(choices) for choices in rows])])
    row_ptr = np.concatenate([[0], np.cumsum([len(row) for row in flat])])
    pmdp = ParametricMDP(
        state_ptr=state_ptr,
        action=np.concatenate([np.arange(len(choices)) for choices in rows]),
        row_ptr=row_ptr,
        successor=np.array([j for j, _ in entries]),
        expression=np.arange(len(entries)),
        table=table,
        domain=Domain.box(names),
        labels={name: np.isin(np.arange(states), list(members)) for name, members in labels.items()},
        rewards={"cost": Reward(np.zeros(states), np.array([c for choice in cost for c in choice], float))}
        if cost
        else {},
        action_names=tuple(f"a{k}" for k in range(max(len(choices) for choices in rows))),
    )
    lower = np.array([float(low) for _, (low, _) in entries])
    upper = np.array([float(high) for _, (_, high) in entries])
    return pmdp, lower, upper


def vertices(row: Row) -> list[dict[int, Fraction]]:
    """All vertices of {p : lower <= p <= upper, sum p = 1}: fill up in every order."""
    found = {}
    for order in permutations(sorted(row)):
        p = {j: row[j][0] for j in row}
        rest = 1 - sum(p.values())
        for j in order:
            share = min(row[j][1] - row[j][0], rest)
            p[j] += share
            rest -= share
        assert rest == 0
        found[tuple(sorted(p.items()))] = p
    return list(found.values())


def _reaching(chain: list[dict[int, Fraction]], goal: set[int]) -> set[int]:
    reached = set(goal)
    while True:
        new = {
            s
            for s in range(len(chain))
            if s not in reached and any(p > 0 and j in reached for j, p in chain[s].items())
        }
        if not new:
            return reached
        reached |= new


def chain_value(
    chain: list[dict[int, Fraction]], reward: list[Fraction], target: set[int], avoid: set[int], objective: Objective
) -> list[Fraction | float]:
    """Exact value of a Markov chain from every state."""
    n = len(chain)
    gamma = Fraction(str(objective.discount))
    absorbing = [({s: Fraction(1)} if s in target | avoid else chain[s]) for s in range(n)]
    if gamma < 1:
        active = [s for s in range(n) if s not in target]
        return _solve(absorbing, reward, active, {s: Fraction(0) for s in target}, gamma, n)
    if objective.kind is Kind.REACH:
        possible = _reaching(absorbing, target) - target
        fixed = {s: Fraction(int(s in target)) for s in range(n) if s not in possible}
        return _solve(absorbing, [Fraction(0)] * n, sorted(possible), fixed, gamma, n)
    if objective.sense is Sense.MIN:
        surely = set(range(n)) - _reaching(absorbing, set(range(n)) - _reaching(absorbing, target))
        values = _solve(absorbing, reward, sorted(surely - target), {s: Fraction(0) for s in target}, gamma, n)
        return [values[s] if s in surely else INF for s in range(n)]
    # Reward: infinite where a recurrent paying state can be reached; 0 where none is.
    recurrent = {
        s
        for s in range(n)
        if _successors(absorbing, s) and all(s in _successors(absorbing, t) for t in _successors(absorbing, s))
    }
    infinite = _reaching(absorbing, {s for s in recurrent if s not in target and reward[s] > 0})
    transient = [s for s in range(n) if s not in infinite and s not in recurrent]
    fixed = {s: Fraction(0) for s in recurrent if s not in infinite}
    values = _solve(absorbing, reward, transient, fixed, gamma, n)
    return [INF if s in infinite else values[s] for s in range(n)]


def _successors(chain: list[dict[int, Fraction]], start: int) -> set[int]:
    seen, todo = set(), [start]
    while todo:
        for j, p in chain[todo.pop()].items():
            if p > 0 and j not in seen:
                seen.add(j)
                todo.append(j)
    return seen


def _solve(chain, reward, active, fixed, gamma, n) -> list[Fraction]:
    index = {s: i for i, s in enumerate(active)}
    matrix = [[Fraction(int(i == j)) for j in range(len(active))] for i in range(len(active))]
    right = [reward[s] for s in active]
    for s, i in index.items():
        for j, p in chain[s].items():
            part = p if gamma == 1 else gamma * p
            if j in index:
                matrix[i][index[j]] -= part
            elif p and fixed[j]:
                right[i] += part * fixed[j]
    solution = solve_linear(matrix, right)
    assert solution is not None
    return [solution[index[s]] if s in index else fixed.get(s, Fraction(0)) for s in range(n)]


def exact_values(
    rows: list[list[Row]], cost: list[list[float]], target: set[int], avoid: set[int], objective: Objective,
    nature: Nature, policy: list[int] | None = None,
) -> list[Fraction | float]:  # fmt: skip
    """max/min over policies of max/min over natures, per state, by trying all of them."""
    states = range(len(rows))
    corners = [[vertices(row) for row in choices] for choices in rows]
    worst = min if nature.direction(objective.sense) is Sense.MIN else max
    best = max if objective.sense is Sense.MAX else min
    result = None
    for choice in _policies(rows, policy):
        inner = None
        for natures in product(*(corners[s][choice[s]] for s in states)):
            reward = [Fraction(str(cost[s][choice[s]])) if s not in target else Fraction(0) for s in states]
            values = chain_value(list(natures), reward, target, avoid, objective)
            inner = values if inner is None else [worst(a, b) for a, b in zip(inner, values)]
        result = inner if result is None else [best(a, b) for a, b in zip(result, inner)]
    return result


def _policies(rows: list[list[Row]], policy: list[int] | None) -> Iterator[tuple[int, ...]]:
    if policy is not None:
        yield tuple(policy)
    else:
        yield from product(*(range(len(choices)) for choices in rows))


def exact_randomised(
    rows: list[list[Row]], cost: list[list[float]], target: set[int], objective: Objective, nature: Nature,
    weights: list[list[Fraction]],
) -> list[Fraction | float]:  # fmt: skip
    """`exact_values` of a policy that draws its rows: nature answers every row on its own."""
    pairs = [(s, a) for s in range(len(rows)) for a in range(len(rows[s])) if weights[s][a] > 0]
    worst = min if nature.direction(objective.sense) is Sense.MIN else max
    result = None
    for natures in product(*(vertices(rows[s][a]) for s, a in pairs)):
        chain: list[dict[int, Fraction]] = [{} for _ in rows]
        reward = [Fraction(0)] * len(rows)
        for (s, a), p in zip(pairs, natures):
            if s not in target:
                reward[s] += weights[s][a] * Fraction(str(cost[s][a]))
            for j, mass in p.items():
                chain[s][j] = chain[s].get(j, Fraction(0)) + weights[s][a] * mass
        values = chain_value(chain, reward, target, set(), objective)
        result = values if result is None else [worst(a, b) for a, b in zip(result, values)]
    return result


def row_extremum(row: Row, values: dict[int, Fraction], sense: Sense) -> Fraction:
    """Exact extremum over an interval row, by its vertices."""
    best = min if sense is Sense.MIN else max
    return best(sum(p[j] * values[j] for j in row) for p in vertices(row))
