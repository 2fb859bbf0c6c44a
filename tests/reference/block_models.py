"""Random models whose rows share independent blocks of unknowns: coins and dice that many states throw."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.model import Domain, Objective, ParametricMDP, build

DISCOUNTED = Objective.discounted("gain", 0.9)


def block_model(seed: int, unknowns: int, states: int = 30, actions: int = 3) -> tuple[ParametricMDP, np.ndarray]:
    """(model, its true parameters): every action throws a coin or a die of up to four sides, its own or a shared one.

    Each side leads to another state; gains are those of the action.
    """
    rng = np.random.default_rng(seed)
    groups, truth = _dice(rng, unknowns)
    thrown = list(range(len(groups))) + rng.integers(len(groups), size=states * actions - len(groups)).tolist()
    rng.shuffle(thrown)
    gains = rng.random((states, actions)).round(3)
    targets = [rng.choice(states, len(groups[k]) + 1, replace=False).tolist() for k in thrown]

    def rows(s: int) -> dict:
        found = {}
        for a in range(actions):
            group, to = groups[thrown[s * actions + a]], targets[s * actions + a]
            found[a] = dict(zip(to, [*group, " - ".join(["1", *group])]))
        return found

    rewards = {"gain": lambda s, a: gains[s, a]}
    pmdp = build(0, rows, domain=_domain(groups), rewards=rewards, name=f"{unknowns} unknowns")
    return pmdp, np.array([truth[name] for name in pmdp.table.parameters])


def ending_model(seed: int, unknowns: int, states: int = 14) -> tuple[ParametricMDP, np.ndarray]:
    """(model, its true parameters): coins and dice with two actions in each state, until a play is won or lost.

    Both ends are sinks, which labels name ("won", "lost", and "over" for both); a question need not.
    """
    rng = np.random.default_rng(seed)
    groups, truth = _dice(rng, unknowns)
    thrown = list(range(len(groups))) + rng.integers(len(groups), size=2 * states - len(groups)).tolist()
    rng.shuffle(thrown)
    gains, targets = rng.random((states, 2)).round(3), []
    for k in thrown:
        to: list = rng.choice(states, len(groups[k]) + 1, replace=False).tolist()
        to[int(rng.integers(len(to)))] = ("won", "lost")[int(rng.integers(2))]
        targets.append(to)

    def rows(s: int | str) -> dict:
        if isinstance(s, str):
            return {0: {s: 1}}
        dice = [groups[k] for k in thrown[2 * s : 2 * s + 2]]
        return {
            a: dict(zip(to, [*group, " - ".join(["1", *group])]))
            for a, (group, to) in enumerate(zip(dice, targets[2 * s : 2 * s + 2]))
        }

    labels = {"won": lambda s: s == "won", "lost": lambda s: s == "lost", "over": lambda s: isinstance(s, str)}
    rewards = {"gain": lambda s, a: 0.0 if isinstance(s, str) else gains[s, a]}
    pmdp = build(0, rows, domain=_domain(groups), labels=labels, rewards=rewards, name=f"{unknowns} unknowns")
    return pmdp, np.array([truth[name] for name in pmdp.table.parameters])


def _dice(rng: np.random.Generator, unknowns: int) -> tuple[list[list[str]], dict[str, float]]:
    """(parameters of each die, their true values)."""
    groups = list[list[str]]()
    while (left := unknowns - sum(map(len, groups))) > 0:
        groups.append([f"b{len(groups)}_{i}" for i in range(min(left, int(rng.integers(1, 4))))])
    truth = dict[str, float]()
    for group in groups:
        p = rng.dirichlet(np.full(len(group) + 1, 2.0)) + 0.05
        truth |= dict(zip(group, p / p.sum()))
    return groups, truth


def _domain(groups: list[list[str]]) -> Domain:
    names = tuple(name for group in groups for name in group)
    A = np.array([[float(name in group) for name in names] for group in groups])
    return Domain(names, np.zeros(len(names)), np.ones(len(names)), A, np.ones(len(groups)))
