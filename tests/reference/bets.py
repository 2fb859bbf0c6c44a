"""Bets on the value as a stranger would compute them: Python's standard library, lists and rationals.

Payoffs are decided in floats, in an order of operations of their own; what they prove is summed in rationals. Read
beside docs/guarantees.md.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, pi, sqrt


def log_below(x: Fraction) -> Fraction:
    """A rational just below ln x, from fifty digits."""
    with localcontext() as context:
        context.prec = 50
        found = (Decimal(x.numerator) / Decimal(x.denominator)).ln()
    return Fraction(found) - Fraction(1, 10**40)


class Model:
    """A model's arrays as lists, its expressions as functions with their derivatives."""

    def __init__(self, pmdp, task):
        self.names = pmdp.table.parameters
        self.terms = [
            [(float(c), dict(m)) for m, c in pmdp.table.polynomial(f).terms.items()]
            for f in range(pmdp.num_expressions)
        ]
        self.lower, self.upper = pmdp.domain.lower.tolist(), pmdp.domain.upper.tolist()
        self.middle = [(a + b) / 2 for a, b in zip(self.lower, self.upper)]
        self.is_polynomial = any(sum(powers.values()) > 1 for terms in self.terms for _, powers in terms)
        self.rows = [
            list(zip(pmdp.expression[a:b].tolist(), pmdp.successor[a:b].tolist()))
            for a, b in zip(pmdp.row_ptr.tolist(), pmdp.row_ptr.tolist()[1:])
        ]
        self.of_state = [range(a, b) for a, b in zip(pmdp.state_ptr.tolist(), pmdp.state_ptr.tolist()[1:])]
        self.reward, self.decided = task.reward.tolist(), task.decided.tolist()
        self.worth = [1.0 if t and task.objective.kind.value == "reach" else 0.0 for t in task.target.tolist()]
        if task.final is not None:
            self.worth = task.final.tolist()
        self.gamma, self.horizon = task.objective.discount, task.objective.horizon
        self.sign = 1.0 if task.objective.sense.value == "max" else -1.0
        self.start, self.transitions = pmdp.initial_state, pmdp.num_transitions

    def at(self, theta):
        """Every f, and every ∇f, at θ."""
        point, values, slopes = dict(zip(self.names, theta)), [], []
        for terms in self.terms:
            value, slope = 0.0, [0.0] * len(theta)
            for c, powers in terms:
                product = c
                for name, power in powers.items():
                    product *= point[name] ** power
                value += product
                for k, name in enumerate(self.names):
                    if name in powers:
                        part = c * powers[name] * point[name] ** (powers[name] - 1)
                        for other, power in powers.items():
                            part *= point[other] ** power if other != name else 1.0
                        slope[k] += part
            values.append(value)
            slopes.append(slope)
        return values, slopes


def solve(matrix, right):
    """x with matrix x = right, by elimination with pivots."""
    n = len(right)
    rows = [[*row, r] for row, r in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, n):
            ratio = rows[k][i] / rows[i][i]
            rows[k] = [a - ratio * b for a, b in zip(rows[k], rows[i])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][k] * x[k] for k in range(i + 1, n))) / rows[i][i]
    return x


def information(slopes, weights):
    """Σ weight ∇f∇f', with 2^-30 of its trace on the diagonal."""
    d = len(slopes[0])
    matrix = [[sum(w * s[i] * s[j] for w, s in zip(weights, slopes)) for j in range(d)] for i in range(d)]
    trace = sum(matrix[i][i] for i in range(d))
    for i in range(d):
        matrix[i][i] += max(trace * 2.0**-30, 1e-300)
    return matrix


def sweep(model, rows_of, p, slopes, v, g, old):
    """One sweep over the states, the last first; the rows taken and the largest changes."""
    taken, moved = [rows[0] for rows in rows_of], [0.0, 0.0]
    for s in reversed(range(len(v))):
        if model.decided[s]:
            continue
        best = None
        for r in rows_of[s]:
            q = model.reward[r] + model.gamma * sum(p[f] * old[0][t] for f, t in model.rows[r])
            if best is None or model.sign * (q - best) > 2.0**-12 * abs(best):
                best, taken[s] = q, r
        moved[0] = max(moved[0], abs(best - old[0][s]))
        v[s] = best
        new = [
            model.gamma * sum(slopes[f][k] * old[0][t] + p[f] * old[1][t][k] for f, t in model.rows[taken[s]])
            for k in range(len(g[s]))
        ]
        moved[1] = max([moved[1], *(abs(a - b) for a, b in zip(new, old[1][s]))])
        g[s] = new
    return taken, moved


def sweeps(model, rows_of, p, slopes, v, g):
    """Sweeps until v and g settle, or one for each step of the horizon; the rows taken last."""
    size = sum(len(model.rows[r]) for rows in rows_of for r in rows)
    most = min(max(2**27 // size, 16), 1024) if model.horizon is None else model.horizon
    taken = [rows[0] for rows in rows_of]
    for _ in range(most):
        old = (v, g) if model.horizon is None else ([*v], [[*x] for x in g])
        taken, moved = sweep(model, rows_of, p, slopes, v, g, old)
        largest = max(map(abs, v)), max((abs(y) for x in g for y in x), default=0.0)
        if model.horizon is None and all(m <= 2.0**-8 * n for m, n in zip(moved, largest)):
            break
    return taken


def gradient(model, p, slopes):
    """Of the best policy's value at the start."""
    d, v = len(slopes[0]), [*model.worth]
    g = [[0.0] * d for _ in v]
    rows_of = model.of_state
    if model.horizon is None:
        rows_of = [[r] for r in sweeps(model, rows_of, p, slopes, v, [[] for _ in v])]
    sweeps(model, rows_of, p, slopes, v, g)
    return g[model.start] if max(map(abs, g[model.start])) > 2.0**-40 * max(map(abs, v)) else [0.0] * d


def next_direction(model, mark, before):
    """(payoffs of λ = 1, θ, gradient, total, planned, total of the gradient)."""
    total, progress, K, N = mark
    planned = total / progress
    if before is not None and total < 1.25 * before[3] and abs(planned / before[4] - 1.0) < 0.1:
        return before
    theta = model.middle if before is None else before[1]
    for _ in range(8 if before is None else 2):
        f, slopes, floored = floors(model, theta, K, N)
        matrix = information(slopes, [n / x for n, x in zip(N, floored)])
        score = [
            sum(s[k] * (a - n * y) / x for s, a, n, y, x in zip(slopes, K, N, f, floored)) for k in range(len(theta))
        ]
        theta = [t + step for t, step in zip(theta, solve(matrix, score))]
        if model.is_polynomial:
            theta = [min(max(t, low), high) for t, low, high in zip(theta, model.lower, model.upper)]
    f, slopes, floored = floors(model, theta, K, N)
    if before is None or total >= 5 * before[5]:
        G, found_with = gradient(model, [min(max(x, 0.0), 1.0) for x in f], slopes), total
    else:
        G, found_with = before[2], before[5]
    unit = [0.0] * len(f)
    if any(G):
        matrix = information(slopes, [n / x for n, x in zip(N, floored)])
        shift = solve([[x / progress for x in row] for row in matrix], G)
        scale = sqrt(sum(a * b for a, b in zip(G, shift)))
        unit = [sum(a * b for a, b in zip(s, shift)) / scale / x for s, x in zip(slopes, floored)]
    return unit, theta, G, total, planned, found_with


def floors(model, theta, K, N):
    f, slopes = model.at(theta)
    return f, slopes, [max(x, (k + 0.5) / (4.0 * n + 4.0)) for x, k, n in zip(f, K, N)]


def stake(level, progress):
    z2 = max(2.0 * (level - 2.0), 1.0)
    late = sqrt(z2 + 8.0 / pi / max(1.0 - progress, 2.0**-20))
    return min((sqrt(z2) + late) / 2.0 * max(0.5 / progress, 1.0) ** 0.125, 2.0 * sqrt(z2))


def payoffs(direction, level, progress):
    """Multiples of 2^-26, at most ½."""
    lam, found = stake(level, progress), []
    for x in direction[0]:
        x = min(max(lam * x, -0.5), 0.5) * 2**26
        down = floor(x)
        found.append(Fraction(down if x - down < 0.5 or (x - down == 0.5 and down % 2 == 0) else ceil(x), 2**26))
    return found


def slabs(pmdp, objective, marks, alpha):
    """[(coefficients, low, high)] after every mark but the first; marks are (total, progress, K, N), now the last."""
    model, level = Model(pmdp, objective.resolve(pmdp)), -log_below(Fraction(alpha) / 2)
    level += Fraction(1, 10**30)
    direction, found = None, []
    coefficients, gain, loss = [Fraction(0)] * pmdp.num_expressions, Fraction(0), Fraction(0)
    for mark, after in pairwise(marks):
        direction = next_direction(model, mark, direction)
        u = payoffs(direction, float(level), mark[1])
        for f, x in enumerate(u):
            new, tried = after[2][f] - mark[2][f], after[3][f] - mark[3][f]
            coefficients[f] += tried * x
            if new:
                gain, loss = gain + new * log_below(1 + x), loss + new * log_below(1 - x)
        found.append(([*coefficients], gain - level, level - loss))
    return found
