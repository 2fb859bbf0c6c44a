"""`rpl export`: the learned uncertain model and the policy, in the formats of other tools."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.certify import add_data, read_data
from rpl_agent.cli.common import ID_OR_RUN, add_method, add_source, config_of, emit, load_source, run_of
from rpl_agent.cli.parser import output_file
from rpl_agent.errors import ModelError

if TYPE_CHECKING:
    from rpl_agent.certificate import Certificate
    from rpl_agent.model import Objective, ParametricMDP
    from rpl_agent.pipeline import Uncertainty


def register(commands: Any) -> None:
    export = commands.add_parser(
        "export", run=run, help="write the learned uncertain model (DRN, UMB) and the policy (CSV, JSON, PRISM)"
    )
    add_source(export, ID_OR_RUN)
    add_data(export)
    add_method(export)
    export.add_argument(
        "--uncertain", type=output_file(".drn", ".umb"), metavar="FILE",
        help="interval model: the ending .drn or .umb decides the format",
    )  # fmt: skip
    export.add_argument(
        "--policy-file", type=output_file(".csv", ".json", ".strat"), metavar="FILE",
        help="robust policy: .csv, .json or .strat (PRISM)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from rpl_agent.formats import export as writers

    if not (arguments.uncertain or arguments.policy_file):
        raise ModelError("nothing to write: give --uncertain FILE and/or --policy-file FILE")
    pmdp, objective, uncertainty, certificate = _learned(arguments)
    written = []
    if arguments.uncertain:
        lower, upper = uncertainty.relaxation.bounds()
        writers.write_uncertain(arguments.uncertain, uncertainty.relaxation.pmdp, lower, upper, objective)
        written.append(arguments.uncertain)
    if arguments.policy_file:
        writers.write_policy(arguments.policy_file, pmdp, certificate.policy)
        written.append(arguments.policy_file)
    emit(
        arguments,
        {"written": written, "lower": certificate.lower, "upper": certificate.upper},
        "export",
        "wrote " + ", ".join(written),
    )
    return 0


def _learned(arguments: argparse.Namespace) -> tuple[ParametricMDP, Objective, Uncertainty, Certificate]:
    """The model, the objective, the set and the certificate: of a stored run, or of the data that the options name."""
    agent = run_of(arguments)
    if agent is not None:
        certificate = agent.certify()
        assert agent.session.planner.uncertainty is not None
        return agent.pmdp, agent.objective, agent.session.planner.uncertainty, certificate
    from rpl_agent.pipeline import Solutions, certify_uncertainty, uncertainty_from

    source = load_source(arguments)
    counts, _ = read_data(arguments, source)
    config = config_of(arguments)
    uncertainty = uncertainty_from(source.pmdp, counts, config, source.objective)
    certificate = certify_uncertainty(source.pmdp, counts, uncertainty, source.objective, config, warm=Solutions())
    return source.pmdp, source.objective, uncertainty, certificate
