"""`Reward`: numbers, or polynomials in the parameters, of which only bounds are known while θ is not.

A reward that depends on θ is ``least + width · f``, where f is an expression with values in [0, 1] on the domain.
Where f stands in the model's Λ too, the bounds that a relaxation gives of it are bounds of the reward. Nature picks,
in every row by itself, the end that serves it: the true value of a policy lies between its values for both ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.model.expressions import ExpressionTable


@dataclass(frozen=True)
class Spread:
    """How far n rewards may lie above the least that they can be.

    Attributes
    ----------
    table : the expressions f of this reward, over the parameters of the model.
    expression : (n,) int32 id of f in ``table``, −1 where the reward is known.
    linked : (n,) int32 id of f in the model's Λ, −1 where it does not stand there: then f is anything in [0, 1].
    width : (n,) float64, 0 where the reward is known.
    """

    table: ExpressionTable
    expression: np.ndarray
    linked: np.ndarray
    width: np.ndarray

    def at(self, theta: np.ndarray) -> np.ndarray:
        """(n,) what comes on top of the least reward at parameters θ."""
        values = np.append(self.table.evaluate(theta), 0.0)  # −1 is the last
        return self.width * values[self.expression]

    def between(self, bounds: np.ndarray | None, otherwise: float) -> np.ndarray:
        """(n,) the same for bounds (F,) of Λ; ``otherwise`` where there are none."""
        if bounds is None:
            return self.width * otherwise
        return self.width * np.append(bounds, otherwise)[self.linked]  # −1 is the last

    def taken(self, index: np.ndarray) -> Spread:
        return replace(self, expression=self.expression[index], linked=self.linked[index], width=self.width[index])

    def unlinked(self) -> Spread:
        return replace(self, linked=np.full_like(self.linked, -1))


@dataclass(frozen=True)
class Reward:
    """Reward of a state (paid on leaving it, whatever the action) and of a state-action pair.

    Where a reward depends on the parameters, ``state`` and ``row`` are the least that it can be, and the spreads say
    what comes on top.
    """

    state: np.ndarray  # (S,)
    row: np.ndarray  # (R,)
    state_spread: Spread | None = None
    row_spread: Spread | None = None

    @property
    def is_known(self) -> bool:
        return self.state_spread is None and self.row_spread is None

    def at(self, theta: np.ndarray) -> Reward:
        """The numbers at parameters θ."""

        def number(least: np.ndarray, spread: Spread | None) -> np.ndarray:
            return least if spread is None else least + spread.at(theta)

        return Reward(number(self.state, self.state_spread), number(self.row, self.row_spread))

    def end(self, bounds: tuple[np.ndarray, np.ndarray] | None, upward: bool) -> Reward:
        """Numbers that no reward is above (upward) or below, for bounds (F,), (F,) of Λ; without, over the domain."""

        def number(least: np.ndarray, spread: Spread | None) -> np.ndarray:
            if spread is None:
                return least
            more = spread.between(None if bounds is None else bounds[upward], float(upward))
            slack = np.where(spread.width > 0.0, 8.0 * UNIT_ROUNDOFF * (np.abs(least) + more), 0.0)
            return least + more + slack if upward else np.maximum(least + more - slack, least)

        return Reward(number(self.state, self.state_spread), number(self.row, self.row_spread))

    def taken(self, states: np.ndarray, rows: np.ndarray) -> Reward:
        """The rewards of some states and rows, in their order."""
        first, second = self.state_spread, self.row_spread
        return Reward(
            self.state[states], self.row[rows], first and first.taken(states), second and second.taken(rows)
        )  # fmt: skip

    def unlinked(self) -> Reward:
        """The same for a model with another Λ."""
        first, second = self.state_spread, self.row_spread
        return replace(self, state_spread=first and first.unlinked(), row_spread=second and second.unlinked())

    def fingerprint(self) -> bytes:
        """Everything that decides what it means."""
        spreads = [s for s in (self.state_spread, self.row_spread) if s is not None]
        arrays = [self.state, self.row, *(a for s in spreads for a in (s.expression, s.linked, s.width))]
        texts = [repr((s.table.data.tolist(), s.table.indices.tolist(), s.table.denominators)) for s in spreads]
        return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays) + "".join(texts).encode()
