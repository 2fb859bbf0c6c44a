"""Reward structures of a file: numbers of states and rows, or polynomials in the parameters (`model.reward`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor

import numpy as np

from rpl_agent.formats.prism.explore.probability import Pool, probability_ids
from rpl_agent.formats.prism.explore.vector import column_of
from rpl_agent.formats.prism.language.derived import Box, exact_box, quotient_range
from rpl_agent.formats.prism.language.errors import NOWHERE, PrismError
from rpl_agent.formats.prism.language.scope import Program, RewardItem
from rpl_agent.model.domain import Domain
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.polynomial import Polynomial, outward
from rpl_agent.model.reward import Reward, Spread


class RewardTable:
    """Reward structures over states and rows (for a DTMC: the mean over its choices)."""

    def __init__(
        self, program: Program, columns: list[np.ndarray], states: int, choice_state: np.ndarray,
        label_index: np.ndarray, base_label: list[str | None], row_of_sorted: np.ndarray, rows: np.ndarray,
    ) -> None:  # fmt: skip
        self.program, self.columns, self.states = program, columns, states
        self.choice_state = choice_state
        self.labels = base_label[:-1]  # the last one is the added self-loop, which earns nothing
        self.label_index = label_index
        self.row_of_sorted, self.rows = row_of_sorted, rows

    def _earned(self, items: tuple[RewardItem, ...]) -> Iterator[tuple[RewardItem, np.ndarray, np.ndarray]]:
        """(item, states or choices where it is earned, their states)."""
        for item in items:
            holds = column_of(item.guard, self.program.variables, self.columns, self.states)
            if not item.on_transition:
                at = np.flatnonzero(holds)
                yield item, at, at
                continue
            mine = np.isin(self.label_index, [i for i, label in enumerate(self.labels) if label == item.action])
            at = np.flatnonzero(mine & holds[self.choice_state])
            yield item, at, self.choice_state[at]

    def polynomials(self, items: tuple[RewardItem, ...], pool: Pool) -> tuple[np.ndarray, np.ndarray]:
        """(S,), (R,) pool ids of a reward structure."""
        state, choice = np.zeros(self.states, dtype=np.int32), np.zeros(len(self.choice_state), dtype=np.int32)
        for item, at, states in self._earned(items):
            total, here = choice if item.on_transition else state, [c[states] for c in self.columns]
            total[at] = pool.add(total[at], probability_ids(item.value, self.program.variables, pool, here, len(at)))
        order = np.argsort(self.row_of_sorted, kind="stable")
        sizes = np.bincount(self.row_of_sorted, minlength=len(self.rows))
        first = np.cumsum(sizes) - sizes
        per_row = choice[order[first]]
        for k in range(1, int(sizes.max(initial=1))):  # a DTMC: the mean over its choices
            more = np.flatnonzero(sizes > k)
            per_row[more] = pool.add(per_row[more], choice[order[first[more] + k]])
        several = np.flatnonzero(sizes > 1)
        if len(several):
            per_row[several] = pool.scale(per_row[several], sizes[several])
        return state, per_row[self.rows]

    def at(self, items: tuple[RewardItem, ...], theta: np.ndarray) -> Reward:
        """The numbers of a reward structure at values of the program's parameters."""
        pool = Pool()
        ids = np.concatenate(self.polynomials(items, pool))
        point = dict(zip(self.program.parameters, np.asarray(theta, dtype=float).tolist(), strict=True))
        point |= {key: float(value) for key, value in pool.derived.values(point).items()}
        table, ids = pool.table(list(point), ids)
        values = table.evaluate(np.array(list(point.values())))[ids]
        return Reward(values[: self.states], values[self.states :])


class UnknownNumbers:
    """n rewards as least + width · f (see `rpl_agent.model.reward`), from their pool ids (n,)."""

    def __init__(self, ids: np.ndarray, pool: Pool, parameters: Sequence[str], domain: Domain, learned: frozenset[str]):
        distinct, self._of = np.unique(ids, return_inverse=True)
        polynomials, box = [pool[i] for i in distinct], exact_box(domain)
        scales = [_scale(p, box, learned) for p in polynomials]
        try:
            self._least, self._width = (np.array([float(scale[k]) for scale in scales]) for k in (0, 1))
        except OverflowError:
            raise PrismError("a reward is too large for a floating-point number") from None
        self._shares = [
            (p - least) * (1 / width) if width else Polynomial({}) for p, (least, width) in zip(polynomials, scales)
        ]
        self._table = ExpressionTable.from_polynomials(self._shares, parameters)
        self._is_linked = np.array([bool(p.terms) and p.parameters <= learned for p in self._shares])
        self.linked_ids = np.zeros(0, dtype=np.int32)  # of what shall stand in the model's table
        if self._is_linked.any():
            self.linked_ids = pool.intern([p for p, is_one in zip(self._shares, self._is_linked) if is_one])

    def parts(self, linked: np.ndarray) -> tuple[np.ndarray, Spread | None]:
        """(least (n,), spread), given the expressions of `linked_ids` in the model's table."""
        ids = np.full(len(self._shares), -1, dtype=np.int32)
        ids[self._is_linked] = linked
        own = np.where(self._width > 0.0, np.arange(len(self._shares)), -1).astype(np.int32)
        spread = Spread(self._table, own[self._of], ids[self._of], self._width[self._of])
        return self._least[self._of], spread if (self._width > 0.0).any() else None


def _scale(polynomial: Polynomial, box: Box, learned: frozenset[str]) -> tuple[Fraction, Fraction]:
    """(least, width), floats, so that the polynomial lies between least and least + width on the box.

    A share that data say something about gets short numbers, because it stands in the table of expressions.
    """
    if polynomial.is_constant:
        return polynomial.constant_value(), Fraction(0)
    low, high = quotient_range(polynomial, Polynomial.constant(1), box, NOWHERE)
    if not polynomial.parameters <= learned:
        least, _ = outward(low, high)
        return Fraction(least), Fraction(outward(low, high - Fraction(least))[1])
    if 0 <= low and high <= 1:
        return Fraction(0), Fraction(1)
    unit = Fraction(1)
    while unit < high - low:
        unit *= 2
    while unit / 2 > high - low:
        unit /= 2
    return floor(low * 64 / unit) * unit / 64, unit * 33 / 32


def with_unknown_rewards(
    pool: Pool, parameters: Sequence[str], domain: Domain, ids: np.ndarray,
    rewards: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> tuple[ExpressionTable, np.ndarray, dict[str, Reward]]:  # fmt: skip
    """Λ, (T,) expressions of the transitions with these pool ids, and the rewards with these of states and rows."""
    learned = pool.occurring(ids)
    numbers = {
        key: [UnknownNumbers(part, pool, parameters, domain, learned) for part in parts]
        for key, parts in rewards.items()
    }
    flat = [part for parts in numbers.values() for part in parts]
    table, expression = pool.table(parameters, np.concatenate([ids, *(part.linked_ids for part in flat)]))
    ends = np.cumsum([len(ids), *(len(part.linked_ids) for part in flat)])
    pieces = iter(np.split(expression, ends)[1:])
    found: dict[str, Reward] = {}
    for key, (state, row) in numbers.items():
        (state_least, state_spread), (row_least, row_spread) = state.parts(next(pieces)), row.parts(next(pieces))
        found[key] = Reward(state_least, row_least, state_spread, row_spread)
    return table, expression[: len(ids)], found
