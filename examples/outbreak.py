"""An outbreak in a ward or a class: from a handful of outbreaks to when measures pay, with a bound on the cases.

    python examples/outbreak.py [--people 30] [--outbreaks 5 20 100 500] [--plot outbreak.png]

Reed and Frost's chain binomial: each susceptible person escapes each infectious one with probability 1 − p, so in a
generation with k infectious people one is infected with probability 1 − (1 − p)^k. The measures of the generation
decide p, which nobody knows. People are looked at one by one, as in an attendance list, so every row is one person:
escaped or infected. Beside each certificate stands plain value iteration, which knows the chances.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

from rpl_agent import (
    Certificate,
    Config,
    Counts,
    Objective,
    ParametricMDP,
    Policy,
    Polynomial,
    Simulator,
    build,
    certify,
)

#: Measures, what a generation with them costs (in cases), and the chance of infection by one infectious person. Chosen.
LEVELS = ("usual", "hygiene", "distance")
PRICE = {"usual": 0.0, "hygiene": 0.3, "distance": 1.0}
CHANCE = {"usual": 0.12, "hygiene": 0.06, "distance": 0.02}
LARGEST = 0.3
#: Of both statements together: each may fail with half of it.
DELTA = 0.05


def outbreak(people: int) -> ParametricMDP:
    """("day", susceptible, infectious), and in between ("list", level, infectious, left, escaped, infected)."""
    escapes = {(level, 0): Polynomial.constant(1) for level in LEVELS}
    for level in LEVELS:
        for k in range(1, people + 1):
            escapes[level, k] = escapes[level, k - 1] * (1 - Polynomial.parameter(level))

    def person(level: str, k: int, left: int, escaped: int, infected: int) -> dict[Any, Polynomial]:
        def following(escaped: int, infected: int) -> tuple:
            return ("list", level, k, left - 1, escaped, infected) if left > 1 else ("day", escaped, infected)

        chance = escapes[level, k]
        return {following(escaped + 1, infected): chance, following(escaped, infected + 1): 1 - chance}

    def actions(state: tuple) -> dict[str, dict[Any, Any]]:
        if state[0] == "list":
            return {"next": person(*state[1:])}
        _, susceptible, k = state
        if k == 0:
            return {"over": {state: 1}}
        if susceptible == 0:
            return {"recover": {("day", 0, 0): 1}}
        return {level: person(level, k, susceptible, 0, 0) for level in LEVELS}

    def cases(state: tuple) -> float:
        return float(state[2]) if state[0] == "day" else 0.0

    return build(
        ("day", people - 1, 1), actions, domain=dict.fromkeys(LEVELS, (0.0, LARGEST)),
        labels={"over": lambda s: s[0] == "day" and s[2] == 0}, name="outbreak",
        rewards={"cases": lambda s, a: cases(s), "cost": lambda s, a: cases(s) + PRICE.get(a, 0.0)},
    )  # fmt: skip


def observe(pmdp: ParametricMDP, outbreaks: int, seed: int) -> Counts:
    """Attendance lists of outbreaks in which measures were taken at random, one outbreak after the other."""
    simulator = Simulator(pmdp.instantiate(CHANCE), pmdp.labels["over"], 100_000, seed)
    counts = Counts(pmdp, schedule="geometric")
    for _ in range(outbreaks):
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        simulator.run(Policy.uniform(pmdp), 1, batch)
        counts.add_batch(batch)
    return counts


def statements(pmdp: ParametricMDP, counts: Counts) -> tuple[Certificate, Certificate]:
    """(cost of the best rule, cases under that rule); both are true with probability ≥ 1 − DELTA."""
    config = Config(delta=DELTA / 2)
    rule = certify(pmdp, counts, Objective.cost("cost", target="over"), config)
    return rule, certify(pmdp, counts, Objective.cost("cases", target="over"), config, policy=rule.policy)


def value_iteration(pmdp: ParametricMDP, name: str, policy: Policy | None = None) -> float:
    """Least cost, or that of a policy, with known chances; no outbreak has more generations than people."""
    p, reward, v = pmdp.instantiate(CHANCE).probability, pmdp.row_reward(name), np.zeros(pmdp.num_states)
    while True:
        q = reward + np.add.reduceat(p * v[pmdp.successor], pmdp.row_ptr[:-1])
        best = np.minimum.reduceat(q, pmdp.state_ptr[:-1]) if policy is None else q[policy.rows]
        if np.array_equal(best, v):
            return float(v[pmdp.initial_state])
        v = best


def draw(path: str, pmdp: ParametricMDP, numbers: list[int], found: list[Certificate], best: float) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.fill_between(numbers, [c.lower for c in found], [c.upper for c in found], alpha=0.3, color="#d9480f")
    left.axhline(best, color="0.2", linestyle="--", label="optimum, chances known")
    left.set(xscale="log", xlabel="outbreaks seen", ylabel="cases + measures [cases]", title="certified cost")
    left.legend()
    values = [pmdp.state_value(s) for s in range(pmdp.num_states)]
    people = 1 + max(value[1] for value in values if value[0] == "day")
    shown = np.full((people, people), np.nan)
    for s, value in enumerate(values):
        if value[0] == "day" and value[1] > 0 and value[2] > 0:
            shown[value[2], value[1]] = LEVELS.index(pmdp.action_names[found[-1].policy.action(pmdp, s)])
    colours = ListedColormap(["#e9ecef", "#ffd43b", "#d9480f"])
    picture = right.imshow(shown, origin="lower", cmap=colours, vmin=0, vmax=2)
    figure.colorbar(picture, ax=right, ticks=[1 / 3, 1, 5 / 3]).ax.set_yticklabels(LEVELS)
    right.set(xlabel="susceptible", ylabel="infectious", title="the certified rule")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=30)
    parser.add_argument("--outbreaks", type=int, nargs="+", default=[5, 20, 100, 500])
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    pmdp = outbreak(arguments.people)
    best = value_iteration(pmdp, "cost")
    print(f"{arguments.people} people: {pmdp.num_states:,} states, {pmdp.num_transitions:,} transitions")
    print(f"optimum with known chances: {best:.2f}")
    print("outbreaks  persons seen   cost of the rule   cases under it    (truth)")
    found = []
    for outbreaks in arguments.outbreaks:
        rule, cases = statements(pmdp, observe(pmdp, outbreaks, seed=outbreaks))
        true = [value_iteration(pmdp, name, rule.policy) for name in ("cost", "cases")]
        print(
            f"{outbreaks:>9} {rule.samples:>13,}   [{rule.lower:5.2f}, {rule.upper:5.2f}]     "
            f"[{cases.lower:5.2f}, {cases.upper:5.2f}]   ({true[0]:.2f}, {true[1]:.2f})"
        )
        found.append(rule)
    most = math.ceil(10 * cases.upper) / 10
    print(
        f"\nTo the ward: with this rule an outbreak has at most {most} cases on average, the first one included, of "
        f"{arguments.people} people.\nSuch statements are wrong at most {100 * DELTA:.0f} times in 100."
    )
    if arguments.plot:
        draw(arguments.plot, pmdp, arguments.outbreaks, found, best)


if __name__ == "__main__":
    main()
