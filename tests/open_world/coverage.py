"""Coverage of certificates without a model in whole runs of the agent, at every look.

`python -m tests.open_world.coverage --runs 1000` draws a world and learns it with `RPLAgent`, which chooses every
action and policy from its data, with a certificate every few episodes. A run *misses* if a bound of any look is false:
on the best value, or on the value of the policy returned then. At most the share δ of runs may. Every tenth run also
writes its proof, which must pass.
"""

from __future__ import annotations

import argparse
import time

import gymnasium as gym
import numpy as np

from rpl_agent import BaseCallback, RPLAgent
from tests.open_world.worlds import Walk

DISCOUNT, LIMIT, EPISODES, EVERY = 0.9, 6, 120, 8


class Looks(BaseCallback):
    """Compares every certificate with the truth."""

    def __init__(self, world, horizon):
        super().__init__()
        self.world, self.horizon, self.looks, self.false = world, horizon, 0, 0

    def _on_certificate(self, certificate):
        session, (discount, steps) = self.agent.session, (1.0, self.horizon) if self.horizon else (DISCOUNT, None)
        find, policy = session.experience.data.find, session.policy
        layers = range(self.horizon or 1)
        rules = np.array([[policy.action(find(s), h) for s in range(len(self.world.rows))] for h in layers])
        best = self.world.start @ values(self.world, discount, steps, None)
        own = self.world.start @ values(self.world, discount, steps, rules)
        self.looks += 1
        self.false += not (certificate.lower <= own + 1e-9 and best <= certificate.upper + 1e-9)
        return True


def values(world, discount, steps, rules):
    """V* or the value of rules (layers, S): exact with steps to go, else up to 1e-12."""
    if steps is None:
        return world.values(discount, None if rules is None else rules[0])
    v = np.zeros(len(world.rows))
    for h in range(steps):
        q = world.backup(discount, v)
        v = q.max(axis=1) if rules is None else q[np.arange(len(v)), rules[h]]
    return v


def run(seed: int, delta: float) -> tuple[int, int, bool]:
    """(looks, false ones, whether a proof was refused)."""
    env, horizon = Walk(seed), LIMIT if seed % 3 == 0 else None
    facts = {"horizon": horizon} if horizon else {"discount": DISCOUNT}
    watch = Looks(env.world, horizon)
    agent = RPLAgent(gym.wrappers.TimeLimit(env, LIMIT), returns=(0, 1), delta=delta, seed=seed, **facts)
    agent.learn(EPISODES, callback=watch, log_interval=EVERY)
    refused = seed % 10 == 0 and "refused" in agent.session.prove(agent.certificate)
    return watch.looks, watch.false, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=50_000)
    parser.add_argument("--delta", type=float, default=0.1)
    asked = parser.parse_args()
    looks = missed = refused = 0
    begun = time.process_time()
    for k in range(asked.runs):
        seen, false, unproved = run(asked.first + k, asked.delta)
        looks, missed, refused = looks + seen, missed + (false > 0), refused + unproved
        if (k + 1) % 50 == 0 or k + 1 == asked.runs:
            print(
                f"{k + 1:,} runs, {looks:,} looks: {missed} runs with a false bound (at most "
                f"{asked.delta * (k + 1):g}), {refused} proofs refused; {time.process_time() - begun:.0f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
