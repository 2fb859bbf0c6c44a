"""`rpl certify`: a certificate from simulated data, a log, or a stored run; `rpl plot-region`: a picture of U;
`rpl export`: the learned uncertain model and the policy, in the formats of other tools.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rpl_agent.cli.common import (
    ID_OR_RUN,
    OWN_ENV,
    OWN_MODEL,
    ModelSource,
    add_method,
    add_policy,
    add_seed,
    add_source,
    config_of,
    keeps_limits,
    load_source,
    policy_of,
    refuse_given,
    refuse_unused,
    run_of,
)
from rpl_agent.cli.emit import emit
from rpl_agent.cli.parser import Options, Output, count, output_file
from rpl_agent.cli.progress import Show, progress_bar
from rpl_agent.core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpl_agent.agent import RPLAgent
    from rpl_agent.core.evidence.counts import Counts
    from rpl_agent.core.model import Limit, Objective, ParametricMDP
    from rpl_agent.guarantee.certificate import Certificate
    from rpl_agent.guarantee.claims.improvement import Improvement
    from rpl_agent.guarantee.pipeline import Uncertainty

#: Default number of episodes for the region in a picture.
PLOTTED_EPISODES = 1000
#: Options that describe a log, and a simulation.
OWN_LOG, SIMULATED = {"--data", "--fixed-length", "--quarantine"}, {"--episodes", "--seed", "--max-steps"}
#: Printed fields of a certificate; --output writes all of them.
PRINTED = (
    "lower",
    "upper",
    "gap",
    "regret",
    "optimal",
    "undecided",
    "guarantee",
    "estimate",
    "confidence",
    "relaxation",
    "basis",
    "visits",
    "delta",
    "samples",
    "log_e_value",
    "refuted",
    "empty",
    "fallback",
    "notes",
    "build_seconds",
    "solve_seconds",
    "timings",
    "checked",
    "proved",
)


def register(commands: Any) -> None:
    certify = commands.add_parser(
        "certify",
        run=run_certify,
        help="a certificate from simulated episodes, a log, or a stored run",
        description="Certify a policy. Data come from --episodes (simulated), --data (a log) or a RUN folder as ID.",
    )
    add_source(certify)
    data = certify.add_argument_group("data")
    add_data(data)
    add_method(certify)
    certify.add_argument(
        "--evaluate",
        choices=("optimal",),
        help="bound the policy that is optimal at the true parameters, instead of synthesising one",
    )
    certify.add_argument(
        "--subject-to",
        nargs="+",
        default=(),
        metavar="LIMIT",
        help="limits that the policy has to keep (otherwise exit status 1), e.g. 'probability of fallen <= 0.05'",
    )
    add_policy(certify, "bound the value of this policy, instead of synthesising one")
    certify.add_argument(
        "--fixed-policy",
        action="store_true",
        help="state that --policy was chosen before the data, for tighter bounds where every row is an unknown of "
        "its own",
    )
    certify.add_argument(
        "--output", type=output_file(".json"), metavar="FILE.json", help="write the whole certificate, policy included"
    )
    certify.add_argument(
        "--verify",
        action="store_true",
        help="check a stored certificate (FILE.json of --output, or a RUN) from scratch: against your --data LOG and "
        "your --model or --env where you give them, otherwise against the file's own data and the model it names",
    )
    certify.add_argument(
        "--env",
        help=f"the environment of a RUN without a model; or, with --verify, of the certificate: a registered id or "
        f"{OWN_ENV}",
    )

    _register_plot(commands)
    _register_export(commands)


def _register_plot(commands: Any) -> None:
    plot = commands.add_parser("plot-region", run=run_plot, help="a picture of the confidence region in two parameters")
    add_source(plot, ID_OR_RUN)
    plot.add_argument(
        "--episodes", type=count, metavar="N", help=f"simulated uniform episodes (default {PLOTTED_EPISODES})"
    )
    add_seed(plot)
    plot.add_argument(
        "--parameters", nargs=2, metavar="NAME", help="the two parameters to show (default: the first two)"
    )
    add_method(plot)
    plot.add_argument(
        "--output",
        type=output_file(".png", ".pdf", ".svg"),
        default="region.png",
        metavar="FILE",
        help="picture to write: .png, .pdf or .svg (default region.png)",
    )


def _register_export(commands: Any) -> None:
    export = commands.add_parser(
        "export", run=run_export, help="write the learned uncertain model (DRN, UMB) and the policy (CSV, JSON, PRISM)"
    )
    add_source(export, ID_OR_RUN)
    add_data(export)
    add_method(export)
    add_policy(export, "write this policy in place of the robust one; without --uncertain no data are needed")
    export.add_argument(
        "--uncertain",
        type=output_file(".drn", ".umb"),
        metavar="FILE",
        help="write the interval model; the ending .drn or .umb decides the format",
    )
    export.add_argument(
        "--policy-file",
        type=output_file(".csv", ".json", ".strat"),
        metavar="FILE",
        help="write the robust policy: .csv, .json or .strat (PRISM)",
    )


def add_data(parser: Options) -> None:
    """Add the options for the source of data: a simulation or a log."""
    parser.add_argument(
        "--episodes", type=count, metavar="N", help="simulate N uniform episodes at the true parameters"
    )
    add_seed(parser)
    parser.add_argument(
        "--data",
        metavar="LOG",
        nargs="+",
        help="transitions in a .csv or .parquet file, or minari:NAME; several are pieces of one log, in order",
    )
    parser.add_argument(
        "--fixed-length",
        action="store_true",
        help="state that the length of the log was fixed before its data, for tighter bounds",
    )
    parser.add_argument(
        "--quarantine",
        type=Output,
        metavar="FILE",
        help="write rows that the model forbids to FILE, instead of failing",
    )


def read_data(arguments: argparse.Namespace, source: ModelSource, show: Show) -> tuple[Counts, int]:
    """The counts from the options of `add_data`, and the number of quarantined rows."""
    if (arguments.episodes is None) == (arguments.data is None):
        raise ModelError("give either --episodes N (simulated) or --data LOG")
    if arguments.data is None:
        refuse_given(arguments, OWN_LOG, "it belongs to --data LOG")
        return simulate_counts(source, arguments.episodes, arguments.seed, show), 0
    unused = SIMULATED if arguments.command == "certify" else {*SIMULATED, "--theta"}  # which prints the value there
    refuse_given(arguments, unused, "it belongs to --episodes N, and nothing is simulated with --data LOG")
    from rpl_agent.formats.logs import read_log

    show("reading the log", 0, None)
    schedule = "split" if arguments.fixed_length else "geometric"
    log = read_log(source.pmdp, arguments.data, quarantine=arguments.quarantine, schedule=schedule, shown=source.shown)
    return log.counts, log.quarantined


def simulate_counts(source: ModelSource, episodes: int, seed: int, show: Show) -> Counts:
    """Counts of uniform episodes at the true parameters, marked for the likelihood's split."""
    from rpl_agent.core.evidence.sampling import uniform_counts

    theta = source.require_theta("simulating episodes")
    return uniform_counts(
        source.pmdp, source.objective, theta, episodes, source.max_steps, seed, partial(show, "episodes")
    )


def run_certify(arguments: argparse.Namespace) -> int:
    from rpl_agent.guarantee.shown import true_value

    if arguments.verify:
        return run_verify(arguments)
    if arguments.id is not None and Path(arguments.id).is_dir():
        return _certify_run(arguments)
    if arguments.env is not None:
        raise ModelError("--env belongs to --verify, or to a RUN; otherwise give the environment in place of ID")
    if arguments.policy is not None and arguments.evaluate is not None:
        raise ModelError("give either --policy FILE or --evaluate optimal")
    if arguments.fixed_policy and arguments.policy is None:
        raise ModelError("--fixed-policy says when a policy was chosen: give it with --policy FILE")
    source = load_source(arguments)
    limits, source = (*source.objective.limits, *arguments.subject_to), source.without_limits()
    with progress_bar(arguments) as show:
        certificate, quarantined = _certified(arguments, source, limits, show)
    result = {
        "model": source.name,
        "objective": certificate.objective.describe(),
        **{name: getattr(certificate, name) for name in PRINTED},
        "limits": certificate.limits,
        "quarantined": quarantined,
    }
    if source.theta is not None:
        value = true_value(
            source.pmdp, source.objective, certificate.policy, source.theta, config_of(arguments).precision
        )
        result |= {"value": value, "relative_gap": certificate.gap / abs(value) if value else float("inf")}
    text = str(certificate)
    if "value" in result:
        text += f"\n  true value of the policy (known here, never used): {result['value']:.6g}"
        text += f"; relative gap {result['relative_gap']:.4g}"
    emit(arguments, result, "certificate", text)
    return 0 if certificate.keeps_limits else 1


def _certify_run(arguments: argparse.Namespace) -> int:
    """The certificate of a run; without a model its environment says which actions and states there are."""
    from rpl_agent.agent.runs import certify_run, is_without_model, names_environment
    from rpl_agent.cli.stored import stored_source

    run = Path(arguments.id)
    if not is_without_model(run):
        refuse_unused(arguments, set(), "a RUN is certified with its own model, data, method and policy")
        stored = certify_run(run)
    else:
        refuse_unused(arguments, {"--env"}, "a RUN without a model is certified with its own facts and data")
        if arguments.env is None and names_environment(run):
            stored = certify_run(run)
        else:
            source = stored_source(arguments.id, arguments.env)
            stored = certify_run(run, source.env(), source.options)
    emit(arguments, stored, "certificate")
    return 0 if keeps_limits(stored) else 1


def _certified(
    arguments: argparse.Namespace, source: ModelSource, limits: Sequence[Limit | str], show: Show
) -> tuple[Certificate, int]:
    """The certificate that the options ask for, and the number of quarantined rows."""
    from rpl_agent.core.solver import solve_at
    from rpl_agent.guarantee.claims.limits import certify

    config = config_of(arguments)
    counts, quarantined = read_data(arguments, source, show)
    show("certificate", 0, None)
    policy = None if arguments.policy is None else policy_of(arguments.policy, source)
    if arguments.evaluate == "optimal":
        theta = source.require_theta("--evaluate optimal")
        policy = solve_at(source.pmdp, theta, source.objective, precision=config.precision).policy
    own = {"policy": policy, "fixed_policy": arguments.fixed_policy}
    certificate = certify(source.pmdp, counts, source.objective, config, **own, subject_to=limits)
    if arguments.output:
        certificate = write_stated(arguments, source, counts, certificate, show)
    return certificate, quarantined


Stated = TypeVar("Stated", "Certificate", "Improvement")


def write_stated(
    arguments: argparse.Namespace, source: ModelSource, counts: Counts, found: Stated, show: Show
) -> Stated:
    """Write a certificate with its proof's numbers and its data to a file, and the proof beside it."""
    from rpl_agent.cli.common import source_defaults
    from rpl_agent.guarantee.proof import proof_path, prove, stated, write_proof
    from rpl_agent.guarantee.verify import write_with_data

    show("proof", 0, None)
    path, proof = Path(arguments.output), prove(source.pmdp, counts, found)
    found = stated(found, proof)
    write_proof(proof_path(path), proof)  # first: a certificate that claims a proof has one
    write_with_data(path, found, counts, {key: getattr(arguments, key) for key in source_defaults()})
    return found


def run_verify(arguments: argparse.Namespace) -> int:
    """Exit code 0 if the stored certificate holds on its data, 1 if not."""
    from rpl_agent.agent.runs import is_open_certificate, verdict_open, verify_run

    if arguments.id is None:
        raise ModelError("--verify needs a certificate FILE.json or a RUN folder")
    path = Path(arguments.id)
    folder = path if path.is_dir() else path.parent
    if path.is_dir() or (path.name == "certificate.json" and (folder / "run.json").is_file()):
        refuse_unused(arguments, {"--verify"}, "--verify checks a RUN against the run's own model and data")
        result = verify_run(folder)
    elif is_open_certificate(path):
        refuse_unused(arguments, {"--verify"}, "a certificate without a model is checked by the proof beside it")
        result = verdict_open(path)
    else:
        result = _verify_file(arguments, path)
    emit(arguments, result, "verification")
    return 0 if result["verified"] else 1


def _verify_file(arguments: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Check a certificate file against the reader's model and log, or against what the file names and holds."""
    from rpl_agent.agent.runs import verdict
    from rpl_agent.agent.world.log_returns import log_returns
    from rpl_agent.cli.stored import named_source
    from rpl_agent.guarantee.claims.improvement import UNKNOWN, Improvement
    from rpl_agent.guarantee.verify import data_from_json, data_to_json, different_data, read_with_data

    used = {"--verify", "--env", *OWN_MODEL, *OWN_LOG}
    used -= OWN_LOG if arguments.data is None else set()
    used -= {"--env"} if arguments.model is not None else OWN_MODEL
    reason = "--verify uses --data LOG (with --fixed-length, --quarantine) and --env, or --model with its options"
    refuse_unused(arguments, used, reason)
    certificate, data, stored = read_with_data(path)
    if data is None and arguments.data is None:
        raise ModelError(f"{path} contains no data to check it against: add --data LOG, or write it with --output")
    if arguments.model is not None:
        source = load_source(argparse.Namespace(**{**vars(arguments), "id": None}))
    elif stored is None and arguments.env is None:
        raise ModelError(f"{path} does not name its model: add --model FILE or --env, or write it with --output")
    else:
        source = named_source(str(path), stored or {}, arguments.env)
    if arguments.data is not None:
        with progress_bar(arguments) as show:
            counts, _ = read_data(arguments, source, show)
        log = ", ".join(arguments.data)
        problems = [] if data is None else different_data(data, data_to_json(counts), log)
        returns = None
        if isinstance(certificate, Improvement) and certificate.known == UNKNOWN:
            returns = log_returns(
                source.pmdp, arguments.data, certificate.objective, bounds=certificate.returns, shown=source.shown
            )
        return verdict(certificate, source.pmdp, counts, path, None, problems, f"your {log}", returns)
    assert data is not None
    return verdict(certificate, source.pmdp, data_from_json(source.pmdp, data), path)


def run_plot(arguments: argparse.Namespace) -> None:
    from rpl_agent.agent.output.plotting.region import plot_region
    from rpl_agent.cli.stored import true_parameters
    from rpl_agent.guarantee.pipeline import uncertainty_from

    agent = run_of(arguments, {"--parameters", "--output"})
    if agent is None:
        source = load_source(arguments)
        pmdp, theta, config = source.pmdp, source.theta, config_of(arguments)
    else:
        pmdp, theta, config = agent.pmdp, true_parameters(arguments.id), agent.config
    names = pmdp.table.parameters
    chosen = arguments.parameters or names[:2]
    for name in chosen:
        if name not in names:
            raise ModelError(f"no parameter {name!r}; the model has {names}")
    if agent is not None:
        agent.certify()
        found = agent.session.planner.uncertainty
    else:
        with progress_bar(arguments) as show:
            counts = simulate_counts(source, arguments.episodes or PLOTTED_EPISODES, arguments.seed, show)
        found = uncertainty_from(pmdp, counts, config, source.objective)
    if found is None or found.region is None:
        raise ModelError(f"the {config.relaxation} relaxation of {config.confidence} intervals has no region to draw")
    numbers = tuple(names.index(n) for n in chosen)
    plot_region(found.region, pmdp, parameters=numbers, true_theta=theta, path=arguments.output)
    emit(arguments, {"output": arguments.output, "parameters": list(chosen)}, "region", f"wrote {arguments.output}")


def run_export(arguments: argparse.Namespace) -> None:
    from rpl_agent.formats import export as writers

    if not (arguments.uncertain or arguments.policy_file):
        raise ModelError("nothing to write: give --uncertain FILE and/or --policy-file FILE")
    agent = run_of(arguments, {"--uncertain", "--policy-file"})
    if agent is None and arguments.policy is not None and not arguments.uncertain:
        used = {"--policy", "--policy-file", *OWN_MODEL}
        refuse_unused(arguments, used, "a policy of your own is written as it is; --uncertain FILE needs data")
        source = load_source(arguments)
        writers.write_policy(arguments.policy_file, source.pmdp, policy_of(arguments.policy, source))
        emit(arguments, {"written": [arguments.policy_file]}, "export", f"wrote {arguments.policy_file}")
        return
    pmdp, objective, uncertainty, certificate = _of_data(arguments) if agent is None else _of_run(agent)
    written = []
    if arguments.uncertain:
        lower, upper = uncertainty.relaxation.bounds()
        writers.write_uncertain(arguments.uncertain, uncertainty.relaxation.pmdp, lower, upper, objective)
        written.append(arguments.uncertain)
    if arguments.policy_file:
        writers.write_policy(arguments.policy_file, pmdp, certificate.policy)
        written.append(arguments.policy_file)
    result = {"written": written, "lower": certificate.lower, "upper": certificate.upper}
    emit(arguments, result, "export", "wrote " + ", ".join(written))


#: What is exported: the model, the objective, the set and the certificate.
Learned = tuple["ParametricMDP", "Objective", "Uncertainty", "Certificate"]


def _of_run(agent: RPLAgent) -> Learned:
    """What a stored run learned."""
    certificate = agent.certify()
    assert agent.session.planner.uncertainty is not None
    return agent.pmdp, agent.objective, agent.session.planner.uncertainty, certificate


def _of_data(arguments: argparse.Namespace) -> Learned:
    """What the data that the options name say."""
    from rpl_agent.guarantee.pipeline import Solutions, certify_uncertainty, uncertainty_from

    source = load_source(arguments)
    with progress_bar(arguments) as show:
        counts, _ = read_data(arguments, source, show)
    config = config_of(arguments)
    uncertainty = uncertainty_from(source.pmdp, counts, config, source.objective)
    policy = None if arguments.policy is None else policy_of(arguments.policy, source)
    certificate = certify_uncertainty(
        source.pmdp, counts, uncertainty, source.objective, config, policy=policy, warm=Solutions()
    )
    return source.pmdp, source.objective, uncertainty, certificate
