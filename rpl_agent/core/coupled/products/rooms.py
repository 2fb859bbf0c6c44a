"""`Rooms`: the cuts of a product of small polytopes, as functions of y in its box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.highs import minimiser

#: A cut is left out if the others let it fall short of 0 by no more than this share of its room in the middle.
NEEDED = 1e-9


@dataclass(frozen=True, eq=False)
class Rooms:
    """c(y) = c0 + c·y ≥ 0 in the region: each cut is about the coordinates of one block."""

    frame: BoxFrame
    blocks: list[np.ndarray]  # the coordinates of each block
    forms: np.ndarray  # (K, 1 + r) c0, c
    sizes: np.ndarray  # (K,) the magnitudes that add up to them
    owner: np.ndarray  # (K,) the block
    number: np.ndarray  # (K,) which of the given cuts it is
    middle: np.ndarray  # (1 + r,) 1, y of a point with room in every cut

    @classmethod
    def of(cls, frame: BoxFrame, blocks: list[np.ndarray], A: np.ndarray, b: np.ndarray) -> Rooms | None:
        """Of the cuts A x ≤ b those that are needed; None if a cut is about several blocks, or nothing has room."""
        forms = np.concatenate([(b - A @ frame.center)[:, None], -A * frame.half], axis=1)
        sizes = np.abs(b) + np.abs(A) @ (np.abs(frame.center) + frame.half)
        middle, owner, chosen = np.eye(1, 1 + frame.dimension)[0], [], []
        for k, columns in enumerate(blocks):
            own = np.flatnonzero(A[:, columns].any(axis=1))
            local = forms[np.ix_(own, columns + 1)]
            point = None if np.delete(A[own], columns, axis=1).any() else _middle(forms[own, 0], local)
            if point is None:
                return None
            middle[columns + 1] = point
            own = own[_needed(forms[own, 0] + local @ point, local)]
            chosen.append(own)
            owner += [k] * len(own)
        number = np.concatenate(chosen)
        return cls(frame, blocks, forms[number], sizes[number], np.array(owner), number, middle)


def _middle(start: np.ndarray, normals: np.ndarray) -> np.ndarray | None:
    """(d,) the centre of a largest ball within cuts; None if there is none."""
    rows = np.column_stack([-normals, np.linalg.norm(normals, axis=1)])
    found = minimiser(np.eye(1, rows.shape[1], rows.shape[1] - 1)[0] * -1.0, rows, start)
    return None if found is None or not found[-1] > 0.0 else found[:-1]


def _needed(room: np.ndarray, normals: np.ndarray) -> list[int]:
    """The cuts that the others do not imply; they have this room in the middle."""
    scaled = normals / room[:, None]  # 1 + scaled·y ≥ 0, for y from the middle
    kept = list(range(len(room)))
    for i in range(len(room)):
        others = [j for j in kept if j != i]
        lowest = minimiser(scaled[i], -scaled[others], np.ones(len(others)))
        if lowest is not None and scaled[i] @ lowest >= -1.0 - NEEDED:
            kept = others
    return kept
