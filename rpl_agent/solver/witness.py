"""`Witness`: nature's distributions as part of a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.solver._witness import mass_to_move, moving_costs

#: mass that may be missing or out of bounds in a row
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Witness:
    """Nature's distributions p (T,), and the mass (R,) between each row and an exact one; inf where none is near."""

    p: np.ndarray
    mass: np.ndarray
    row_ptr: np.ndarray
    successor: np.ndarray

    @classmethod
    def of(
        cls, p: np.ndarray, lower: np.ndarray, upper: np.ndarray, expression: np.ndarray, row_ptr: np.ndarray,
        successor: np.ndarray, is_region: bool,
    ) -> Witness:  # fmt: skip
        """A witness within bounds per expression.

        The bounds of a region are its hull. Its best distributions for a row need not be within: the operator takes
        the better of several outer bounds, each with an extremum of its own. There p shows that the play ends, and the
        operator itself, which must agree besides, shows the inequality: no mass needs to be moved for it.
        """
        if is_region:
            off = np.abs(np.add.reduceat(p, row_ptr[:-1]) - 1.0) > TOLERANCE
            off |= np.minimum.reduceat(p, row_ptr[:-1]) < 0.0
            return cls(p, np.where(off, np.inf, 0.0), row_ptr, successor)
        mass = mass_to_move(p, lower, upper, expression, row_ptr)
        mass[mass > TOLERANCE] = np.inf
        return cls(p, mass, row_ptr, successor)

    def charges(self, values: np.ndarray) -> np.ndarray:
        """(R,) how far the means of values under p and under the exact distributions may differ."""
        return moving_costs(values, self.p, self.mass, self.row_ptr, self.successor)
