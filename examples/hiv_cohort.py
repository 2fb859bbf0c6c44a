"""A cohort model with a certified interval beside its probabilistic sensitivity analysis.

Chancellor et al. (1997) modelled HIV as four states: A (200 < CD4 < 500), B (CD4 < 200), C (AIDS) and D (dead), with
one transition a year. The counts below are the published ones. Health economists draw every row from its Dirichlet
posterior and report percentiles; that is a statement about a prior. The interval here holds with probability ≥ 1 − δ
for whatever the true probabilities are, without a prior.

    python examples/hiv_cohort.py
"""

import numpy as np

from rpl_agent import Counts, Objective, certify, from_matrices, hide_parameters

STATES = ("A", "B", "C", "D")
SEEN = np.array([[1251, 350, 116, 17], [0, 731, 512, 15], [0, 0, 1312, 437], [0, 0, 0, 1]])
COST = np.array([2756 + 2278, 3052 + 2278, 9007 + 2278, 0.0])  # pounds a year: care and zidovudine
YEARS = 20
DELTA = 0.05


def cohort():
    """The model: only which state can follow which is known."""
    rewards = {"years": np.array([1.0, 1.0, 1.0, 0.0]), "cost": COST}
    known = from_matrices(SEEN / SEEN.sum(axis=1, keepdims=True), rewards, action_names=["a year"], name="HIV cohort")
    return hide_parameters(known).pmdp


def counts_of(pmdp):
    found = Counts(pmdp)
    for state, successor in zip(*np.nonzero(SEEN[:3])):
        found.add(state, 0, successor, int(SEEN[state, successor]))
    return found


def sensitivity_analysis(reward, draws=10_000, seed=0):
    """(mean, 2.5 %, 97.5 %) of the total over draws from Dirichlet posteriors, rows at a time."""
    rng, totals = np.random.default_rng(seed), np.zeros(draws)
    P = np.zeros((draws, 4, 4))
    for state in range(4):
        at = np.flatnonzero(SEEN[state])
        P[:, state, at] = rng.dirichlet(SEEN[state, at], draws) if len(at) > 1 else 1.0
    mass = np.tile([1.0, 0.0, 0.0, 0.0], (draws, 1))
    for _ in range(YEARS):
        totals += mass @ reward
        mass = np.einsum("ns,nst->nt", mass, P)
    return totals.mean(), *np.percentile(totals, [2.5, 97.5])


def main():
    pmdp = cohort()
    counts = counts_of(pmdp)
    # without bets on a value, statements about any number of objectives hold at once
    for name, reward in (("years", np.array([1.0, 1.0, 1.0, 0.0])), ("cost", COST)):
        objective = Objective.parse(f"minimise {name} within {YEARS} steps")
        certificate = certify(pmdp, counts, objective, delta=DELTA, bets=False)
        mean, low, high = sensitivity_analysis(reward)
        print(f"{name:>5} in {YEARS} years: certified [{certificate.lower:,.2f}, {certificate.upper:,.2f}] at 95 %;")
        print(f"      sensitivity analysis {mean:,.2f}, 95 % of draws in [{low:,.2f}, {high:,.2f}]")


if __name__ == "__main__":
    main()
