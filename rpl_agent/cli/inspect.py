"""`rpl info` and `rpl solve`: what a model is, and its optimum at known parameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.common import (
    OWN_ENV,
    add_json,
    add_seed,
    add_source,
    emit,
    file_as_model,
    load_model,
    load_source,
    pairs,
)
from rpl_agent.cli.parser import between, count, output_file
from rpl_agent.cli.stored import ID_OR_RUN, run_of
from rpl_agent.errors import ModelError

if TYPE_CHECKING:
    from rpl_agent.formats.prism import PrismModel
    from rpl_agent.model import Objective, ParametricMDP
    from rpl_agent.solver.solution import Solution

#: width of the bracket at known parameters
POINT_PRECISION = 1e-6


def register(commands: Any) -> None:
    info = commands.add_parser("info", help="sizes, parameters, rank and objective of a model or a run")
    add_source(info, ID_OR_RUN)
    add_json(info)
    info.set_defaults(run=run_info)
    check = commands.add_parser("check", help="play an environment and compare it with its model, row by row")
    drawn = commands.add_parser("sketch", help="play an environment and write the Python file of a model to edit")
    for parser, episodes in ((check, 200), (drawn, 500)):
        parser.add_argument("env", metavar="ENV", help=f"an id, or {OWN_ENV}")
        parser.add_argument(
            "--episodes", type=count, default=episodes, metavar="N", help=f"to play (default {episodes})"
        )
        add_seed(parser)
        add_json(parser)
    drawn.add_argument("--output", type=output_file(".py"), default="sketch.py", metavar="FILE.py")
    check.set_defaults(run=run_check)
    drawn.set_defaults(run=run_sketch)
    optimum = commands.add_parser(
        "solve",
        help="the answer to a property at known parameters or for all in a region, or the optimal value of a world",
        description="Certified bounds. With --theta (or no parameters): the value there. Without: for all parameters "
        "in the ranges of --param, where a comparison such as P<=0.3 [ … ] holds everywhere, nowhere, or in parts.",
    )
    add_source(optimum)
    optimum.add_argument(
        "--precision", type=between(0, 1),
        help="width of the bracket (default 1e-6); of a region, how far its bounds may be from values that are "
        "attained, as a share of their range (default 0.01)",
    )  # fmt: skip
    optimum.add_argument("--boxes", type=count, metavar="N", help="of a region: boxes on each side (default 2000)")
    optimum.add_argument(
        "--time-limit", type=between(0, float("inf")), metavar="SECONDS", help="of a region: bounds reached by then"
    )
    optimum.add_argument(
        "--plot", type=output_file(".png", ".pdf", ".svg"), metavar="FILE",
        help="of a region with one or two parameters: draw the values, or where the comparison holds",
    )  # fmt: skip
    add_json(optimum)
    optimum.set_defaults(run=run_solve)


def run_check(arguments: argparse.Namespace) -> int:
    """Exit status 1 where something looks wrong."""
    from rpl_agent.agent.world.check import check_model
    from rpl_agent.agent.world.named_env import named_or_registered

    env, options = named_or_registered(arguments.env)
    known = {name: value for name, value in options.items() if name not in ("horizon", "check_rewards")}
    found = check_model(env, **known, episodes=arguments.episodes, seed=arguments.seed)
    emit(arguments, {"ok": found.ok, "problems": found.problems, "lines": found.lines, "text": str(found)}, "check")
    return 0 if found.ok else 1


def run_sketch(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from rpl_agent.agent.world.named_env import absolute, named_or_registered, names_code
    from rpl_agent.agent.world.sketch import sketch

    env, _ = named_or_registered(arguments.env)
    code = None
    if names_code(arguments.env):
        code = "from rpl_agent.agent.world.named_env import make_named\n\n\ndef environment():\n"
        code += f"    return make_named({absolute(arguments.env)!r})[0]\n"
    text = sketch(env, episodes=arguments.episodes, seed=arguments.seed, file=arguments.output, code=code)
    Path(arguments.output).write_text(text)
    done = f"wrote {arguments.output}; now: rpl check {arguments.output}:make"
    emit(arguments, {"output": arguments.output, "text": done}, "sketch")
    return 0


def run_info(arguments: argparse.Namespace) -> None:
    file_as_model(arguments)
    if arguments.model is not None and arguments.id is None:
        _info_of_a_file(arguments, load_model(arguments))
        return
    agent = run_of(arguments)
    if agent is None:
        source = load_source(arguments)
        emit(arguments, _facts(source.name, source.pmdp, source.objective), "model")
        return
    facts = {"run": arguments.id, **_facts(agent.pmdp.name, agent.pmdp, agent.objective)}
    facts |= {"episodes": agent.num_episodes, "steps": agent.num_timesteps, "confidence": agent.config.confidence}
    facts |= {"relaxation": agent.config.relaxation, "delta": agent.config.delta}
    if agent.certificate is not None:
        facts |= {"lower": agent.certificate.lower, "upper": agent.certificate.upper}
    emit(arguments, facts, "run")


def _info_of_a_file(arguments: argparse.Namespace, model: PrismModel) -> None:
    pairs(arguments.theta, "--theta", float)
    if model.bounds is not None:
        _info_of_intervals(arguments, model)
    elif arguments.property is None and not model.properties:
        emit(arguments, _facts(arguments.model, model.pmdp, None), "model")
    else:
        emit(arguments, _facts(arguments.model, *model.objective(arguments.property)), "model")


def _facts(name: str, pmdp: ParametricMDP, objective: Objective | None) -> dict[str, Any]:
    return {
        "model": name,
        "states": pmdp.num_states,
        "state_actions": pmdp.num_rows,
        "transitions": pmdp.num_transitions,
        "parameters": pmdp.num_parameters,
        "parameter_names": list(pmdp.table.parameters),
        "expressions": pmdp.num_expressions,
        "degree": pmdp.table.degree,
        "rank": pmdp.table.reduction.rank,
        "objective": None if objective is None else objective.describe(),
        "hash": pmdp.content_hash,
    }


def _info_of_intervals(arguments: argparse.Namespace, model: PrismModel) -> None:
    """An interval model has no polynomials to learn: sizes, and the parameters that stand in its bounds."""
    pmdp, bounds = model.pmdp, model.bounds
    assert bounds is not None
    emit(
        arguments,
        {
            "model": arguments.model,
            "states": pmdp.num_states,
            "state_actions": pmdp.num_rows,
            "transitions": pmdp.num_transitions,
            "intervals": pmdp.num_expressions,
            "parameters": len(bounds.domain.parameters),
            "parameter_names": list(bounds.domain.parameters),
            "hash": pmdp.content_hash,
        },
        "interval model",
    )


def _only_for_regions(arguments: argparse.Namespace) -> None:
    for option in ("plot", "boxes"):
        if getattr(arguments, option) is not None:
            raise ModelError(f"--{option} is for regions: a model of your own with parameters, without --theta")


def run_solve(arguments: argparse.Namespace) -> int:
    file_as_model(arguments)
    if arguments.model is not None and arguments.id is None:
        return _solve_property(arguments)
    from rpl_agent.solver import solve_at

    _only_for_regions(arguments)
    source = load_source(arguments)
    theta = source.require_theta("rpl solve")
    solution = solve_at(source.pmdp, theta, source.objective, precision=arguments.precision or POINT_PRECISION)
    problems = solution.check()
    data = {"model": source.name, "objective": source.objective.describe()}
    data |= _numbers(solution.lower, solution.upper, solution, problems)
    emit(arguments, data, "optimum at the true parameters")
    return 1 if problems else 0


def _numbers(lower: float, upper: float, solution: Solution, problems: list[str]) -> dict[str, Any]:
    from rpl_agent.solver.solution import midpoint

    return {
        "value": midpoint(lower, upper),
        "lower": lower,
        "upper": upper,
        "iterations": solution.iterations,
        "seconds": solution.seconds,
        "checked": not problems,
        "problems": problems,
    }


def _solve_property(arguments: argparse.Namespace) -> int:
    """A property of a file: a bracket, or yes and no; robust and optimistic for an interval model."""
    from rpl_agent.formats import prism
    from rpl_agent.model import Nature

    model = load_model(arguments)
    domain = model.pmdp.domain if model.bounds is None else model.bounds.domain
    given = pairs(arguments.theta, "--theta", float)
    theta = None
    if given or (model.bounds is None and not domain.parameters):
        theta = model.theta(given)
    elif model.bounds is None:
        from rpl_agent.cli.region import solve_region_question

        return solve_region_question(arguments, model)
    _only_for_regions(arguments)
    answers = prism.answer(model, arguments.property, theta, precision=arguments.precision or POINT_PRECISION)
    natures = {Nature.ADVERSARIAL: "robust", Nature.COOPERATIVE: "optimistic"}
    parts = []
    for found in answers:
        data = _numbers(found.lower, found.upper, found.solution, found.problems)
        if found.verdict is not None:
            data = {"answer": found.verdict, **data}
        if found.query.filter == "range":
            data["states"] = len(found.query.states)
        parts.append((natures[found.nature], data))
    solved = answers[0].query.objective.describe()
    data = {"model": arguments.model, "property": arguments.property or solved, "objective": solved, **parts[0][1]}
    if answers[0].query.complement:
        data["objective"] += " (the property is 1 minus this)"
    if len(parts) > 1:
        data["nature"] = "robust: the worst case of the intervals; optimistic beside it"
        data |= {f"{name}_{key}": part[key] for name, part in parts for key in ("lower", "upper")}
    emit(arguments, data, "property of the model")
    return 1 if any(found.problems for found in answers) else 0
