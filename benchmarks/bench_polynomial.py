"""Polynomial models: processor time and gap of whole runs, and the widths of stored worlds against version 0.2.

First table: runs of the agent with default settings (seed 0). ``CPU s`` is what `learn` costs, from the model to the
last certificate; ``gap / ideal`` compares the gap with 2 z σ, σ² the inverse Fisher information of the same visits in
the direction of the value's gradient: no method that looks once, at the value alone, has a narrower interval.

Second table: certificates from the same counts as version 0.2, which lifted polynomials to a polytope over their
monomials; its gaps are stored below.

``--only coverage``: whole runs at random parameters, and in how many some certificate missed the truth.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from scipy.special import ndtri

import rpl_envs
from benchmarks.bench_coupled import Truth
from rpl_agent import Domain, Objective, ParametricMDP, RPLAgent, build
from rpl_agent.core.coupled.attribution import coordinate_jacobian, fisher_information
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_envs.benchmark import benchmark
from rpl_envs.toy.blackjack import blackjack_model

Row = dict[str, Any]
DISK = Path(__file__).with_name("polynomial_models") / "disk.prism"


class Case(NamedTuple):
    """A model with its truth, and how long its episodes are."""

    pmdp: ParametricMDP
    objective: Objective
    theta: np.ndarray
    max_steps: int


def sir(people: int) -> Case:
    """An epidemic with binomial infections and recoveries; keeping a distance halves the first and costs something."""
    infection, recovery = Polynomial.parameter("infection"), Polynomial.parameter("recovery")

    def binomial(n: int, p: Polynomial) -> list[Polynomial]:
        return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]

    def actions(state: tuple[int, int]) -> dict:
        healthy, ill = state
        if ill == 0:
            return {"open": {state: 1}, "distance": {state: 1}}
        found = {}
        for name, p in (("open", infection), ("distance", infection / 2)):
            caught, cured = binomial(healthy, p), binomial(ill, recovery)
            found[name] = {
                (healthy - i, ill + i - r): caught[i] * cured[r] for i in range(healthy + 1) for r in range(ill + 1)
            }
        return found

    pmdp = build(
        (people - 1, 1), actions, domain=Domain.box({"infection": (0.02, 0.6), "recovery": (0.1, 0.9)}),
        variables=("healthy", "ill"), labels={"over": lambda s: s[1] == 0}, name=f"SIR-{people}",
        rewards={"cost": lambda s, a: 0.0 if s[1] == 0 else s[1] + (0.8 if a == "distance" else 0.0)},
    )  # fmt: skip
    return Case(pmdp, Objective.cost("cost", target="over"), np.array([0.2, 0.4]), 60)


#: Members of a ring draw numbers and pass them on; who has heard no number like its own leads. Else they draw again.
RING = """dtmc
module turns
  round : [1..LAST] init 1;
  [pass] round<LAST -> (round'=round+1);
  [pass] round=LAST -> true;
  [lead] SOME -> true;
  [again] !(SOME) -> (round'=1);
  [stay] at1=3 -> true;
endmodule
module member1
  at1 : [0..3] init 0;
  alone1 : bool init false;
  heard1 : [0..NUMBERS-1] init 0;
  own1 : [0..NUMBERS-1] init 0;
  [draw] at1=0 -> DRAW;
  [pass] at1=1 & round<LAST -> (alone1'=alone1 & own1!=heard2) & (heard1'=heard2) & (own1'=alone1 ? own1 : 0);
  [pass] at1=1 & round=LAST -> (at1'=2) & (alone1'=alone1 & own1!=heard2) & (heard1'=0) & (own1'=0);
  [lead] at1=2 -> (at1'=3) & (alone1'=false);
  [again] at1=2 -> (at1'=0) & (alone1'=false);
  [stay] at1=3 -> true;
endmodule
OTHERS
label "elected" = ALL;
rewards "draws"
  [draw] true : 1;
endrewards
"""


def ring(members: int, numbers: int) -> Case:
    """The election of a leader in a ring; every member has an unknown coin (or die) of its own."""
    names = range(1, members + 1)
    draw = " + ".join(f"1/{numbers} : (at1'=1) & (own1'={k}) & (heard1'={k}) & (alone1'=true)" for k in range(numbers))
    others = "\n".join(
        f"module member{i} = member1 [ at1=at{i}, alone1=alone{i}, heard1=heard{i}, own1=own{i}, "
        f"heard2=heard{i % members + 1} ] endmodule" for i in names[1:]
    )  # fmt: skip
    text = RING
    for word, meaning in (
        ("LAST", str(members - 1)), ("SOME", " | ".join(f"alone{i}" for i in names)), ("NUMBERS", str(numbers)),
        ("DRAW", draw), ("OTHERS", others), ("ALL", " & ".join(f"at{i}=3" for i in names)),
    ):  # fmt: skip
        text = text.replace(word, meaning)
    model = prism.loads(text, unknown="commands", tie_modules=False)
    pmdp, objective = model.objective('R{"draws"}=? [ F "elected" ]')
    assert model.truth is not None
    theta = np.asarray(model.truth)  # fair coins are the best ones: there the value has no slope
    return Case(pmdp, objective, theta * np.where(np.arange(len(theta)) % 2, 1.2, 0.7), 1_000)


def disk(places: int) -> Case:
    pmdp, objective = prism.load(DISK, {"full": places}).objective('R{"cost"}min=? [ C<=600 ]')
    truth = {"begin": 0.102, "stop": 0.454, "wake_standby": 0.09, "wake_sleep": 0.033}
    return Case(pmdp, objective, np.array([truth[name] for name in pmdp.table.parameters]), 600)


def blackjack() -> Case:
    pmdp, objective = blackjack_model()
    return Case(pmdp, objective, np.array([4 / 13]), 50)


def ideal(case: Case, counts: Counts, delta: float) -> float:
    """2 z σ for the visits of the data."""
    pmdp, theta = case.pmdp, case.theta
    gradient = np.empty(len(theta))
    for j, step in enumerate(1e-4 * np.maximum(theta, 0.1)):
        ends = [theta + sign * step * np.eye(len(theta))[j] for sign in (1.0, -1.0)]
        high, low = (solve_at(pmdp, end, case.objective, precision=1e-9).middle for end in ends)
        gradient[j] = (high - low) / (2.0 * step)
    p = pmdp.table.at(theta).ravel()[pmdp.expression]
    amounts = np.bincount(pmdp.expression, counts.row_totals[pmdp.transition_row] * p, pmdp.num_expressions)
    jacobian = coordinate_jacobian(pmdp)
    information = jacobian.T @ fisher_information(pmdp, amounts, theta) @ jacobian
    variance = float(gradient @ np.linalg.pinv(information, hermitian=True) @ gradient)
    return float(2.0 * ndtri(1.0 - delta / 2.0) * np.sqrt(variance))


def run(name: str, make: Callable[[], Case], amount: int, unit: str) -> Row:
    """One row of the first table."""
    case = make()
    if name.startswith("Blackjack"):
        env = gym.make("Blackjack-v1")
    else:
        env = rpl_envs.make_own(case.pmdp, case.objective, case.theta, max_episode_steps=case.max_steps)
    began = time.process_time()
    agent = RPLAgent(seed=0)
    agent.learn(env, amount, unit=unit)
    spent, found, table = time.process_time() - began, agent.certificate, case.pmdp.table
    assert found is not None
    case = case._replace(pmdp=agent.pmdp, objective=agent.objective)  # as an unmodified environment counts
    return {
        "model": name, "states": case.pmdp.num_states, "transitions": case.pmdp.num_transitions,
        "parameters": table.num_parameters, "degree": table.degree, "monomials": table.num_monomials - 1,
        "run": f"{amount:,} {unit}", "CPU s": spent, "gap": found.gap,
        "gap / ideal": found.gap / ideal(case, agent.counts, found.delta),
    }  # fmt: skip


SMOKE_RUNS = (("SIR-3", lambda: sir(3), 20, "episodes"), ("ring 3 of 2", lambda: ring(3, 2), 50, "steps"))
RUNS = (
    ("SIR-5", lambda: sir(5), 500, "episodes"),
    ("SIR-10", lambda: sir(10), 500, "episodes"),
    ("ring 3 of 2", lambda: ring(3, 2), 400, "steps"),
    ("ring 4 of 2", lambda: ring(4, 2), 200, "steps"),
    ("ring 5 of 2", lambda: ring(5, 2), 400, "steps"),
    ("Blackjack", blackjack, 200, "episodes"),
    ("disk, 7 places", lambda: disk(7), 300, "episodes"),
)
FULL_RUNS = (
    ("SIR-14", lambda: sir(14), 500, "episodes"),
    ("ring 3 of 4", lambda: ring(3, 4), 400, "steps"),
    ("ring 6 of 2", lambda: ring(6, 2), 400, "steps"),
    ("Blackjack", blackjack, 10_000, "episodes"),
    ("disk, 31 places", lambda: disk(31), 300, "episodes"),
)

#: (world, episodes, seed): gaps of version 0.2 (commit 699eeee), rectangular and coupled, δ = 0.001
BEFORE = {
    ("Glider-11x9", 100, 1): (2.154734, 2.154734),
    ("Glider-11x9", 100, 2): (2.211136, 2.211136),
    ("Glider-11x9", 1_000, 1): (0.687540, 0.473223),
    ("Glider-11x9", 1_000, 2): (0.686596, 0.455537),
    ("Glider-11x9", 10_000, 1): (0.217237, 0.144993),
    ("Glider-11x9", 10_000, 2): (0.218109, 0.142728),
    ("Glider-21x17", 100, 1): (3.596924, 3.596924),
    ("Glider-21x17", 100, 2): (3.653988, 3.653988),
    ("Glider-21x17", 1_000, 1): (1.155004, 0.960632),
    ("Glider-21x17", 1_000, 2): (1.142842, 0.954927),
    ("Glider-21x17", 10_000, 1): (0.366792, 0.243114),
    ("Glider-21x17", 10_000, 2): (0.353026, 0.236384),
    ("ParallelBetting-5", 100, 1): (13.943200, 13.943200),
    ("ParallelBetting-5", 100, 2): (12.487032, 12.487032),
    ("ParallelBetting-5", 1_000, 1): (5.289682, 5.289682),
    ("ParallelBetting-5", 1_000, 2): (5.416744, 5.416744),
    ("ParallelBetting-5", 10_000, 1): (1.690626, 1.690626),
    ("ParallelBetting-5", 10_000, 2): (1.719230, 1.719230),
    ("ParallelBetting-6", 100, 1): (16.961583, 16.961583),
    ("ParallelBetting-6", 100, 2): (15.020791, 15.020791),
    ("ParallelBetting-6", 1_000, 1): (5.784323, 5.784323),
    ("ParallelBetting-6", 1_000, 2): (5.865208, 5.865208),
    ("ParallelBetting-6", 10_000, 1): (1.841818, 1.841818),
    ("ParallelBetting-6", 10_000, 2): (1.834761, 1.834761),
}


def width(world: str, episodes: int, seed: int, before: tuple[float, float]) -> Row:
    """One row of the second table."""
    found = benchmark(world)
    counts = uniform_counts(found.pmdp, found.objective, np.array(found.theta), episodes, found.max_episode_steps, seed)
    row: Row = {"world": world, "episodes": episodes, "seed": seed}
    for relaxation, old in zip(("rectangular", "coupled"), before):
        gap = certify(found.pmdp, counts, found.objective, Config("likelihood", relaxation)).gap
        row |= {relaxation: gap, f"{relaxation} / 0.2": gap / old}
    return row


def two_coins() -> Case:
    """Which coin is tossed is drawn: probabilities are sums of products, whose likelihood is no product."""
    draw, first, second = (Polynomial.parameter(name) for name in ("draw", "first", "second"))
    heads, own = draw * first + (1 - draw) * second, draw * first
    actions = {
        0: {"either": {1: heads, 0: 1 - heads}, "first": {2: own, 0: 1 - own}},
        1: {"either": {2: heads, 0: 1 - heads}}, 2: {"stay": {2: 1}},
    }  # fmt: skip
    pmdp = build(
        0, actions.__getitem__, domain=Domain.box(dict.fromkeys(("draw", "first", "second"), (0.1, 0.9))),
        labels={"done": lambda s: s == 2}, rewards={"steps": lambda s, a: float(s != 2)}, name="two coins",
    )  # fmt: skip
    return Case(pmdp, Objective.cost("steps", target="done"), np.array([0.5, 0.4, 0.7]), 200)


#: models of the third table, episodes of a run and of a certificate
COVERED = (lambda: sir(3), lambda: ring(3, 2), two_coins, lambda: disk(1))
COVERED_EPISODES, COVERED_INTERVAL = 30, 10


def covered(first: int, runs: int, delta: float = 0.1) -> list[Row]:
    """Runs at random parameters that miss: some certificate, at any time of the run, did not contain the truth."""
    cases = [make() for make in COVERED]
    missed, seen = [0] * len(cases), [0] * len(cases)
    for seed in range(first, first + runs):
        which, rng = seed % len(cases), np.random.default_rng(seed)
        case, domain = cases[which], cases[which].pmdp.domain
        theta = domain.lower + rng.uniform(0.1, 0.9, len(domain.lower)) * (domain.upper - domain.lower)
        case = case._replace(theta=theta)
        truth = Truth(case, solve_at(case.pmdp, theta, case.objective, precision=1e-9).middle)
        env = rpl_envs.make_own(case.pmdp, case.objective, theta, max_episode_steps=case.max_steps)
        agent = RPLAgent(seed=seed, delta=delta)
        agent.learn(env, COVERED_EPISODES, unit="episodes", log_interval=COVERED_INTERVAL, callback=truth)
        seen[which] += 1
        missed[which] += not truth.right
    return [
        {"runs of": case.pmdp.name, "δ": delta, "runs": n, "misses": bad, "share": bad / max(n, 1)}
        for case, n, bad in zip(cases, seen, missed)
    ]


def rows(
    smoke: bool = False, full: bool = False, only: str | None = None, first: int = 0, problems: int = 1_000
) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if only == "coverage":
            return covered(first, 8 if smoke else problems)
        run(*SMOKE_RUNS[0])  # what is loaded on first use is not counted
        chosen = SMOKE_RUNS if smoke else (*RUNS, *FULL_RUNS) if full else RUNS
        found = [run(*case) for case in chosen]
        stored = list(BEFORE.items())[:1] if smoke else BEFORE.items()
        return found + [width(*key, before) for key, before in stored]
