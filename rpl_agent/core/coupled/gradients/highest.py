"""`Highest`: the largest values of quadratic functions over a ball, smooth, with the points where they are attained."""

from __future__ import annotations

import numpy as np

#: Steps of Newton's method for the level of a row.
NEWTON = 12


class Highest:
    """min t + l'(tI − M)⁻¹l / 4 ≥ max {l·y + y'My : |y| ≤ 1}, of many rows, with a barrier at tI − M.

    M = (A B; B' 0) acts on the touched coordinates and on the span of B's rows: on 2 o directions. On the rest of l it
    is 0.
    """

    def __init__(self, l: np.ndarray, A: np.ndarray, B: np.ndarray, touched: np.ndarray, barrier: float) -> None:
        rows, o, r = B.shape
        padded = np.concatenate([l, np.zeros((rows, 1))], axis=1)
        own = np.take_along_axis(padded, touched, axis=1)
        rest = padded.copy()
        np.put_along_axis(rest, touched, 0.0, axis=1)
        rest = rest[:, :-1]
        beyond = max(o + o - r, 0)  # so many of B's directions are 0
        squares, turn = np.linalg.eigh(B @ B.transpose(0, 2, 1)) if beyond < o else (B[:, :, 0], A)
        squares, turn = squares[:, beyond:], turn[:, :, beyond:]
        size = np.sqrt(np.maximum(squares, 0.0))
        small = size <= 1e-9 * (size.max(axis=1, keepdims=True, initial=0.0) + 1e-300)
        size = np.where(small, 0.0, size)
        beside = np.where(small[:, :, None], 0.0, turn.transpose(0, 2, 1) @ B / np.where(small, 1.0, size)[:, :, None])
        mixed = turn * size[:, None, :]
        matrix = np.block([[A, mixed], [mixed.transpose(0, 2, 1), np.zeros((rows, o - beyond, o - beyond))]])
        along = np.einsum("ior,ir->io", beside, rest)
        left = rest - np.einsum("ior,io->ir", beside, along)
        eigen, axes = np.linalg.eigh(matrix)
        z = np.einsum("iba,ib->ia", axes, np.concatenate([own, along], axis=1))
        eigen = np.concatenate([eigen, np.zeros((rows, 1))], axis=1)
        z = np.concatenate([z, np.linalg.norm(left, axis=1)[:, None]], axis=1)
        t = self.level = _levels(eigen, z, barrier)
        room = t[:, None] - eigen
        self.most = t + (z * z / room).sum(axis=1) / 4
        self.smooth = self.most - barrier * np.log(room / barrier).sum(axis=1)
        flat = np.einsum("iba,ia->ib", axes, z[:, :-1] / room[:, :-1] / 2)
        y_own, y_rest = flat[:, :o], np.einsum("ior,io->ir", beside, flat[:, o:]) + left / t[:, None] / 2
        full = np.concatenate([y_rest, np.zeros((rows, 1))], axis=1)
        np.put_along_axis(full, touched, y_own, axis=1)
        self.y = full[:, :-1]
        spread = barrier * np.einsum("iba,ia,ica->ibc", axes[:, :o], 1.0 / room[:, :-1], axes)
        self.own = y_own[:, :, None] * y_own[:, None, :] + spread[:, :, :o]
        bent = y_own[:, :, None] * y_rest[:, None, :] + np.einsum("iab,ibr->iar", spread[:, :, o:], beside)
        bent = np.concatenate([bent, np.zeros((rows, o, 1))], axis=2)
        np.put_along_axis(bent, np.broadcast_to(touched[:, None, :], (rows, o, o)).copy(), self.own, axis=2)
        self.bent = bent[:, :, :-1]


def _levels(eigen: np.ndarray, z: np.ndarray, barrier: float) -> np.ndarray:
    """(R,) t with Σ z² / 4 (t − λ)² + Σ barrier / (t − λ) = 1, above all λ (R, n).

    Newton's method for 1 / √sum, from a point where the sum is at least 1: such a function of t is nearly a line.
    """
    top = eigen.argmax(axis=1)[:, None]
    least = np.take_along_axis(eigen, top, axis=1)
    alone = np.abs(np.take_along_axis(z, top, axis=1)) / 2
    t = least + (barrier + np.sqrt(barrier**2 + 4 * alone**2)) / 2
    for _ in range(NEWTON):
        room = t - eigen
        squares, poles = (z / room) ** 2 / 4, barrier / room
        total = (squares + poles).sum(axis=1, keepdims=True)
        slope = ((2 * squares + poles) / room).sum(axis=1, keepdims=True)
        t = np.maximum(t + 2 * total * (np.sqrt(total) - 1.0) / slope, (least + t) / 2)
    return np.asarray(t[:, 0])
