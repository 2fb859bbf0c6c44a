"""`rpl info` and `rpl solve`: what a model is, and its optimum at known parameters."""

from __future__ import annotations

import argparse

from rpl_agent.cli.common import add_json, add_source, emit, load_source
from rpl_agent.cli.parser import between


def register(commands) -> None:
    info = commands.add_parser("info", help="sizes, parameters, rank and objective of a model")
    add_source(info)
    add_json(info)
    info.set_defaults(run=run_info)
    optimum = commands.add_parser("solve", help="the optimal value at the true parameters, as certified bounds")
    add_source(optimum)
    optimum.add_argument(
        "--precision", type=between(0, 1), default=1e-6, help="width of the bracket (default 1e-6)"
    )
    add_json(optimum)
    optimum.set_defaults(run=run_solve)


def run_info(arguments: argparse.Namespace) -> None:
    source = load_source(arguments)
    pmdp = source.pmdp
    emit(
        arguments,
        {
            "model": source.name,
            "states": pmdp.num_states,
            "state_actions": pmdp.num_rows,
            "transitions": pmdp.num_transitions,
            "parameters": pmdp.num_parameters,
            "parameter_names": list(pmdp.table.parameters),
            "expressions": pmdp.num_expressions,
            "degree": pmdp.table.degree,
            "rank": pmdp.table.reduction.rank,
            "objective": source.objective.describe(),
            "hash": pmdp.content_hash,
        },
        "model",
    )


def run_solve(arguments: argparse.Namespace) -> int:
    from rpl_agent.model import Nature
    from rpl_agent.relaxations.point import Point
    from rpl_agent.solver import solve

    source = load_source(arguments)
    mdp = source.pmdp.instantiate(source.require_theta("rpl solve"))
    solution = solve(Point(mdp), source.objective, Nature.COOPERATIVE, precision=arguments.precision)
    problems = solution.check()
    lower, upper = solution.lower, solution.upper
    emit(
        arguments,
        {
            "model": source.name,
            "objective": source.objective.describe(),
            "value": lower if lower == upper else (lower + upper) / 2,
            "lower": lower,
            "upper": upper,
            "iterations": solution.iterations,
            "seconds": solution.seconds,
            "checked": not problems,
            "problems": problems,
        },
        "optimum at the true parameters",
    )
    return 1 if problems else 0
