"""Runs in folders: the work of `rpl train`, `resume`, `evaluate` and `certify RUN`.

See storage/checkpoint.py for the contents of a run folder. Each function returns a JSON-able dict with a ``text``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.agent.callbacks import CheckpointCallback, OracleCallback
from rpl_agent.agent.discovery.session import OpenSession, no_certificate
from rpl_agent.agent.evaluation import optimal_value
from rpl_agent.agent.output.logger import write_open_proved, write_proved
from rpl_agent.agent.output.views import duration, shares_text, tensorboard_command
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.sampling.interrupt import Interrupt
from rpl_agent.agent.schedule import NAMED, EveryN, Schedule, Target
from rpl_agent.agent.storage.checkpoint import CHECKPOINT, CheckpointError, new_folder, read_latest, write_run
from rpl_agent.agent.storage.checkpoint import read_source as read_source
from rpl_agent.agent.storage.open_state import OpenState, foreign_parts, is_open, read_open
from rpl_agent.agent.storage.state import stored_model
from rpl_agent.agent.world.named_env import names_code
from rpl_agent.agent.world.observations import Env
from rpl_agent.core.errors import DataError, ModelError, text_of
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Limit, ParametricMDP
from rpl_agent.core.printed import chance_text, interval_text
from rpl_agent.core.schema import jsonable, read_json
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import Improvement, LogReturns
from rpl_agent.guarantee.open_world.certificate import FORMAT, OpenCertificate
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import proof_path
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import (
    read_open_certificate,
    read_with_data,
    verify,
    verify_improvement,
    verify_open,
    with_proof,
)

#: Fields of the certificate in the result of a run.
SHOWN = (
    "lower",
    "upper",
    "gap",
    "regret",
    "optimal",
    "undecided",
    "guarantee",
    "estimate",
    "delta",
    "confidence",
    "relaxation",
    "checked",
    "proved",
    "refuted",
    "empty",
    "truncation",
    "notes",
    "limits",
    "states",
    "untried",
    "plays",
)


def parse_schedule(text: str) -> Schedule:
    """``state-action``, ``expression``, ``never`` or ``every:N``."""
    if text in NAMED:
        return NAMED[text]
    kind, _, number = text.partition(":")
    if kind == "every" and number.isdigit() and len(number) <= 15:
        return EveryN(int(number))
    raise ModelError(f"schedule {text!r} is not one of {', '.join(NAMED)} or every:N")


def train(
    env: Env,
    *,
    source: Mapping[str, Any] | None = None,
    log_dir: str | Path = "logs",
    name: str | None = None,
    budget: int = 10_000,
    unit: str = "episodes",
    config: Config | None = None,
    seed: int | None = 0,
    schedule: str | Schedule = "state-action",
    weight: float = 0.9,
    exploration: str = "certificate",
    stop_when_gap: float | None = None,
    stop_when_regret: float | str | None = None,
    horizon: int | str | None = None,
    subject_to: Sequence[Limit | str] | None = None,
    explore_within_limits: bool = False,
    options: Mapping[str, Any] | None = None,
    checkpoint_every: int | None = 2_000,
    oracle_theta: np.ndarray | None = None,
    quiet: bool = False,
    progress: bool = True,
    log_interval: int | None = None,
) -> dict[str, Any]:
    """Start a new run in a new folder.

    ``source`` describes how to remake the world, ``options`` are more keywords of the agent (an environment's model),
    ``oracle_theta`` is used for oracle/* only.
    """
    given = {**(options or {}), **({} if horizon is None else {"horizon": horizon}), "subject_to": subject_to or ()}
    given |= {"explore_within_limits": True} if explore_within_limits else {}
    if given.get("returns") is None and given.get("rewards") is None:  # else there is no model to schedule
        given["schedule"] = parse_schedule(schedule) if isinstance(schedule, str) else schedule
    agent = RPLAgent(
        config=config, seed=seed, weight=weight, exploration=exploration, verbose=0 if quiet else 1, **given
    )
    agent.set_env(env)
    agent.session.target = Target.after(0, budget, unit, stop_when_gap, log_interval, stop_when_regret)

    def fill(folder: Path) -> None:  # a run can be resumed from its very start
        write_run(folder, source or {}, agent.seed)
        agent.save(folder / CHECKPOINT)

    plain = "".join(c if c.isalnum() or c in "-." else "-" for c in agent.session.name)
    folder = agent.run_folder = new_folder(Path(log_dir), name, plain, fill)
    if not quiet:
        print(f"run folder: {folder}\nTensorBoard: {tensorboard_command(log_dir)}", flush=True)
    with _resumable(folder):
        try:
            agent.resume(_callbacks(checkpoint_every, oracle_theta), progress_bar=progress and not quiet)
        except CheckpointError as error:  # then no file may have the last certificate
            shown = "" if agent.certificate is None else f"\n{agent.certificate}"
            raise CheckpointError(f"{error}{shown}") from error
        except (ModelError, DataError) as error:
            saved = f" (what was learned is saved in {folder})" if (folder / CHECKPOINT).is_file() else ""
            raise type(error)(f"{error}{saved}") from error
        return _finish(agent, folder, oracle_theta)


def resume(
    folder: str | Path,
    env: Env,
    *,
    budget: int | None = None,
    checkpoint_every: int | None = None,
    oracle_theta: np.ndarray | None = None,
    options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Continue a run; ``budget`` is a new total."""
    folder = Path(folder)
    agent = load_run(folder, env, options)
    agent.verbose = 0 if quiet else 1
    agent.run_folder = folder
    if not quiet:
        print(f"resuming {folder} at {agent.num_episodes:,} episodes", flush=True)
    with _resumable(folder):
        agent.resume(_callbacks(checkpoint_every, oracle_theta), progress_bar=progress and not quiet, budget=budget)
        return _finish(agent, folder, oracle_theta)


def evaluate_run(
    folder: str | Path,
    env: Env,
    *,
    episodes: int = 10_000,
    theta: np.ndarray | None = None,
    seed: int = 1,
    bounds: tuple[float, float] | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The certified policy's value, by Monte Carlo and (if the true parameters are known) exactly.

    ``bounds`` are the least and the most that one episode can be worth, if the model does not determine them. Ctrl-C
    ends the episodes early.
    """
    agent = load_run(Path(folder), env, options)
    certificate = agent.certificate or agent.certify()
    with Interrupt() as interrupt:
        watched: dict[str, Any] = {"progress": progress, "interrupted": interrupt.asked}
        sampled = agent.evaluate(env, episodes, seed=seed, bounds=bounds, **watched)
    played = len(sampled.values)
    result: dict[str, Any] = {
        "run": str(folder),
        "objective": agent.objective.describe(),
        "lower": certificate.lower,
        "upper": certificate.upper,
        "episodes": played,
        "interrupted": sampled.interrupted,
        "monte_carlo": float(sampled.values.mean()),
        "standard_error": sampled.value_error,
        "cut": sampled.cut,
        "truncation": certificate.truncation,
        "mean_length": float(sampled.lengths.mean()),
        "witness_lower": sampled.lower,
        "witness_upper": sampled.upper,
        "contradiction": sampled.contradiction,
    }
    lines = [
        f"{result['objective']}: certified {interval_text(certificate.lower, certificate.upper)}",
        f"  Monte Carlo ({played:,} episodes): {result['monte_carlo']:.6g} ± {2 * sampled.value_error:.2g}",
    ]
    if math.isfinite(sampled.lower):
        interval = interval_text(sampled.lower, sampled.upper)
        lines.append(f"  without any model, with probability ≥ {chance_text(sampled.delta)}: {interval}")
    else:
        lines.append("  no bound without a model: give the range of an episode's value (--worth LEAST MOST)")
    if sampled.contradiction:
        lines.append(f"  CONTRADICTION: {sampled.contradiction}")
    if sampled.cut:
        lines.append(
            f"  the guarantee is for plays without the time limit, which cut {sampled.cut:,} of these episodes"
        )
    if theta is not None:
        result["exact"] = true_value(agent.pmdp, agent.objective, certificate.policy, theta)
        result["optimum"] = optimal_value(agent.pmdp, agent.objective, theta)
        lines.append(f"  exact: {result['exact']:.6g}; the optimum at the true parameters is {result['optimum']:.6g}")
    if sampled.interrupted:
        lines.append(f"interrupted before {episodes:,} episodes")
    result["text"] = "\n".join(lines)
    return jsonable(result)


def certify_run(folder: str | Path, env: Env | None = None, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The certificate of a stored run, recomputed from its counts; ``env`` is needed without a model only."""
    agent = load_run(Path(folder), env, options)
    proved: Any
    if isinstance(agent.session, OpenSession):
        proved = write_open_proved(Path(folder), agent.session, agent.certify())
    else:
        proved = write_proved(Path(folder), agent.pmdp, agent.counts, agent.certify(), agent.session.earlier)
    return jsonable({**_summary(agent, proved), "run": str(folder), "text": str(proved)})


def verify_run(folder: str | Path) -> dict[str, Any]:
    """Check the stored certificate of a run from scratch against its model and its data."""
    path = require_certificate(Path(folder))
    if is_open_certificate(path):
        return verdict_open(path, read_open(*read_latest(Path(folder) / CHECKPOINT)))
    agent = load_run(Path(folder))
    certificate, _, _ = read_with_data(path)
    if isinstance(certificate, Improvement):
        raise DataError(f"{path} is an improvement, not the certificate of a run")
    note = agent.session.truncation
    problems = [] if certificate.truncation == note else [f"the certificate's note on the time limit should be: {note}"]
    lacking = agent.session.lacking  # what the model itself assumes is compared below
    if lacking is not None and lacking not in certificate.assumptions:
        problems.append(f"the certificate does not say what it assumes: {lacking}")
    stored = agent.session.certificate
    if certificate.plays is not None and (stored is None or stored.plays != certificate.plays):
        problems.append("the plays of the policy are not those of the run")
    origin = "the run's own data"
    return verdict(certificate, agent.pmdp, agent.counts, path, agent.session.earlier, problems, origin)


def verdict(
    certificate: Certificate | Improvement,
    pmdp: ParametricMDP,
    counts: Counts,
    path: Path,
    earlier: Mapping[str, Counts] | None = None,
    problems: Sequence[str] = (),
    origin: str = "the file's own data",
    returns: LogReturns | None = None,
) -> dict[str, Any]:
    """The output of `rpl certify --verify`; ``problems`` are those found earlier, ``origin`` whose data these are.

    returns : of the log, for an improvement over an unknown baseline
    """
    if isinstance(certificate, Improvement):
        found = verify_improvement(certificate, pmdp, counts, returns)
    else:
        found = verify(certificate, pmdp, counts, earlier)
    found = with_proof(found, certificate, pmdp, counts, proof_path(path), earlier)
    found = replace(found, problems=[*problems, *found.problems])
    lines = [f"{path}: {'NOT ' if found.problems else ''}verified against {counts.total:,} transitions, with {origin}"]
    lines += [f"  {text}" for text in (*found.problems, *found.notes)]
    lines.append(f"  claimed {interval_text(certificate.lower, certificate.upper)}, ")
    is_known = not math.isnan(found.lower)
    lines[-1] += f"recomputed {interval_text(found.lower, found.upper)}" if is_known else "not recomputed"
    lines += [] if found.proved is None else [f"  {found.proved}", *(f"    {line}" for line in found.question)]
    return jsonable(
        {
            "certificate": str(path),
            "verified": not found.problems,
            "problems": found.problems,
            "notes": found.notes,
            "lower": certificate.lower,
            "upper": certificate.upper,
            "computed_lower": found.lower,
            "computed_upper": found.upper,
            "proved": found.proved,
            "question": list(found.question),
            "samples": counts.total,
            "data": origin,
            "text": "\n".join(lines),
        }
    )


def verdict_open(path: Path, stored: OpenState | None = None) -> dict[str, Any]:
    """The output of `rpl certify --verify` for a certificate without a model: the checker's answer.

    stored : the run's own data, which the proof must be about.
    """
    certificate, problems, origin = read_open_certificate(path), list[str](), "the proof's own data"
    found = verify_open(certificate, proof_path(path))
    if stored is not None and found.proof is not None:
        problems += foreign_parts(found.proof, stored)
        origin = "the run's own data"
    problems = [*problems, *found.problems]
    lines = [f"{path}: {'NOT ' if problems else ''}verified against {certificate.samples:,} steps, with {origin}"]
    lines += [f"  {text}" for text in problems]
    lines += [] if found.proved is None else [f"  {found.proved}", *(f"    {line}" for line in found.question)]
    return jsonable(
        {
            "certificate": str(path),
            "verified": not problems,
            "problems": problems,
            "lower": certificate.lower,
            "upper": certificate.upper,
            "proved": found.proved,
            "question": list(found.question),
            "samples": certificate.samples,
            "data": origin,
            "text": "\n".join(lines),
        }
    )


def is_open_certificate(path: Path) -> bool:
    """Whether a file is a certificate without a model."""
    return path.is_file() and read_json(text_of(path), str(path)).get("format") == FORMAT


def is_without_model(folder: Path) -> bool:
    """Whether the run in a folder has no model."""
    return is_open(read_latest(folder / CHECKPOINT)[0])


def names_environment(folder: Path) -> bool:
    """Whether the checkpoint of a run without a model says how to make its environment."""
    return read_open(*read_latest(folder / CHECKPOINT)).session.env_spec is not None


def open_certificate(folder: Path) -> OpenCertificate | None:
    """The stored certificate of a run without a model; None if the run has a model."""
    path = folder / "certificate.json"
    if is_open_certificate(path):
        return OpenCertificate.from_json(path)
    if not path.is_file() and is_without_model(folder):
        require_certificate(folder)
    return None


def require_certificate(folder: Path) -> Path:
    """The path of a run's stored certificate; raise if the run has none yet, or can have none."""
    path = folder / "certificate.json"
    if folder.is_dir() and not path.is_file():
        refuse_refuted(folder)
        raise DataError(f"{folder} has no certificate yet: rpl certify {shlex.quote(str(folder))} writes one")
    return path


def refuse_refuted(folder: Path) -> None:
    """Raise if the run in a folder has no model, and what it assumed is refuted."""
    stored = read_latest(folder / CHECKPOINT)
    refuted = read_open(*stored).refuted if is_open(stored[0]) else None
    if refuted is not None:
        raise DataError(f"{folder}: {no_certificate(refuted)}")


def load_run(folder: Path, env: Env | None = None, options: Mapping[str, Any] | None = None) -> RPLAgent:
    """The agent of a run; without an environment it has the run's model and data, but cannot continue."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder {folder}")
    stored = read_latest(folder / CHECKPOINT)
    if env is None and not is_open(stored[0]):
        return RPLAgent.load(folder / CHECKPOINT, pmdp=stored_model(*stored))
    known = ("observation_to_state",) if is_open(stored[0]) else ("pmdp", "observation_to_state", "action_to_env")
    given = {name: value for name, value in (options or {}).items() if name in known}
    if is_open(stored[0]):
        given["facts"] = options
    return RPLAgent.load(folder / CHECKPOINT, env, **given)


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Make an aborted run say how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"continue with: {_resume_command(folder)}") from None


def _resume_command(folder: Path) -> str:
    """What continues a run: with the environment, if that is the user's own code."""
    name = read_source(folder).get("id") if (folder / "run.json").is_file() else None
    env = f" --env {shlex.quote(name)}" if isinstance(name, str) and names_code(name) else ""
    return f"rpl resume {shlex.quote(str(folder))}{env}"


def _callbacks(checkpoint_every: int | None, theta: np.ndarray | None) -> list[Any]:
    callbacks: list[Any] = [CheckpointCallback(checkpoint_every)]
    if theta is not None:
        callbacks.append(OracleCallback(theta))
    return callbacks


def _summary(agent: RPLAgent, certificate: Any) -> dict[str, Any]:
    return {
        "model": agent.session.name,
        "objective": agent.objective.describe(),
        **{name: getattr(certificate, name) for name in SHOWN if hasattr(certificate, name)},
        "episodes": agent.num_episodes,
        "steps": agent.num_timesteps,
        "updates": agent.num_updates,
        "updates_skipped": agent.session.skipped,
        "seconds": agent.session.clock.elapsed,
        "stages": dict(agent.session.seconds),
    }


def _finish(agent: RPLAgent, folder: Path, theta: np.ndarray | None) -> dict[str, Any]:
    certificate = agent.certificate or agent.certify()
    summary, skipped = _summary(agent, certificate), agent.session.skipped
    lines = [
        str(certificate),
        f"  {agent.num_episodes:,} episodes, {agent.num_timesteps:,} steps in {duration(agent.session.clock.elapsed)}: "
        f"{shares_text(agent.session.seconds)}",
        f"  {agent.num_updates:,} updates of the exploring policy"
        + (f", {skipped:,} of them skipped, because little was new" if skipped else ""),
    ]
    if theta is not None:
        summary["oracle_value"] = true_value(agent.pmdp, agent.objective, certificate.policy, theta)
        lines.append(
            f"  at the simulator's true parameters this policy achieves {summary['oracle_value']:.6g} (oracle)"
        )
    within = getattr(agent.session, "within", None)
    if within is not None:
        summary["within_limits_since"] = within.since
        lines.append(f"  exploration: {within.sentence}")
    if agent.interrupted:
        lines.append(f"interrupted; continue with: {_resume_command(folder)}")
    lines.append(f"run folder: {folder}\nview it with: {tensorboard_command(folder.parent)}")
    return jsonable({**summary, "run": str(folder), "interrupted": agent.interrupted, "text": "\n".join(lines)})
