"""`Witness`: nature's distributions as part of a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent._core import Struct, core

#: mass that may be missing or out of bounds in a row
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Witness:
    """Nature's distributions p (T,), and the mass (R,) between each row and an exact one; inf where none is near."""

    rows: Struct
    p: np.ndarray
    mass: np.ndarray

    @classmethod
    def of(cls, rows: Struct, p: np.ndarray, lower: np.ndarray, upper: np.ndarray, is_region: bool) -> Witness:
        """A witness within bounds (F,) per expression.

        The bounds of a region are its hull. Its best distributions for a row need not be within: the operator takes
        the better of several outer bounds, each with an extremum of its own. There p shows that the play ends, and the
        operator itself, which must agree besides, shows the inequality: no mass needs to be moved for it.
        """
        if is_region:
            off = np.abs(np.add.reduceat(p, rows.row_ptr[:-1]) - 1.0) > TOLERANCE
            off |= np.minimum.reduceat(p, rows.row_ptr[:-1]) < 0.0
            return cls(rows, p, np.where(off, np.inf, 0.0))
        mass = np.empty(rows.count)
        core.mass_to_move(rows, lower, upper, p, mass)
        mass[mass > TOLERANCE] = np.inf
        return cls(rows, p, mass)

    def charges(self, values: np.ndarray) -> np.ndarray:
        """(R,) how far the means of values under p and under the exact distributions may differ."""
        costs = np.empty(self.rows.count)
        core.moving_costs(self.rows, values, self.p, self.mass, costs)
        return costs
