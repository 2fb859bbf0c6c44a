"""Betting: how much to bet on a coin whose bias is unknown and whose odds improve with the capital."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from rpl_agent.core.model import Block, Domain, Objective, build_vectorized, require_valid, restrict_domain
from rpl_envs.benchmark import Benchmark, check_size
from rpl_envs.rendering.board import CurveBoard, Token
from rpl_envs.rendering.canvas import BLUE, GREEN, ORANGE

THETA = (0.55,)
START = 10
BETS = (1, 2, 5, 10)
#: Win probability over 10 000: bet -> (constant per unit of money, p).
WIN = {1: (0, 10_000), 2: (2, 10_000), 5: (3, 10_000), 10: (4, 5_000)}
SCALE = 10_000


def betting(n: int = 25) -> Benchmark:
    """Bet n times.

    ## Description
    Start with 10 and bet n times on a coin with unknown bias p. A bet b wins with probability p (b = 1),
    p + 0.0002·money (b = 2), p + 0.0003·money (b = 5) or p/2 + 0.0004·money (b = 10).

    ## Action Space
    `Discrete(5)`: bet 0, 1, 2, 5 or 10. Bet 0 is always enabled, bet b when b ≤ money ≤ 10 n and step < n.

    ## Observation Space
    `Discrete(|S|)`, a number of the state (money, step). `observation="features"` gives both scaled to [0, 1].

    ## Rewards
    The money, once, on leaving step n. The expected return is to be maximised.

    ## Starting State
    (10, 0).

    ## Episode End
    Terminates at step n + 1.

    ## Arguments
    n: number of bets. True parameter: p = 0.55. The domain is the set of p for which every win probability is at
    most 1 (so n must stay below 150).

    ## Version History
    v0: the paper's model. Its instance "(150)" is n = 135 in two tables and n = 140 in a third.
    """
    check_size("Betting", n=(n, 1))

    def expand(states: Mapping[str, np.ndarray]) -> Iterator[Block]:
        money, step = states["money"], states["step"]
        here = np.arange(len(money))
        certain = np.tile(np.array([[SCALE, 0]]), (len(here), 1))
        yield Block("bet 0", here, {"money": money, "step": np.minimum(step + 1, n + 1)}, certain)
        for bet in BETS:
            at = here[(bet <= money) & (money <= 10 * n) & (step < n)]
            slope, p = WIN[bet]
            win = np.column_stack([slope * money[at], np.full(len(at), p)])
            for sign, chance in ((1, win), (-1, [SCALE, 0] - win)):
                yield Block(f"bet {bet}", at, {"money": money[at] + sign * bet, "step": step[at] + 1}, chance)

    pmdp = build_vectorized(
        {"money": START, "step": 0},
        {"money": (0, START + 10 * n), "step": (0, n + 1)},
        expand,
        domain=Domain.box(("p",)),
        monomials=[[0], [1]],
        denominators=[SCALE, SCALE],
        action_names=("bet 0", *(f"bet {b}" for b in BETS)),
        labels={"done": lambda s: s["step"] == n + 1},
        state_rewards={"money": lambda s: np.where(s["step"] == n, s["money"], 0)},
        name=f"Betting-{n}",
        validate=False,
    )
    pmdp = replace(pmdp, domain=restrict_domain(pmdp.table, pmdp.domain))
    require_valid(pmdp)
    return Benchmark(pmdp, Objective.reward("money", target="done"), THETA, n + 1, board(n, {"money": "money"}))


def board(n: int, games: Mapping[str, str]) -> CurveBoard:
    """The capital of each game over the steps; games: name -> variable."""
    tokens = tuple(Token(name, "", variable, color) for (name, variable), color in zip(games.items(), (BLUE, ORANGE)))
    done = {"done": ("DONE", GREEN)}
    title = f"Parallel Betting {n}" if len(games) > 1 else f"Betting {n}"
    return CurveBoard(title, (0, 0), (n, 10**9), tokens, verdicts=done, most_steps=n, start=START)
