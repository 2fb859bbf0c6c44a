"""Parallel Betting: one bet on two coins at once; probabilities are products of two unknowns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Block, Domain, Objective, build_vectorized
from rpl_envs.benchmark import Benchmark, check_size
from rpl_envs.worlds.betting import BETS, START, board

THETA = (0.55, 0.53)
Game = tuple[int, Mapping[int, tuple[int, int, int]]]
#: Win probabilities of a game over its scale: bet -> (constant, constant per unit of money, p).
FIXED = (20, {1: (0, 0, 20), 2: (2, 0, 20), 5: (1, 0, 20), 10: (6, 0, 10)})
STEEP = (1_000, {1: (0, 0, 1_000), 2: (0, 2, 1_000), 5: (0, 3, 1_000), 10: (0, 4, 500)})
CAPITAL = (10_000, {1: (0, 0, 10_000), 2: (0, 2, 10_000), 5: (0, 3, 10_000), 10: (0, 4, 5_000)})
VARIANTS = {"mixed": (FIXED, STEEP), "capital": (CAPITAL, CAPITAL)}


def win(game: Game, bet: int, money: np.ndarray) -> np.ndarray:
    """(n, 2) constant and coefficient of p."""
    constant, slope, p = game[1][bet]
    return np.column_stack([constant + slope * money, np.full(len(money), p)])


def expand(n: int, games: tuple[Game, Game], states: Mapping[str, np.ndarray]) -> Iterator[Block]:
    """Blocks of transitions from each state; numerators are those of 1, p1, p2 and p1·p2."""
    money, step = (states["money1"], states["money2"]), states["step"]
    here = np.arange(len(step))
    certain = np.tile(np.array([[games[0][0] * games[1][0], 0, 0, 0]]), (len(here), 1))
    after = {"money1": money[0], "money2": money[1], "step": np.minimum(step + 1, n + 1)}
    yield Block("bet 0", here, after, certain)
    for bet in BETS:
        at = here[(step < n) & (np.minimum(*money) >= bet) & (np.maximum(*money) <= 10 * n)]
        m1, m2 = money[0][at], money[1][at]
        win1, win2 = win(games[0], bet, m1), win(games[1], bet, m2)
        for sign1, f in ((1, win1), (-1, [games[0][0], 0] - win1)):
            for sign2, g in ((1, win2), (-1, [games[1][0], 0] - win2)):
                after = {"money1": m1 + sign1 * bet, "money2": m2 + sign2 * bet, "step": step[at] + 1}
                product = np.column_stack([f[:, 0] * g[:, 0], f[:, 1] * g[:, 0], f[:, 0] * g[:, 1], f[:, 1] * g[:, 1]])
                yield Block(f"bet {bet}", at, after, product)


def parallel_betting(n: int = 6, variant: str | None = None) -> Benchmark:
    """Bet n times in two games at once.

    ## Description
    Two betting games, each starting with 10, run in step: the same bet is placed in both. Their biases p1 and p2 are
    unknown; the four outcomes have the products of the two games' probabilities.
    Variant "mixed": game 1 wins with p1, p1 + 0.1, p1 + 0.05, p1/2 + 0.3 for bets 1, 2, 5, 10, game 2 with p2,
    p2 + 0.002·m2, p2 + 0.003·m2, p2/2 + 0.004·m2. Variant "capital": both games p, p + 0.0002·m, p + 0.0003·m,
    p/2 + 0.0004·m with their own p and m.

    ## Action Space
    `Discrete(5)`: bet 0, 1, 2, 5 or 10. Bet 0 is always enabled, bet b when b ≤ money ≤ 10 n in both games and
    step < n.

    ## Observation Space
    `Discrete(|S|)`, a number of the state (money1, money2, step). `observation="features"` gives the three variables
    scaled to [0, 1].

    ## Rewards
    money1 + money2, once, on leaving step n. The expected return is to be maximised.

    ## Starting State
    (10, 10, 0).

    ## Episode End
    Terminates at step n + 1.

    ## Arguments
    n: number of bets. variant: "mixed" (the paper's instances 5, 6, 10) or "capital" (its instance 20); by default
    "mixed" up to n = 10. True parameters: p = (0.55, 0.53). The domain is the box in which every win
    probability is at most 1.

    ## Version History
    v0: the paper's model.
    """
    check_size("ParallelBetting", n=(n, 1))
    variant = ("mixed" if n <= 10 else "capital") if variant is None else variant
    if variant not in VARIANTS:
        raise ModelError(f"ParallelBetting: variant {variant!r} is not one of {sorted(VARIANTS)}")
    games = VARIANTS[variant]
    most = START + 10 * n
    pmdp = build_vectorized(
        {"money1": START, "money2": START, "step": 0},
        {"money1": (0, most), "money2": (0, most), "step": (0, n + 1)},
        partial(expand, n, games),
        domain=Domain.box({"p1": (0.0, largest(games[0], n)), "p2": (0.0, largest(games[1], n))}),
        monomials=[[0, 0], [1, 0], [0, 1], [1, 1]],
        denominators=[games[0][0] * games[1][0]] * 4,
        action_names=("bet 0", *(f"bet {b}" for b in BETS)),
        labels={"done": lambda s: s["step"] == n + 1},
        state_rewards={"money": lambda s: np.where(s["step"] == n, s["money1"] + s["money2"], 0)},
        name=f"ParallelBetting-{n}" + ("-capital" if variant == "capital" else ""),
    )
    objective = Objective.reward("money", target="done")
    return Benchmark(pmdp, objective, THETA, n + 1, board(n, {"game 1": "money1", "game 2": "money2"}))


def largest(game: Game, n: int) -> float:
    """The largest p for which a game's win probabilities stay below 1 up to the money 10 n that can be bet."""
    scale, odds = game
    return min(1.0, *((scale - constant - slope * 10 * n) / p for constant, slope, p in odds.values()))
