"""`Rooms`: the cuts of a product of small polytopes, and slabs across them, as functions of y in its box."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.highs import minimiser

#: A cut is left out if the others let it fall short of 0 by no more than this share of its room in the middle.
NEEDED = 1e-9
#: The owner of a cut about several blocks.
ACROSS = -1
#: Of cuts across blocks, one is left out if a tighter one has nearly the same direction.
PARALLEL = 0.99
#: Most steps to the analytic centre, and their length in units of rooms that ends them.
NEWTON, CLOSE = 50, 1e-10


@dataclass(frozen=True, eq=False)
class Rooms:
    """c(y) = c0 + c·y ≥ 0 in the region: each cut is about the coordinates of one block, or across blocks."""

    frame: BoxFrame
    blocks: list[np.ndarray]  # the coordinates of each block
    forms: np.ndarray  # (K, 1 + r) c0, c
    sizes: np.ndarray  # (K,) the magnitudes that add up to them
    owner: np.ndarray  # (K,) the block, `ACROSS` for several
    number: np.ndarray  # (K,) which of the given cuts it is
    middle: np.ndarray  # (1 + r,) 1, y of the analytic centre of all cuts
    #: (K,) positive multiples m with Σ m c = 1 for every y, over all cuts, and over those of each block
    joint: np.ndarray
    alone: np.ndarray

    @classmethod
    def of(cls, frame: BoxFrame, blocks: list[np.ndarray], A: np.ndarray, b: np.ndarray) -> Rooms | None:
        """Of the cuts A x ≤ b those that are needed, those across blocks last; None if nothing has room in all."""
        forms, sizes = _forms(frame, A, b)
        point = _middle(forms[:, 0], forms[:, 1:])
        if point is None:
            return None
        inside, owner, chosen = np.append(1.0, point), _owners(blocks, A), list[np.ndarray]()
        for k, columns in enumerate(blocks):
            own = np.flatnonzero(owner == k)
            chosen.append(own[_needed(forms[own] @ inside, forms[np.ix_(own, columns + 1)])])
        across = np.flatnonzero(owner == ACROSS)
        number = np.concatenate([*chosen, across[_tightest(forms[across], inside)]])
        forms, sizes, owner, alone = forms[number], sizes[number], owner[number], np.zeros(len(number))
        for k, columns in enumerate(blocks):
            own, used = np.flatnonzero(owner == k), np.append(0, columns + 1)
            alone[own] = _multiples(forms[np.ix_(own, used)], _central(forms[np.ix_(own, used)], inside[used]))
        middle = _central(forms, inside)
        return cls(frame, blocks, forms, sizes, owner, number, middle, _multiples(forms, middle), alone)

    def corrected(self, A: np.ndarray, b: np.ndarray) -> Rooms:
        """With all cuts given again, a little different."""
        forms, sizes = _forms(self.frame, A, b)
        return replace(self, forms=forms[self.number], sizes=sizes[self.number])


def _forms(frame: BoxFrame, A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((n, 1 + r) rooms b − a·x as c0 + c·y, (n,) the magnitudes that add up to them)."""
    forms = np.concatenate([(b - A @ frame.center)[:, None], -A * frame.half], axis=1)
    return forms, np.abs(b) + np.abs(A) @ (np.abs(frame.center) + frame.half)


def _owners(blocks: list[np.ndarray], A: np.ndarray) -> np.ndarray:
    """(n,) the block of each cut."""
    inside = np.array([(np.delete(A, columns, axis=1) == 0.0).all(axis=1) for columns in blocks])
    return np.where(inside.any(axis=0), inside.argmax(axis=0), ACROSS)


def _tightest(forms: np.ndarray, inside: np.ndarray) -> list[int]:
    """Those with the least room around a point, one of each direction."""
    length = np.linalg.norm(forms[:, 1:], axis=1)
    normals, found = forms[:, 1:] / length[:, None], list[int]()
    for k in np.argsort(forms @ inside / length, kind="stable").tolist():
        if not found or float((normals[found] @ normals[k]).max()) < PARALLEL:
            found.append(k)
    return found


def _central(forms: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(1 + d,) 1, y where the product of rooms is largest: by Newton's method, from a point within."""
    for _ in range(NEWTON):
        scaled = forms / (forms @ z)[:, None]
        step = np.linalg.lstsq(scaled[:, 1:], np.ones(len(forms)), rcond=None)[0]
        fall = float(np.linalg.norm(scaled[:, 1:] @ step))
        z = z + np.append(0.0, step / (1.0 + fall if fall > 0.25 else 1.0))
        if fall < CLOSE:
            break
    return z


def _multiples(forms: np.ndarray, center: np.ndarray) -> np.ndarray:
    """(n,) m with Σ m c = 1: at the analytic centre Σ c' / c = 0 for the slopes c' of rooms c."""
    return 1.0 / (len(forms) * (forms @ center))


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
