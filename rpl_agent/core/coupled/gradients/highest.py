"""`Quadratics`: the largest values of quadratic functions over a ball, smooth, and where they are attained."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: Steps of Newton's method for the level of a row.
NEWTON = 12


class Highest(NamedTuple):
    """min t + l'(tI − M)⁻¹l / 4 ≥ max {l·y + y'My : |y| ≤ 1}, of many rows, with a barrier at tI − M."""

    level: np.ndarray  # (R,) t
    most: np.ndarray  # (R,)
    smooth: np.ndarray  # (R,) with the barrier
    y: np.ndarray  # (R, r) the worst points, derivatives of `smooth` by l
    room: np.ndarray  # (R, n) t − λ of all eigenvalues
    barrier: float


class Quadratics:
    """The forms y'My of many rows.

    M = (A B; B' 0) acts on the touched coordinates and on the span of B's rows: on 2 o directions. On the rest of l it
    is 0.
    """

    def __init__(self, A: np.ndarray, B: np.ndarray, touched: np.ndarray) -> None:
        rows, o, r = B.shape
        self.touched = touched
        beyond = max(o + o - r, 0)  # so many of B's directions are 0
        squares, turn = np.linalg.eigh(B @ B.transpose(0, 2, 1)) if beyond < o else (B[:, :, 0], A)
        squares, turn = squares[:, beyond:], turn[:, :, beyond:]
        size = np.sqrt(np.maximum(squares, 0.0))
        small = size <= 1e-9 * (size.max(axis=1, keepdims=True, initial=0.0) + 1e-300)
        size = np.where(small, 0.0, size)
        along = turn.transpose(0, 2, 1) @ B / np.where(small, 1.0, size)[:, :, None]
        self.beside = np.where(small[:, :, None], 0.0, along)  # (R, o, r) unit vectors
        mixed = turn * size[:, None, :]
        matrix = np.block([[A, mixed], [mixed.transpose(0, 2, 1), np.zeros((rows, o - beyond, o - beyond))]])
        eigen, self.axes = np.linalg.eigh(matrix)
        self.eigen = np.concatenate([eigen, np.zeros((rows, 1))], axis=1)

    def highest(self, linear: np.ndarray, barrier: float) -> Highest:
        """The largest values for linear parts l (R, r)."""
        rows, o = self.touched.shape
        padded = np.concatenate([linear, np.zeros((rows, 1))], axis=1)
        own = np.take_along_axis(padded, self.touched, axis=1)
        np.put_along_axis(padded, self.touched, 0.0, axis=1)
        rest = padded[:, :-1]
        along = (self.beside @ rest[:, :, None])[:, :, 0]
        left = rest - (along[:, None, :] @ self.beside)[:, 0]
        z = (np.concatenate([own, along], axis=1)[:, None, :] @ self.axes)[:, 0]
        z = np.concatenate([z, np.linalg.norm(left, axis=1)[:, None]], axis=1)
        t = _levels(self.eigen, z, barrier)
        room = t[:, None] - self.eigen
        most = t + (z * z / room).sum(axis=1) / 4
        smooth = most - barrier * np.log(room / barrier).sum(axis=1)
        flat = (self.axes @ (z[:, :-1] / room[:, :-1] / 2)[:, :, None])[:, :, 0]
        y = np.zeros_like(padded)
        y[:, :-1] = (flat[:, None, o:] @ self.beside)[:, 0] + left / t[:, None] / 2
        np.put_along_axis(y, self.touched, flat[:, :o], axis=1)
        return Highest(t, most, smooth, y[:, :-1], room, barrier)

    def bent(self, top: Highest) -> tuple[np.ndarray, np.ndarray]:
        """((R, o, o), (R, o, r)) the derivatives of `smooth` by A, and by the rows of M of the touched coordinates."""
        rows, o = self.touched.shape
        full = np.concatenate([top.y, np.zeros((rows, 1))], axis=1)
        y_own = np.take_along_axis(full, self.touched, axis=1)
        np.put_along_axis(full, self.touched, 0.0, axis=1)
        scaled = self.axes[:, :o] * (top.barrier / top.room[:, None, :-1])
        spread = scaled @ self.axes.transpose(0, 2, 1)
        own = y_own[:, :, None] * y_own[:, None, :] + spread[:, :, :o]
        bent = y_own[:, :, None] * full[:, None, :]
        bent[:, :, :-1] += spread[:, :, o:] @ self.beside
        np.put_along_axis(bent, np.broadcast_to(self.touched[:, None, :], own.shape).copy(), own, axis=2)
        return own, bent[:, :, :-1]


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
