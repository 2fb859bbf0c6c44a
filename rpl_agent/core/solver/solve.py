"""`solve`: robust and optimistic values with bounds on both sides.

The model is split into strongly connected components. Acyclic parts take one backward pass with outward rounding
on both sides; cyclic parts are handled by `component`. A finite horizon takes that many Bellman steps from the end. See
`check` for what a bound must satisfy and why that suffices.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rpl_agent.core.errors import ModelError, front_door, require_kind, require_positive
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Policy, Sense, best_rows, reached
from rpl_agent.core.native import core, threads
from rpl_agent.core.native.memory import give_back_memory
from rpl_agent.core.relaxations.base import POINT, Relaxation, longest_chain, longest_row, useful_threads
from rpl_agent.core.relaxations.interval import Intervals, Point
from rpl_agent.core.relaxations.umdp import UncertainMDP
from rpl_agent.core.solver.batch import solve_batch
from rpl_agent.core.solver.check import SMALLEST, is_converged
from rpl_agent.core.solver.claimed import WarmStart
from rpl_agent.core.solver.cyclic.component import solve_component
from rpl_agent.core.solver.graph import comes_back, model_graph
from rpl_agent.core.solver.operator import row_bounds, state_bounds, total_bounds
from rpl_agent.core.solver.problem import FIXED_AGENT, MIN_AGENT, Problem, step_rows
from rpl_agent.core.solver.solution import Solution, claiming_nothing, finish


def solve_horizon(problem: Problem, precision: float, began: float, side: bool | None) -> Solution:
    """Bounds with k = 0..H steps to go; the policy has one decision rule per step."""
    lower, by_lower = horizon_side(problem, bool(side))
    if side is not None:
        only = finish(problem, lower, lower, by_lower, len(lower) - 1, precision, began, None)
        return claiming_nothing(only, not side)
    upper, by_upper = horizon_side(problem, True, lower)
    # Rounding is part of the bounds: among rows that differ by rounding only, take the one whose bound is reported.
    policy = problem.policy or (by_lower if problem.objective.sense is Sense.MAX else by_upper)
    return finish(problem, lower, upper, policy, len(lower) - 1, precision, began, None)


def horizon_side(problem: Problem, upward: bool, other: np.ndarray | None = None) -> tuple[np.ndarray, Policy]:
    """Bounds (H + 1, S) from one side by steps to go, and the policy: the given one, or the best by these bounds."""
    values, pmdp, given = from_the_end(problem), problem.pmdp, problem.policy
    steps = len(values) - 1
    rules = np.empty((max(steps, 1), pmdp.num_states), dtype=np.int64)
    rules[-1] = pmdp.state_ptr[:-1]  # with no step to take any rule will do
    if problem.relaxation.compiled() is None:
        _by_expectations(problem, upward, values, rules)
    else:
        core.horizon_backward(
            problem.game,
            pmdp.num_states,
            steps,
            upward,
            problem.task.decided,
            *step_rows(given, steps),
            values,
            other,
            rules if given is None else None,
            None,
            problem.scratch(),
        )
    return values, given or Policy.deterministic(rules[::-1])


def from_the_end(problem: Problem) -> np.ndarray:
    """(H + 1, S) values by steps to go: the first row is set, the others have to be written."""
    horizon = problem.objective.horizon
    assert horizon is not None
    values = np.empty((horizon + 1, problem.pmdp.num_states))
    values[0] = problem.boundary()
    return values


def _by_expectations(problem: Problem, upward: bool, values: np.ndarray, rules: np.ndarray) -> None:
    """Write the values and rules of `horizon_side` step by step, for relaxations that have only `expectation`."""
    given, pmdp, nothing = problem.policy, problem.pmdp, np.inf if upward else -np.inf
    for k in range(1, len(values)):
        weights = None if given is None else given.at(len(values) - 1 - k).shares(pmdp)
        q = row_bounds(problem, values[k - 1], upward)
        rules[k - 1] = best_rows(problem.agent * total_bounds(problem, q, upward), pmdp.state_ptr, pmdp.row_state)
        image = state_bounds(problem, q, upward, weights)
        image[np.isnan(image)] = nothing  # differences beyond the largest float: a trivial bound
        faint = (image != 0.0) & (np.abs(image) < SMALLEST)
        image[faint & ((image > 0.0) | upward)] = SMALLEST if upward else 0.0
        values[k] = np.where(problem.task.decided, values[0], image)


DEFAULT_PRECISION = 1e-6
DEFAULT_ITERATIONS = 100_000
#: share of the precision for the cyclic parts together; the rest is for rounding
WIDTH = 0.9
#: number of transitions from which two solves are worth two threads: side by side they took three times as long with
#: 5.5e5 transitions, because threads wait 5 ms for each other's Python, and half as long with 3e6
TWO_CORES = 2_000_000


@front_door
def solve(
    relaxation: Relaxation | UncertainMDP | ParametricMDP,
    objective: Objective | str,
    nature: Nature = Nature.ADVERSARIAL,
    *,
    policy: Policy | None = None,
    precision: float = DEFAULT_PRECISION,
    max_iterations: int = DEFAULT_ITERATIONS,
    warm: WarmStart | None = None,
    reward_error: float = 0.0,
    side: bool | None = None,
    everywhere: bool = True,
) -> Solution:
    """Bounds on the value of an objective when nature plays for or against the agent.

    Parameters
    ----------
    nature : ADVERSARIAL gives the robust value, COOPERATIVE the optimistic one
    policy : evaluate this policy instead of the best one
    precision : desired upper - lower at the initial state, relative to values above 1; a wider result comes with a
        warning
    max_iterations : limit on sweeps and policy-iteration steps
    warm : an earlier solution of the same model and objective: a start for the search, never a source of bounds
    reward_error : share of each reward by which it may differ, in nature's favour
    side : with a horizon, the only side to look at (True: the upper); the other one then claims nothing
    everywhere : whether all states need bounds; if not, those of others are trivial where the graph decides the start

    Raises
    ------
    ModelError
        Bad input (bounds, objective, policy), before any iteration.

    >>> import numpy as np
    >>> lower, upper = np.array([[[0.0, 0.4], [0.0, 1.0]]]), np.array([[[0.6, 1.0], [0.0, 1.0]]])
    >>> model = UncertainMDP.from_matrices(lower, upper, labels={"goal": [False, True]})
    >>> round(solve(model, Objective.reach("goal", horizon=2)).lower, 6)
    0.64
    """
    require_positive("precision", precision)
    objective = Objective.parse(objective) if isinstance(objective, str) else objective
    require_kind("objective", objective, Objective)
    if max_iterations < 1:
        raise ModelError(f"max_iterations {max_iterations} must be at least 1")
    began = time.perf_counter()
    if isinstance(relaxation, ParametricMDP) and not relaxation.num_parameters:
        relaxation = Point(relaxation.instantiate(np.zeros(0)))
    if isinstance(relaxation, ParametricMDP):
        names = ", ".join(relaxation.domain.parameters[:3]) + (", ..." if relaxation.domain.dimension > 3 else "")
        raise ModelError(
            "the value of a parametric model depends on its parameters: use "
            f"solve_at(pmdp, [{names}], objective) if they are known, "
            "certify(pmdp, counts, objective) from data, solve(relaxation, objective) for a set of them "
            "(rpl_agent.core.relaxations)"
        )
    if isinstance(relaxation, UncertainMDP):
        relaxation = relaxation.relaxation()
    if not hasattr(relaxation, "pmdp"):
        raise ModelError(f"solve needs a relaxation or an UncertainMDP, not {relaxation!r}")
    problem = Problem.of(relaxation, objective, nature, policy, reward_error)
    if objective.horizon is not None:
        return solve_horizon(problem, precision, began, side)
    if relaxation.compiled() is not None:
        return _solve_compiled(problem.as_cost, precision, max_iterations, warm, began, everywhere)
    if not problem.criterion.signed:
        return solve_batch(problem, precision, max_iterations, began)
    # `solve_batch` iterates from 0, which bounds no total of both signs; the hull bounds the set from the outside only
    hull = Intervals(relaxation.pmdp, *relaxation.bounds(), name=relaxation.name)
    inside = replace(problem, relaxation=hull, is_hull=True).as_cost
    return claiming_nothing(_solve_compiled(inside, precision, max_iterations, warm, began), not problem.maximise)


@front_door
def solve_at(
    pmdp: ParametricMDP,
    theta: np.ndarray | Sequence[float] | Mapping[str, float],
    objective: Objective | str,
    *,
    policy: Policy | None = None,
    precision: float = DEFAULT_PRECISION,
    everywhere: bool = True,
) -> Solution:
    """The optimum at one θ (d,), or the value of a policy there; ``everywhere`` as in `solve`.

    >>> import rpl_envs
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> round(solve_at(world.pmdp, world.theta, world.objective).middle, 4)
    19.0429
    """
    point = Point(pmdp.instantiate(theta))
    return solve(point, objective, Nature.COOPERATIVE, policy=policy, precision=precision, everywhere=everywhere)


def solve_both(
    relaxation: Relaxation,
    objective: Objective,
    *,
    policy: Policy | None = None,
    precision: float = DEFAULT_PRECISION,
    warm: tuple[WarmStart | None, WarmStart | None] = (None, None),
    reward_error: float = 0.0,
    outer: bool = False,
) -> tuple[Solution, Solution]:
    """(robust, optimistic): `solve` against nature and with it, in parallel on two cores if that pays.

    The two are independent, while one solve is a sequence of small dependent steps. ``outer``: with a horizon, look
    only at the sides that a certificate uses.
    """
    sides = (objective.sense is Sense.MIN, objective.sense is Sense.MAX) if outer else (None, None)
    calls = [
        partial(
            solve,
            relaxation,
            objective,
            nature,
            policy=policy,
            precision=precision,
            warm=start,
            reward_error=reward_error,
            side=side,
        )
        for nature, start, side in zip((Nature.ADVERSARIAL, Nature.COOPERATIVE), warm, sides)
    ]
    # Sets that are queried through the protocol may keep state (such as a linear program): one at a time.
    if relaxation.pmdp.num_transitions < TWO_CORES or relaxation.compiled() is None or threads() == 1:
        first = calls[0]()
        give_back_memory(relaxation.pmdp.num_transitions)
        return first, calls[1]()
    from concurrent.futures import ThreadPoolExecutor

    _ = Problem.of(relaxation, objective, Nature.ADVERSARIAL, policy).structure  # needed by both, computed once
    with ThreadPoolExecutor(1) as helper:
        other = helper.submit(calls[1])
        return calls[0](), other.result()


def warm_values(problem: Problem, warm: WarmStart) -> np.ndarray:
    """(S,) a start from an earlier solution of the same size."""
    size = problem.pmdp.num_states
    if warm.lower_values.shape != (size,):
        raise ModelError(
            f"the warm start has values of shape {warm.lower_values.shape}, not ({size},): solve the same model"
        )
    guess = warm.lower_values if problem.proper_max or problem.mirrors else warm.upper_values
    return np.where(np.isfinite(guess), -guess if problem.mirrors else guess, 0.0)


def _solve_compiled(
    problem: Problem,
    precision: float,
    max_iterations: int,
    warm: WarmStart | None,
    began: float,
    everywhere: bool = True,
) -> Solution:
    guess = None if warm is None else warm_values(problem, warm)
    found = _known_bounds(problem, max_iterations, guess, precision * WIDTH, everywhere)
    if found is None:
        width = precision * WIDTH / max(1, sum(len(cyclic) > 0 for _, cyclic in problem.structure.rounds))
        found = _bounds(problem, max_iterations, guess, width)
    start = problem.pmdp.initial_state
    left = max_iterations - found.iterations
    if found.swept and left > 0 and not is_converged(found.lower[start], found.upper[start], precision):
        exact = _bounds(problem, left, guess, 0.0)  # widths added up to more than they should
        found = replace(exact, iterations=found.iterations + exact.iterations)
    policy = problem.policy or Policy(rows=found.rows)
    return finish(problem, found.lower, found.upper, policy, found.iterations, precision, began, found.witness)


@dataclass(frozen=True, eq=False)
class _Found:
    """Bounds on all values, and how they were found."""

    lower: np.ndarray  # (S,)
    upper: np.ndarray  # (S,)
    rows: np.ndarray  # (S,) the agent's
    witness: np.ndarray | None  # (T,) nature's
    iterations: int
    swept: bool  # whether some bounds come from sweeps, which are as narrow as requested only


def _known_bounds(
    problem: Problem, max_iterations: int, guess: np.ndarray | None, width: float, everywhere: bool
) -> _Found | None:
    """Bounds of a known model with cycles by sweeps alone, in one call of the core; None if sweeps do not apply."""
    pmdp, criterion = problem.pmdp, problem.criterion
    if problem.cs.kind != POINT or criterion.contracts or criterion.signed or not comes_back(pmdp):
        return None
    asked = core.Question(
        reach=not criterion.pays,
        must_reach=criterion.must_reach,
        precision=width,
        budget=max_iterations,
        capacity=pmdp.num_transitions if problem.agent == FIXED_AGENT else longest_chain(pmdp),
        longest=longest_row(pmdp),
        threads=useful_threads(pmdp.num_rows),
        start=-1 if everywhere else pmdp.initial_state,
    )
    graph, task, states = model_graph(pmdp).both_ways, problem.task, pmdp.num_states
    lower, upper, rows = np.empty(states), np.empty(states), np.empty(states, np.int64)
    sweeps = core.solve_known(problem.game, graph, asked, task.target, task.decided, guess, lower, upper, rows, None)
    return None if sweeps < 0 else _Found(lower, upper, rows, None, sweeps, swept=True)


def _bounds(problem: Problem, max_iterations: int, guess: np.ndarray | None, width: float) -> _Found:
    """Bounds, those of cyclic parts as narrow as ``width`` (0: as possible)."""
    pmdp, structure = problem.pmdp, problem.structure
    guess = np.zeros(pmdp.num_states) if guess is None else guess
    lower = problem.boundary()
    upper, rows = lower.copy(), pmdp.state_ptr[:-1].copy()
    _sinks(problem, structure.sinks, lower, upper, rows)
    # states without a lower bound; 0 stands there until the end
    unbounded = [structure.sinks] if problem.criterion.sums_endlessly and len(structure.sinks) else []
    any_cycle = any(len(cyclic) for _, cyclic in structure.rounds)
    witness = np.zeros(pmdp.num_transitions) if any_cycle and problem.nature_proper else None
    iterations, swept = 1, False

    for trivial, cyclic in structure.rounds:
        if len(trivial):
            core.backward(problem.game, len(trivial), trivial, lower, upper, rows, problem.scratch())
        if len(cyclic):
            budget = max_iterations - iterations
            for part in solve_component(problem, cyclic, lower, upper, guess, budget, width):
                missing = np.isneginf(part.lower)
                if missing.any():
                    unbounded.append(part.states[missing])
                lower[part.states], upper[part.states] = np.where(missing, 0.0, part.lower), part.upper
                if len(part.rows):
                    rows[part.states] = part.rows
                if witness is not None and len(part.transitions):
                    witness[part.transitions] = part.p
                iterations += part.steps
                swept |= part.swept
    if unbounded:
        source = pmdp.row_state[pmdp.transition_row]
        open_, ends = ~problem.task.decided[source], np.concatenate(unbounded)
        lower[reached(pmdp.successor[open_], source[open_], ends, pmdp.num_states)] = -np.inf
    return _Found(lower, upper, rows, witness, iterations, swept)


def _sinks(problem: Problem, sinks: np.ndarray, lower: np.ndarray, upper: np.ndarray, chosen: np.ndarray) -> None:
    """Set the bounds of states that only loop: they reach nothing, and their total is 0 or infinite."""
    if not len(sinks):
        return
    known = problem.criterion.sink_bounds
    if known is not None:
        lower[sinks], upper[sinks] = known
        return
    for s in sinks.tolist():
        rows = np.arange(problem.pmdp.state_ptr[s], problem.pmdp.state_ptr[s + 1])
        pays = problem.reward[rows] > 0.0
        if problem.agent == FIXED_AGENT:
            pays &= problem.weights[rows] > 0.0
        if problem.agent == MIN_AGENT and not pays.all():  # looping without reward is possible
            chosen[s] = rows[~pays][0]
        elif pays.any():
            lower[s] = upper[s] = np.inf
            chosen[s] = rows[pays][0]
