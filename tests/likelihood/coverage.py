"""Coverage of certificates with bets across blocks of unknowns, in whole runs with several looks.

`python -m tests.likelihood.coverage --runs 1000` draws models of 7 to 16 unknowns in blocks (in every fourth run one
die), then data of policies that depend on the data, with marks and bets as in a run that was planned, and certifies at
several times. A run *misses* if at any look the policy's value is below its bound, the best one above the other, or the
difference of the two above the regret. At most the share δ of runs may.

With ``--set-only`` a run misses if at any look the truth is outside the set that certificates are made of, or the model
is refuted. Every bound is proved over this set, so no more certificates can be false; none is made, and a run takes a
fraction of the time.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np

from rpl_agent import certify
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import SPLIT_MARKS, SPLIT_WEIGHT, bet_shares
from rpl_agent.core.model import Domain, ParametricMDP, Policy, Simulator, build
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.pipeline import Config, uncertainty_from
from rpl_agent.guarantee.shown import true_value
from tests.reference.block_models import DISCOUNTED, block_model

#: Error of the true values, which are solved in floats.
SOLVED = 1e-6
#: Shares of the plan after which there is a certificate, and steps of an episode.
LOOKS, STEPS = (0.1, 0.4, 1.0), 10
#: (model, counts, truth, δ) → (the policy to play next, whether what is said is false).
Look = Callable[[ParametricMDP, Counts, np.ndarray, float], tuple[Policy, bool]]


def die(sides: int, truth: np.ndarray) -> tuple[ParametricMDP, np.ndarray]:
    """(model, truth without the last side): one die with a gain on each side, read in one of two orders."""
    names = [f"p{k}" for k in range(sides - 1)]
    chances = [*names, " - ".join(["1", *names])]
    ways = {"low": list(range(1, sides + 1)), "high": list(range(sides, 0, -1))}

    def rows(s: int) -> dict:
        return {"back": {0: "1"}} if s else {way: dict(zip(to, chances)) for way, to in ways.items()}

    domain = Domain(tuple(names), np.zeros(sides - 1), np.ones(sides - 1)).with_simplex(names)
    pmdp = build(0, rows, domain=domain, rewards={"gain": lambda s, a: s / sides}, name="die")
    return pmdp, truth[:-1]


def drawn_model(number: int, rng: np.random.Generator) -> tuple[ParametricMDP, np.ndarray]:
    if number % 4 == 3:
        sides = int(rng.integers(14, 18))
        return die(sides, rng.dirichlet(np.full(sides, 2.0)))
    return block_model(int(rng.integers(2**31)), int(rng.integers(7, 17)), states=10, actions=2)


def holds(pmdp: ParametricMDP, found: Certificate, theta: np.ndarray) -> bool:
    """Whether all that is said is true."""
    best, own = solve_at(pmdp, theta, DISCOUNTED).middle, true_value(pmdp, DISCOUNTED, found.policy, theta)
    return found.lower <= own + SOLVED and best <= found.upper + SOLVED and best - own <= found.regret + SOLVED


def certificate_look(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, delta: float) -> tuple[Policy, bool]:
    """(the certified policy, whether the certificate is false)."""
    found = certify(pmdp, counts, DISCOUNTED, delta=delta)
    return found.policy, not holds(pmdp, found, theta)


def set_look(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, delta: float) -> tuple[Policy, bool]:
    """(the best policy at the estimate, if there is one, whether the set misses the truth or its model is refuted)."""
    found = uncertainty_from(pmdp, counts, Config(delta=delta), DISCOUNTED)
    at = found.estimate
    policy = Policy.uniform(pmdp) if at is None else solve_at(pmdp, at, DISCOUNTED).policy
    if found.region is None or found.fallback is not None:
        return policy, True
    return policy, not found.region.contains(pmdp.table.reduction.coordinates(theta))[0]


def run(number: int, seed: int, delta: float, look: Look = certificate_look) -> bool:
    """Whether a look of this run misses."""
    rng = np.random.default_rng([seed, number])
    pmdp, theta = drawn_model(number, rng)
    episodes = int(rng.integers(20, 400))
    simulator = Simulator(pmdp.instantiate(theta), np.zeros(pmdp.num_states, bool), STEPS, int(rng.integers(2**31)))
    counts, policy, missed, done = Counts(pmdp, schedule="shares"), Policy.uniform(pmdp), False, 0
    windows = {max(1, round(share * episodes)) for share in SPLIT_MARKS}
    looks = {max(1, round(share * episodes)) for share in LOOKS}
    for end in sorted(windows | looks | {max(1, round(share * episodes)) for share in bet_shares(pmdp)}):
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        simulator.run(policy, end - done, batch)
        counts.add_batch(batch)
        done = end
        if end in looks:
            best, is_false = look(pmdp, counts, theta, delta)
            missed |= is_false
            policy = best.mixed(pmdp, float(rng.uniform(0.3, 0.9)))  # what is tried next depends on the data
        if end < episodes:
            counts.mark(SPLIT_WEIGHT if end in windows else 0.0, progress=end / episodes)
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="whole runs (default 100)")
    parser.add_argument("--delta", type=float, default=0.1, help="allowed share of misses (default 0.1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--set-only", action="store_true", help="count sets that miss the truth, make no certificate")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    start, misses = time.process_time(), 0
    look = set_look if arguments.set_only else certificate_look
    for number in range(arguments.runs):
        misses += run(number, arguments.seed, arguments.delta, look)
        if (number + 1) % 50 == 0:
            print(f"{number + 1:,} runs, {misses} miss, {time.process_time() - start:.0f} CPU s", flush=True)
    allowed = arguments.delta * arguments.runs
    told = "the set misses the truth" if arguments.set_only else "a certificate is false"
    print(f"{arguments.runs:,} runs of {len(LOOKS)} looks at delta {arguments.delta:g}: ", end="")
    print(f"in {misses} {told}, at most {allowed:.0f} may")
    raise SystemExit(misses > allowed)


if __name__ == "__main__":
    main()
