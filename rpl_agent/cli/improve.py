"""`rpl improve`: is there a policy that is better than the one in use? `rpl curve`: what do two objectives cost?"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.certify import add_data, read_data, write_stated
from rpl_agent.cli.common import add_method, add_policy, add_source, config_of, load_source, policy_of
from rpl_agent.cli.emit import emit
from rpl_agent.cli.parser import count, output_file
from rpl_agent.cli.progress import Show, progress_bar
from rpl_agent.core.errors import ModelError

if TYPE_CHECKING:
    from rpl_agent.cli.common import ModelSource
    from rpl_agent.core.model import Policy
    from rpl_agent.guarantee.claims.improvement import Improvement


def register(commands: Any) -> None:
    improve = commands.add_parser(
        "improve",
        run=run_improve,
        help="is a policy better than the one in use, certified from a log?",
        description="Find a policy and certify how much better it is than the baseline, at one common parameter. No "
        "propensities are needed: the log may come from any policy. Exit status 0 if an improvement is certified, 1 if "
        "not.",
    )
    add_source(improve)
    data = improve.add_argument_group("data")
    add_data(data)
    improve.add_argument(
        "--baseline",
        default="log",
        metavar="FILE|log|frequencies",
        help="the policy in use, a file as for --policy; or unknown: with log the mean of the log's own returns is "
        "bounded without the model, with a fifth of delta (default); with frequencies its action frequencies are "
        "unknowns as well, which assumes that it chooses by the state alone",
    )
    improve.add_argument(
        "--returns",
        nargs=2,
        type=float,
        metavar=("LO", "HI"),
        help="for an unknown baseline: what an episode returns at least and at most (default: from the model)",
    )
    add_policy(improve, "compare this policy with the baseline, instead of finding one")
    add_method(improve)
    improve.add_argument(
        "--output",
        type=output_file(".json"),
        metavar="FILE.json",
        help="write the improvement, policies and data included, and its proof (none for an unknown baseline): rpl "
        "certify FILE.json --verify",
    )
    improve.add_argument(
        "--policy-file",
        type=output_file(".csv", ".json", ".strat"),
        metavar="FILE",
        help="write the policy: .csv, .json or .strat (PRISM)",
    )
    _register_curve(commands)


def _register_curve(commands: Any) -> None:
    curve = commands.add_parser(
        "curve",
        run=run_curve,
        help="what two objectives cost each other, certified from one region",
        description="Policies with certified bounds on both values, and half planes in which every policy is.",
    )
    add_source(curve)
    data = curve.add_argument_group("data")
    add_data(data)
    curve.add_argument(
        "--objectives",
        nargs=2,
        required=True,
        metavar="TEXT",
        help="for example 'minimise steps until done' 'minimise probability of fallen'",
    )
    curve.add_argument("--points", type=count, default=13, metavar="N", help="weights to try (default 13)")
    add_method(curve)
    curve.add_argument(
        "--output", type=output_file(".png", ".pdf", ".svg"), metavar="FILE", help="a picture: .png, .pdf or .svg"
    )


def run_curve(arguments: argparse.Namespace) -> None:
    from rpl_agent.agent.output.plotting.curve import plot_curve
    from rpl_agent.guarantee.claims.curves import curve

    source, config = load_source(arguments), config_of(arguments)
    with progress_bar(arguments) as show:
        counts, _ = read_data(arguments, source, show)
        show("weights", 0, arguments.points)
        shown = partial(show, "weights")
        found = curve(source.pmdp, counts, arguments.objectives, config, points=arguments.points, progress=shown)
    if arguments.output:
        plot_curve(found, arguments.output)
    emit(arguments, found.to_dict(), "curve", str(found))


def run_improve(arguments: argparse.Namespace) -> int:
    from rpl_agent.formats.export import write_policy

    source = load_source(arguments)
    with progress_bar(arguments) as show:
        found, quarantined = _improved(arguments, source, show)
    if arguments.policy_file:
        write_policy(arguments.policy_file, source.pmdp, found.policy)
    shown = {key: value for key, value in found.to_dict().items() if key not in ("policy", "baseline")}
    shown |= {"baseline": arguments.baseline, "quarantined": quarantined}
    emit(arguments, shown, "improvement", str(found))
    return 0 if found.improves else 1


def _improved(arguments: argparse.Namespace, source: ModelSource, show: Show) -> tuple[Improvement, int]:
    """The improvement that the options ask for, and the number of quarantined rows."""
    from rpl_agent.agent.world.log_returns import log_returns
    from rpl_agent.guarantee.claims.improvement import improve

    config = config_of(arguments)
    policy = None if arguments.policy is None else policy_of(arguments.policy, source)
    returns = None
    baseline = _baseline(arguments, source)
    counts, quarantined = read_data(arguments, source, show)
    if baseline == "log":
        bounds = None if arguments.returns is None else tuple(arguments.returns)
        # --fixed-length is about rows: how many episodes they hold depends on the data
        returns = log_returns(source.pmdp, arguments.data, source.objective, bounds=bounds, shown=source.shown)
    show("candidate policies", 0, None)
    shown = partial(show, "policies and pieces compared")
    found = improve(source.pmdp, counts, source.objective, baseline, policy, config, returns=returns, progress=shown)
    if arguments.output:
        found = write_stated(arguments, source, counts, found, show)
    return found, quarantined


def _baseline(arguments: argparse.Namespace, source: ModelSource) -> Policy | str:
    """The policy of --baseline FILE, or how an unknown one is bounded."""
    given: str = arguments.baseline
    if given == "log":
        if arguments.data is None:
            raise ModelError("an unknown baseline is read from a log: give --data LOG, or --baseline FILE")
        return given
    if arguments.returns is not None:
        raise ModelError("--returns belongs to an unknown baseline (--baseline log)")
    if given == "frequencies":
        return given
    if not Path(given).suffix:
        raise ModelError(f"--baseline {given} is none of log, frequencies and FILE (.csv, .json, .strat, .zip)")
    return policy_of(given, source)
