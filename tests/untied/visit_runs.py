"""Runs that later visits are tested in: data with marks, adaptive data, and whether bounds miss the truth.

    python -m tests.untied.visit_runs --runs 1000

plays as many runs of random untied models, with logs of a fixed policy, adaptive data and logs of unplanned length, and
prints how many miss. These are bounds from later visits alone, with all of δ. With ``--certificates`` they are whole
certificates, in which later visits, bets on rows and the set have their shares.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from rpl_agent import Config, Counts, Objective, Policy, Simulator, certify, from_matrices, hide_parameters
from rpl_agent.core.model import Sense
from rpl_agent.core.model.building.unknown import Unknown
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.untied.estimate import FrequencyEstimate
from rpl_agent.guarantee.untied.fixed import VisitBets
from tests.untied.worlds import OBJECTIVES, random_policy, untied

#: Marks at shares of the data, with their weights; of these a statement spends that of one.
MARKS = ((0.04, 0.33), (0.08, 0.33), (0.16, 0.33))
SHARE = 0.3
STEPS = 12
#: Error of the true values, which are solved in floats.
SOLVED = 1e-9


def marked(world: Unknown, policy: Policy, episodes: int, seed: int, adapt: bool = False) -> Counts:
    """Counts of plays with marks; ``adapt``: every batch plays what looks best so far, half of the time."""
    pmdp = world.pmdp
    simulator = Simulator(world.mdp, pmdp.labels["goal"] | pmdp.labels["hole"], STEPS, seed)
    counts, done = Counts(pmdp, schedule="shares"), 0
    shares = dict(MARKS) | {1.0: 0.0} | ({0.3: 0.0, 0.45: 0.0, 0.6: 0.0, 0.8: 0.0} if adapt else {})
    for share, weight in sorted(shares.items()):
        end, seen = round(share * episodes), np.zeros(pmdp.num_transitions, np.int64)
        simulator.run(policy, end - done, seen)
        counts.add_batch(seen)
        done = end
        if weight:
            counts.mark(weight, progress=share)
        if adapt:
            best = FrequencyEstimate(pmdp, OBJECTIVES["discounted"], counts.transitions).best()
            policy = Policy.randomised(0.5 * best.as_weights(pmdp) + 0.5 * Policy.uniform(pmdp).as_weights(pmdp))
    return counts


def adaptive(world: Unknown, policy: Policy, episodes: int, seed: int) -> Counts:
    return marked(world, policy, episodes, seed, adapt=True)


def geometric(world: Unknown, policy: Policy, episodes: int, seed: int) -> Counts:
    """A log whose length nobody planned: marks when the data have grown by four."""
    pmdp = world.pmdp
    simulator = Simulator(world.mdp, pmdp.labels["goal"] | pmdp.labels["hole"], STEPS, seed)
    counts = Counts(pmdp, schedule="geometric")
    for _ in range(4 * episodes // 8):
        seen = np.zeros(pmdp.num_transitions, np.int64)
        simulator.run(policy, 8, seen)
        counts.add_batch(seen)
    return counts


def unmarked(counts: Counts) -> Counts:
    found = counts.copy()
    found.marks = []
    return found


def all_before(counts: Counts) -> Counts:
    """The same data with one mark at their end."""
    found = unmarked(counts)
    found.mark(0.9)
    return found


def slot_machines(number: int) -> tuple[Unknown, Objective]:
    """One choice between equal machines: every policy reaches the goal with probability 1/2."""
    P = np.zeros((number, 3, 3))
    P[:, 0, 1:] = 0.5
    P[:, 1, 1] = P[:, 2, 2] = 1.0
    world = hide_parameters(from_matrices(P, np.zeros((3, number)), labels={"goal": [1], "hole": [2]}))
    return world, OBJECTIVES["reach"]


def drawn(
    seed: int, counts_of: Callable[..., Counts], episodes: int | None = None
) -> tuple[Unknown, Counts, Policy | None]:
    """(world, data, the policy to bound: fixed before the data, or None for the one that they choose)."""
    world = untied(seed % 7)
    pmdp = world.pmdp
    counts = counts_of(world, Policy.uniform(pmdp), episodes or 500 + 250 * (seed % 5), 1_000 + seed)
    policy = Policy.uniform(pmdp) if seed % 3 == 0 else random_policy(pmdp, seed)
    return world, counts, None if seed % 2 else policy


def missed(name: str, seed: int, counts_of: Callable[..., Counts], episodes: int | None = None) -> bool:
    """Whether one of the statements of a run at the share `SHARE` is false."""
    objective = OBJECTIVES[name]
    world, counts, policy = drawn(seed, counts_of, episodes)
    weight = max(mark.weight for mark in counts.marks)  # marks have the same one
    bets = VisitBets(world.pmdp, counts, objective, SHARE / weight)
    claim = bets.own if policy is None else bets.given(policy)
    if claim is None:
        return False
    truth = solve_at(world.pmdp, world.theta, objective, policy=claim.policy).middle
    below = claim.lower > truth + SOLVED and (policy is not None or objective.sense is Sense.MAX)
    above = claim.upper < truth - SOLVED and (policy is not None or objective.sense is Sense.MIN)
    return bool(below or above)


def is_false(name: str, seed: int, counts_of: Callable[..., Counts]) -> bool:
    """Whether the certificate of a run at δ = `SHARE` is false: about its policy, the best one, or the regret."""
    objective = OBJECTIVES[name]
    world, counts, policy = drawn(seed, counts_of)
    asked = Config(delta=SHARE)
    found = certify(world.pmdp, counts, objective, asked, policy=policy, fixed_policy=policy is not None)
    own, best = (solve_at(world.pmdp, world.theta, objective, policy=p).middle for p in (found.policy, None))
    told = [own] if policy is not None else [own, best]  # both lie above the guarantee, and below the other bound
    between = found.lower - SOLVED <= min(told) and max(told) <= found.upper + SOLVED
    return not (between and abs(best - own) <= found.regret + SOLVED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--delta", type=float, default=0.1)
    parser.add_argument("--first", type=int, default=10_000, help="seed of the first run (default 10,000)")
    parser.add_argument("--certificates", action="store_true", help="count whole certificates that are false")
    arguments = parser.parse_args()
    global SHARE
    SHARE = arguments.delta
    ask = is_false if arguments.certificates else missed
    names, found = ("reach", "discounted", "cost"), [0, 0, 0]
    for run in range(arguments.runs):
        kind = run % 3
        found[kind] += ask(names[run // 3 % 3], arguments.first + run // 3, (marked, adaptive, geometric)[kind])
        if (run + 1) % 100 == 0:
            print(f"{run + 1} runs at delta = {SHARE}: missed {found} (fixed, adaptive, unplanned)", flush=True)


if __name__ == "__main__":
    main()
