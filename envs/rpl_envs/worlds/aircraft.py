"""Aircraft: avoid an approaching aircraft whose pilot is a mixture of four known modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from rpl_agent.core.model import Block, Domain, Objective, build_vectorized
from rpl_envs.benchmark import Benchmark, check_size
from rpl_envs.rendering.board import Area, Board, Token, Values
from rpl_envs.rendering.canvas import BLUE, GREEN, RED

THETA = (0.4, 0.2, 0.15)
#: Modes k = 1..4: hundredths (constant, per nx) of response, up and down, nx = x / X.
RESPONSE = np.array([(16, 8), (24, -6), (14, 10), (24, -4)])
UP = np.array([(8, 4), (10, -3), (9, 2), (6, 5)])
DOWN = np.array([(12, -2), (9, 3), (12, -4), (12, -1)])
#: Half the height of the collision zone in the paper's instances.
COLLISION_HEIGHT = {(20, 10): 2, (50, 10): 2, (100, 20): 4, (200, 40): 11}
COLLISION_LENGTH = 2


def mixture(weights: np.ndarray) -> np.ndarray:
    """(n, 4) integers per mode -> numerators of 1, θ_1, θ_2, θ_3, with θ_4 eliminated."""
    return np.column_stack([weights[:, 3], weights[:, :3] - weights[:, 3:]])


def expand(X: int, Y: int, states: Mapping[str, np.ndarray]) -> Iterator[Block]:
    """Blocks of transitions from each state; numerators are integers over the square of 100 X."""
    scale = 100 * X  # every mode's probability is an integer over this
    x, y, ax, ay = (states[v] for v in ("x", "y", "ax", "ay"))
    here = np.arange(len(x))
    end, fly = here[x == X], here[x < X]
    for action in ("up", "down", "stay"):
        loop = np.zeros((len(end), 4), dtype=np.int64)
        loop[:, 0] = scale**2
        yield Block(action, end, {v: states[v][end] for v in states}, loop)
    x, y, ax, ay = x[fly], y[fly], ax[fly], ay[fly]
    modes = [X * a[:, 0] + np.multiply.outer(x, a[:, 1]) for a in (RESPONSE, UP, DOWN)]  # (n, 4) each
    response, up, down = modes
    other = ((up, np.maximum(ay - 1, 0)), (down, np.minimum(ay + 1, Y)), (scale - up - down, ay))
    for weight, height_after in other:
        after = {"x": x + 1, "ax": ax - 1, "ay": height_after}
        yield Block("stay", fly, after | {"y": y}, mixture(scale * weight))
        for action, moved in (("up", np.minimum(y + 1, Y)), ("down", np.maximum(y - 1, 0))):
            yield Block(action, fly, after | {"y": moved}, mixture(response * weight))
            yield Block(action, fly, after | {"y": y}, mixture((scale - response) * weight))


def aircraft(X: int = 20, Y: int = 10, collision_height: int | None = None) -> Benchmark:
    """Fly past an approaching aircraft.

    ## Description
    Two aircraft fly towards each other on a grid. In every step both advance by one column; ours may climb or sink,
    which its crew manages with probability r, and the other climbs, sinks or keeps its height. r and the other's
    behaviour are mixtures of four known modes that depend on the column; the mixture weights θ are unknown.

    ## Action Space
    `Discrete(3)`: 0 up, 1 down, 2 stay. All are always enabled.

    ## Observation Space
    `Discrete(|S|)`, a number of the state (x, y, ax, ay): our column and height, the other's column and height.
    `observation="features"` gives the four variables scaled to [0, 1].

    ## Rewards
    1 on entering x = X without a collision before, else 0: the return is the probability to be maximised.

    ## Starting State
    (0, 1, X, 1).

    ## Episode End
    Terminates at x = X, and on a collision: |x − ax| ≤ 2 and |y − ay| ≤ `collision_height`.

    ## Arguments
    X, Y: largest column and height. collision_height: 2 for (20, 10) and (50, 10), 4 for (100, 20), 11 for (200, 40),
    about Y / 5 otherwise. True parameters: θ = (0.4, 0.2, 0.15), θ_4 = 1 − θ_1 − θ_2 − θ_3.

    ## Version History
    v0: the paper's model.
    """
    check_size("Aircraft", X=(X, 2), Y=(Y, 1))
    height = COLLISION_HEIGHT.get((X, Y), max(1, round(Y / 5))) if collision_height is None else collision_height
    pmdp = build_vectorized(
        {"x": 0, "y": 1, "ax": X, "ay": 1},
        {"x": (0, X), "y": (0, Y), "ax": (0, X), "ay": (0, Y)},
        partial(expand, X, Y),
        domain=Domain.box(("theta1", "theta2", "theta3")).with_simplex(),
        monomials=np.vstack([np.zeros(3, dtype=int), np.eye(3, dtype=int)]),
        denominators=[(100 * X) ** 2] * 4,
        action_names=("up", "down", "stay"),
        labels={
            "arrived": lambda s: s["x"] == X,
            "collision": lambda s: (
                (np.abs(s["x"] - s["ax"]) <= COLLISION_LENGTH) & (np.abs(s["y"] - s["ay"]) <= height)
            ),
        },
        name=f"Aircraft-{X}x{Y}",
    )
    objective = Objective.reach("arrived", avoid="collision")
    return Benchmark(pmdp, objective, THETA, X + 1, board(X, Y, height))


def board(X: int, Y: int, height: int) -> Board:
    """A side view: both aircraft, and the zone around the other one."""

    def areas(v: Values) -> tuple[Area, ...]:
        ax, ay = int(v["ax"][-1]), int(v["ay"][-1])
        across = max(ax - COLLISION_LENGTH, 0), min(ax + COLLISION_LENGTH, X)
        zone = Area(across, (max(ay - height, 0), min(ay + height, Y)), RED, 0.16, "collision zone", "#")
        return Area((X, X), (0, Y), GREEN, 0.25, "passed"), zone

    return Board(
        f"Aircraft {X}x{Y}",
        (0, 0),
        (X, Y),
        (Token("other", "ax", "ay", RED, "<", (-1, 0)), Token("we", "x", "y", BLUE, ">")),
        areas,
        verdicts={"collision": ("COLLISION", RED), "arrived": ("PASSED", GREEN)},
        ground=(232, 242, 250),
    )
