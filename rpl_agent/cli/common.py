"""Shared by all commands: where the model comes from, how to certify, and how results are printed."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.parser import Options, Parser, add_call, between, count, seed
from rpl_agent.core.errors import DataError, ModelError, listed

if TYPE_CHECKING:
    import gymnasium as gym
    import numpy as np

    from rpl_agent.agent import RPLAgent
    from rpl_agent.core.model import Objective, ParametricMDP, Policy
    from rpl_agent.formats.prism import PrismModel
    from rpl_agent.guarantee.pipeline import Config

#: Endings of model files, as opposed to names of worlds.
MODEL_ENDINGS = (".prism", ".nm", ".pm", ".drn")
#: Options that describe a model in a file.
OWN_MODEL = {
    "--model",
    "--param",
    "--params",
    "--const",
    "--property",
    "--unknown",
    "--tie",
    "--normalise",
    "--max-states",
}
#: How to name the user's own code.
OWN_ENV = "an environment of your own: module:Id or path/to/file.py:factory"
#: Default number of steps after which an episode of a user's own model is cut.
DEFAULT_STEPS = 1000


@dataclass(frozen=True)
class ModelSource:
    """A model and objective, with the true parameters if the model is a simulator's."""

    name: str
    pmdp: ParametricMDP
    objective: Objective
    theta: np.ndarray | None
    max_steps: int
    make: Callable[..., gym.Env] | None = None  # the environment for a render_mode; None: one over the model
    options: dict[str, Any] | None = None  # for the agent, from the user's own environment
    shown: Mapping[int, int] | None = None  # the state of each number that the environment shows; None: its own number

    def env(self, render_mode: str | None = None) -> gym.Env:
        import rpl_envs

        if self.make is not None:
            return self.make(render_mode=render_mode)
        theta = self.require_theta("simulating your own model").tolist()
        return rpl_envs.make_own(
            self.pmdp, self.objective.free, theta, max_episode_steps=self.max_steps, render_mode=render_mode
        )

    def unplayed_env(self) -> gym.Env:
        """An environment to read spaces and states from; it needs no true parameters."""
        return replace(self, theta=self.pmdp.domain.center()).env() if self.make is None else self.env()

    def without_limits(self) -> ModelSource:
        """The same source, its objective without limits."""
        return replace(self, objective=self.objective.free)

    def require_theta(self, why: str, instead: str = "give --data LOG") -> np.ndarray:
        """The true parameters; without them, an error says why they are needed and what to do instead."""
        if self.theta is None and self.make is not None:
            raise ModelError(f"{why} needs the true parameters, which {self.name} keeps to itself: {instead}")
        if self.theta is None and not self.pmdp.num_parameters:
            return self.pmdp.instantiate({}).theta
        if self.theta is None:
            names = listed(self.pmdp.table.parameters)
            raise ModelError(f"{why} needs the true parameters: give --theta NAME=VALUE for each of {names}")
        return self.theta


def refuse_given(arguments: argparse.Namespace, unused: set[str], reason: str) -> None:
    """Raise if one of these options was given: one that is ignored would look as if it had been honoured."""
    found = sorted(arguments.given & unused)
    if found:
        raise ModelError(f"{', '.join(found)} would not be used: {reason}")


def refuse_unused(arguments: argparse.Namespace, used: set[str], reason: str) -> None:
    """Raise if an option was given that is none of these."""
    refuse_given(arguments, arguments.given - used - {"--json"}, reason)


def add_seed(parser: Options, default: int = 0) -> None:
    parser.add_argument("--seed", type=seed, default=default, help=f"random seed (default {default})")


def add_source(parser: argparse.ArgumentParser, what: str = "") -> None:
    """ID or FILE, or --model FILE, with --param and --property."""
    text = what or "a registered world, e.g. rpl/Aircraft-20x10-v0 (see rpl worlds)"
    text += f"; or {OWN_ENV}"
    parser.add_argument("id", nargs="?", help=text)
    group = parser.add_argument_group("your own model, in place of ID")
    group.add_argument(
        "--model",
        metavar="FILE",
        help="a model in the PRISM language (.prism, .nm, .pm), or Storm's explicit format (.drn)",
    )
    group.add_argument(
        "--param", action="append", default=[], metavar="NAME=LO:HI", help="range of an unknown parameter (default 0:1)"
    )
    group.add_argument(
        "--params", metavar="FILE", help="the same for many parameters: a file with one NAME=LO:HI per line"
    )
    group.add_argument(
        "--const",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of an undefined constant, or of several: N=4,p=0.1",
    )
    group.add_argument(
        "--property",
        metavar="TEXT",
        help="property, e.g. 'Pmax=? [F \"goal\"]' (default: the first in the model's .props)",
    )
    group.add_argument(
        "--theta", action="append", default=[], metavar="NAME=VALUE", help="true parameters, for commands that simulate"
    )
    group.add_argument(
        "--unknown",
        nargs="+",
        default=None,
        metavar="WHAT",
        help="hide numbers of a known model from the learner: commands (each probabilistic command is one unknown "
        "distribution), rows (each row is), or names of constants; the file's numbers are then the simulator's truth",
    )
    group.add_argument("--tie", choices=("modules",), help="let renamed modules share their unknown commands")
    group.add_argument(
        "--normalise", action="store_true", help="scale rows whose rounded numbers sum to 1 only up to 1e-5"
    )
    group.add_argument("--max-steps", type=count, metavar="N", help="cut episodes after this many steps")
    group.add_argument(
        "--max-states", type=count, metavar="N", help="refuse models with more states (default: what fits in memory)"
    )


def source_defaults() -> dict[str, Any]:
    """The arguments of `add_source` by name, stored in the run folder so that the world can be remade."""
    parser = argparse.ArgumentParser()
    add_source(parser)
    return vars(parser.parse_args([]))


def add_method(parser: Parser) -> None:
    """Add confidence set, relaxation, δ and precision: the fields of `Config`, with its defaults."""
    group = parser.add_argument_group("method")

    def add() -> None:
        from rpl_agent.guarantee.pipeline import RELAXATIONS, Config

        probability = {"type": between(0, 1)}
        add_call(
            group,
            Config,
            {
                "confidence": ("confidence set: likelihood, anytime, the paper's, or your own", {}),
                "relaxation": ("what nature may do within the confidence set", {"choices": RELAXATIONS}),
                "delta": ("error probability of the whole statement", probability),
                "precision": ("width of the solver's brackets, relative to values above 1", probability),
            },
        )

    parser.later(add)


def config_of(arguments: argparse.Namespace) -> Config:
    """The configuration from the options of `add_method`."""
    from rpl_agent.guarantee.pipeline import Config

    return Config(arguments.confidence, arguments.relaxation, arguments.delta, arguments.precision)


#: What --policy takes.
POLICY_FILE = (
    "a table state,action,weight (.csv), what rpl export wrote (.csv, .json, .strat), a scheduler of Storm (.json), or "
    "a model of Stable-Baselines3 (.zip; loading one runs code in it: use your own)"
)


def add_policy(parser: Options, what: str) -> None:
    """Add --policy FILE."""
    parser.add_argument("--policy", metavar="FILE", help=f"{what}: {POLICY_FILE}")


def policy_of(path: str, source: ModelSource) -> Policy:
    """The policy in a file, for the model of a source."""
    from rpl_agent.studies.baselines.policy_files import policy_from_file

    return policy_from_file(path, source.pmdp, source.unplayed_env, source.options)


def load_model(arguments: argparse.Namespace, only_for: str | None = None) -> PrismModel:
    """Load the file of --model; on a terminal, one line shows the progress of a long exploration."""
    from rpl_agent.formats import prism

    ranges = _ranges(arguments)
    if arguments.model.endswith(".drn"):
        from rpl_agent.formats.drn import load_drn

        if arguments.const or arguments.tie or arguments.unknown not in (None, ["rows"]):
            raise ModelError("--const, --tie and --unknown (except rows) need a model in the PRISM language")
        return load_drn(arguments.model, ranges, normalise=arguments.normalise, hide_rows=arguments.unknown is not None)
    constants = pairs(arguments.const, "--const", str)
    shows = sys.stderr.isatty()

    def progress(expanded: int, found: int) -> None:
        if shows:
            print(f"\rexploring {arguments.model}: {expanded:,} of {found:,} states found", end="", file=sys.stderr)

    try:
        unknown = arguments.unknown
        return prism.load(
            arguments.model,
            constants,
            ranges,
            max_states=arguments.max_states,
            progress=progress,
            unknown=unknown[0] if unknown and len(unknown) == 1 else unknown,
            tie_modules=arguments.tie == "modules",
            normalise=arguments.normalise,
            only_for=only_for,
        )
    finally:
        if shows:
            print("\r\033[K", end="", file=sys.stderr)


def file_as_model(arguments: argparse.Namespace) -> None:
    """Treat FILE in place of ID as --model FILE."""
    if arguments.id is not None and arguments.model is None and arguments.id.endswith(MODEL_ENDINGS):
        arguments.id, arguments.model = None, arguments.id


def load_source(arguments: argparse.Namespace, *, plays: bool = True, needs_model: bool = True) -> ModelSource:
    """The source that the options of `add_source` name.

    plays : whether the command may play the world; if not, --theta stands for any world's parameters
    needs_model : refuse an environment of which only facts are known
    """
    file_as_model(arguments)
    theta_given = pairs(arguments.theta, "--theta", float)
    if (arguments.id is None) == (arguments.model is None):
        raise ModelError("give either a registered ID or --model FILE")
    if arguments.model is not None:
        from rpl_agent.formats.multi import is_multi, multi_objective

        _require_property(arguments)
        model = load_model(arguments)
        is_limited = is_multi(arguments.property)
        find = partial(multi_objective, model) if is_limited else model.objective
        pmdp, objective = find(arguments.property)
        theta = model.truth
        if theta_given:
            theta = pmdp.instantiate(model.theta(theta_given)).theta
        steps = arguments.max_steps or DEFAULT_STEPS
        return ModelSource(arguments.model, pmdp, objective, theta, steps)
    import gymnasium as gym
    import numpy as np

    import rpl_envs

    refuse_given(arguments, OWN_MODEL, f"without --model FILE the model is that of {arguments.id}")
    found = _own_source(arguments.id)
    if found is not None:
        refuse_given(arguments, {"--max-steps"}, f"{arguments.id} itself says when its episodes are cut")
    else:
        found = _gymnasium_source(arguments.id, arguments.max_steps)
    if found is not None:
        if found.pmdp is None and needs_model:
            raise ModelError(f"{arguments.id} has no model, only facts: rpl train learns without a model")
        if theta_given and (plays or found.pmdp is None):
            raise ModelError("--theta applies only to rpl worlds and to models: other worlds simulate themselves")
        return replace(found, theta=found.pmdp.instantiate(theta_given).theta) if theta_given else found
    name = _known_id(arguments.id)
    world = rpl_envs.benchmark(name)
    theta = world.pmdp.instantiate(theta_given).theta if theta_given else np.asarray(world.theta)
    steps = arguments.max_steps or world.max_episode_steps
    make = partial(gym.make, name, theta=theta, max_episode_steps=arguments.max_steps)  # None: its own
    return ModelSource(name, world.pmdp, world.objective, theta, steps, make)


def _known_id(text: str) -> str:
    """The full registered id for ``text``; otherwise an error that names the nearest one, perhaps Gymnasium's."""
    import gymnasium as gym

    import rpl_envs

    ids = [instance.id for instance in rpl_envs.INSTANCES.values()]
    ids += [f"rpl/{family}-v0" for family in rpl_envs.FAMILIES]
    short = text.removeprefix("rpl_envs:")
    for candidate in (short, f"rpl/{short}", f"rpl/{short}-v0"):
        if candidate in ids:
            return candidate
    plain = {re.sub(r"^rpl/|-v\d+$", "", known).lower(): known for known in (*gym.registry, *ids)}
    near = difflib.get_close_matches(re.sub(r"^rpl/|-v\d+$", "", short).lower(), plain, 1, cutoff=0.6)
    hint = f"the nearest is {plain[near[0]]}; " if near else ""
    raise ModelError(f"no world {text!r}: {hint}rpl worlds lists the built-in ones")


def _require_property(arguments: argparse.Namespace) -> None:
    """Check that a property exists and can be parsed, before a long exploration."""
    from rpl_agent.formats.multi import is_multi
    from rpl_agent.formats.prism.language.parser import parse_properties

    if is_multi(arguments.property):
        return
    if arguments.property is not None:
        parse_properties(arguments.property)
    elif os.path.isfile(arguments.model) and not Path(arguments.model).with_suffix(".props").is_file():
        raise ModelError(f"{arguments.model}: no property given (--property), and no .props file beside the model")


def _own_source(name: str) -> ModelSource | None:
    """A source for the user's own environment; None if the name is not one."""
    from rpl_agent.agent.world.named_env import absolute, make_named, named_world, names_code

    if not names_code(name):
        return None
    from rpl_agent.agent import RPLAgent

    env, options, truth = named_world(name)
    if "returns" in options or "rewards" in options:
        return world_source(name)
    agent = RPLAgent(env=env, **options)
    theta = None if truth is None else agent.pmdp.instantiate(truth).theta
    steps, named = (agent.world and agent.world.limit) or DEFAULT_STEPS, absolute(name)
    return ModelSource(
        named, agent.pmdp, agent.objective, theta, steps, lambda render_mode: make_named(named, render_mode)[0], options
    )


def world_source(name: str, keywords: Mapping[str, Any] | None = None) -> ModelSource:
    """The source of an environment without a model: registered, with its keywords, or the user's own."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401  (registers our ids)
    from rpl_agent.agent.world.named_env import absolute, make_named, names_code, not_registered

    no_model: Any = None
    if names_code(name):
        named = absolute(name)
        options = make_named(named)[1]
        return ModelSource(
            named, no_model, no_model, None, 0, lambda render_mode: make_named(named, render_mode)[0], options
        )
    if name not in gym.registry:
        raise not_registered(name)
    return ModelSource(name, no_model, no_model, None, 0, partial(gym.make, name, **(keywords or {})), {})


def _gymnasium_source(name: str, max_steps: int | None) -> ModelSource | None:
    """A world registered in Gymnasium with known structure, such as FrozenLake-v1; None otherwise."""
    import gymnasium as gym

    from rpl_agent.agent.world.attach import attach, shown_numbers

    if name.startswith(("rpl/", "rpl_envs:")) or name not in gym.registry:
        return None
    env = gym.make(name)
    try:
        known = attach(env)
    finally:
        env.close()
    steps = max_steps or (env.spec.max_episode_steps if env.spec else None) or DEFAULT_STEPS
    make = partial(gym.make, name, max_episode_steps=max_steps)  # None: its own
    return ModelSource(name, known.pmdp, known.objective, None, steps, make, shown=shown_numbers(known))


def pairs(items: list[str], option: str, convert: type) -> dict[str, Any]:
    """Parse NAME=VALUE options into a dictionary; one may have several, NAME=VALUE,NAME=VALUE, as PRISM writes them."""
    found = {}
    for item in [part for given in items for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", given)]:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ModelError(f"{option} {item!r}: expected NAME=VALUE")
        try:
            found[name.strip()] = convert(value)
        except ValueError:
            raise ModelError(f"{option} {item!r}: {value!r} is not a number") from None
    return found


def _ranges(arguments: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Ranges of parameters from --params and --param; the latter wins."""
    lines: list[str] = []
    if arguments.params is not None:
        try:
            text = Path(arguments.params).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"--params {arguments.params}: cannot be read: {error}") from None
        stripped = (line.partition("#")[0].strip() for line in text.splitlines())
        lines = [line for line in stripped if line]
    given = pairs(lines, f"--params {arguments.params}:", str) | pairs(arguments.param, "--param", str)
    return {name: _range(text) for name, text in given.items()}


def _range(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        return (float(low), float(high)) if colon else (float(low), float(low))
    except ValueError:
        raise ModelError(f"--param range {text!r}: expected LO:HI") from None


def keeps_limits(result: Mapping[str, Any]) -> bool:
    """Whether the policy of a run is certified to keep every limit."""
    return all(claim["kept"] is True for claim in result.get("limits", ()))


# -- runs in place of models -----------------------------------------------------------------------------------------
#: Help on ID for commands that accept a run folder.
ID_OR_RUN = "a registered world, e.g. rpl/Aircraft-20x10-v0 (see rpl worlds), or a run folder, e.g. logs/demo"


def run_of(arguments: argparse.Namespace, used: set[str]) -> RPLAgent | None:
    """The agent of the run folder given as ID, or None if ID is not one.

    used : options that are open to a run; it answers the others itself
    """
    folder = arguments.id and Path(arguments.id)
    if not folder or not folder.is_dir():
        return None
    refuse_unused(arguments, used, f"{folder} is a run with its own model, data and method")
    from rpl_agent.agent.runs import is_without_model, load_run

    if is_without_model(folder):
        raise ModelError(f"{folder} is a run without a model, which rpl {arguments.command} needs")
    return load_run(folder)
