"""A custom model in Python: a repair problem built state by state and certified from a log, and what tying is worth.

    python examples/own_model.py [--episodes 300]

A pump has three conditions. Its chances of getting worse in a day are multiples of one unknown rate r, and an
inspection finds a fault with the unknown probability q. The first model says so: every observation in every
state informs r and q. The second has the same pump without shared parameters, each probability being a separate
parameter: that is classical interval learning, sound with less knowledge but much slower.
"""

from __future__ import annotations

import argparse

import numpy as np

from rpl_agent import Config, Counts, Domain, Objective, ParametricMDP, Policy, Polynomial, Simulator, build, certify

GOOD, WORN, BAD, FAILED = range(4)
DAYS = 20


def pump(shared: bool = True) -> ParametricMDP:
    """State (condition, day); each day run on or inspect."""
    own: list[str] = []

    def chance(shared_expression: str, name: str) -> Polynomial:
        """The expression, or (without shared parameters) a separate parameter of that state."""
        if shared:
            return Polynomial.parse(shared_expression)
        if name not in own:
            own.append(name)
        return Polynomial.parameter(name)

    def actions(state: tuple[int, int]) -> dict[str, dict[tuple[int, int], Polynomial]]:
        condition, day = state
        if day == DAYS:
            return {"end": {state: Polynomial.constant(1)}}
        if condition == FAILED:
            return {"replace": {(GOOD, day + 1): Polynomial.constant(1)}}
        worse = chance(f"{condition + 1}*r", f"worse_{condition}_{day}")
        found = chance("q", f"found_{condition}_{day}")
        return {
            "run": {(condition + 1, day + 1): worse, (condition, day + 1): 1 - worse},
            "inspect": {(GOOD, day + 1): found, (condition, day + 1): 1 - found}
            if condition > GOOD
            else {(GOOD, day + 1): Polynomial.constant(1)},
        }

    def cost(state: tuple[int, int], action: str) -> float:
        return {"run": 0.0, "inspect": 3.0, "replace": 40.0, "end": 0.0}[action]

    def make(domain: Domain) -> ParametricMDP:
        return build(
            (GOOD, 0), actions, domain=domain, variables=("condition", "day"), rewards={"cost": cost},
            labels={"end": lambda state: state[1] == DAYS}, name="pump",
        )  # fmt: skip

    if shared:
        return make(Domain.box({"r": (0.0, 0.3), "q": (0.5, 1.0)}))
    for day in range(DAYS):  # the names are known once every state has been described
        for condition in (GOOD, WORN, BAD):
            actions((condition, day))
    return make(Domain.box(tuple(own)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=300)
    episodes = parser.parse_args().episodes
    tied, untied = pump(), pump(shared=False)
    objective = Objective.cost("cost", target="end")
    truth = tied.instantiate({"r": 0.05, "q": 0.9})
    batch = np.zeros(tied.num_transitions, dtype=np.int64)
    Simulator(truth, tied.labels["end"], DAYS, seed=0).run(Policy.uniform(tied), episodes, batch)
    for name, model, relaxation in (("shared", tied, "rectangular"), ("untied", untied, "tied")):
        # both models have the same states, actions and transitions in the same order: the same counts fit
        counts = Counts(model)
        counts.add_batch(batch)
        certificate = certify(model, counts, objective, Config(confidence="anytime", relaxation=relaxation))
        print(f"{name}: {model.num_parameters} parameters, {model.num_expressions} expressions")
        print(f"  certified: cost between {certificate.lower:.2f} and {certificate.upper:.2f}")


if __name__ == "__main__":
    main()
