"""Contracts of regions, relaxations, confidence sets and agents, as checks for your own classes.

Like Gymnasium's ``check_env``: call the check on an object (agents: on a function that makes one from a seed). It
returns None, or raises `ContractError` with a sentence that says what is violated. A passing check is not a proof;
a failing one is a bug. Checks look first for what would make a certificate wrong, then for crashes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import METHODS
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Policy, Sense, Simulator, build
from rpl_agent.core.regions.base import Region, RegionKernel
from rpl_agent.core.relaxations.base import CompiledRelaxation, Relaxation
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.guarantee.confidence import ConfidenceSet

__all__ = ["ContractError", "check_agent", "check_confidence_set", "check_region", "check_relaxation"]

#: tolerance for floating-point points, relative to the size of the numbers
TOLERANCE = 1e-8
#: probability that a correct set fails the check of its coverage
FALSE_ALARM = 1e-6
#: data sets that tell a set that ignores δ from one that keeps it
LEAST_DATA_SETS = 60


class ContractError(AssertionError):
    """The object violates its contract; the message says how."""


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise ContractError(message)


def _require_array(array: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    found = np.asarray(array)
    _require(found.shape == shape, f"{what} has shape {found.shape}, not {shape}")
    _require(not np.isnan(found.astype(float)).any(), f"{what} contains NaN")
    return found


# ---------------------------------------------------------------------- regions
def check_region(region: Region, points: np.ndarray | None = None, *, seed: int = 0) -> None:
    """Check that every answer of a `Region` is a bound for the points that it contains.

    Parameters
    ----------
    points : (n, r) points that must lie in the region. Others are drawn from its box; give some if the region is so
        thin that none of those would hit it.
    """
    r = region.dimension
    _require(isinstance(r, int | np.integer) and r >= 0, f"dimension is {r!r}, not a number of coordinates")
    lower, upper = (_require_array(side, (r,), "a side of box()") for side in region.box())
    rng = np.random.default_rng(seed)
    eye = np.eye(r)
    random = rng.normal(size=(20, r)) * 10.0 ** rng.uniform(-6, 6, (20, 1))
    directions = np.vstack([eye, -eye, random, np.zeros((1, r))])
    least = _require_array(region.minimize(directions), (len(directions),), "minimize(directions)")
    if region.is_empty:
        _require((least == np.inf).all(), "the region is empty, but minimize is not inf")
        return
    known = np.zeros((0, r)) if points is None else np.asarray(points, dtype=float).reshape(-1, r)
    _require(
        _require_array(region.contains(known), (len(known),), "contains(points)").all(),
        "contains rejects a point that must lie in the region",
    )
    drawn = np.vstack([(lower + upper)[None] / 2, rng.uniform(lower, np.maximum(lower, upper), size=(200, r))])
    inside = np.vstack([known, drawn[_require_array(region.contains(drawn), (len(drawn),), "contains(points)")]])
    _require(len(inside), "no point of the region was found, but it claims to be nonempty; give points that lie in it")
    values = inside @ directions.T
    slack = TOLERANCE * (1e-300 + np.abs(directions) @ np.maximum(1.0, np.abs(inside).max(axis=0)))
    wrong = np.flatnonzero(least > values.min(axis=0) + slack)
    _require(not len(wrong), f"minimize is not a lower bound in direction {directions[wrong[:1]].tolist()}")
    _require((inside >= lower - TOLERANCE).all() and (inside <= upper + TOLERANCE).all(), "box() misses a point")
    outside = inside[:1] + 10.0 * (1.0 + upper - lower)
    _require(not r or not region.contains(outside).any(), "contains accepts a point far outside box()")
    try:
        region.minimize(np.zeros((1, r + 1)))
    except ModelError:
        pass
    else:
        raise ContractError(f"minimize accepts directions of {r + 1} coordinates in a region of {r}: raise ModelError")
    _check_kernel(region.kernel(), inside)


def _check_kernel(kernel: RegionKernel | None, inside: np.ndarray) -> None:
    """Check that the arrays for compiled queries describe a set that contains the points."""
    if kernel is None:
        return
    if kernel.ellipsoid is not None:
        center, factor, radius = kernel.ellipsoid
        directions = np.vstack([np.eye(len(center)), -np.eye(len(center))])
        far = (inside - center) @ directions.T - radius * np.linalg.norm(directions @ factor, axis=1)
        _require((far <= TOLERANCE * (1 + np.abs(inside).max())).all(), "the ellipsoid of kernel() misses a point")
    if kernel.polytope is not None and kernel.embedding is None:
        rows, rhs = kernel.polytope.rows, kernel.polytope.rhs
        slack = TOLERANCE * (1.0 + np.abs(rhs))
        _require((inside @ rows.T <= rhs + slack).all(), "the polytope of kernel() misses a point")
        box = kernel.polytope
        near = (inside >= box.lower - TOLERANCE) & (inside <= box.upper + TOLERANCE)
        _require(near.all(), "the box of kernel().polytope misses a point")


# ---------------------------------------------------------------------- relaxations
def check_relaxation(
    relaxation: Relaxation, thetas: np.ndarray, objective: Objective | None = None, *, seed: int = 0
) -> None:
    """Check that the bounds of a `Relaxation` hold for parameters that nature may choose.

    Parameters
    ----------
    thetas : (n, d) parameters whose distributions belong to the set
    objective : also solved: the bounds must hold for each of the parameters, and pass the solver's own check
    """
    pmdp = relaxation.pmdp
    _require(isinstance(relaxation.name, str) and relaxation.name, "name is not a string")
    lower, upper = (_require_array(b, (pmdp.num_expressions,), "a side of bounds()") for b in relaxation.bounds())
    _require((lower >= 0).all() and (lower <= upper).all() and (upper <= 1).all(), "bounds() are not probabilities")
    members = [pmdp.instantiate(np.asarray(theta, dtype=float)) for theta in np.atleast_2d(thetas)]
    for member in members:
        p = member.probability
        _require(
            (p >= lower[pmdp.expression] - TOLERANCE).all() and (p <= upper[pmdp.expression] + TOLERANCE).all(),
            f"bounds() exclude the probabilities of θ = {member.theta}",
        )
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(pmdp.num_rows, size=(pmdp.num_rows + 1) // 2, replace=False))
    forms: list[Relaxation] = [relaxation]
    compiled = relaxation.compiled()
    if compiled is not None:
        forms.append(CompiledRelaxation(pmdp, compiled, relaxation.name))
    for values in (rng.uniform(-1, 1, pmdp.num_states), 1e6 * rng.random(pmdp.num_states), np.ones(pmdp.num_states)):
        truth = np.array([np.add.reduceat(m.probability * values[pmdp.successor], pmdp.row_ptr[:-1]) for m in members])
        slack = TOLERANCE * np.abs(values).max()
        for form in forms:
            what = "expectation" if form is relaxation else "compiled()"
            for sense, beyond in ((Sense.MIN, lambda a, b: a > b), (Sense.MAX, lambda a, b: a < b)):
                out = np.full(pmdp.num_rows, np.nan)
                form.expectation(values, sense, out)
                _require_array(out, (pmdp.num_rows,), f"{what} of all rows")
                sign = 1.0 if sense is Sense.MIN else -1.0
                wrong = beyond(out, truth + sign * slack).any(axis=0)
                _require(not wrong.any(), f"{what}: the {sense.value} of {_row(pmdp, wrong)} is not a bound")
                part = np.full(len(some), np.nan)
                form.expectation(values, sense, part, some)
                _require(np.allclose(part, out[some], rtol=1e-9, atol=slack), f"{what} of some rows differs from all")
    if objective is not None:
        _check_values(relaxation, [m.theta for m in members], objective)


def _row(pmdp: ParametricMDP, wrong: np.ndarray) -> str:
    return pmdp.row_name(int(np.argmax(wrong)))


def _check_values(relaxation: Relaxation, thetas: Sequence[np.ndarray], objective: Objective) -> None:
    robust, optimistic = (solve(relaxation, objective, nature) for nature in (Nature.ADVERSARIAL, Nature.COOPERATIVE))
    for solution in (robust, optimistic):
        problems = solution.check()
        _require(not problems, f"the solver's bounds do not pass their check: {problems[:1]}")
    low, high = (robust, optimistic) if objective.sense is Sense.MAX else (optimistic, robust)
    for theta in thetas:
        best = solve_at(relaxation.pmdp, theta, objective)
        tolerance = TOLERANCE * max(1.0, abs(best.upper))
        inside = low.lower <= best.upper + tolerance and best.lower <= high.upper + tolerance
        _require(inside, f"the bounds [{low.lower}, {high.upper}] exclude the optimum {best.middle} of θ = {theta}")


# ---------------------------------------------------------------------- a small world
def _two_coins() -> tuple[ParametricMDP, Objective, np.ndarray]:
    """Win with one of two coins, one of which has to be tossed twice; both have the same bias."""

    start, middle, won, lost = ((k,) for k in range(4))

    def actions(state: tuple[int]) -> dict[str, dict[Any, Any]]:
        if state == start:
            return {"once": {won: "p", lost: "1-p"}, "twice": {middle: "1-q", lost: "q"}}
        if state == middle:
            return {"once": {won: "0.5 + 0.5*p", lost: "0.5 - 0.5*p"}}
        return {"stay": {state: "1"}}

    pmdp = build(
        start,
        actions,
        domain=["p", "q"],
        labels={"won": lambda s: s == won, "lost": lambda s: s == lost},
        action_names=["once", "twice", "stay"],
        variables=("place",),
        name="two coins",
    )
    return pmdp, Objective.reach("won", avoid="lost"), np.array([0.4, 0.3])


def _two_coins_env() -> Any:
    """The small world as an environment that has to be stepped and refuses to reveal its parameters."""
    from rpl_envs import Benchmark, PMDPEnv

    class TwoCoins(PMDPEnv):
        simulator = None  # type: ignore[assignment]

        @property
        def P(self) -> Any:
            raise ContractError("the agent reads the true probabilities of the environment (P)")

        @property
        def theta(self) -> Any:
            raise ContractError("the agent reads the true parameters of the environment (theta)")

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            enabled = self.pmdp.find_row(self._state, int(action)) >= 0
            _require(enabled, f"the agent takes action {action} in state {self._state}, where it is not enabled")
            return super().step(action)

    pmdp, objective, theta = _two_coins()
    return TwoCoins(Benchmark(pmdp, objective, tuple(theta), pmdp.num_states))


# ---------------------------------------------------------------------- confidence sets
def check_confidence_set(kind: ConfidenceSet, *, data_sets: int = 60, delta: float = 0.1, seed: int = 0) -> None:
    """Check that a `ConfidenceSet` contains the truth except with probability δ, on a small model with simulated data.

    ``anytime`` sets must contain it at several sizes of the same data simultaneously. At least 60 data sets are drawn:
    fewer cannot tell a set that ignores δ from one that keeps it. With the same data the set must grow when δ shrinks,
    it must keep a tenth of δ too, and without data it must contain every parameter of the domain.
    """
    _require(isinstance(kind.name, str) and kind.name, "name is not a string")
    for name in ("anytime", "region_of_intervals"):
        _require(isinstance(getattr(kind, name), bool), f"{name} is not a bool")
    _require(kind.untied in METHODS, f"untied {kind.untied!r} is not one of {tuple(METHODS)}")
    if data_sets < LEAST_DATA_SETS:
        raise ModelError(f"data_sets is {data_sets}: give at least {LEAST_DATA_SETS}, fewer do not tell sets apart")
    pmdp, objective, theta = _two_coins()
    _check_without_data(kind, pmdp, delta, seed)
    deltas = (delta, delta / 10)
    missed = {(what, level): 0 for what in ("region", "intervals") for level in deltas}
    for k in range(data_sets):
        simulator = Simulator(pmdp.instantiate(theta), objective.resolve(pmdp).decided, 10, seed + k)
        counts, failed = Counts(pmdp), set[tuple[str, float]]()
        for episodes in (20, 100, 400) if kind.anytime else (200,):
            batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
            simulator.run(Policy.uniform(pmdp), episodes, batch)
            counts.add_batch(batch)
            failed |= _missed(kind, pmdp, counts, theta, delta)
        failed |= _missed(kind, pmdp, counts, theta, deltas[1])
        if k == 0:
            check_region(_sets(kind, pmdp, counts, delta)[0], seed=seed)
        missed = {what: number + (what in failed) for what, number in missed.items()}
    for (what, level), number in missed.items():
        chance = scipy.stats.binom.sf(number - 1, data_sets, level)
        _require(
            chance >= FALSE_ALARM, f"{what}: the truth is missed in {number} of {data_sets} data sets at δ = {level:g}"
        )
    _check_growth(kind, pmdp, counts, deltas)


def _sets(
    kind: ConfidenceSet, pmdp: ParametricMDP, counts: Counts, delta: float
) -> tuple[Region, tuple[np.ndarray, np.ndarray] | None]:
    """The region, and the intervals if there are some."""
    bounds = _intervals(kind, pmdp, counts, delta)
    return kind.region(pmdp, counts, delta, None, bounds if kind.region_of_intervals else None), bounds


def _missed(
    kind: ConfidenceSet, pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, delta: float
) -> set[tuple[str, float]]:
    """Which of region and intervals exclude a parameter, with the δ at which they do."""
    region, bounds = _sets(kind, pmdp, counts, delta)
    x, truth = np.atleast_2d(pmdp.table.reduction.coordinates(theta)), pmdp.table.at(theta)
    found = {("region", delta)} if region.is_empty or not region.contains(x)[0] else set()
    if bounds is not None and ((truth < bounds[0] - TOLERANCE) | (truth > bounds[1] + TOLERANCE)).any():
        found.add(("intervals", delta))
    return found


def _check_without_data(kind: ConfidenceSet, pmdp: ParametricMDP, delta: float, seed: int) -> None:
    """Without data a set is not random: whatever it excludes is never covered."""
    draw, low, high = np.random.default_rng(seed), pmdp.domain.lower, pmdp.domain.upper
    for theta in (low, high, *draw.uniform(low, high, (8, len(low)))):
        excluded = sorted(what for what, _ in _missed(kind, pmdp, Counts(pmdp), theta, delta))
        _require(not excluded, f"{' and '.join(excluded)}: without data θ = {theta.tolist()} is excluded")


def _check_growth(kind: ConfidenceSet, pmdp: ParametricMDP, counts: Counts, deltas: tuple[float, float]) -> None:
    """A smaller δ needs a larger set of the same data."""
    wide, narrow = (_ends(kind, pmdp, counts, level) for level in (deltas[1], deltas[0]))
    for what, (low, high) in narrow.items():
        lower, upper = wide[what]
        inside = (lower <= low + TOLERANCE).all() and (upper >= high - TOLERANCE).all()
        _require(inside, f"{what}: the set at δ = {deltas[1]:g} does not contain the one at δ = {deltas[0]:g}")
        grows = (upper - lower).sum() > (high - low).sum() * (1 + TOLERANCE)
        _require(grows, f"{what}: the set is the same for δ = {deltas[0]:g} and {deltas[1]:g}: does it use δ?")


def _ends(
    kind: ConfidenceSet, pmdp: ParametricMDP, counts: Counts, delta: float
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The box of the region, and the intervals if there are some."""
    region, bounds = _sets(kind, pmdp, counts, delta)
    found = {"region": region.box()}
    return found if bounds is None else found | {"intervals": bounds}


def _intervals(
    kind: ConfidenceSet, pmdp: ParametricMDP, counts: Counts, delta: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """The set's intervals; None if it raises ModelError because it has none."""
    try:
        found = kind.intervals(pmdp, counts, delta)
    except ModelError:
        _require(not kind.region_of_intervals, "region_of_intervals is True, but intervals() raises ModelError")
        return None
    lower, upper = (_require_array(b, (pmdp.num_expressions,), "a side of intervals()") for b in found)
    return lower, upper


# ---------------------------------------------------------------------- agents
def check_agent(make: Callable[[int], Any], *, episodes: int = 60) -> None:
    """Check that an agent has the interface that runs, comparisons and Stable-Baselines3's tools need.

    Parameters
    ----------
    make : from a seed to a new agent. It learns a small world twice with one seed, with equal results.
    """
    first, second = (make(5) for _ in range(2))
    for agent in (first, second):
        _require(agent.learn(_two_coins_env(), budget=episodes) is agent, "learn does not return the agent")
        _require(
            agent.num_episodes == episodes,
            f"learn(budget={episodes}) ends after {agent.num_episodes} episodes (num_episodes)",
        )
    _require(first.num_timesteps >= episodes, f"num_timesteps is {first.num_timesteps} after {episodes} episodes")
    choices = _choices(first)
    alike = choices == _choices(second) and first.num_timesteps == second.num_timesteps
    _require(alike, "two agents with one seed learn differently")
    first.learn(first.get_env() if hasattr(first, "get_env") else _two_coins_env(), budget=episodes)
    _require(first.num_episodes == 2 * episodes, f"a second learn ends at {first.num_episodes} episodes in all")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.zip"
        second.save(path)
        loaded = type(second).load(path, _two_coins_env())
    _require(_choices(loaded) == choices, "a loaded agent chooses different actions than the saved one")
    _require(loaded.num_episodes == episodes, f"a loaded agent counts {loaded.num_episodes} episodes, not {episodes}")


def _choices(agent: Any) -> list[int]:
    """Actions in the states with a choice: for single observations, and for a batch."""
    pmdp, objective, _ = _two_coins()
    open_states = np.flatnonzero(~objective.resolve(pmdp).decided & ~pmdp.is_silent).tolist()
    chosen = []
    for state in open_states:
        answer = agent.predict(state, deterministic=True)
        _require(isinstance(answer, tuple) and len(answer) == 2, "predict does not return (action, state)")
        action = int(np.asarray(answer[0]).item())
        enabled = pmdp.find_row(state, action) >= 0
        _require(enabled, f"predict returns action {action} in state {state}, where it is not enabled")
        chosen.append(action)
    batch = agent.predict(np.array(open_states), deterministic=True)[0]
    _require(np.asarray(batch).shape == (len(open_states),), f"a batch of observations gives actions {batch!r}")
    _require(np.asarray(batch).tolist() == chosen, "predict of a batch differs from predict one by one")
    return chosen
