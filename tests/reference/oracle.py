"""Exact values of small models in rational numbers: every pair of strategies is tried. Shares no code with the solver.

A model is ``rows[s][a]``, a list of the distributions that nature may choose from (the corners of its set), each a
dictionary successor -> probability. Memoryless strategies suffice for all objectives, and corners for nature.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from tests.reference.linear import solve_linear

INF = float("inf")
Distribution = dict[int, Fraction]
Number = Fraction | float


@dataclass(frozen=True)
class Question:
    """What is asked of a model: kind is "reach", "cost" (the target must be reached) or "reward" (it adds up)."""

    kind: str
    target: frozenset[int]
    avoid: frozenset[int]
    reward: tuple[tuple[Fraction, ...], ...]
    gamma: Fraction
    horizon: int | None
    agent_max: bool
    nature_max: bool

    @property
    def decided(self) -> frozenset[int]:
        return self.target | self.avoid


def closure(chain: list[Distribution]) -> list[set[int]]:
    """The states that each state can reach, itself included."""
    found = []
    for s in range(len(chain)):
        seen, todo = {s}, [s]
        while todo:
            for j, p in chain[todo.pop()].items():
                if p > 0 and j not in seen:
                    seen.add(j)
                    todo.append(j)
        found.append(seen)
    return found


class Undefined(Exception):
    """A total of gains and costs that has no limit."""


def worth_of(members: frozenset[int], chain: list[Distribution], reward: list[Fraction]) -> Number:
    """What a play that stays in a closed class forever is worth: 0, or infinity with the sign of the mean reward."""
    states = sorted(members)
    signs = {(reward[s] > 0) - (reward[s] < 0) for s in states} - {0}
    if len(signs) < 2:  # all states are visited again and again
        return Fraction(0) if not signs else INF * signs.pop()
    # the stationary distribution: p (P - I) = 0, one equation of which is replaced by sum p = 1
    matrix = [[chain[i].get(j, Fraction(0)) - int(i == j) for i in states] for j in states[1:]]
    share = solve_linear([[Fraction(1)] * len(states), *matrix], [Fraction(1)] + [Fraction(0)] * (len(states) - 1))
    assert share is not None
    mean = sum((p * reward[s] for p, s in zip(share, states)), Fraction(0))
    if mean == 0:
        raise Undefined
    return INF if mean > 0 else -INF


def chain_values(chain: list[Distribution], reward: list[Fraction], question: Question) -> list[Number]:
    """Values of a Markov chain from every state."""
    n, decided = len(chain), question.decided
    chain = [{s: Fraction(1)} if s in decided else chain[s] for s in range(n)]
    known: dict[int, Number] = {s: Fraction(int(question.kind == "reach" and s in question.target)) for s in decided}
    if question.gamma == 1:
        reach = closure(chain)
        closed = {frozenset(r) for r in reach if all(reach[k] == r for k in r)} if question.kind == "reward" else set()
        worths = {members: worth_of(members, chain, reward) for members in closed if not members & decided}
        for s in set(range(n)) - decided:
            ends = {j for j in reach[s] if all(j in reach[k] for k in reach[j])}  # members of closed classes
            if question.kind == "reach":
                if not reach[s] & question.target:
                    known[s] = Fraction(0)
            elif question.kind == "cost":
                if not ends <= question.target:
                    known[s] = INF
            else:
                worth = {worths[frozenset(reach[j])] for j in ends - decided}
                if {INF, -INF} <= worth:
                    raise Undefined
                if worth & {INF, -INF}:
                    known[s] = max(worth, key=abs)
                elif s in ends:
                    known[s] = Fraction(0)
    open_states = [s for s in range(n) if s not in known]
    index = {s: i for i, s in enumerate(open_states)}
    matrix = [[Fraction(int(i == j)) for j in range(len(index))] for i in range(len(index))]
    right = [Fraction(0)] * len(index)
    for s, i in index.items():
        if question.kind != "reach":
            right[i] += reward[s]
        for j, p in chain[s].items():
            if p and j in index:
                matrix[i][index[j]] -= question.gamma * p
            elif p:
                right[i] += question.gamma * p * known[j]  # finite: an infinite successor makes s infinite too
    solved = solve_linear(matrix, right)
    assert solved is not None
    return [solved[index[s]] if s in index else known[s] for s in range(n)]


def _mixed(options: list[list[Distribution]], weights: tuple[Fraction, ...]) -> list[Distribution]:
    """All mixtures of one distribution per row that is drawn."""
    drawn = [(w, row) for w, row in zip(weights, options) if w]
    if len(drawn) == 1:
        return drawn[0][1]
    found = []
    for choice in product(*(row for _, row in drawn)):
        total: Distribution = {}
        for (w, _), p in zip(drawn, choice):
            for j, mass in p.items():
                total[j] = total.get(j, Fraction(0)) + w * mass
        found.append(total)
    return found


def policy_values(rows: list[list[list[Distribution]]], question: Question, weights: list[tuple]) -> list[Number]:
    """Values of the policy that draws rows by ``weights[s][a]``, under nature's best or worst answer."""
    extremum = max if question.nature_max else min
    options = [_mixed(choices, w) for choices, w in zip(rows, weights)]
    for s in question.decided:
        options[s] = options[s][:1]
    reward = [sum((w * r for w, r in zip(weights[s], question.reward[s])), Fraction(0)) for s in range(len(rows))]
    if question.horizon is not None:
        return _steps(question, [[[(r, o)] for r, o in zip(reward, options)]])
    result: list[Number] | None = None
    for natures in product(*options):
        values = chain_values(list(natures), reward, question)
        result = values if result is None else [extremum(a, b) for a, b in zip(result, values)]
    assert result is not None
    return result


def best_values(rows: list[list[list[Distribution]]], question: Question) -> list[Number]:
    """Values of the best policy."""
    if question.horizon is not None:
        return _steps(question, [[list(zip(question.reward[s], rows[s])) for s in range(len(rows))]])
    extremum = max if question.agent_max else min
    result: list[Number] | None = None
    sizes = [1 if s in question.decided else len(choices) for s, choices in enumerate(rows)]
    for choice in product(*(range(size) for size in sizes)):
        weights = [tuple(Fraction(int(a == c)) for a in range(len(rows[s]))) for s, c in enumerate(choice)]
        values = policy_values(rows, question, weights)
        result = values if result is None else [extremum(a, b) for a, b in zip(result, values)]
    assert result is not None
    return result


def rule_values(rows: list[list[list[Distribution]]], question: Question, rules: list[list[int]]) -> list[Number]:
    """Values of the policy that takes row rules[k][s] at step k of the horizon; the last rule persists."""
    return _steps(question, [[[(question.reward[s][a], rows[s][a])] for s, a in enumerate(rule)] for rule in rules])


def _steps(question: Question, rules: list[list[list[tuple[Fraction, list[Distribution]]]]]) -> list[Number]:
    """Backward induction over the horizon; rules[k][s] lists (reward, distributions), the last one persists."""
    agent, nature = max if question.agent_max else min, max if question.nature_max else min
    assert question.horizon is not None
    start = [Fraction(int(question.kind == "reach" and s in question.target)) for s in range(len(rules[0]))]
    values: list = start
    for k in reversed(range(question.horizon)):
        rows = rules[min(k, len(rules) - 1)]
        values = [
            start[s]
            if s in question.decided
            else agent(
                (Fraction(0) if question.kind == "reach" else r)
                + question.gamma * nature(sum((p * values[j] for j, p in o.items()), Fraction(0)) for o in options)
                for r, options in rows[s]
            )
            for s in range(len(start))
        ]
    return values
