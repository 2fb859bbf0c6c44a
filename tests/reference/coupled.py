"""Random parametric models whose values at one θ are known exactly, for bounds over a region of θ."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np

from rpl_agent.core.model import Domain, Objective, ParametricMDP, Policy, Sense, build
from rpl_agent.core.model.caching import cached_on
from rpl_agent.core.model.polynomial import Polynomial
from tests.reference.solver import chain_value

GOAL, TRAP = "goal", "trap"


@cache
def random_model(seed: int, polynomial: bool = False, loops: bool = True) -> ParametricMDP:
    """Three or four states before goal and trap; two actions; rows that pull both parameters in both directions.

    Without ``loops`` rows only go to later states.
    """
    rng = np.random.default_rng(seed)
    states = int(rng.integers(3, 5))
    p, q = Polynomial.parameter("p"), Polynomial.parameter("q")
    shifts = [p - Fraction(1, 2), q - Fraction(1, 2)]
    if polynomial:
        shifts += [p * q - Fraction(1, 4), p * p - Fraction(1, 4)]
    table = {}
    for s in range(states):
        later = [*range(s + 1, states), GOAL, TRAP]
        others = later if not loops else [*range(states), GOAL, TRAP]
        for action in ("a", "b"):
            successors = [GOAL, *(others[i] for i in rng.permutation(len(others))[:2] if others[i] != GOAL)]
            base = rng.multinomial(20, np.ones(len(successors)) / len(successors))
            row = {t: Polynomial.constant(Fraction(int(b) + 2, 20 + 2 * len(base))) for t, b in zip(successors, base)}
            shift = shifts[int(rng.integers(len(shifts)))] * Fraction(int(rng.integers(-6, 7)), 100)
            row[successors[0]] += shift
            row[successors[-1]] += -1 * shift
            table[s, action] = row
    costs = {key: float(rng.integers(1, 4)) for key in table}

    def actions(state):
        return {"stay": {state: 1}} if state in (GOAL, TRAP) else {a: table[state, a] for a in ("a", "b")}

    return build(
        0, actions, domain=Domain.box({"p": (0.1, 0.9), "q": (0.1, 0.9)}),
        labels={"goal": lambda s: s == GOAL, "end": lambda s: s in (GOAL, TRAP)},
        rewards={"cost": lambda s, a: costs.get((s, a), 0.0)},
    )  # fmt: skip


def objectives(horizon: bool = True) -> list[Objective]:
    found = [
        *(Objective.reach("goal", sense=sense) for sense in Sense),
        *(Objective.reward("cost", target="end", sense=sense) for sense in Sense),
        *(Objective.discounted("cost", 0.9, target="end", sense=sense) for sense in Sense),
    ]
    if horizon:
        found += [Objective.reach("goal", sense=Sense.MAX, horizon=4), Objective.cost("cost", target="end", horizon=3)]
    return found


def exact_rows(pmdp: ParametricMDP, theta: list[Fraction]) -> list[dict[int, Fraction]]:
    """Every row at a rational θ, which is asked for with one policy after another."""
    known: dict[tuple[Fraction, ...], list] = cached_on(pmdp, "rows at rational points", lambda _: {})
    if tuple(theta) not in known:
        known[tuple(theta)] = _rows_at(pmdp, theta)
    return known[tuple(theta)]


def _rows_at(pmdp: ParametricMDP, theta: list[Fraction]) -> list[dict[int, Fraction]]:
    rows = []
    names = dict(zip(pmdp.table.parameters, theta))
    for r in range(pmdp.num_rows):
        row: dict[int, Fraction] = {}
        for t in range(pmdp.row_ptr[r], pmdp.row_ptr[r + 1]):
            value = Fraction(0)
            for monomial, c in pmdp.table.polynomial(int(pmdp.expression[t])).terms.items():
                term = Fraction(c)
                for name, power in monomial:
                    term *= names[name] ** power
                value += term
            row[int(pmdp.successor[t])] = value
        rows.append(row)
    return rows


def exact_value(pmdp: ParametricMDP, objective: Objective, theta: list[Fraction], policy: Policy | None):
    """The exact value of a deterministic policy, or the optimum, in the initial state.

    Of a policy it is worked out once: the optimum is asked for again and again, and tries all of them.
    """
    rows, task = exact_rows(pmdp, theta), objective.resolve(pmdp)
    target, avoid = set(np.flatnonzero(task.target).tolist()), set(np.flatnonzero(task.avoid).tolist())
    reward = [Fraction(float(v)) for v in task.reward]
    if objective.horizon is not None:
        return _horizon_value(pmdp, objective, rows, reward, task, policy)
    choices = [range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]) for s in range(pmdp.num_states)]
    policies = [tuple(policy.rows.tolist())] if policy is not None else product(*choices)
    known: dict[tuple, dict[tuple[int, ...], Fraction | float]] = cached_on(pmdp, "exact values", lambda _: {})
    found, values = known.setdefault((objective, *theta), {}), []
    for chosen in policies:
        if chosen not in found:
            of_states = chain_value([rows[r] for r in chosen], [reward[r] for r in chosen], target, avoid, objective)
            found[chosen] = of_states[pmdp.initial_state]
        values.append(found[chosen])
    return max(values) if objective.sense is Sense.MAX else min(values)


def _horizon_value(pmdp, objective, rows, reward, task, policy):
    start = [Fraction(int(task.target[s] and objective.reward_name is None)) for s in range(pmdp.num_states)]
    values, best = start, max if objective.sense is Sense.MAX else min
    for k in range(1, objective.horizon + 1):
        after = []
        for s in range(pmdp.num_states):
            if task.decided[s]:
                after.append(start[s])
                continue
            chosen = range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1])
            if policy is not None:
                chosen = [int(policy.at(objective.horizon - k).rows[s])]
            after.append(best(reward[r] + sum(p * values[i] for i, p in rows[r].items()) for r in chosen))
        values = after
    return values[pmdp.initial_state]


def box_points(center: np.ndarray, width: Fraction, seed: int, count: int = 6) -> list[list[Fraction]]:
    """Corners and random points of a small box of parameters."""
    rng = np.random.default_rng(seed)
    middle = [Fraction(float(c)) for c in center]
    found = [[m + sign * width for m, sign in zip(middle, signs)] for signs in product((-1, 1), repeat=len(middle))]
    for _ in range(count):
        found.append([m + width * Fraction(int(rng.integers(-64, 65)), 64) for m in middle])
    return found


def reached_by(pmdp: ParametricMDP, decided: np.ndarray, policy: Policy, horizon: int) -> np.ndarray:
    """(H + 1, S) the undecided states that a policy can be in with k steps to go, as a set followed step by step."""
    found, now = np.zeros((horizon + 1, pmdp.num_states), bool), {pmdp.initial_state}
    for k in range(horizon, -1, -1):
        now = {s for s in now if not decided[s]}
        found[k, sorted(now)] = True
        shares = policy.at(horizon - k).as_weights(pmdp)
        rows = [r for s in now for r in range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]) if shares[r] > 0.0]
        now = {int(i) for r in rows for i in pmdp.successor[pmdp.row_ptr[r] : pmdp.row_ptr[r + 1]]}
    return found
