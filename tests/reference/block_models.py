"""Random models whose rows share independent blocks of unknowns: coins and dice that many states throw."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.model import Domain, Objective, ParametricMDP, build

DISCOUNTED = Objective.discounted("gain", 0.9)


def block_model(seed: int, unknowns: int, states: int = 30, actions: int = 3) -> tuple[ParametricMDP, np.ndarray]:
    """(model, its true parameters): every action throws a coin or a die of up to four sides, its own or a shared one.

    Each side leads to another state; gains are those of the action.
    """
    rng, groups = np.random.default_rng(seed), list[list[str]]()
    while (left := unknowns - sum(map(len, groups))) > 0:
        groups.append([f"b{len(groups)}_{i}" for i in range(min(left, int(rng.integers(1, 4))))])
    truth = {}
    for group in groups:
        p = rng.dirichlet(np.full(len(group) + 1, 2.0)) + 0.05
        truth |= dict(zip(group, p / p.sum()))
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

    names = tuple(name for group in groups for name in group)
    A = np.array([[float(name in group) for name in names] for group in groups])
    domain = Domain(names, np.zeros(unknowns), np.ones(unknowns), A, np.ones(len(groups)))
    pmdp = build(0, rows, domain=domain, rewards={"gain": lambda s, a: gains[s, a]}, name=f"{unknowns} unknowns")
    return pmdp, np.array([truth[name] for name in pmdp.table.parameters])
