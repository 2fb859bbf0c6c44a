"""The slow, obvious meaning of a PRISM program: one state at a time, by the plain evaluator."""

from __future__ import annotations

from itertools import product

from rpl_agent.core.model import Domain, ParametricMDP, Polynomial, build
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import interpret


def build_slowly(program: Program, domain: Domain, action_names: tuple[str, ...]) -> ParametricMDP:
    """Explore an mdp whose actions never repeat in a state; rewards are left out."""

    def actions(state: tuple[int, ...]) -> dict[str, dict[tuple[int, ...], Polynomial]]:
        choices: dict[str, dict[tuple[int, ...], Polynomial]] = {}
        labels = dict.fromkeys(c.action for module in program.modules for c in module if c.action)
        for label in labels:
            per_module = [[c for c in m if c.action == label] for m in program.modules]
            enabled = [[c for c in cs if interpret(c.guard, state)] for cs in per_module if cs]
            for combination in product(*enabled):
                choices[label] = outcomes(combination, state)
        for module in program.modules:
            for c in module:
                if c.action is None and interpret(c.guard, state):
                    choices[f"{c.module}.{c.number}"] = outcomes((c,), state)
        return choices or {"deadlock": {state: Polynomial.constant(1)}}

    def outcomes(combination, state):
        row: dict[tuple[int, ...], Polynomial] = {}
        for updates in product(*(c.updates for c in combination)):
            chance, after = Polynomial.constant(1), list(state)
            for update in updates:
                if update.probability is not None:
                    chance = chance * interpret(update.probability, state)
                for index, value in update.assignments:
                    after[index] = int(interpret(value, state))
            key = tuple(after)
            row[key] = row.get(key, Polynomial({})) + chance
        return row

    return build(
        tuple(v.initial for v in program.variables), actions, domain=domain, action_names=action_names,
        variables=[v.name for v in program.variables],
        labels={k: (lambda s, node=node: bool(interpret(node, s))) for k, node in program.labels.items()},
        validate=False,
    )  # fmt: skip
