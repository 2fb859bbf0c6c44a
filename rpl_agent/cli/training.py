"""`rpl train`, `resume`, `evaluate`, `watch`: the agent's life, from the shell."""

from __future__ import annotations

import argparse

from rpl_agent.cli.common import Source, add_json, add_method, add_source, emit, load_source
from rpl_agent.errors import ModelError

#: Arguments that say which world a run lives in; stored in the run folder so that it can be made again.
SOURCE_KEYS = ("id", "model", "param", "const", "property", "theta", "max_steps")


def register(commands) -> None:
    train = commands.add_parser("train", help="learn online, then certify; live view, checkpoints, TensorBoard")
    add_source(train)
    train.add_argument("--budget", type=int, default=10_000, help="exact number of episodes (or steps, see --unit)")
    train.add_argument("--unit", choices=("episodes", "steps"), default="episodes")
    train.add_argument(
        "--schedule", default="state-action", help="when to update: state-action (default), expression, every:N"
    )
    train.add_argument(
        "--weight", type=float, default=0.9, help="probability of the optimistic action while exploring (default 0.9)"
    )
    train.add_argument("--stop-when-gap", type=float, metavar="EPS", help="end early once upper − lower ≤ EPS")
    add_method(train)
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--log-dir", default="logs", help="runs go to LOG_DIR/NAME (default logs)")
    train.add_argument("--name", help="name of the run folder (default: model and number)")
    train.add_argument(
        "--checkpoint-every", type=int, default=2_000, metavar="N", help="episodes between checkpoints (default 2000)"
    )
    _add_view(train)
    train.set_defaults(run=run_train)

    resume = commands.add_parser("resume", help="go on with an interrupted run, bit for bit")
    resume.add_argument("run_folder", metavar="RUN")
    resume.add_argument("--budget", type=int, help="a new total budget (default: what was left)")
    _add_view(resume)
    resume.set_defaults(run=run_resume)

    evaluate = commands.add_parser("evaluate", help="the learned policy's value: by Monte Carlo and exactly")
    evaluate.add_argument("run_folder", metavar="RUN")
    evaluate.add_argument("--episodes", type=int, default=10_000)
    evaluate.add_argument("--seed", type=int, default=1)
    add_json(evaluate)
    evaluate.set_defaults(run=run_evaluate)

    watch = commands.add_parser("watch", help="see the policy act: on the screen or as a GIF")
    watch.add_argument("run_folder", metavar="RUN")
    watch.add_argument("--episodes", type=int, default=1)
    watch.add_argument("--output", metavar="FILE.gif", help="write an animation instead of printing frames")
    watch.add_argument("--mode", choices=("robust", "optimistic"), default="robust")
    watch.add_argument("--seed", type=int, default=1)
    add_json(watch)
    watch.set_defaults(run=run_watch)


def _add_view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print nothing but the result")
    parser.add_argument("--no-progress", action="store_true", help="plain lines instead of the live view")
    add_json(parser)


def make_env(source: Source, render_mode: str | None = None):
    """The Gymnasium environment of a source: the registered one, or one over the user's model."""
    import gymnasium as gym

    import rpl_envs

    if source.name.startswith("rpl/"):
        return gym.make(source.name, theta=source.theta, render_mode=render_mode)
    theta = source.require_theta("simulating your own model").tolist()
    return rpl_envs.make_own(
        source.pmdp, source.objective, theta, max_episode_steps=source.max_steps, render_mode=render_mode
    )


def stored_source(run_folder: str) -> Source:
    from rpl_agent.agent.runs import read_source

    stored = read_source(run_folder)
    lists = ("param", "const", "theta")
    defaults: dict[str, object] = {key: [] if key in lists else None for key in SOURCE_KEYS}
    return load_source(argparse.Namespace(**(defaults | stored)))


def run_train(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.runs import train
    from rpl_agent.certify import Config

    source = load_source(arguments)
    if arguments.budget < 1:
        raise ModelError(f"--budget {arguments.budget} must be at least 1")
    result = train(
        make_env(source),
        source={key: getattr(arguments, key) for key in SOURCE_KEYS},
        log_dir=arguments.log_dir,
        name=arguments.name,
        budget=arguments.budget,
        unit=arguments.unit,
        config=Config(arguments.confidence, arguments.relaxation, arguments.delta, arguments.precision),
        seed=arguments.seed,
        schedule=arguments.schedule,
        weight=arguments.weight,
        stop_when_gap=arguments.stop_when_gap,
        checkpoint_every=arguments.checkpoint_every,
        oracle_theta=source.theta,
        quiet=arguments.quiet or arguments.json,
        progress=not arguments.no_progress,
    )
    return _finish(arguments, result)


def run_resume(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.runs import resume

    source = stored_source(arguments.run_folder)
    result = resume(
        arguments.run_folder,
        make_env(source),
        budget=arguments.budget,
        oracle_theta=source.theta,
        quiet=arguments.quiet or arguments.json,
        progress=not arguments.no_progress,
    )
    return _finish(arguments, result)


def _finish(arguments: argparse.Namespace, result: dict) -> int:
    text = result.pop("text", None)
    emit(arguments, result, "training", text)
    return 130 if result.get("interrupted") else 0


def run_evaluate(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.runs import evaluate

    source = stored_source(arguments.run_folder)
    result = evaluate(
        arguments.run_folder, make_env(source), episodes=arguments.episodes, theta=source.theta, seed=arguments.seed
    )
    emit(arguments, result, "evaluation", result.pop("text", None))
    return 0


def run_watch(arguments: argparse.Namespace) -> int:
    from rpl_agent.agent.runs import watch

    mode = "rgb_array" if arguments.output else "ansi"
    result = watch(
        arguments.run_folder,
        make_env(stored_source(arguments.run_folder), render_mode=mode),
        episodes=arguments.episodes,
        output=arguments.output,
        seed=arguments.seed,
        mode=arguments.mode,
    )
    emit(arguments, result, "watch", result.pop("text", None))
    return 0
