"""`rpl worlds`, `info`, `check`, `sketch` and `solve`: facts about a model, its value at parameters or in a region."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.common import (
    ID_OR_RUN,
    OWN_ENV,
    OWN_MODEL,
    add_seed,
    add_source,
    file_as_model,
    load_model,
    load_source,
    pairs,
    refuse_given,
    refuse_unused,
    run_of,
)
from rpl_agent.cli.emit import BOUNDS, emit
from rpl_agent.cli.parser import between, count, output_file
from rpl_agent.core.errors import ModelError
from rpl_agent.core.printed import Sides, ceil_text, floor_text

if TYPE_CHECKING:
    from rpl_agent.core.coupled.region import Partition, RegionPoint
    from rpl_agent.core.model import Objective, ParametricMDP
    from rpl_agent.core.solver.solution import Solution
    from rpl_agent.formats.prism import PrismModel, RegionAnswer

#: width of the bracket at known parameters
POINT_PRECISION = 1e-6
#: most boxes for finding where a comparison holds, without and with a picture
SHARE_BOXES, PICTURE_BOXES = 200, 2_000
#: most undecided pairs to print
LISTED_PAIRS = 40


def register(commands: Any) -> None:
    worlds = commands.add_parser("worlds", run=run_worlds, help="the registered worlds: sizes, parameters, objective")
    worlds.add_argument("pattern", nargs="?", default="", metavar="TEXT", help="only ids that contain TEXT")
    info = commands.add_parser("info", run=run_info, help="sizes, parameters, rank and objective of a model or a run")
    add_source(info, ID_OR_RUN)
    info.add_argument(
        "--undecided",
        action="store_true",
        help="list the state-action pairs of a run that may be part of a better policy",
    )
    check = commands.add_parser(
        "check", run=run_check, help="play an environment and compare it with its model, row by row"
    )
    drawn = commands.add_parser(
        "sketch", run=run_sketch, help="play an environment and write a Python file: what was seen, and facts to edit"
    )
    for parser, episodes in ((check, 200), (drawn, 500)):
        parser.add_argument("env", metavar="ENV", help=f"an id, or {OWN_ENV}")
        parser.add_argument(
            "--episodes", type=count, default=episodes, metavar="N", help=f"episodes to play (default {episodes})"
        )
        add_seed(parser)
    drawn.add_argument(
        "--output",
        type=output_file(".py"),
        default="sketch.py",
        metavar="FILE.py",
        help="Python file to write (default sketch.py)",
    )
    optimum = commands.add_parser(
        "solve",
        run=run_solve,
        help="the answer to a property at known parameters or for all in a region, or the optimal value of a world",
        description="Certified bounds. With --theta (or no parameters): the value there. Otherwise: for all parameters "
        "in the ranges of --param, where a comparison such as P<=0.3 [ … ] holds everywhere, nowhere, or in parts.",
    )
    add_source(optimum)
    optimum.add_argument(
        "--precision",
        type=between(0, 1),
        help="width of the bracket (default 1e-6); for a region, the allowed distance of its bounds from "
        "attained values, as a share of their range (default 0.01)",
    )
    optimum.add_argument("--boxes", type=count, metavar="N", help="for a region: boxes per side (default 2000)")
    optimum.add_argument(
        "--time-limit", type=between(0, float("inf")), metavar="SECONDS", help="for a region: when to stop"
    )
    optimum.add_argument(
        "--plot",
        type=output_file(".png", ".pdf", ".svg"),
        metavar="FILE",
        help="for a region with one or two parameters: draw the values, or where the comparison holds",
    )


def run_check(arguments: argparse.Namespace) -> int:
    """Exit with status 1 if something looks wrong."""
    from rpl_agent.agent.world.check import check_model
    from rpl_agent.agent.world.named_env import FACTS, named_or_registered

    env, options = named_or_registered(arguments.env)
    if not options.keys().isdisjoint(FACTS):
        raise ModelError(f"{arguments.env} has no model to compare its plays with, only facts")
    known = {name: value for name, value in options.items() if name not in ("horizon", "check_rewards")}
    found = check_model(env, **known, episodes=arguments.episodes, seed=arguments.seed)
    emit(arguments, {"ok": found.ok, "problems": found.problems, "lines": found.lines, "text": str(found)}, "check")
    return 0 if found.ok else 1


def run_sketch(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.world.named_env import absolute, named_or_registered, names_code
    from rpl_agent.agent.world.sketch import sketch

    env, _ = named_or_registered(arguments.env)
    if Path(arguments.output).exists():
        raise ModelError(f"{arguments.output} exists, and may contain your edits: give another --output FILE.py")
    code = None
    if names_code(arguments.env):
        code = "from rpl_agent.agent.world.named_env import make_named\n\n\ndef environment():\n"
        code += f"    return make_named({absolute(arguments.env)!r})[0]\n"
    text = sketch(env, episodes=arguments.episodes, seed=arguments.seed, file=arguments.output, code=code)
    Path(arguments.output).write_text(text, encoding="utf-8")
    done = f"wrote {arguments.output}; edit its facts, then: rpl train {arguments.output}:make"
    emit(arguments, {"output": arguments.output, "text": done}, "sketch")
    return 0


def run_info(arguments: argparse.Namespace) -> None:
    file_as_model(arguments)
    if arguments.model is not None and arguments.id is None:
        refuse_unused(arguments, OWN_MODEL, "these are facts about the model itself")
        _info_of_a_file(arguments, load_model(arguments))
        return
    without_model = _open_run(arguments)
    if without_model is not None:
        emit(arguments, without_model, "run without a model")
        return
    agent = run_of(arguments, {"--undecided"})
    if agent is None:
        refuse_unused(arguments, OWN_MODEL, "these are facts about the model itself")
        source = load_source(arguments)
        emit(arguments, _facts(source.name, source.pmdp, source.objective), "model")
        return
    facts = {"run": arguments.id, **_facts(agent.pmdp.name, agent.pmdp, agent.objective)}
    facts |= {"episodes": agent.num_episodes, "steps": agent.num_timesteps, "confidence": agent.config.confidence}
    facts |= {"relaxation": agent.config.relaxation, "delta": agent.config.delta}
    if agent.certificate is not None:
        certificate = agent.certificate
        facts |= {"lower": certificate.lower, "upper": certificate.upper, "regret": certificate.regret}
        facts |= {"optimal": certificate.optimal, "undecided": certificate.undecided}
    if arguments.undecided:
        pairs = agent.undecided_pairs()
        facts["undecided_pairs"] = pairs if arguments.json else _listed(pairs)
    emit(arguments, facts, "run")


def _listed(undecided: list[dict[str, Any]] | None) -> str:
    """The state-action pairs that may be part of a better policy, one a line."""
    if not undecided:
        return "none" if undecided is not None else "not known"
    lines = ["{name}: {action} in place of {played} (tried {tried:,} times)".format(**pair) for pair in undecided]
    more = f"… and {len(lines) - LISTED_PAIRS:,} more: --json has all"
    return "\n".join(lines if len(lines) <= LISTED_PAIRS else [*lines[:LISTED_PAIRS], more])


def _open_run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """What is known of a run without a model, from its certificate; None for anything else."""
    if not arguments.id or not Path(arguments.id).is_dir():
        return None
    from rpl_agent.agent.runs import open_certificate
    from rpl_agent.agent.storage.checkpoint import CHECKPOINT, read_latest
    from rpl_agent.agent.storage.open_state import read_open, stored_ties
    from rpl_agent.guarantee.open_world.ties import ADVICE

    found = open_certificate(Path(arguments.id))
    if found is None:
        return None
    if arguments.undecided:
        raise ModelError("--undecided needs a model, and this run has none: rpl report lists the rows least known")
    refuse_unused(arguments, set(), "a run without a model has its own environment, facts and data")
    shown = (
        "model",
        "objective",
        "states",
        "rows",
        "untried",
        "episodes",
        "samples",
        "delta",
        "lower",
        "upper",
        "regret",
        "plays",
    )
    ties = [tie.text for tie in stored_ties(read_open(*read_latest(Path(arguments.id) / CHECKPOINT)))]
    told = {"run": arguments.id, **{name: getattr(found, name) for name in shown}, "assumed": list(found.assumed)}
    return told | {"proposed_ties": [*ties, ADVICE] if ties else []}


def _info_of_a_file(arguments: argparse.Namespace, model: PrismModel) -> None:
    if model.bounds is not None:
        facts, names = _sizes(arguments.model, model.pmdp), model.bounds.domain.parameters
        facts |= {"intervals": model.pmdp.num_expressions, "parameters": len(names), "parameter_names": list(names)}
        emit(arguments, facts | {"hash": model.pmdp.content_hash}, "interval model")
    elif arguments.property is None and not model.properties:
        emit(arguments, _facts(arguments.model, model.pmdp, None), "model")
    else:
        emit(arguments, _facts(arguments.model, *model.objective(arguments.property)), "model")


def _sizes(name: str, pmdp: ParametricMDP) -> dict[str, Any]:
    return {
        "model": name,
        "states": pmdp.num_states,
        "state_actions": pmdp.num_rows,
        "transitions": pmdp.num_transitions,
    }


def _facts(name: str, pmdp: ParametricMDP, objective: Objective | None) -> dict[str, Any]:
    return _sizes(name, pmdp) | {
        "parameters": pmdp.num_parameters,
        "parameter_names": list(pmdp.table.parameters),
        "expressions": pmdp.num_expressions,
        "degree": pmdp.table.degree,
        "rank": pmdp.table.reduction.rank,
        "objective": None if objective is None else objective.describe(),
        "hash": pmdp.content_hash,
    }


def _only_for_regions(arguments: argparse.Namespace) -> None:
    reason = "it is for regions only: your own model with parameters, without --theta"
    refuse_given(arguments, {"--plot", "--boxes", "--time-limit"}, reason)


def run_solve(arguments: argparse.Namespace) -> int:
    refuse_given(arguments, {"--max-steps"}, "nothing is simulated")
    file_as_model(arguments)
    if arguments.model is not None and arguments.id is None:
        return _solve_property(arguments)
    from rpl_agent.core.solver import solve_at

    _only_for_regions(arguments)
    source = load_source(arguments, plays=False)
    theta = source.require_theta("solving", "give --theta; rpl certify and rpl train bound the value from data")
    precision = arguments.precision or POINT_PRECISION
    solution = solve_at(source.pmdp, theta, source.objective, precision=precision, everywhere=False)
    problems = solution.check()
    data = {"model": source.name, "objective": source.objective.describe()}
    data |= _numbers(solution.lower, solution.upper, solution, problems)
    emit(arguments, data, "optimum at the true parameters")
    return 1 if problems else 0


def _numbers(lower: float, upper: float, solution: Solution, problems: list[str]) -> dict[str, Any]:
    from rpl_agent.core.solver.solution import midpoint

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
    """Answer a property of a file: a bracket, or yes or no; robust and optimistic for an interval model."""
    from rpl_agent.core.model import Nature
    from rpl_agent.formats import prism
    from rpl_agent.formats.multi import is_multi

    if is_multi(arguments.property):
        return _solve_multi(arguments)
    model = load_model(arguments, only_for=arguments.property or prism.FIRST)
    domain = model.pmdp.domain if model.bounds is None else model.bounds.domain
    given = pairs(arguments.theta, "--theta", float)
    theta = None
    if given or (model.bounds is None and not domain.parameters):
        theta = model.theta(given)
    elif model.bounds is None:
        return _solve_region(arguments, model)
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


#: Weights of a front.
FRONT_POINTS = 13


def _solve_multi(arguments: argparse.Namespace) -> int:
    """PRISM's multi(…): a value within limits, whether limits can be kept, or a Pareto front."""
    from rpl_agent.formats.multi import multi_query
    from rpl_agent.guarantee.claims import known

    _only_for_regions(arguments)
    model = load_model(arguments)
    given = pairs(arguments.theta, "--theta", float)
    if model.bounds is not None or (model.pmdp.domain.parameters and not given):
        raise ModelError("multi(…) needs known parameters: give --theta, or learn them with rpl certify or rpl train")
    query, theta = multi_query(model, arguments.property), model.theta(given)
    facts = {"model": arguments.model, "property": arguments.property}
    if len(query.goals) > 1:
        if len(query.goals) != 2 or query.limits:
            raise ModelError("a front has two objectives and no limits: multi(Pmax=? [ … ], Rmin=? [ … ])")
        found = known.front(query.pmdp, theta, query.goals, FRONT_POINTS)
        emit(arguments, facts | found.to_dict(), "front", found.listed("at these parameters:"))
        return 0
    precision = arguments.precision or POINT_PRECISION
    if query.goals:
        within = known.best_within(query.pmdp, theta, query.goals[0].subject_to(*query.limits), precision)
        data = facts if math.isnan(within.lower) else facts | {"lower": within.lower, "upper": within.upper}
    else:
        within = known.achievable(query.pmdp, theta, query.limits, precision)
        data = facts | {"answer": within.verdict}
    data |= {"keeps_limits": within.keeps_limits, "limits": "; ".join(within.sentences)}
    emit(arguments, data, "within limits at the true parameters")
    return 0


# -- regions of parameters --------------------------------------------------------------------------------------------
def _solve_region(arguments: argparse.Namespace, model: PrismModel) -> int:
    """Answer a property for all parameters of a region: bounds, where a comparison holds, and a picture."""
    from rpl_agent.agent.output.plotting.values import ValuePicture, plot_values, shown_parameters
    from rpl_agent.core.coupled.region import DEFAULT_BOXES, DEFAULT_PRECISION
    from rpl_agent.formats import prism

    if arguments.plot:
        shown_parameters(model.pmdp.domain)
    found = prism.answer_region(
        model,
        arguments.property,
        precision=arguments.precision or DEFAULT_PRECISION,
        max_boxes=arguments.boxes or DEFAULT_BOXES,
        time_limit=arguments.time_limit or math.inf,
    )
    parts = _parts(found, bool(arguments.plot))
    data = _region_facts(arguments, found, parts)
    if arguments.plot:
        query, picture = found.query, ValuePicture(found.solution, found.query.complement)
        if found.verdict is not None and query.threshold is not None:
            question = (query.comparison, float(query.threshold))
            picture = replace(picture, question=question, answer=found.verdict.answer, parts=parts)
        plot_values(picture, arguments.plot)
        data["picture"] = arguments.plot
    emit(arguments, data, "property for all parameters of the region", bounds=_region_bounds(found))
    return 0


def _region_bounds(found: RegionAnswer) -> Sides:
    """The sides of the numbers about a region: values that are attained bound the least from above."""
    from rpl_agent.core.model import Sense

    own, every = floor_text, ceil_text
    if found.solution.objective.sense is Sense.MIN:
        own, every = every, own
    inner = {"least_attained": ceil_text, "most_attained": floor_text}
    return {**BOUNDS, **inner, "policy_guarantee": own, "best_possible_guarantee": every}


def _parts(found: RegionAnswer, for_picture: bool) -> Partition | None:
    """Where the comparison holds, box by box; None if there is no comparison, or one answer for all."""
    from rpl_agent.core.coupled.region import DEFAULT_UNDECIDED, NOT_DECIDED, SOMEWHERE

    if found.verdict is None or found.verdict.answer not in (SOMEWHERE, NOT_DECIDED):
        return None
    share, boxes = (DEFAULT_UNDECIDED / 2, PICTURE_BOXES) if for_picture else (DEFAULT_UNDECIDED, SHARE_BOXES)
    return found.partition(share, boxes)


def _region_facts(arguments: argparse.Namespace, found: RegionAnswer, parts: Partition | None) -> dict[str, Any]:
    solution, region = found.solution, found.solution.region
    objective = found.query.objective.describe()
    facts: dict[str, Any] = {
        "model": arguments.model,
        "property": arguments.property or objective,
        "objective": objective + (" (the property is 1 minus this)" if found.query.complement else ""),
        "region": {
            n: f"{lo}:{hi}" for n, lo, hi in zip(region.parameters, region.lower.tolist(), region.upper.tolist())
        },
    }
    if len(region.b):
        facts["constraints"] = len(region.b)
    if found.verdict is not None:
        facts["answer"] = found.verdict.answer
        for name, point in (("holds_at", found.verdict.holds_at), ("fails_at", found.verdict.fails_at)):
            if point is not None:
                facts[name] = _named(region.parameters, point)
        if parts is not None and parts.shares is not None:
            facts["holds_share"], facts["fails_share"] = parts.shares
    facts |= {
        "lower": found.lower,
        "upper": found.upper,
        "least_attained": found.least.upper,
        "least_at": _named(region.parameters, found.least),
        "most_attained": found.most.lower,
        "most_at": _named(region.parameters, found.most),
    }
    if solution.pmdp.num_rows > solution.pmdp.num_states and not found.query.complement:
        facts |= {"policy_guarantee": solution.guarantee, "best_possible_guarantee": solution.best_possible}
    facts |= {"boxes": solution.boxes, "seconds": solution.seconds, "converged": solution.converged}
    return facts


def _named(names: tuple[str, ...], point: RegionPoint) -> dict[str, float]:
    return dict(zip(names, point.theta.tolist()))


# -- worlds ----------------------------------------------------------------------------------------------------------
def describe() -> list[dict[str, Any]]:
    """One entry per instance. Parameters and objective are the family's, read from its smallest instance."""
    import rpl_envs

    families: dict[str, tuple[list[str], str]] = {}
    found = []
    for name, instance in rpl_envs.INSTANCES.items():
        if instance.family not in families:  # instances are sorted by size
            smallest = rpl_envs.benchmark(name)
            families[instance.family] = (list(smallest.pmdp.table.parameters), smallest.objective.describe())
        parameters, objective = families[instance.family]
        states, transitions, expressions = instance.counts or (None, None, None)
        found.append(
            {
                "id": instance.id,
                "states": states,
                "transitions": transitions,
                "expressions": expressions,
                "parameters": parameters,
                "objective": objective,
                "episode_steps": instance.episode + 1,
            }
        )
    return found


def run_worlds(arguments: argparse.Namespace) -> None:
    worlds = [world for world in describe() if arguments.pattern.lower() in str(world["id"]).lower()]
    if not worlds:
        raise ModelError(f"no world's id contains {arguments.pattern!r}; rpl worlds lists them all")
    if arguments.json:
        emit(arguments, {"worlds": worlds}, "worlds")
    else:
        _print(worlds)


def _print(worlds: list[dict[str, Any]]) -> None:
    """Print a heading per family, because all its sizes share the objective and the unknowns."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    headings = [f"{world['objective']}   unknown: {', '.join(world['parameters'])}" for world in worlds]
    for heading in dict.fromkeys(headings):
        console.print(heading, style="bold", markup=False)
        table = Table("id", box=None, padding=(0, 2, 0, 0))
        for name in ("states", "transitions", "expressions", "steps"):
            table.add_column(name, justify="right")
        for world in (world for world, own in zip(worlds, headings) if own == heading):
            sizes = [world[name] for name in ("states", "transitions", "expressions", "episode_steps")]
            table.add_row(world["id"], *("–" if size is None else f"{size:,}" for size in sizes))
        console.print(table, "")
    console.print("Episodes end after the number of steps shown. Sizes marked –: rpl info ID. Start with: rpl train ID")
