"""Glider: reach a goal under water with currents whose strength is known and whose effect is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Block, Domain, Objective, build_vectorized
from rpl_envs.benchmark import Benchmark, check_size
from rpl_envs.rendering.board import Area, Board, Token
from rpl_envs.rendering.canvas import GREEN, RED

THETA = (0.3, 0.7)
ACTIONS = {"west": (-1, 0), "east": (1, 0), "north": (0, 1), "south": (0, -1)}
GOALS = {(51, 47): (45, 46)}
EPISODE = {(11, 9): 100, (21, 17): 100, (51, 47): 400, (69, 67): 600, (71, 67): 600}


def current(w: int, h: int, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Currents (cu, cv) at cells, as integers over the third value."""
    fx, fy = (2 * x - (w - 1)) * (h - 1), (2 * y - (h - 1)) * (w - 1)
    return 6 * fx + 2 * fy, -2 * fx + 7 * fy, 10 * (w - 1) * (h - 1)


def outside(w: int, h: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,) bool: cells beyond the grid."""
    return (x < 0) | (x >= w) | (y < 0) | (y >= h)


def expand(w: int, h: int, goal: tuple[int, int], states: Mapping[str, np.ndarray]) -> Iterator[Block]:
    """Blocks of transitions from each cell; numerators are those of 1, θ_h, θ_v and θ_h·θ_v."""
    x, y = states["x"], states["y"]
    here = np.arange(len(x))
    at_goal = (x == goal[0]) & (y == goal[1])
    certain = np.zeros((len(here), 4), dtype=np.int64)
    certain[:, 0] = 1
    yield Block("west", here[at_goal], {"x": x[at_goal], "y": y[at_goal]}, certain[at_goal])
    here = here[~at_goal]
    x, y = x[here], y[here]
    certain = certain[here]
    cu, cv, _ = current(w, h, x, y)
    zero = np.zeros_like(cu)
    fail_and_drift = np.column_stack([zero, zero, zero, np.abs(cu) * np.abs(cv)])  # aθh·bθv
    fail = np.column_stack([zero, np.abs(cu), zero, zero])  # aθh
    drift = np.column_stack([zero, zero, np.abs(cv), zero])  # bθv
    outcomes = {
        (True, False): certain - fail - drift + fail_and_drift,
        (True, True): drift - fail_and_drift,
        (False, False): fail - fail_and_drift,
        (False, True): fail_and_drift,
    }
    for action, (dx, dy) in ACTIONS.items():
        sideways_x = np.where(cu >= 0, 1, -1) if dx == 0 else zero
        sideways_y = np.where(cv >= 0, 1, -1) if dy == 0 else zero
        move_blocked = outside(w, h, x + dx, y + dy)
        drift_blocked = outside(w, h, x + sideways_x, y + sideways_y)
        stuck = move_blocked & (drift_blocked | (dy != 0))
        only_drift = move_blocked & ~stuck
        only_move = drift_blocked & ~move_blocked
        free = ~move_blocked & ~drift_blocked
        yield Block(action, here[stuck], {"x": x[stuck], "y": y[stuck]}, certain[stuck])
        for k, step_x, step_y in (
            (only_drift, sideways_x, sideways_y),
            (only_move, np.full_like(x, dx), np.full_like(y, dy)),
        ):
            yield Block(action, here[k], {"x": x[k] + step_x[k], "y": y[k] + step_y[k]}, drift[k])
            yield Block(action, here[k], {"x": x[k], "y": y[k]}, (certain - drift)[k])
        for (moves, drifts), chance in outcomes.items():
            after = {
                "x": (x + moves * dx + drifts * sideways_x)[free],
                "y": (y + moves * dy + drifts * sideways_y)[free],
            }
            yield Block(action, here[free], after, chance[free])


def glider(w: int = 11, h: int = 9, goal: Sequence[int] | None = None, radius: int = 0) -> Benchmark:
    """Glide from (0, 0) to the goal as fast as possible.

    ## Description
    In a cell with known currents (cu, cv) a command west, east, north or south fails with probability |cu|·θ_h and
    drifts across with probability |cv|·θ_v, independently: probabilities are bilinear in the unknown θ.
    At walls this is the paper's model, with its oddity kept: where the drift is blocked, the glider moves with the
    probability of a drift and stays otherwise.

    ## Action Space
    `Discrete(4)`: 0 west, 1 east, 2 north (y + 1), 3 south. All are enabled, but in the goal's centre only action 0,
    which stays.

    ## Observation Space
    `Discrete(w·h)`, a number of the state (x, y). `observation="features"` gives both scaled to [0, 1].

    ## Rewards
    −1 for every step until the goal: the expected time is to be minimised.

    ## Starting State
    (0, 0).

    ## Episode End
    Terminates in the goal.

    ## Arguments
    w, h: size of the grid. goal: its centre, by default (45, 46) for (51, 47) and the far corner otherwise. radius: the
    goal is the region |x − goal_x| < radius, |y − goal_y| < radius (0: the one cell); only its centre is absorbing.
    True parameters: θ_h = 0.3, θ_v = 0.7.

    ## Version History
    v0: the paper's model. Its instance "(106, 99)" is 71x67 in one table and 69x67 in another.
    """
    check_size("Glider", w=(w, 2), h=(h, 2), radius=(radius, 0))
    gx, gy = GOALS.get((w, h), (w - 1, h - 1)) if goal is None else goal
    if not (0 <= gx < w and 0 <= gy < h) or (gx, gy) == (0, 0):
        raise ModelError(f"Glider: goal {(gx, gy)} must be a cell of the {w}x{h} grid other than the start (0, 0)")
    if radius and abs(gx) < radius and abs(gy) < radius:
        raise ModelError(f"Glider: the start (0, 0) lies in the goal region of radius {radius} around {(gx, gy)}")

    scale = current(w, h, np.zeros(1), np.zeros(1))[2]
    half_width = max(radius, 1)
    pmdp = build_vectorized(
        {"x": 0, "y": 0},
        {"x": (0, w - 1), "y": (0, h - 1)},
        partial(expand, w, h, (gx, gy)),
        domain=Domain.box(("theta_h", "theta_v")),
        monomials=[[0, 0], [1, 0], [0, 1], [1, 1]],
        denominators=[1, scale, scale, scale**2],
        action_names=tuple(ACTIONS),
        labels={"goal": lambda s: (np.abs(s["x"] - gx) < half_width) & (np.abs(s["y"] - gy) < half_width)},
        state_rewards={"time": lambda s: np.where((s["x"] == gx) & (s["y"] == gy), 0.0, 1.0)},
        name=f"Glider-{w}x{h}" + ("-region" if radius else ""),
    )
    steps = EPISODE.get((w, h), 4 * (w + h)) + 1
    return Benchmark(pmdp, Objective.cost("time", target="goal"), THETA, steps, board(w, h, (gx, gy), half_width - 1))


def board(w: int, h: int, goal: tuple[int, int], around: int) -> Board:
    """Darker water has stronger currents."""
    y, x = np.mgrid[0:h, 0:w]
    u, v, _ = current(w, h, x, y)
    calm, strong = np.array((222.0, 239.0, 247.0)), np.array((52.0, 126.0, 172.0))
    strength = np.hypot(u, v)
    shades = calm + (strength / strength.max())[..., None] * (strong - calm)
    ends = [(max(at - around, 0), min(at + around, size - 1)) for at, size in zip(goal, (w, h))]
    area = Area(ends[0], ends[1], GREEN, 0.9, "goal", "G")
    return Board(
        f"Glider {w}x{h}",
        (0, 0),
        (w - 1, h - 1),
        (Token("glider", "x", "y", RED),),
        lambda _: (area,),
        verdicts={"goal": ("ARRIVED", GREEN)},
        shades=shades,
        arrows=("current", u, v),
    )
