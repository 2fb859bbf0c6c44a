"""The benchmarks once more, state by state in exact rationals: slow, obvious twins of the vectorised ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import numpy as np

from rpl_agent.core.model import ParametricMDP, Polynomial, Reward, build

P = Polynomial.parameter


def dec(text: str) -> list[F]:
    return [F(word) for word in text.split()]


def mixture(names: list[str]) -> list[Polynomial]:
    weights = [P(name) for name in names]
    last = Polynomial.constant(1)
    for weight in weights:
        last = last - weight
    return [*weights, last]


def weighted(weights: list[Polynomial], values: list[F]) -> Polynomial:
    total = Polynomial.constant(0)
    for weight, value in zip(weights, values):
        total = total + weight * value
    return total


def add(row: dict, successor: tuple, chance: Polynomial | int) -> None:
    row[successor] = row.get(successor, Polynomial.constant(0)) + chance


def with_heights(pmdp: ParametricMDP) -> ParametricMDP:
    """The model with a reward "height" of states, which only files can write; `build` pays for actions."""
    heights = np.where(pmdp.is_silent, 0.0, np.arange(pmdp.num_states) % 3 + 0.5)
    return replace(pmdp, rewards={**pmdp.rewards, "height": Reward(heights, np.zeros(pmdp.num_rows))})


def aircraft(X: int, Y: int, domain) -> ParametricMDP:
    theta = mixture(["theta1", "theta2", "theta3"])

    def modes(nx: F) -> list[tuple[F, F, F]]:
        one = 1 - nx
        return [
            (F("0.16") + F("0.08") * nx, F("0.08") + F("0.04") * nx, F("0.10") + F("0.02") * one),
            (F("0.18") + F("0.06") * one, F("0.07") + F("0.03") * one, F("0.09") + F("0.03") * nx),
            (F("0.14") + F("0.10") * nx, F("0.09") + F("0.02") * nx, F("0.08") + F("0.04") * one),
            (F("0.20") + F("0.04") * one, F("0.06") + F("0.05") * nx, F("0.11") + F("0.01") * one),
        ]

    def actions(state):
        x, y, ax, ay = state
        if x == X:
            return {a: {state: 1} for a in ("up", "down", "stay")}
        rows = {}
        for action, move in (("up", 1), ("down", -1), ("stay", 0)):
            row: dict = {}
            moved = min(max(y + move, 0), Y)
            for m, after in ((1, max(ay - 1, 0)), (2, min(ay + 1, Y)), (3, ay)):
                chances = [(r, u if m == 1 else d if m == 2 else 1 - u - d) for r, u, d in modes(F(x, X))]
                if action == "stay":
                    add(row, (x + 1, y, ax - 1, after), weighted(theta, [c for _, c in chances]))
                else:
                    add(row, (x + 1, moved, ax - 1, after), weighted(theta, [r * c for r, c in chances]))
                    add(row, (x + 1, y, ax - 1, after), weighted(theta, [(1 - r) * c for r, c in chances]))
            rows[action] = row
        return rows

    return build(
        (0, 1, X, 1), actions, domain=domain, variables=("x", "y", "ax", "ay"), action_names=("up", "down", "stay")
    )


def win(bet: int, money: int, p: Polynomial) -> Polynomial:
    return {1: p, 2: p + F("0.0002") * money, 5: p + F("0.0003") * money, 10: p / 2 + F("0.0004") * money}[bet]


BETS = ("bet 0", "bet 1", "bet 2", "bet 5", "bet 10")


def betting(n: int, domain) -> ParametricMDP:
    def actions(state):
        money, step = state
        rows = {"bet 0": {(money, min(step + 1, n + 1)): 1}}
        for bet in (1, 2, 5, 10):
            if step < n and bet <= money <= 10 * n:
                chance = win(bet, money, P("p"))
                rows[f"bet {bet}"] = {(money + bet, step + 1): chance, (money - bet, step + 1): 1 - chance}
        return rows

    return build(
        (10, 0), actions, domain=domain, variables=("money", "step"), action_names=BETS,
        rewards={"money": lambda s, a: s[0] if s[1] == n else 0},
    )  # fmt: skip


def parallel_betting(n: int, variant: str, domain) -> ParametricMDP:
    def chances(bet, m1, m2):
        if variant == "capital":
            return win(bet, m1, P("p1")), win(bet, m2, P("p2"))
        p1, p2 = P("p1"), P("p2")
        first = {1: p1, 2: p1 + F("0.1"), 5: p1 + F("0.05"), 10: p1 / 2 + F("0.3")}[bet]
        second = {1: p2, 2: p2 + F("0.002") * m2, 5: p2 + F("0.003") * m2, 10: p2 / 2 + F("0.004") * m2}[bet]
        return first, second

    def actions(state):
        m1, m2, step = state
        rows = {"bet 0": {(m1, m2, min(step + 1, n + 1)): 1}}
        for bet in (1, 2, 5, 10):
            if step < n and all(bet <= m <= 10 * n for m in (m1, m2)):
                f, g = chances(bet, m1, m2)
                rows[f"bet {bet}"] = {
                    (m1 + bet, m2 + bet, step + 1): f * g,
                    (m1 + bet, m2 - bet, step + 1): f * (1 - g),
                    (m1 - bet, m2 + bet, step + 1): (1 - f) * g,
                    (m1 - bet, m2 - bet, step + 1): (1 - f) * (1 - g),
                }
        return rows

    return build(
        (10, 10, 0), actions, domain=domain, variables=("money1", "money2", "step"), action_names=BETS,
        rewards={"money": lambda s, a: s[0] + s[1] if s[2] == n else 0},
    )  # fmt: skip


def engagement(L: int, domain) -> ParametricMDP:
    theta = mixture(["theta1", "theta2", "theta3", "theta4"])
    names = ("light", "medium", "aggressive")
    up = {
        "light": dec(".10 .06 .04 .03 .02"),
        "medium": dec(".18 .12 .08 .06 .04"),
        "aggressive": dec(".28 .20 .12 .08 .05"),
    }
    down = {
        "light": dec(".02 .01 .02 .015 .03"),
        "medium": dec(".06 .03 .08 .10 .12"),
        "aggressive": dec(".20 .10 .25 .30 .35"),
    }
    zones = {
        "cold": (dec("1.15 1.05 1"), dec(".9 .95 1.1"), dec(".02 .01 0"), dec("0 0 .02")),
        "warm": (dec("1 1.15 1.05"), dec("1 .95 1.05"), dec("0 .02 .01"), dec("0 0 .01")),
        "hot": (dec(".85 1 1.1"), dec("1.05 1 .95"), dec("-.02 0 .01"), dec("0 0 -.01")),
    }
    cost = {1: 0.05, 2: 0.10, 3: 0.30}

    def actions(state):
        e, last, cool, phase, pending = state
        if phase == 0 and e in (0, L):
            return {"light": {state: 1}}
        if phase == 0:
            return {a: {(e, last, cool, 1, i): 1} for i, a in enumerate(names, start=1)}
        a, i = names[pending - 1], pending - 1
        mU, mD, aU, aD = zones["cold" if e <= 3 else "hot" if e >= L - 2 else "warm"]
        f = F(1)
        if last == pending:
            f *= F("0.8") if a == "aggressive" else F("0.9")
        if a == "aggressive" and cool < 2:
            f *= F("0.7")
        pU = weighted(theta, up[a]) * (f * mU[i]) + aU[i]
        pD = weighted(theta, down[a]) * (f * mD[i]) + aD[i]
        tail = (pending, 0 if a == "aggressive" else min(cool + 1, 2), 0, 0)
        return {"light": {(e + 1, *tail): pU, (e - 1, *tail): pD, (e, *tail): 1 - pU - pD}}

    def reward(state, action):
        e, _, _, phase, pending = state
        if phase == 0:
            return 5.0 if e == 0 else 0.0 if e == L else 1.0
        return cost[pending]

    return build(
        (2, 0, 2, 0, 0), actions, domain=domain, variables=("e", "last", "cool", "phase", "pending"),
        action_names=names, rewards={"cost": reward},
    )  # fmt: skip


def mars_rover(X: int, Y: int, T: int, domain) -> ParametricMDP:
    theta = mixture(["theta1", "theta2", "theta3", "theta4"])
    L0, L1 = dec(".05 .0875 .125 .1625 .2"), dec(".35 .2875 .225 .1625 .1")
    H0, H1 = dec(".18 .15 .12 .09 .06"), dec(".1 .175 .25 .325 .4")
    order = ("WS", "WM", "WN", "CS", "CM", "CN", "ES", "EM", "EN")
    mL = dict(zip(order, dec(".85 .95 .75 1.10 1.55 1.00 .90 1.20 1.05")))
    mH = dict(zip(order, dec(".85 1.20 .95 .90 1.50 1.10 .80 1.25 1.00")))

    def actions(state):
        x, y, u, h, t = state
        if (x, y) == (X, Y):
            return {"up": {state: 1}}
        after = (0, 0, t) if h else (min(u + 1, 6), 0, t)
        rows: dict = {}
        if x < X:
            rows["up"] = {(x + 1, y, *after): 1}
        if y < Y:
            rows["right"] = {(x, y + 1, *after): 1}
        if not h and t < T:
            zone = ("W" if x <= 4 else "C" if x <= 8 else "E") + ("S" if y <= 4 else "M" if y <= 8 else "N")
            jam_L = (3 <= x <= 6 and 9 <= y <= 12) or (8 <= x <= 12 and 6 <= y <= 8)
            jam_H = (2 <= x <= 5 and 3 <= y <= 6) or (7 <= x <= 10 and 2 <= y <= 4)
            for action, A0, A1, pos, m, jam in (
                ("sendL", L0, L1, F(x - 1, X - 1), mL, jam_L),
                ("sendH", H0, H1, F(y - 1, Y - 1), mH, jam_H),
            ):
                s0 = weighted(theta, [a + b * pos for a, b in zip(A0, A1)])
                success = s0 * m[zone] * (F("0.6") if jam else 1)
                rows[action] = {(x, y, u, 1, 0): success, (x, y, u, 0, t + 1): 1 - success}
        return rows

    return build(
        (1, 1, 0, 0, 0), actions, domain=domain, variables=("x", "y", "u", "h", "t"),
        action_names=("up", "right", "sendL", "sendH"),
    )  # fmt: skip


def glider(w: int, h: int, goal: tuple[int, int], domain) -> ParametricMDP:
    th, tv = P("theta_h"), P("theta_v")

    def actions(state):
        x, y = state
        if state == goal:
            return {"west": {state: 1}}
        fx, fy = F(2 * x, w - 1) - 1, F(2 * y, h - 1) - 1
        cu, cv = F("0.6") * fx + F("0.2") * fy, -F("0.2") * fx + F("0.7") * fy
        fail, drift = th * abs(cu), tv * abs(cv)
        SN, SD, FN, FD = (1 - fail) * (1 - drift), (1 - fail) * drift, fail * (1 - drift), fail * drift

        def inside(cell):
            return 0 <= cell[0] < w and 0 <= cell[1] < h

        rows = {}
        for action, (dx, dy) in {"west": (-1, 0), "east": (1, 0), "north": (0, 1), "south": (0, -1)}.items():
            sx = 0 if dx else (1 if cu >= 0 else -1)
            sy = 0 if dy else (1 if cv >= 0 else -1)
            move, side, both = (x + dx, y + dy), (x + sx, y + sy), (x + dx + sx, y + dy + sy)
            if not inside(move) and (dy or not inside(side)):
                rows[action] = {state: Polynomial.constant(1)}
            elif not inside(move):
                rows[action] = {state: SN + FN, side: SD + FD}
            elif not inside(side):
                rows[action] = {move: SD + FD, state: SN + FN}
            else:
                rows[action] = {move: SN, both: SD, state: FN, side: FD}
        return rows

    return build(
        (0, 0), actions, domain=domain, variables=("x", "y"), action_names=("west", "east", "north", "south"),
        rewards={"time": lambda s, a: 0 if s == goal else 1},
    )  # fmt: skip
