"""Mars Rover: cross a grid and report often enough over two lossy channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import lcm

import numpy as np

from rpl_agent.core.model import Block, Domain, Objective, build_vectorized
from rpl_envs.benchmark import Benchmark, check_size
from rpl_envs.rendering.board import Area, Board, Gauge, Token
from rpl_envs.rendering.canvas import BLUE, GREEN, ORANGE, PURPLE, RED

THETA = (0.4, 0.2, 0.15, 0.14)
BUDGET = 6  # this many unreported moves are a failure
TRIES = {(10, 10): 6, (50, 50): 9, (75, 75): 12, (125, 125): 14}
EPISODE = {(10, 10): 50, (50, 50): 350, (75, 75): 450, (125, 125): 450}
#: Ten-thousandths per mode 1..5: success of a channel is A0 + A1·pos, pos along x for L and along y for H.
CHANNELS = {
    "sendL": (np.array([500, 875, 1250, 1625, 2000]), np.array([3500, 2875, 2250, 1625, 1000])),
    "sendH": (np.array([1800, 1500, 1200, 900, 600]), np.array([1000, 1750, 2500, 3250, 4000])),
}
#: Hundredths, column zone (W x ≤ 4, C 5..8, E ≥ 9) by row zone (S y ≤ 4, M 5..8, N ≥ 9).
ZONES = {
    "sendL": np.array([(85, 95, 75), (110, 155, 100), (90, 120, 105)]),
    "sendH": np.array([(85, 120, 95), (90, 150, 110), (80, 125, 100)]),
}
#: Rectangles (x from, x to, y from, y to) where a channel keeps 0.6 of its success.
JAMMED = {
    "sendL": ((3, 6, 9, 12), (8, 12, 6, 8)),
    "sendH": ((2, 5, 3, 6), (7, 10, 2, 4)),
}
JAMMED_TENTHS = 6


def zone(coordinate: np.ndarray) -> np.ndarray:
    """0, 1, 2 for 1..4, 5..8 and 9 onwards; absolute, not scaled with the grid."""
    return np.where(coordinate <= 4, 0, np.where(coordinate <= 8, 1, 2))


def jammed(channel: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    inside = np.zeros(np.broadcast(x, y).shape, dtype=bool)
    for x0, x1, y0, y1 in JAMMED[channel]:
        inside |= (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
    return inside


def scale_of(X: int, Y: int) -> tuple[int, int]:
    """Denominators of a position along an axis, and of all probabilities."""
    grid = lcm(X - 1, Y - 1)
    return grid, 10**7 * grid  # ten-thousandths (modes) · hundredths (zones) · tenths (jamming) · position


def expand(X: int, Y: int, T: int, states: Mapping[str, np.ndarray]) -> Iterator[Block]:
    """Blocks of transitions from each state; numerators are integers over `scale_of` the grid."""
    grid, scale = scale_of(X, Y)
    x, y, u, h, t = (states[v] for v in ("x", "y", "u", "h", "t"))
    here = np.arange(len(x))
    certain = np.zeros((len(here), 5), dtype=np.int64)
    certain[:, 0] = scale
    goal = (x == X) & (y == Y)
    yield Block("up", here[goal], {v: states[v][goal] for v in states}, certain[goal])
    moved = {"u": np.where(h == 1, 0, np.minimum(u + 1, BUDGET)), "h": np.zeros_like(h), "t": t}
    up, right = here[x < X], here[y < Y]
    yield Block("up", up, {v: c[up] for v, c in moved.items()} | {"x": x[up] + 1, "y": y[up]}, certain[up])
    yield Block(
        "right", right, {v: c[right] for v, c in moved.items()} | {"x": x[right], "y": y[right] + 1}, certain[right]
    )
    send = here[~goal & (h == 0) & (t < T)]
    x, y, u, t = x[send], y[send], u[send], t[send]
    for channel, position in (("sendL", (x - 1) * (grid // (X - 1))), ("sendH", (y - 1) * (grid // (Y - 1)))):
        base, slope = CHANNELS[channel]
        modes = grid * base + np.multiply.outer(position, slope)  # (n, 5)
        worth = ZONES[channel][zone(x), zone(y)] * np.where(jammed(channel, x, y), JAMMED_TENTHS, 10)
        modes *= worth[:, None]
        success = np.column_stack([modes[:, 4], modes[:, :4] - modes[:, 4:]])
        there = {"x": x, "y": y, "u": u}
        yield Block(channel, send, there | {"h": np.ones_like(x), "t": np.zeros_like(x)}, success)
        yield Block(channel, send, there | {"h": np.zeros_like(x), "t": t + 1}, certain[send] - success)


def mars_rover(X: int = 10, Y: int = 10, tries: int | None = None) -> Benchmark:
    """Drive from (1, 1) to (X, Y) and keep in touch.

    ## Description
    The rover moves up (x + 1) or right (y + 1) and must never make 6 moves without having reported. It may try to
    send over channel L or H before each move, a limited number of times in a row. Success depends on the position
    through five known modes, on the zone, and on jamming; the mixture weights θ of the modes are unknown.

    ## Action Space
    `Discrete(4)`: 0 up (x < X), 1 right (y < Y), 2 sendL, 3 sendH (both while nothing was sent here and tries are
    left). In the target cell only action 0 is enabled and stays.

    ## Observation Space
    `Discrete(|S|)`, a number of the state (x, y, u, h, t): cell, unreported moves, whether a report was sent since the
    last move, tries since the last success. `observation="features"` gives the five variables scaled to [0, 1].

    ## Rewards
    1 on entering (X, Y), else 0: the return is the probability to be maximised.

    ## Starting State
    (1, 1, 0, 0, 0).

    ## Episode End
    Terminates at (X, Y), and when u reaches 6 before.

    ## Arguments
    X, Y: size of the grid. tries: 6 for (10, 10), 9 for (50, 50), 12 for (75, 75), 14 for (125, 125), 6 otherwise. True
    parameters: θ = (0.4, 0.2, 0.15, 0.14), θ_5 = 1 − Σ θ_i.

    ## Version History
    v0: the paper's model.
    """
    check_size("MarsRover", X=(X, 2), Y=(Y, 2))
    T = TRIES.get((X, Y), 6) if tries is None else tries
    pmdp = build_vectorized(
        {"x": 1, "y": 1, "u": 0, "h": 0, "t": 0},
        {"x": (1, X), "y": (1, Y), "u": (0, BUDGET), "h": (0, 1), "t": (0, T)},
        partial(expand, X, Y, T),
        domain=Domain.box(("theta1", "theta2", "theta3", "theta4")).with_simplex(),
        monomials=np.vstack([np.zeros(4, dtype=int), np.eye(4, dtype=int)]),
        denominators=[scale_of(X, Y)[1]] * 5,
        action_names=("up", "right", "sendL", "sendH"),
        labels={
            "goal": lambda s: (s["x"] == X) & (s["y"] == Y),
            "silent": lambda s: s["u"] == BUDGET,
        },
        name=f"MarsRover-{X}x{Y}",
    )
    steps = EPISODE.get((X, Y), 3 * (X + Y)) + 1
    return Benchmark(pmdp, Objective.reach("goal", avoid="silent"), THETA, steps, board(X, Y, T))


def board(X: int, Y: int, tries: int) -> Board:
    """x upwards (action up), y to the right (action right); a chequerboard of the nine zones of the channels."""
    soil, darker = np.array((238.0, 214.0, 190.0)), np.array((225.0, 194.0, 166.0))
    odd = (zone(np.arange(1, X + 1))[:, None] + zone(np.arange(1, Y + 1))) % 2 == 1
    marks = {"sendL": (ORANGE, "L jammed", "l", 1), "sendH": (PURPLE, "H jammed", "h", -1)}
    areas = [Area((Y, Y), (X, X), GREEN, 0.9, "goal", "G")]
    for channel, (color, name, sign, slope) in marks.items():
        for x0, x1, y0, y1 in JAMMED[channel]:
            if x0 <= X and y0 <= Y:
                areas.append(Area((y0, min(y1, Y)), (x0, min(x1, X)), color, 1.0, name, sign, slope))
    return Board(
        f"Mars Rover {X}x{Y}",
        (1, 1),
        (Y, X),
        (Token("rover", "y", "x", BLUE, "R", (0, 1)),),
        lambda _: areas,
        (
            Gauge("unreported", "u", BUDGET, ORANGE, is_alarm=True),
            Gauge("tries", "t", tries, PURPLE),
            Gauge("report", "h", color=BLUE, names=("not sent", "sent")),
        ),
        verdicts={"goal": ("ARRIVED", GREEN), "silent": ("LOST CONTACT", RED)},
        shades=np.where(odd[..., None], darker, soil),
    )
