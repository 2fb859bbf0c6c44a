"""ICU-Sepsis: where the gap after that many stays comes from, and how far one cut in every row narrows it.

    python examples/sepsis_floor.py [--stays 1000000]

Floors are computed at the truth, for one look at a fixed number of stays, and to first order: the errors of the best
policy's rows, times how often each is played. Bounds hold with probability 1 − δ: intervals of transitions (boxes), and
boxes cut in every row along a value function that a tenth of the stays gave, by bets that the others settle
(docs/cases/sepsis.md has the proof). They are made with plain floats, and no certificate of the package.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import chi2, norm
from sepsis import CONFIG, Benchmark, load, stays

from rpl_agent import Policy
from rpl_agent.core.evidence.intervals import anytime

#: A value function (states,), and bounds (rows,) on its mean after a row.
Cut = tuple[np.ndarray, np.ndarray]
SWEEPS = 400
#: Share of the stays that directions are chosen from, and of δ for tests in them.
FIRST, CUTS = 0.1, 0.8
#: Multipliers of a cut that are tried, and the least deviation of a row. Radii are planned that much larger below (1)
#: and above (−1), chosen on data with other seeds.
MULTIPLIERS, LEAST, MARGIN = (0.85, 1.0, 1.15), 1e-3, {1.0: 2.3, -1.0: 1.2}


class Rows:
    """Sums over the rows of the model, (transitions,) → (rows,), and the best row of every state."""

    def __init__(self, world: Benchmark):
        self.pmdp = world.pmdp
        self.survived, died = self.pmdp.labels["survived"], self.pmdp.labels["died"]
        self.end = self.survived | died

    def sum(self, x: np.ndarray) -> np.ndarray:
        return np.add.reduceat(x, self.pmdp.row_ptr[:-1])

    def mean(self, p: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.sum(p * v[self.pmdp.successor])

    def spread(self, p: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(rows,) the standard deviation of v after a row."""
        return np.sqrt(np.maximum(self.mean(p, v**2) - self.mean(p, v) ** 2, 0.0))

    def best(self, q: np.ndarray) -> np.ndarray:
        """(states,) values of states from those of rows."""
        return np.where(self.end, self.survived, np.maximum.reduceat(q, self.pmdp.state_ptr[:-1]))

    def optimum(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(states,) values, and the best row of every state."""
        v = self.survived.astype(float)
        for _ in range(SWEEPS):
            v = self.best(self.mean(p, v))
        q, ptr = self.mean(p, v), self.pmdp.state_ptr
        return v, np.array([ptr[s] + np.argmax(q[ptr[s] : ptr[s + 1]]) for s in range(self.pmdp.num_states)])

    def played(self, p: np.ndarray, policy: np.ndarray) -> np.ndarray:
        """(rows,) how often a row is played in a stay."""
        pmdp, now, total = self.pmdp, np.zeros(self.pmdp.num_states), np.zeros(self.pmdp.num_rows)
        now[pmdp.initial_state] = 1.0
        for _ in range(SWEEPS):
            rows = np.zeros(pmdp.num_rows)
            rows[policy] = np.where(self.end, 0.0, now)
            total += rows
            now = np.bincount(pmdp.successor, rows[pmdp.transition_row] * p, pmdp.num_states)
        return total

    def least(self, c: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """(rows,) the least p·c over low ≤ p ≤ high, Σ p = 1; all (transitions,)."""
        row = self.pmdp.transition_row
        order = np.lexsort((c, row))
        room = (high - low)[order]
        before = np.cumsum(room) - room
        before -= before[self.pmdp.row_ptr[:-1]][row]
        moved = np.clip((1.0 - self.sum(low))[row] - before, 0.0, room)
        return self.sum((low[order] + moved) * c[order])


def floors(world: Benchmark, rows: Rows, seen: np.ndarray) -> None:
    """First-order widths at the truth."""
    p, delta = world.pmdp.instantiate(world.theta).probability, CONFIG.delta
    v, policy = rows.optimum(p)
    n, played = rows.sum(seen), rows.played(p, policy)
    used = played > 1e-12
    error = (played * rows.spread(p, v) / np.sqrt(np.maximum(n, 1)))[used]
    freedom = np.diff(world.pmdp.row_ptr)[used] - 1
    one, many = -norm.ppf(delta / 2), -norm.ppf(delta / 2 / used.sum())
    radius = np.sqrt(chi2.ppf(1 - delta / used.sum(), np.maximum(freedom, 1)))
    together = np.sqrt(chi2.ppf(1 - delta, freedom.sum()) * (error @ error))
    least, half = n[used].min(), np.median(n[used])
    print(f"the best policy plays {used.sum()} rows, {played.sum():.1f} in a stay, with {freedom.sum():,} unknowns")
    print(
        f"a row has {np.median(freedom) + 1:.0f} successors (median) and was seen {half:,.0f} times, at least {least}"
    )
    tell("the value alone, one look at all rows together", 2 * one * np.sqrt(error @ error))
    tell("each row by itself, in the direction of the value", 2 * many * error.sum())
    tell("each row by itself, in all directions", 2 * radius @ error)
    tell("all rows together, in all directions", 2 * together)


def tell(what: str, width: float, bounds: str = "") -> None:
    print(f"{what:56}{width:.4f}{bounds}")


def tested(rows: Rows, first: np.ndarray, later: np.ndarray, sign: float, delta: float) -> Cut:
    """Values x (states,) from the first stays, bounds (rows,) from the later ones: sign · p·x ≥ bound in all rows."""
    pmdp, n, after, row = rows.pmdp, rows.sum(first), rows.sum(later), rows.pmdp.transition_row
    p = np.where(n[row] > 0, first / np.maximum(n[row], 1), 1.0 / np.diff(pmdp.row_ptr)[row])
    level = np.log(pmdp.num_rows / delta)
    radius = np.sqrt(2 * level / (np.maximum(n, 1) * (1 - FIRST) / FIRST))  # in standard deviations, when all have come
    x = rows.survived.astype(float)
    for _ in range(SWEEPS):
        deviation = np.maximum(rows.spread(p, x), LEAST)
        x = rows.best(rows.mean(p, x) - sign * MARGIN[sign] * radius * deviation).clip(0.0, 1.0)
    stake, middle = np.minimum(radius / deviation, 0.5), rows.mean(p, x)
    won = rows.sum(later * np.log1p(sign * stake[row] * (x[pmdp.successor] - middle[row]))) - level
    return x, np.where(after > 0, sign * middle + won / (np.maximum(after, 1) * stake), -1.0)


def robust(rows: Rows, seen: np.ndarray, sign: float, delta: float, cut: Cut | None = None) -> float:
    """What the start is worth if nature lowers (1) or raises (−1) it within boxes and a cut: each sweep is a bound."""
    pmdp, row = rows.pmdp, rows.pmdp.transition_row
    low, high = anytime(seen, rows.sum(seen)[row], delta / pmdp.num_transitions)
    u = np.where(rows.end, rows.survived, 0.0 if sign > 0 else 1.0)
    for _ in range(SWEEPS):
        worst = rows.least(sign * u[pmdp.successor], low, high)
        for a in MULTIPLIERS if cut is not None else ():
            x, bound = cut
            worst = np.maximum(worst, rows.least(sign * (u - a * x)[pmdp.successor], low, high) + a * bound)
        last, u = u, rows.best(sign * worst)
        if np.abs(u - last).max() < 1e-5:
            break
    return float(u[pmdp.initial_state])


def bounds(rows: Rows, first: np.ndarray, later: np.ndarray, delta: float) -> dict[str, tuple[float, float]]:
    """[L, U] from boxes alone, and from boxes with one cut per row and side: each with probability ≥ 1 − δ."""
    seen, (below, above) = (
        first + later,
        ((sign, tested(rows, first, later, sign, CUTS / 2 * delta)) for sign in MARGIN),
    )
    return {
        "boxes": tuple(robust(rows, seen, sign, delta) for sign in MARGIN),
        "boxes, cut": tuple(robust(rows, seen, sign, (1 - CUTS) * delta, cut) for sign, cut in (below, above)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stays", type=int, default=1_000_000)
    number = parser.parse_args().stays
    world = load()
    rows, uniform, early = Rows(world), Policy.uniform(world.pmdp), round(FIRST * number)
    (first, _), (later, _) = (stays(world, uniform, n, seed=n) for n in (early, number - early))
    print(f"widths after {number:,} stays with doses drawn at random, to first order:")
    floors(world, rows, first + later)
    print(f"bounds that hold with probability {1 - CONFIG.delta}:")
    for name, (lower, upper) in bounds(rows, first, later, CONFIG.delta).items():
        tell(name, upper - lower, f"   [{lower:.3f}, {upper:.3f}]")


if __name__ == "__main__":
    main()
