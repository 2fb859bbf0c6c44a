"""ICU-Sepsis: what can honestly be said about survival from that many stays, and how many stays a claim needs.

    pip install --no-deps icu-sepsis==2.0.1
    python examples/sepsis.py [--stays 17000 1000000] [--trials 100000 1000000] [--plot sepsis.png]

The model is the benchmark of K. Choudhary, D. Gupta and P. Thomas (2024): 713 states of a patient, 25 doses, each
admissible in some states, death and survival. Its graph is taken as known, its probabilities are not: every row of a
state and a dose is an unknown distribution of its own. Stays are simulated. Nothing here is medical advice.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rpl_agent import Config, Counts, Objective, ParametricMDP, Policy, Simulator, certify
from rpl_agent.formats.drn import load_drn
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval

#: No stay of the benchmark is longer.
LONGEST = 500
CONFIG = Config(confidence="anytime", relaxation="tied", delta=0.05)


class Benchmark(NamedTuple):
    pmdp: ParametricMDP
    objective: Objective
    theta: np.ndarray  # the truth, for the simulator
    clinicians: Policy
    severity: np.ndarray  # (states,) SOFA scores of the clusters' centres


def load() -> Benchmark:
    """The installed benchmark as a model without known probabilities."""
    package = importlib.util.find_spec("icu_sepsis")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("install the benchmark first: pip install --no-deps icu-sepsis==2.0.1")
    assets = Path(package.submodule_search_locations[0]) / "envs" / "assets"
    data = np.load(assets / "dynamics.npz")
    lines = (assets / "admissible_actions.txt").read_text().splitlines()[1:]
    admissible = [sorted(map(int, line.split())) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sepsis.drn"
        path.write_text(_drn(data["tx_mat"], data["d_0"], admissible))
        model = load_drn(path, normalise=True, hide_rows=True)
    pmdp, objective = model.objective('Pmax=? [ F "survived" ]')
    assert model.truth is not None
    clinicians = _clinicians(pmdp, data["expert_policy"], admissible)
    return Benchmark(pmdp, objective, model.truth, clinicians, np.append(0.0, data["sofa_scores"][:-1]))


def _drn(moves: np.ndarray, start: np.ndarray, admissible: list[list[int]]) -> str:
    """Storm's explicit format: state 0 admits, state s + 1 is the benchmark's s; its last three are ends."""
    death = len(moves) - 3
    rows = sum(len(admissible[s]) for s in range(death)) + 3
    lines = ["@type: MDP", "@parameters", "", "@reward_models", "", "@nr_states", str(death + 3), "@nr_choices"]
    lines += [str(rows), "@model", "state 0 init", "\taction admit"]
    lines += [f"\t\t{t + 1} : {float(start[t])!r}" for t in np.flatnonzero(start).tolist()]
    for s in range(death):
        lines.append(f"state {s + 1}")
        for a in admissible[s]:
            lines.append(f"\taction dose{a}")
            lines += [f"\t\t{t + 1} : {float(moves[s, a, t])!r}" for t in np.flatnonzero(moves[s, a]).tolist()]
    for s, label in ((death, "died"), (death + 1, "survived")):
        lines += [f"state {s + 1} {label}", "\taction end", f"\t\t{s + 1} : 1"]
    return "\n".join(lines) + "\n"


def _clinicians(pmdp: ParametricMDP, expert: np.ndarray, admissible: list[list[int]]) -> Policy:
    """What was done in the wards; the benchmark takes an inadmissible dose for any admissible one."""
    weights = np.ones(pmdp.num_rows)
    names = np.array(pmdp.action_names)[pmdp.action]
    for row, (state, name) in enumerate(zip(pmdp.row_state.tolist(), names)):
        if name.startswith("dose"):
            s, a = state - 1, int(name.removeprefix("dose"))
            allowed = admissible[s]
            weights[row] = expert[s, a] + (1.0 - expert[s, allowed].sum()) / len(allowed)
    return Policy.randomised(weights / np.add.reduceat(weights, pmdp.state_ptr[:-1])[pmdp.row_state])


def stays(world: Benchmark, policy: Policy, number: int, seed: int) -> tuple[np.ndarray, int]:
    """How often each transition was seen in simulated stays, and how many patients survived."""
    stop = world.objective.resolve(world.pmdp).decided | world.pmdp.labels["died"]
    simulator = Simulator(world.pmdp.instantiate(world.theta), stop, LONGEST, seed)
    seen = np.zeros(world.pmdp.num_transitions, np.int64)
    simulator.run(policy, number, seen)
    return seen, int(seen[world.pmdp.labels["survived"][world.pmdp.successor]].sum())


def counted(pmdp: ParametricMDP, seen: np.ndarray) -> Counts:
    counts = Counts(pmdp, schedule="split")
    counts.add_batch(seen)
    return counts


def witness(survived: int, number: int) -> tuple[float, float]:
    """Survival of the policy that was played, by counting: one coin, and no model of the disease."""
    ends = np.random.default_rng(0).permutation(
        np.arange(number) < survived
    )  # one order of stays is as good as another
    return mean_interval(ends, 0.0, 1.0, CONFIG.delta)


def value_iteration(world: Benchmark, policy: Policy | None = None) -> float:
    """Survival with known probabilities."""
    pmdp, p = world.pmdp, world.pmdp.instantiate(world.theta).probability
    v, weights = pmdp.labels["survived"].astype(float), None if policy is None else policy.as_weights(pmdp)
    for _ in range(2 * LONGEST):
        q = np.add.reduceat(p * v[pmdp.successor], pmdp.row_ptr[:-1])
        v = np.maximum.reduceat(q, pmdp.state_ptr[:-1]) if weights is None else np.bincount(pmdp.row_state, weights * q)
    return float(v[pmdp.initial_state])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stays", type=int, nargs="+", default=[17_000, 1_000_000])
    parser.add_argument("--trials", type=int, nargs="*", default=[17_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    world = load()
    pmdp, goal = world.pmdp, world.objective
    print(f"{pmdp.num_states} states, {pmdp.num_rows} rows, {pmdp.num_transitions:,} transitions")
    best, logged = value_iteration(world), value_iteration(world, world.clinicians)
    print(f"with known probabilities: clinicians {logged:.4f}, optimum {best:.4f}")
    print("     stays   clinicians, counted   clinicians, graph    best policy, graph")
    for number in arguments.stays:
        seen, survived = stays(world, world.clinicians, number, seed=number)
        counts = counted(pmdp, seen)
        found = [certify(pmdp, counts, goal, CONFIG, policy=p) for p in (world.clinicians, None)]
        bounds = [witness(survived, number), *((c.lower, c.upper) for c in found)]
        print(f"{number:>10,}   " + "       ".join(f"[{lower:.3f}, {upper:.3f}]" for lower, upper in bounds))
    print("stays with doses drawn at random (nobody may do that): best policy, graph")
    gaps = []
    for number in arguments.trials:
        seen, _ = stays(world, Policy.uniform(pmdp), number, seed=number)
        trial = certify(pmdp, counted(pmdp, seen), goal, CONFIG)
        gaps.append(trial.gap)
        print(f"{number:>10,}   [{trial.lower:.3f}, {trial.upper:.3f}]   gap {trial.gap:.3f}")
    if arguments.plot and gaps:
        draw(arguments.plot, arguments.trials, gaps, best - logged)


def draw(path: str, numbers: list[int], gaps: list[float], difference: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(numbers, gaps, "o-", color="#d9480f", label="best policy, graph alone")
    axes.axhline(difference, color="0.3", linestyle="--", label="optimum − clinicians")
    axes.axvline(17_000, color="#1c7ed6", linestyle=":", label="stays in the cohort")
    axes.set(
        xlabel="stays with doses drawn at random", ylabel="upper − lower", title="How many stays does a claim need?"
    )
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
