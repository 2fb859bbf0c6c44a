"""ICU-Sepsis with a structure that is not true: what it seems to buy, and which witness tells.

    pip install --no-deps icu-sepsis==2.0.1
    python examples/sepsis_classes.py [--stays 17000] [--classes 8] [--played 1000]

States are taken together in classes of severity (SOFA score), as if a dose had one effect per class: some hundred
unknown distributions in place of two thousand. The benchmark does not follow that structure, so its certificate is
about a world that does not exist. Two witnesses that trust no structure are asked: the stays of the records, and new
stays in which the certified policy is played.
"""

from __future__ import annotations

import argparse
from collections import Counter
from fractions import Fraction

import numpy as np
from sepsis import CONFIG, Benchmark, counted, load, stays, value_iteration, witness

from rpl_agent import Objective, ParametricMDP, Policy, build, certify, hide_parameters

ENDS = ("died", "survived")


def severity_classes(world: Benchmark, seen: np.ndarray, number: int) -> list[str]:
    """The name of every state's class: an end, or a quantile of the severity of the visits in the records."""
    pmdp, source = world.pmdp, world.pmdp.row_state[world.pmdp.transition_row]
    visits = np.bincount(source, seen, pmdp.num_states) * (np.arange(pmdp.num_states) != pmdp.initial_state)
    order = np.argsort(world.severity, kind="stable")
    share = np.empty(pmdp.num_states)
    share[order] = np.cumsum(visits[order]) / visits.sum()
    names = [f"class {1 + min(int(number * part), number - 1)}" for part in share]
    names[pmdp.initial_state] = "admission"
    for end in ENDS:
        names[int(np.flatnonzero(pmdp.labels[end])[0])] = end
    return names


def class_model(world: Benchmark, classes: list[str], seen: np.ndarray) -> tuple[ParametricMDP, np.ndarray]:
    """The model of classes, every row unknown, and the records counted in it. A dose nobody gave is left out."""
    pmdp, moves = world.pmdp, Counter[tuple[str, str, str]]()
    dose = np.array(pmdp.action_names)[pmdp.action[pmdp.transition_row]]
    given = np.add.reduceat(seen, pmdp.row_ptr[:-1])[pmdp.transition_row] > 0
    for s, d, t, n in zip(pmdp.row_state[pmdp.transition_row[given]], dose[given], pmdp.successor[given], seen[given]):
        moves[classes[s], str(d), classes[t]] += int(n)
    rows: dict[str, dict[str, dict[str, Fraction]]] = {end: {"end": {end: Fraction(1)}} for end in ENDS}
    for s, d, t in moves:
        rows.setdefault(s, {}).setdefault(d, {})[t] = Fraction(0)
    for doses in rows.values():
        for outcomes in doses.values():
            outcomes.update(dict.fromkeys(outcomes, Fraction(1, len(outcomes))))  # hidden in a moment
    labels = {end: lambda s, end=end: s == end for end in ENDS}
    known = build("admission", rows.__getitem__, domain=[], labels=labels, action_names=world.pmdp.action_names)
    model = hide_parameters(known).pmdp
    numbers = np.zeros(model.num_transitions, np.int64)
    names = [(model.state_value(model.row_state[r]), model.action_names[model.action[r]]) for r in model.transition_row]
    for t, (s, d) in enumerate(names):
        numbers[t] = moves[s, d, model.state_value(model.successor[t])]
    return model, numbers


def in_the_benchmark(world: Benchmark, model: ParametricMDP, rule: Policy, classes: list[str]) -> Policy:
    """The same doses in the states themselves; for an inadmissible one the benchmark takes any admissible one."""
    pmdp, weights = world.pmdp, np.ones(world.pmdp.num_rows)
    for s, name in enumerate(classes):
        rows = slice(pmdp.state_ptr[s], pmdp.state_ptr[s + 1])
        wanted = model.action_names[rule.action(model, model.state_index(name))]
        chosen = np.array([pmdp.action_names[a] == wanted for a in pmdp.action[rows]])
        weights[rows] = chosen if chosen.any() else 1.0 / len(chosen)
    return Policy.randomised(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stays", type=int, default=17_000)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--played", type=int, default=1_000)
    arguments = parser.parse_args()
    world = load()
    seen, survived = stays(world, world.clinicians, arguments.stays, seed=arguments.stays)
    classes = severity_classes(world, seen, arguments.classes)
    model, numbers = class_model(world, classes, seen)
    rule = certify(model, counted(model, numbers), Objective.reach("survived"), CONFIG)
    policy = in_the_benchmark(world, model, rule.policy, classes)
    _, alive = stays(world, policy, arguments.played, seed=1)
    share = np.maximum(np.add.reduceat(numbers, model.row_ptr[:-1]), 1)  # nobody chooses anything in an end
    logged = Policy.randomised(share / np.bincount(model.row_state, share)[model.row_state])
    usual = certify(model, counted(model, numbers), Objective.reach("survived"), CONFIG, policy=logged)
    print(f"{arguments.classes} classes of severity: {model.num_rows} rows instead of {world.pmdp.num_rows}")
    for name, (lower, upper), truth in (
        ("clinicians, through classes", (usual.lower, usual.upper), value_iteration(world, world.clinicians)),
        (f"clinicians, {arguments.stays:,} stays counted", witness(survived, arguments.stays), None),
        ("best policy, through classes", (rule.lower, rule.upper), value_iteration(world, policy)),
        (f"that policy, {arguments.played:,} stays counted", witness(alive, arguments.played), None),
    ):
        print(f"{name:<36} [{lower:.3f}, {upper:.3f}]" + ("" if truth is None else f"   benchmark {truth:.4f}"))


if __name__ == "__main__":
    main()
