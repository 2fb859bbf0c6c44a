"""Engagement: lead a customer up a ladder of interest without driving them away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from rpl_agent.core.model import Block, Domain, Objective, build_vectorized, require_valid, restrict_domain
from rpl_envs.benchmark import Benchmark, check_size
from rpl_envs.rendering.board import Area, CurveBoard, Gauge, Token
from rpl_envs.rendering.canvas import BLUE, GREEN, ORANGE, PURPLE, RED, YELLOW

THETA = (0.3, 0.2, 0.1, 0.25)
ACTIONS = ("light", "medium", "aggressive")
AGGRESSIVE = 3  # values of `last` and `pending`: 0 none, 1 light, 2 medium, 3 aggressive
#: Thousandths, per action and customer type 1..5.
UP = np.array([(100, 60, 40, 30, 20), (180, 120, 80, 60, 40), (280, 200, 120, 80, 50)])
DOWN = np.array([(20, 10, 20, 15, 30), (60, 30, 80, 100, 120), (200, 100, 250, 300, 350)])
#: Hundredths, per zone (cold, warm, hot) and action: factors and offsets of the chances to go up and down.
FACTOR_UP = np.array([(115, 105, 100), (100, 115, 105), (85, 100, 110)])
FACTOR_DOWN = np.array([(90, 95, 110), (100, 95, 105), (105, 100, 95)])
OFFSET_UP = np.array([(2, 1, 0), (0, 2, 1), (-2, 0, 1)])
OFFSET_DOWN = np.array([(0, 0, 2), (0, 0, 1), (0, 0, -1)])
REPEATED = np.array([9, 9, 8])  # tenths: what an action is worth when it was also the last one
HASTY = 7  # tenths: what an aggressive action is worth before the cool-down is over
SCALE = 10**7  # tenths (repeated) · tenths (hasty) · hundredths (zone) · thousandths (type)
COST = {"step": 1.0, "light": 0.05, "medium": 0.10, "aggressive": 0.30, "churn": 5.0}
EPISODE = {50: 50, 100: 150, 300: 300, 1000: 1000}


def mixture(factor: np.ndarray, types: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """(n, 5) numerators of 1, θ_1, …, θ_4 over SCALE, with θ_5 eliminated."""
    weighted = factor[:, None] * types  # (n, 5) over SCALE
    numerators = np.column_stack([weighted[:, 4], weighted[:, :4] - weighted[:, 4:]])
    numerators[:, 0] += offset * (SCALE // 100)
    return numerators


def expand(L: int, churn_penalty: bool, states: Mapping[str, np.ndarray]) -> Iterator[Block]:
    """Blocks of transitions from each state: choose in phase 0, react in phase 1."""
    e, last, cool, phase, pending = (states[v] for v in ("e", "last", "cool", "phase", "pending"))
    here = np.arange(len(e))
    certain = np.zeros((len(here), 5), dtype=np.int64)
    certain[:, 0] = SCALE
    final = (e == 0) | (e == L)
    end = here[final & ((phase == 0) | (pending == 0))]
    after = {v: states[v][end] for v in states}
    if churn_penalty:  # one more step at level 0, on which the penalty is paid
        after["phase"] = np.where(e[end] == 0, 1, 0)
    yield Block("light", end, after, certain[end])
    choose = here[~final & (phase == 0)]
    for number, action in enumerate(ACTIONS, start=1):
        after = {v: states[v][choose] for v in states} | {
            "phase": np.ones(len(choose)),
            "pending": np.full(len(choose), number),
        }
        yield Block(action, choose, after, certain[choose])
    react = here[(phase == 1) & (pending > 0)]
    e, last, cool, chosen = e[react], last[react], cool[react], pending[react]
    a = chosen - 1
    zone = np.where(e <= 3, 0, np.where(e >= L - 2, 2, 1))
    worth = np.where(last == chosen, REPEATED[a], 10) * np.where((chosen == AGGRESSIVE) & (cool < 2), HASTY, 10)
    up = mixture(worth * FACTOR_UP[zone, a], UP[a], OFFSET_UP[zone, a])
    down = mixture(worth * FACTOR_DOWN[zone, a], DOWN[a], OFFSET_DOWN[zone, a])
    after = {
        "last": chosen,
        "cool": np.where(chosen == AGGRESSIVE, 0, np.minimum(cool + 1, 2)),
        "phase": np.zeros(len(react)),
        "pending": np.zeros(len(react)),
    }
    for move, chance in ((1, up), (-1, down), (0, certain[react] - up - down)):
        yield Block("light", react, after | {"e": e + move}, chance)


def cost(L: int, s: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n,) cost of leaving each state."""
    by_phase = np.where(s["phase"] == 0, COST["step"], np.array([0.0, *(COST[a] for a in ACTIONS)])[s["pending"]])
    churned = np.where((s["e"] == 0) & (s["phase"] == 0), COST["churn"], 0.0)
    return np.where((s["e"] == 0) | (s["e"] == L), churned, by_phase)


def engagement(L: int = 50, churn_penalty: bool = False) -> Benchmark:
    """Lead a customer from level 2 to level L.

    ## Description
    In phase 0 the agent chooses a light, medium or aggressive intervention; in phase 1 the customer reacts: one level
    up, one down, or none. Five types of customers react differently, and the mixture θ of types is unknown. Reactions
    depend on the zone (cold up to level 3, hot from L − 2), weaken when an intervention is repeated, and an
    aggressive one needs two steps of cool-down.

    ## Action Space
    `Discrete(3)`: 0 light, 1 medium, 2 aggressive. In phase 1, and in the two final levels, there is nothing to
    choose: only action 0 is enabled and means "go on".

    ## Observation Space
    `Discrete(|S|)`, a number of the state (e, last, cool, phase, pending): level, last intervention (0 none, 1 light,
    2 medium, 3 aggressive), steps since an aggressive one (at most 2), phase, chosen intervention.
    `observation="features"` gives the five variables scaled to [0, 1].

    ## Rewards
    Minus the cost: 1 for every decision, 0.05 / 0.10 / 0.30 for a light / medium / aggressive intervention. The
    expected total cost is to be minimised.

    ## Starting State
    (2, none, 2, 0, none).

    ## Episode End
    Terminates in phase 0 at level 0 (churn) or L (purchase).

    ## Arguments
    L: highest level. churn_penalty: count 5 on churn; in the paper's model churn is a target and its penalty is never
    paid, which stays the default. True parameters: θ = (0.3, 0.2, 0.1, 0.25), θ_5 = 1 − Σ θ_i.

    ## Version History
    v0: the paper's model.
    """
    check_size("Engagement", L=(L, 7))

    final_phase = 1 if churn_penalty else 0
    pmdp = build_vectorized(
        {"e": 2, "last": 0, "cool": 2, "phase": 0, "pending": 0},
        {"e": (0, L), "last": (0, 3), "cool": (0, 2), "phase": (0, 1), "pending": (0, 3)},
        partial(expand, L, churn_penalty),
        domain=Domain.box(("theta1", "theta2", "theta3", "theta4")).with_simplex(),
        monomials=np.vstack([np.zeros(4, dtype=int), np.eye(4, dtype=int)]),
        denominators=[SCALE] * 5,
        action_names=ACTIONS,
        labels={
            "churn": lambda s: (s["e"] == 0) & (s["phase"] == 0),
            "purchase": lambda s: (s["e"] == L) & (s["phase"] == 0),
            "done": lambda s: ((s["e"] == 0) & (s["phase"] == final_phase)) | ((s["e"] == L) & (s["phase"] == 0)),
        },
        state_rewards={"cost": partial(cost, L)},
        name=f"Engagement-{L}",
        validate=False,
    )
    pmdp = replace(pmdp, domain=restrict_domain(pmdp.table, pmdp.domain))
    require_valid(pmdp)
    steps = EPISODE.get(L, max(50, L)) + 1
    return Benchmark(pmdp, Objective.cost("cost", target="done"), THETA, steps, board(L))


def board(L: int) -> CurveBoard:
    """The level over the steps, and the zones of the ladder."""
    zones = (
        ("churn", 0, 0, RED),
        ("cold", 1, 3, BLUE),
        ("warm", 4, L - 3, YELLOW),
        ("hot", L - 2, L - 1, ORANGE),
        ("purchase", L, L, GREEN),
    )
    areas = tuple(Area((-np.inf, np.inf), (low, high), color, 0.22, name) for name, low, high, color in zones)
    named = ("none", *ACTIONS)
    return CurveBoard(
        f"Engagement {L}",
        (0, 0),
        (30, L),
        (Token("level", "", "e", PURPLE),),
        lambda _: areas,
        (
            Gauge("chosen", "pending", color=BLUE, names=named),
            Gauge("last", "last", color=BLUE, names=named),
            Gauge("cool", "cool", 2, PURPLE),
        ),
        verdicts={"churn": ("CHURN", RED), "purchase": ("PURCHASE", GREEN)},
    )
