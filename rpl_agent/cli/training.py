"""`rpl train`, `resume`, `evaluate`, `watch`: the agent from the shell."""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.common import (
    OWN_ENV,
    POLICY_FILE,
    ModelSource,
    add_method,
    add_seed,
    add_source,
    config_of,
    keeps_limits,
    load_source,
    refuse_given,
    refuse_unused,
    source_defaults,
    world_source,
)
from rpl_agent.cli.emit import emit
from rpl_agent.cli.parser import INTERRUPTED, add_call, between, call, count, folder_name, output_file, regret_goal
from rpl_agent.cli.progress import progress_bar
from rpl_agent.cli.stored import source_of, stored_source
from rpl_agent.core.errors import ModelError, require_file

if TYPE_CHECKING:
    from rpl_agent.agent.evaluation import Evaluation
    from rpl_agent.core.model import Policy


def register(commands: Any) -> None:
    train = commands.add_parser(
        "train", run=run_train, help="learn online, then certify; live view, checkpoints, TensorBoard"
    )
    add_source(train)
    _add_facts(train)
    train.later(lambda: _add_run(train))
    add_method(train)
    add_seed(train)
    _add_view(train)

    resume = commands.add_parser("resume", run=run_resume, help="continue an interrupted run")
    _add_folder(resume)
    resume.add_argument("--budget", type=count, metavar="N", help="a new total budget (default: the old one)")
    _add_view(resume)

    evaluate = commands.add_parser(
        "evaluate",
        run=run_evaluate,
        help="the learned policy's value: by Monte Carlo and exactly; or the mean return of any policy",
        description="Of a run: its policy's value by Monte Carlo, with an interval that relies on no model. With "
        "--policy: an interval for the mean return of a policy of your own in any environment.",
    )
    _add_folder(evaluate, optional=True)
    evaluate.add_argument(
        "--episodes", type=count, default=10_000, metavar="N", help="episodes to simulate (default 10000)"
    )
    evaluate.add_argument(
        "--worth",
        dest="bounds",
        type=float,
        nargs=2,
        metavar=("LEAST", "MOST"),
        help="range of the value of one episode (default: from the model)",
    )
    evaluate.later(lambda: _add_policy(evaluate))
    add_seed(evaluate, 1)

    watch = commands.add_parser("watch", run=run_watch, help="see the policy act: in the terminal, or as .gif")
    _add_folder(watch)
    watch.add_argument("--episodes", type=count, default=1, metavar="N", help="episodes to show (default 1)")
    watch.add_argument(
        "--output",
        type=output_file(".gif"),
        metavar="FILE",
        help="write an animation to this .gif instead",
    )
    watch.add_argument(
        "--fps", type=between(0, 100), default=4.0, help="steps per second, on a terminal or in the .gif (default 4)"
    )
    watch.add_argument(
        "--mode",
        choices=("robust", "optimistic"),
        default="robust",
        help="show the certified policy or the exploring one",
    )
    add_seed(watch, 1)


def _add_folder(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    parser.add_argument(
        "run_folder", metavar="RUN", nargs="?" if optional else None, help="a run folder, e.g. logs/demo"
    )
    parser.add_argument("--env", help=f"{OWN_ENV} (default: the run's own, if it has a known id)")


def _add_policy(parser: argparse.ArgumentParser) -> None:
    """Any policy: the keywords of `agent.sampling.returns.bound_return`."""
    group = parser.add_argument_group("any policy (with --env)")
    group.add_argument(
        "--policy",
        metavar="FILE",
        help=f"{POLICY_FILE}; or path/to/file.py:function, from an observation to an action",
    )
    group.add_argument(
        "--algorithm", metavar="NAME", help="class that saved the .zip (default: guessed from its settings)"
    )
    group.add_argument(
        "--returns",
        type=float,
        nargs=2,
        metavar=("LO", "HI"),
        help="least and most that one episode can return; only a .zip or a function in an environment whose structure "
        "is not known needs them",
    )
    group.add_argument("--delta", type=between(0, 1), help="probability that the interval is wrong (default 0.001)")
    group.add_argument(
        "--width",
        type=between(0, math.inf),
        metavar="EPS",
        help="with --returns: end early once the interval is this narrow",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    """The keywords of `agent.runs.train`."""
    from rpl_agent.agent.runs import train

    add_call(
        parser,
        train,
        {
            "budget": "exact number of episodes (or steps, see --unit), e.g. 20000 or 1e5",
            "unit": ("what the budget counts", {"choices": ("episodes", "steps")}),
            "schedule": ("when to update: state-action, expression, never or every:N", {}),
            "weight": ("probability of the planned action while exploring", {"type": between(0, 1, closed=True)}),
            "exploration": (
                "certificate: mostly where episodes narrow the certificate; regret: where the best policy is "
                "undecided; optimistic: as in the paper",
                {},
            ),
            "horizon": (
                "count only this many steps of a play; env: as many as its time limit",
                {"type": _horizon, "metavar": "STEPS"},
            ),
            "subject_to": (
                "limits that the certified policy has to keep (otherwise exit status 1), e.g. "
                "'probability of fallen <= 0.05'",
                {"nargs": "+", "metavar": "LIMIT"},
            ),
            "explore_within_limits": "explore only with policies that are proved to keep the limits, once there is one",
            "stop_when_gap": ("end early once upper − lower ≤ EPS", {"type": between(0, math.inf), "metavar": "EPS"}),
            "stop_when_regret": (
                "end early once no policy is better by more than EPS, a number or a share of the value like 1%",
                {"type": regret_goal, "metavar": "EPS"},
            ),
            "log_dir": ("runs go to LOG_DIR/NAME", {}),
            "name": ("name of the run folder (default: model and number)", {"type": folder_name}),
            "checkpoint_every": "episodes between checkpoints, besides one every 20 seconds",
        },
    )


def _add_facts(parser: argparse.ArgumentParser) -> None:
    """What is known of an environment without a model, in place of one."""
    group = parser.add_argument_group("no model: an environment of which only this is known")
    pair: dict[str, Any] = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH")}
    group.add_argument("--returns", **pair, help="range of the return of every play from every state")
    group.add_argument("--rewards", **pair, help="range of the reward of every step")
    group.add_argument(
        "--discount",
        type=between(0, 1, closed=True),
        help="discount of the return (default: none, within the time limit)",
    )
    group.add_argument("--deterministic", action="store_true", help="every action has one outcome in every state")


def _facts_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `_add_facts` that were given, as keywords of the agent."""
    given = {name: getattr(arguments, name) for name in ("returns", "rewards", "discount", "deterministic")}
    return {name: value for name, value in given.items() if value is not None and value is not False}


def _add_view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.add_argument("--no-progress", action="store_true", help="plain lines instead of the live view")


def _horizon(text: str) -> int | str:
    if text == "env":
        return text
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither env nor a number of steps")
    return int(text)


#: Options of `rpl train` that matter without a model.
WITHOUT_MODEL = {
    "--returns",
    "--rewards",
    "--discount",
    "--deterministic",
    "--horizon",
    "--delta",
    "--budget",
    "--unit",
    "--stop-when-gap",
    "--stop-when-regret",
    "--seed",
    "--log-dir",
    "--name",
    "--checkpoint-every",
    "--quiet",
    "--no-progress",
}


def run_train(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.runs import train

    facts = _facts_of(arguments)
    if facts and (arguments.model is not None or arguments.id is None):
        raise ModelError("--returns, --rewards, --discount and --deterministic are for environments without a model")
    source = world_source(arguments.id) if facts else load_source(arguments, needs_model=False)
    if source.pmdp is None:
        refuse_unused(arguments, WITHOUT_MODEL, f"it needs a model, and {arguments.id} is learned without one")
    if source.objective is not None:  # of a property multi(…)
        arguments.subject_to = (*source.objective.limits, *(arguments.subject_to or ()))
        source = source.without_limits()
    if source.options is not None:
        arguments.id = source.name  # valid from every folder
    options = {key: getattr(arguments, key) for key in source_defaults()} | {"no_model": source.pmdp is None}
    result = call(
        train,
        arguments,
        source.env(),
        source=options,
        config=config_of(arguments),
        oracle_theta=source.theta,
        options={**(source.options or {}), **facts} or None,
        **_view(arguments),
    )
    return _finish(arguments, result)


def run_resume(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.runs import resume

    source = stored_source(arguments.run_folder, arguments.env)
    result = call(
        resume,
        arguments,
        arguments.run_folder,
        source.env(),
        oracle_theta=source.theta,
        options=source.options,
        **_view(arguments),
    )
    return _finish(arguments, result)


def _view(arguments: argparse.Namespace) -> dict[str, bool]:
    return {"quiet": arguments.quiet or arguments.json, "progress": not arguments.no_progress}


def _finish(arguments: argparse.Namespace, result: dict) -> int:
    emit(arguments, result, "training")
    return INTERRUPTED if result.get("interrupted") else 0 if keeps_limits(result) else 1


def run_evaluate(arguments: argparse.Namespace) -> int:
    if arguments.policy is not None:
        return _evaluate_policy(arguments)
    if arguments.run_folder is None and arguments.env is not None:
        raise ModelError(f"nothing to play in {arguments.env}: add --policy FILE, or a run folder")
    unused = [name for name in ("returns", "delta", "width", "algorithm") if getattr(arguments, name) is not None]
    if unused:
        raise ModelError(f"--{unused[0]} belongs to --policy FILE; the range of a run's values is --worth LEAST MOST")
    if arguments.run_folder is None:
        raise ModelError("give a run folder, or --policy FILE --env ID --returns LO HI")
    from rpl_agent.agent.runs import evaluate_run

    source = stored_source(arguments.run_folder, arguments.env)
    given = {"theta": source.theta, "options": source.options}
    with progress_bar(arguments) as show:
        shown = partial(show, "episodes")
        result = call(evaluate_run, arguments, arguments.run_folder, source.env(), progress=shown, **given)
    emit(arguments, result, "evaluation")
    return INTERRUPTED if result["interrupted"] else 0


def _evaluate_policy(arguments: argparse.Namespace) -> int:
    """Bound the mean value of a policy of the user's own."""
    from rpl_agent.agent.world.named_env import names_code
    from rpl_agent.formats.policies import require_policy_ending

    if arguments.run_folder is not None or arguments.bounds is not None:
        extra = "a run folder" if arguments.run_folder is not None else "--worth (write --returns)"
        raise ModelError(f"--policy is played in --env and takes no {extra.removeprefix('a ')}")
    if arguments.env is None:
        raise ModelError("--policy needs --env: rpl evaluate --policy FILE --env ID [--returns LO HI]")
    is_code = names_code(arguments.policy)
    if not is_code:
        require_policy_ending(Path(arguments.policy))
    if arguments.returns is not None and (is_code or arguments.policy.endswith(".zip")):
        return _bound_return(arguments)
    if is_code:
        raise ModelError("a function needs --returns LO HI, the least and most that one episode can return")
    return _evaluate_table(arguments)


def _evaluate_table(arguments: argparse.Namespace) -> int:
    """A policy over the states of a known model, valued as the model's objective does."""
    from rpl_agent.agent.world.named_env import named_or_registered
    from rpl_agent.cli.common import policy_of
    from rpl_agent.core.printed import chance_text, interval_text
    from rpl_agent.guarantee.shown import true_value

    for name in ("width", "algorithm"):
        if getattr(arguments, name) is not None:
            raise ModelError(f"--{name} belongs to --returns LO HI with a .zip or a function")
    try:
        source = source_of({"id": arguments.env}, needs_model=True)
    except ModelError as error:
        if not arguments.policy.endswith(".zip"):
            raise
        named_or_registered(arguments.env)  # an environment that does not exist is reported first
        reason = str(error).splitlines()[0].partition(". Write")[0]
        raise ModelError(
            f"--policy needs --returns LO HI, the least and most that an episode returns: {reason}"
        ) from None
    policy = policy_of(arguments.policy, source)
    found = _played(arguments, source, policy)
    mean, deviation = float(found.values.mean()), found.value_error
    data = {"policy": arguments.policy, "env": arguments.env, "objective": source.objective.describe()}
    data |= {"episodes": len(found.values), "monte_carlo": mean, "standard_error": deviation, "cut": found.cut}
    data |= {"lower": found.lower, "upper": found.upper, "delta": found.delta, "interrupted": found.interrupted}
    text = f"{data['objective']}: {mean:.6g} ± {2 * deviation:.2g} ({len(found.values):,} episodes)"
    if math.isfinite(found.lower):
        bounds = interval_text(found.lower, found.upper)
        text += f"\n  without any model, with probability ≥ {chance_text(found.delta)}: {bounds}"
    else:
        text += "\n  no bound: give the range of an episode's value, --returns LO HI"
    if source.theta is not None:
        data["value"] = true_value(source.pmdp, source.objective, policy, source.theta)
        text += f"\n  true value (known here, never used): {data['value']:.6g}"
    if found.cut:
        text += f"\n  {found.cut:,} episodes were cut before the objective was decided"
    if found.interrupted:
        text += f"\ninterrupted before {arguments.episodes:,} episodes"
    emit(arguments, {**data, "text": text}, "evaluation")
    return INTERRUPTED if found.interrupted else 0


def _played(arguments: argparse.Namespace, source: ModelSource, policy: Policy) -> Evaluation:
    """The episodes of a policy over the states of a model, until Ctrl-C."""
    from rpl_agent.agent import RPLAgent
    from rpl_agent.agent.sampling.interrupt import Interrupt

    agent = RPLAgent(env=source.env(), **(source.options or {}))
    with progress_bar(arguments) as show, Interrupt() as interrupt:
        return agent.evaluate(
            source.env(),
            arguments.episodes,
            policy=policy,
            bounds=None if arguments.returns is None else tuple(arguments.returns),
            seed=arguments.seed,
            delta=arguments.delta,
            progress=partial(show, "episodes"),
            interrupted=interrupt.asked,
        )


def _bound_return(arguments: argparse.Namespace) -> int:
    """Bound the mean return of a policy that sees observations."""
    from rpl_agent.agent.sampling.returns import bound_return
    from rpl_agent.agent.world.named_env import load_named, named_or_registered, names_code

    env, _ = named_or_registered(arguments.env)
    if names_code(arguments.policy):
        policy = load_named(arguments.policy)
    else:
        require_file(Path(arguments.policy))
        if not all(map(find_spec, ("torch", "stable_baselines3", "sb3_contrib"))):
            raise ModelError("reading a policy of Stable-Baselines3 needs it: pip install 'rpl_agent[baselines]'")
        from rpl_agent.studies.baselines.sb3 import load_policy, require_same_spaces

        policy = load_policy(arguments.policy, arguments.algorithm)
        require_same_spaces(policy, env)
    delta = {} if arguments.delta is None else {"delta": arguments.delta}
    with progress_bar(arguments) as show:
        found = bound_return(
            policy,
            env,
            arguments.episodes,
            arguments.returns,
            width=arguments.width,
            seed=arguments.seed,
            progress=partial(show, "episodes"),
            **delta,
        )
    data = {"policy": arguments.policy, "env": arguments.env, "returns": arguments.returns, **found.to_dict()}
    text = f"{found}\ninterrupted before {arguments.episodes:,} episodes" if found.interrupted else str(found)
    emit(arguments, {**data, "text": text}, "mean return")
    return INTERRUPTED if found.interrupted else 0


def run_watch(arguments: argparse.Namespace) -> None:
    from rpl_agent.agent.output.watch import watch
    from rpl_agent.agent.runs import is_without_model, load_run

    mode = "rgb_array" if arguments.output else "ansi"
    source = stored_source(arguments.run_folder, arguments.env)
    env = source.env(mode)
    agent = load_run(Path(arguments.run_folder), env, source.options)
    if is_without_model(Path(arguments.run_folder)):
        refuse_given(arguments, {"--mode"}, "a run without a model has one policy to show")
    live = sys.stdout.isatty() and not arguments.json
    emit(arguments, call(watch, arguments, agent, env, arguments.run_folder, live=live), "watch")
