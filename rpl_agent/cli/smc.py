"""`rpl smc`: statistical model checking: sample a model online until the answer is known to ε with confidence 1 − δ."""

from __future__ import annotations

import argparse
from typing import Any

from rpl_agent.cli.common import add_json, add_method, add_seed, add_source, config_of, emit, file_as_model, load_source
from rpl_agent.cli.parser import between, count

#: Steps after which a run without an answer gives up by default.
DEFAULT_BUDGET = 10**8


def register(commands: Any) -> None:
    smc = commands.add_parser("smc", help="sample a model online until its value is known to EPSILON")
    add_source(smc, "a model in the PRISM language, or a registered world")
    smc.add_argument(
        "--epsilon", type=between(0, float("inf")), default=0.05, help="wanted upper − lower (default 0.05)"
    )
    smc.add_argument(
        "--budget", type=count, default=DEFAULT_BUDGET, metavar="STEPS", help="give up after STEPS (default 1e8)"
    )
    add_method(smc)
    add_seed(smc)
    add_json(smc)
    smc.set_defaults(run=run_smc)


def run_smc(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.smc import check
    from rpl_agent.cli.training import make_env
    from rpl_agent.errors import ModelError

    file_as_model(arguments)
    if arguments.model is not None and arguments.model.endswith(".drn"):
        raise ModelError("a .drn file says nothing of what is tied: rpl smc samples models in the PRISM language")
    if arguments.model is not None and not arguments.unknown and not arguments.theta:
        arguments.unknown = ["commands"]
    source = load_source(arguments)
    if not source.pmdp.num_parameters:
        raise ModelError("nothing is unknown: the model has no probabilistic command")
    config = config_of(arguments)
    found = check(make_env(source), config, arguments.epsilon, budget=arguments.budget, seed=arguments.seed)
    data = {
        "model": source.name, "property": source.objective.describe(), "lower": found.lower, "upper": found.upper,
        "epsilon": arguments.epsilon, "delta": config.delta, "decided": found.decided, "samples": found.samples,
        "episodes": found.episodes, "certificates": found.certificates, "parameters": source.pmdp.num_parameters,
        "confidence": config.confidence, "relaxation": config.relaxation, "seconds": round(found.seconds, 3),
    }  # fmt: skip
    emit(arguments, data, "statistical model checking")
    return 0
