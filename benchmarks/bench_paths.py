"""Statistical model checking of chains: paths until the value is known to ε, by the model, by paths, and by both.

For every question and some seeds: whole paths drawn until upper − lower ≤ ε at confidence 1 − δ by

- *by model*: certificates alone, every probabilistic command one unknown distribution;
- *by paths*: the confidence sequence of whole paths alone (``plain`` is what Hoeffding's inequality takes for one look,
  ln(2/δ)/(2 h²) times the squared range of a path's worth, h = ε/2);
- *by both*: `rpl smc`, where each has half of δ.

``ratio`` is the last over the better of the first two, medians over the seeds; ``inside`` counts answers of the last
that contain the value at the true parameters. At most a budget of transitions is drawn (``≥``: some run used it up).
MDPs, at the end, have no such paths: the policy is played once, in addition to the certificate. Files come with
stormpy; questions whose file is missing are left out. ``--only crowds``: the questions about one model.
"""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import rpl_envs
from benchmarks.bench_boxes import KYDIE
from rpl_agent.agent.evaluation import play_policy
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.sampling.experience import SampledBatch
from rpl_agent.agent.smc import PathWorth, check_by_sampling
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model.policy import Policy
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.guarantee.pipeline import Config

HERE = Path(__file__).parent / "smc_models"
#: name, file (of stormpy, of `smc_models`, or a text), question, ε
QUESTIONS: tuple[tuple[str, str, str, float], ...] = (
    ("die", "dtmc/die.pm", "P=? [ F s=7&d=2 ]", 0.1),
    ("die", "dtmc/die.pm", 'R{"coin_flips"}=? [ C<=4 ]', 0.2),
    ("kydie", KYDIE, "P=? [ F<=3 s=7 ]", 0.1),
    ("kydie", KYDIE, 'R{"throws"}=? [ F s=7 ]', 0.2),
    ("nand", "dtmc/nand-5-2.pm", 'P=? [ F "target" ]', 0.1),
    ("crowds", "dtmc/crowds-5-5.pm", 'P=? [ F "observe0Greater1" ]', 0.1),
    ("leader_sync", "dtmc/leader3_5.pm", 'P=? [ F<=4 "elected" ]', 0.1),
    ("brp", "dtmc/brp-16-2.pm", 'P=? [ F "target" ]', 0.1),
    ("consensus", "consensus.prism", "", 0.1),
    ("zeroconf", "zeroconf.prism", "", 0.1),
)
DELTA = 0.01
BUDGET = {"smoke": 20_000, "usual": 2_000_000, "full": 20_000_000}
#: Runs of paths alone for each seed: they cost little.
MORE = 5
#: Steps after which an episode is cut.
STEPS = 1000


def rows(smoke: bool = False, full: bool = False, only: str | None = None) -> list[dict[str, Any]]:
    """One row per question."""
    size, found = "smoke" if smoke else "full" if full else "usual", []
    for name, file, question, epsilon in QUESTIONS[2:4] if smoke else QUESTIONS:
        text = _text(file)
        if text is None or only not in (None, name):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)
            asked = question or (HERE / file).with_suffix(".props").read_text().strip()
            found.append(_row(name, text, asked, epsilon, BUDGET[size], range(1 if smoke else 5)))
    return found


def _text(file: str) -> str | None:
    if "\n" in file:
        return file
    if (HERE / file).is_file():
        return (HERE / file).read_text()
    try:
        import stormpy.examples
    except ImportError:
        return None
    place = Path(stormpy.examples.__file__).parent / "files" / file
    return place.read_text() if place.is_file() else None


def _row(name: str, text: str, question: str, epsilon: float, budget: int, seeds: range) -> dict[str, Any]:
    fixed = text.replace("const double p;", "const double p = 0.5;").replace("const double q;", "const double q = 0.5;")
    model, began = prism.loads(fixed, unknown="commands"), time.process_time()
    pmdp, objective = model.objective(question)
    assert model.truth is not None
    truth = solve_at(pmdp, model.truth, objective).middle
    env = rpl_envs.make_own(pmdp, objective, model.truth.tolist(), max_episode_steps=STEPS)
    arms: dict[str, list[float]] = {"by model": [], "by paths": [], "by both": []}
    inside, over = 0, set()
    for seed in seeds:
        for arm, paths in (("by model", False), ("by both", True)):
            answer = check_by_sampling(env, Config(delta=DELTA), epsilon, budget=budget, seed=seed, paths=paths)
            arms[arm].append(answer.episodes)
            over |= set() if answer.decided else {arm}
            inside += paths and answer.lower <= truth <= answer.upper
        most = max(arms["by model"][-1], arms["by both"][-1])
        arms["by paths"] += [_paths_alone(env, epsilon, most, MORE * seed + k) for k in range(MORE)]
    worth = PathWorth(pmdp, objective)
    typical = {arm: median(counts) for arm, counts in arms.items()}
    plain = math.log(2 / DELTA) / (2 * (epsilon / 2) ** 2) * (worth.high - worth.low) ** 2
    best = min(typical["by model"], typical["by paths"])
    return {
        "model": name, "question": question, "states": pmdp.num_states, "unknown": pmdp.num_parameters,
        "epsilon": epsilon, **{a: f"{'≥ ' if a in over else ''}{n:.0f}" for a, n in typical.items()},
        "plain": f"{plain:.0f}", "ratio": round(typical["by both"] / best, 2), "inside": f"{inside}/{len(seeds)}",
        "cpu s": round(time.process_time() - began, 1),
    }  # fmt: skip


def _paths_alone(env: Any, epsilon: float, most: float, seed: int) -> float:
    """Paths that the sequence needs with all of δ; infinity where there is none, or with three times as many."""
    agent = RPLAgent(env, seed=seed)
    pmdp, objective = agent.pmdp, agent.objective
    worth = PathWorth(pmdp, objective)
    if worth.reason or pmdp.num_rows > pmdp.num_states:
        return math.inf
    drawn, n = play_policy(agent, env, int(3 * most) + 100, seed=seed, policy=Policy.uniform(pmdp)), 0
    while n < drawn.episodes:
        n += max(10, n // 20)
        seen = SampledBatch(n, 0, [], drawn.lengths[:n], drawn.values[:n], drawn.undecided[:n])
        low, high = worth.bounds(seen, DELTA, 0.0, epsilon)
        if high - low <= epsilon:
            return n
    return math.inf
