"""`likely_splits`: by which events to split a region where products of cuts prove too little, and at which chance.

The dual of the linear program are moments λ of each row. Those of one parameter are products,

    λ(x_i y_j) λ(1) = λ(x_i) λ(y_j),

and the program's optimum falls short of the least sum by what the row's form W makes of their covariances. An event
a·x explains as much of these as a regression on it, and a split by it leaves little of that part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.coupled.products.rooms import ACROSS, Rooms
from rpl_agent.core.coupled.products.rows import LikeRows, Products

#: Of two cuts with nearly the same or the opposite direction only the first one is an event.
SAME = 0.999
#: The least variance of an event, for a·y with |a| = 1.
LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Split:
    """In two: where a cut has at least so much room, and where it has at most that."""

    cut: int  # its number among the given ones
    room: float
    explained: float  # how much of the shortfall


def likely_splits(rooms: Rooms, rows: list[LikeRows], U: np.ndarray, moments: list[np.ndarray]) -> list[Split]:
    """The splits by cuts of one block, those first that explain more; each at the mean of the moments."""
    found = list[Split]()
    for k in _events(rooms):
        form, parts = rooms.forms[k], list[tuple[float, float, float]]()
        for part, one in zip(rows, moments):
            own = part.products.coordinates
            if form[own[1:]].any():
                parts.append(_explained(form, part.products, part.ahead @ U, one))
        weight, room, explained = (sum(numbers) for numbers in zip(*parts)) if parts else (0.0, 0.0, 0.0)
        if weight > 0.0 and explained < 0.0 and room > 0.0:
            found.append(Split(int(rooms.number[k]), room / weight, -explained))
    return sorted(found, key=lambda split: -split.explained)


def _events(rooms: Rooms) -> list[int]:
    """The cuts of one block, one of each direction."""
    normals, found = rooms.forms[:, 1:] / np.linalg.norm(rooms.forms[:, 1:], axis=1)[:, None], list[int]()
    for k in np.flatnonzero(rooms.owner != ACROSS).tolist():
        if not found or float(np.abs(normals[found] @ normals[k]).max()) < SAME:
            found.append(k)
    return found


def _explained(event: np.ndarray, products: Products, W: np.ndarray, moments: np.ndarray) -> tuple[float, float, float]:
    """(Σ λ(1), Σ λ(event), what a regression on the event explains of Σ W·covariances) over rows.

    event : (1 + r,) a room of the rows' own blocks
    W, moments : (k, D, 1 + r), (k, monomials)
    """
    M, own = moments[:, products.place], products.coordinates
    covariance, a = (M - M[:, :, :1] * M[:, :1, :] / M[:, :1, :1])[:, 1:], event[own[1:]]
    with_own, with_any = covariance[:, :, own[1:]] @ a, np.einsum("i,kij->kj", a, covariance)
    variance, weight = with_own @ a, M[:, 0, 0]
    varies = variance > LEAST_VARIANCE * weight * float(a @ a)
    explained = np.einsum("kij,ki,kj->k", W[:, 1:], with_own, with_any)
    lost = float((explained[varies] / variance[varies]).sum())
    return float(weight.sum()), float((M[:, :, 0] @ event[own]).sum()), lost
