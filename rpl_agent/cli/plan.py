"""`rpl plan`: how much data is needed, from a guess of the parameters; `rpl smc`: sample until the answer is known."""

from __future__ import annotations

import argparse
import math
from typing import Any

from rpl_agent.cli.common import add_method, add_seed, add_source, config_of, file_as_model, load_source
from rpl_agent.cli.emit import emit
from rpl_agent.cli.parser import between, count, output_file, regret_goal
from rpl_agent.core.printed import interval_text

#: Default number of steps after which a run without an answer gives up.
DEFAULT_BUDGET = 10**8
#: How to plan for an environment that does not say its parameters.
GUESS = "give your guess, --theta NAME=VALUE for each, or let a factory return it as 'theta'"


def register(commands: Any) -> None:
    plan = commands.add_parser(
        "plan",
        run=run_plan,
        help="how much data is needed: the expected gap and regret after n episodes",
        description="The expected gap and regret at the parameters of --theta. An estimate, not a guarantee.",
    )
    add_source(plan)
    plan.add_argument("--gap", type=between(0, math.inf), metavar="EPS", help="find how many episodes this gap takes")
    plan.add_argument(
        "--regret",
        type=regret_goal,
        metavar="EPS",
        help="find how many episodes it takes until no policy is better by more than EPS, a number or a share of the "
        "value like 1%%",
    )
    plan.add_argument(
        "--episodes", type=count, nargs="+", default=(), metavar="N", help="forecast the gap after N episodes"
    )
    plan.add_argument(
        "--sampler", choices=("agent", "uniform"), default="agent", help="what draws the episodes (default agent)"
    )
    plan.add_argument("--draws", type=count, metavar="N", help="simulated data sets per point (default 3 to 32)")
    plan.add_argument(
        "--plot", type=output_file(".png", ".pdf", ".svg"), metavar="FILE", help="draw the curve: .png, .pdf or .svg"
    )
    add_method(plan)
    add_seed(plan)

    smc = commands.add_parser("smc", run=run_smc, help="sample a model online until its value is known to EPSILON")
    add_source(smc, "a model in the PRISM language, or a registered world")
    smc.add_argument(
        "--epsilon", type=between(0, float("inf")), default=0.05, help="desired upper − lower (default 0.05)"
    )
    smc.add_argument(
        "--budget", type=count, default=DEFAULT_BUDGET, metavar="STEPS", help="give up after STEPS (default 1e8)"
    )
    add_method(smc)
    add_seed(smc)


def run_plan(arguments: argparse.Namespace) -> None:
    from rpl_agent.agent.forecast import Sampler, forecast
    from rpl_agent.core.model.policy import Policy

    source = load_source(arguments, plays=False)
    theta = source.require_theta("planning", GUESS)
    uniform = Policy.uniform(source.pmdp) if arguments.sampler == "uniform" else None
    found = forecast(
        source.pmdp,
        source.objective,
        theta,
        config_of(arguments),
        Sampler(source.max_steps, policy=uniform),
        gap=arguments.gap,
        regret=arguments.regret,
        episodes=arguments.episodes,
        draws=arguments.draws,
        seed=arguments.seed,
    )
    if arguments.plot:
        found.plot(arguments.plot, f"{source.name}: {source.objective.describe()}")
    data = {
        "model": source.name,
        "objective": source.objective.describe(),
        "value": found.value,
        "delta": found.delta,
        found.aim: found.wanted,
        "needed": found.needed,
        "steps_per_episode": found.steps,
        "curve": found.table(),
    }
    lines = [f"{source.name}: {source.objective.describe()} is {found.value:.6g} if the guess is right"]
    if found.needed is not None:
        lines.append(f"a {found.aim} of {found.wanted:g} (δ = {found.delta:g}) takes about {found.needed:,} episodes")
    lines.append(f"{'episodes':>15} {'gap':>12} {'least … most':>25} {'σ':>12} {'price':>7} {'regret':>12}")
    lines += [
        f"{row['episodes']:>15,} {row['gap']:>12.5g} {row['least']:>12.5g} {row['most']:>12.5g} {row['sigma']:>12.4g} "
        f"{row['price']:>7.3f} {row['regret']:>12.5g}"
        for row in found.table()
    ]
    emit(arguments, data, "plan", "\n".join(lines))


def run_smc(arguments: argparse.Namespace) -> None:
    from rpl_agent.agent.smc import check_by_sampling
    from rpl_agent.core.errors import ModelError

    file_as_model(arguments)
    if arguments.model is not None and arguments.model.endswith(".drn"):
        raise ModelError("a .drn file does not say what is tied: rpl smc samples models in the PRISM language")
    if arguments.model is not None and not arguments.unknown and not arguments.theta:
        arguments.unknown = ["commands"]
    source = load_source(arguments)
    if not source.pmdp.num_parameters:
        raise ModelError("nothing is unknown: the model has no probabilistic command")
    config = config_of(arguments)
    found = check_by_sampling(source.env(), config, arguments.epsilon, budget=arguments.budget, seed=arguments.seed)
    data = {
        "model": source.name,
        "property": source.objective.describe(),
        "lower": found.lower,
        "upper": found.upper,
        "epsilon": arguments.epsilon,
        "delta": config.delta,
        "decided": found.decided,
        "paths": found.paths if arguments.json or isinstance(found.paths, str) else interval_text(*found.paths),
        "contradiction": found.contradiction,
        "samples": found.samples,
        "episodes": found.episodes,
        "certificates": found.certificates,
        "parameters": source.pmdp.num_parameters,
        "confidence": config.confidence,
        "relaxation": config.relaxation,
        "seconds": round(found.seconds, 3),
    }
    emit(arguments, data, "statistical model checking")
