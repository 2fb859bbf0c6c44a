"""Certified bounds on one cyclic part of the model, given the values of its exits.

Lower and upper bounds are fixpoints of the Bellman operator with a tiny extra cost or bonus per step, so they satisfy
the conditions of `check` strictly and rounding cannot violate them:

* the bound of the *proper* side (a maximiser's lower bound, a cost minimiser's upper bound) fixes that side's strategy,
  from which every play ends, and lets the opponents respond;
* the other bound fixes the opponents' strategy and collapses the end components in which the proper side could loop.

Every bound is verified with directed rounding before it is returned; the extra cost grows until it verifies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.core.model import gather
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.relaxations.base import CURVED, INTERVAL
from rpl_agent.core.solver.check import Witness
from rpl_agent.core.solver.cyclic.local import Local
from rpl_agent.core.solver.cyclic.quotient import Quotient, collapse
from rpl_agent.core.solver.cyclic.strategies import Strategies, can_hold, improve, iterate_strategies, scale_of
from rpl_agent.core.solver.cyclic.sweeping import clip, is_narrow, swept_bounds
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, DRAWN_ROW, moves, played_rows, staying_rows, usable_rows
from rpl_agent.core.solver.problem import FIXED_AGENT, MAX_AGENT, MIN_AGENT, Problem

#: the first extra cost per step, relative to the values, its growth and the number of attempts
FIRST_MARGIN, MARGIN_GROWTH, MARGIN_ATTEMPTS = 1e-15, 16.0, 9
#: parts with fewer transitions are solved exactly at once: that takes less time than to find how many sweeps they need
SWEPT_FROM = 2_000
#: successors of a state, by all of its rows
FEW_SUCCESSORS = 4
#: sweeps of the fallback, when no certificate could be built from strategies
FALLBACK_SWEEPS = 2_000
#: its cost per step, relative to the values: more than the rounding error, nature's witness included
FALLBACK_MARGIN = 1e-14


@dataclass(eq=False)
class ComponentBounds:
    """The contribution of a cyclic part to the solution (indices are the model's)."""

    states: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rows: np.ndarray  # the agent's policy, empty for a fixed one
    transitions: np.ndarray  # with p: nature's witness if nature is on the proper side
    p: np.ndarray
    steps: int
    swept: bool = False  # whether sweeps found it


def solve_component(
    problem: Problem,
    states: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    guess: np.ndarray,
    budget: int,
    width: float,
) -> list[ComponentBounds]:
    """Bounds on ``states`` given those of their successors in lower, upper (S,).

    ``guess`` (S,) is a warm start; ``budget`` limits sweeps and steps; ``width`` is what may lie between the bounds,
    relative to values above 1 (0: as little as possible).
    """
    parts: list[ComponentBounds] = []
    local = Local.of(problem, states)
    if not problem.criterion.contracts:
        parts, local = _without_decided(problem, local, lower, upper)
    if local.n and width > 0.0 and _is_swept(local):
        states = _from_the_exits(problem, local, lower)
        del local  # before its arrays are made again, in another order
        local = Local.of(problem, states)
        swept = _swept(problem, local, lower, upper, guess, width, budget)
        if swept is not None:
            return [*parts, swept]
    if local.n:
        parts.append(_exact(problem, local, lower, upper, guess, budget))
    return parts


def _without_decided(
    problem: Problem, local: Local, lower: np.ndarray, upper: np.ndarray
) -> tuple[list[ComponentBounds], Local]:
    """(what the graph decides, the rest): values 0, 1 and infinity; written to lower, upper (S,)."""
    parts, states = [], local.states
    if problem.proper_max and not local.reward.any() and not upper[local.exits].any():  # nothing is ever paid
        parts.append(_constant(problem, local, np.ones(local.n, dtype=bool), 0.0, 0.0, local.state_ptr[:-1]))
        return parts, Local.of(problem, states[:0])
    infinite = ~_finite(problem, local, upper)
    if infinite.any():
        low, rows = _infinite_lower(problem, local, infinite, lower, upper)
        parts.append(_constant(problem, local, infinite, low, np.inf, rows))
        upper[local.states[infinite]] = np.inf
        lower[local.states[infinite]] = max(low, 0.0)
        states = states[~infinite]
        local = Local.of(problem, states)
    if len(states) and problem.proper_max:
        zero = _worthless(problem, local)
        if zero.any():
            rows = _holding_rows(local, zero)
            parts.append(_constant(problem, local, zero, 0.0, 0.0, rows))
            lower[local.states[zero]] = upper[local.states[zero]] = 0.0
            states = states[~zero]
            local = Local.of(problem, states)
    if len(states) and not problem.criterion.pays:
        one, rows, p = _sure(problem, local, lower)
        if one.any():
            parts.append(_constant(problem, local, one, 1.0, 1.0, rows, p))
            lower[local.states[one]] = upper[local.states[one]] = 1.0
            states = states[~one]
            local = Local.of(problem, states)
    local.forget_bounds()
    return parts, local


def _constant(
    problem: Problem,
    local: Local,
    where: np.ndarray,
    low: float,
    high: float,
    rows: np.ndarray,
    p: np.ndarray | None = None,
) -> ComponentBounds:
    """States whose value is determined by the graph; p (T,) is nature's choice, if it matters."""
    states = local.states[where]
    chosen = np.zeros(0, dtype=np.int64) if local.agent == FIXED_AGENT else local.row_of[rows[where]]
    transitions, played = np.zeros(0, dtype=np.int64), np.zeros(0)
    if problem.nature_proper:
        taken = where[local.row_state][local.transition_row]
        p = local.central(np.zeros(local.n + local.m, dtype=bool)) if p is None else p
        transitions, played = _transitions_of(problem, local)[taken], p[taken]
    return ComponentBounds(
        states, np.full(len(states), low), np.full(len(states), high), chosen, transitions, played, 0
    )


def _transitions_of(problem: Problem, local: Local) -> np.ndarray:
    """(T,) the number in the model of each transition of a part."""
    return gather(problem.pmdp.row_ptr, local.row_of)[0]


def _holding_rows(local: Local, zero: np.ndarray) -> np.ndarray:
    """(n,) for every state of the set a row that can stay in it (which a minimising agent must choose)."""
    inside = np.concatenate([zero, np.zeros(local.m, dtype=bool)])[local.successor]
    lo = local.hi if local.maximise else local.lo  # a maximising nature does not help: it must have no way out
    stays = staying_rows(inside, local.row_ptr, lo, local.hi) & (local.reward == 0.0)
    if not local.maximise and local.cs.kind > INTERVAL:
        stays &= local.least_outside(zero) <= 0.0
    good = np.flatnonzero(stays)
    rows = local.state_ptr[:-1].copy()
    rows[local.row_state[good]] = good
    return rows


def _infinite_lower(
    problem: Problem, local: Local, infinite: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, np.ndarray]:
    """(lower bound, rows (n,)) on states whose value the graph shows to be infinite: inf if that is certain.

    For a region the graph sees only the interval hull, which may overestimate nature; then the lower bound stays 0. A
    maximising agent needs a policy that collects forever: that of a discount close to 1, tested on the graph. Totals
    of both signs have no lower bound there, unless a play that never ends costs infinity.
    """
    rows = local.state_ptr[:-1].copy()
    nothing = problem.criterion.least
    exits_differ = bool((np.isinf(upper[local.exits]) & np.isfinite(lower[local.exits])).any())
    certain = (problem.cs.kind <= INTERVAL or not problem.maximise) and not exits_differ
    if not certain or problem.criterion.sums_endlessly:
        return nothing, rows
    if problem.criterion.must_reach and problem.agent == MAX_AGENT:
        rows = _missing_rows(local, infinite, np.isinf(upper[local.exits]))
        missed = not (_finite(problem, local.fix_agent(rows), upper) & infinite).any()
        return (np.inf if missed else 0.0), rows
    if not problem.agent_proper or problem.criterion.must_reach:
        return np.inf, rows
    # Exits of infinite value get a large value instead; the discount keeps all numbers finite.
    prize = np.where(
        np.isinf(upper[local.exits]), 1e6 * (1.0 + float(local.reward.max(initial=0.0))), upper[local.exits]
    )
    for gamma in (1.0 - 1e-4, 1.0 - 1e-7):
        patient = replace(local, gamma=gamma)
        rows = iterate_strategies(patient, True, np.concatenate([np.zeros(local.n), prize]), 200).rows
        if not (_finite(problem, local.fix_agent(rows), upper) & infinite).any():
            return np.inf, rows
    return 0.0, rows


def _missing_rows(local: Local, infinite: np.ndarray, exit_infinite: np.ndarray) -> np.ndarray:
    """(n,) rows by which a maximising agent may miss the target: stay where it can forever, else move towards that."""
    rows = local.state_ptr[:-1].copy()
    starts, inside = local.row_ptr[:-1], np.concatenate([infinite, exit_infinite])
    # a nature that minimises must have no way out, and has to lead there
    least, possible = (local.lo, local.hi) if local.maximise else (local.hi, local.lo)
    while True:  # the largest set in which each state has a row that stays in it
        stays = staying_rows(inside[local.successor], local.row_ptr, least, local.hi)
        held = infinite & np.logical_or.reduceat(stays, local.state_ptr[:-1]) & inside[: local.n]
        if (held == inside[: local.n]).all():
            break
        inside[: local.n] = held
    good = np.flatnonzero(stays & held[local.row_state])
    rows[local.row_state[good]] = good
    while True:  # states with a row that leads there with positive probability
        leads = np.logical_or.reduceat((possible > 0.0) & inside[local.successor], starts)
        new = np.flatnonzero(leads & ~inside[local.row_state] & infinite[local.row_state])
        if not len(new):
            return rows
        rows[local.row_state[new]] = new
        inside[local.row_state[new]] = True


def _finite(problem: Problem, local: Local, upper: np.ndarray) -> np.ndarray:
    """(n,) states whose value the graph does not show to be infinite."""
    if not problem.criterion.pays:
        return np.ones(local.n, dtype=bool)
    exit_finite = np.isfinite(upper[local.exits])
    pays = local.reward > 0.0
    if problem.proper_max and not pays.any() and exit_finite.all():
        return np.ones(local.n, dtype=bool)
    goal = np.concatenate([np.zeros(local.n, dtype=bool), exit_finite])
    start = np.concatenate([np.ones(local.n, dtype=bool), exit_finite])
    quantifier = DRAWN_ROW if local.agent == FIXED_AGENT else ANY_ROW if local.agent == MIN_AGENT else ALL_ROWS
    played = local.weights > 0.0
    return local.graph.finite_set(
        local.moves, played, pays, quantifier, not local.maximise, not problem.proper_max, goal, start
    )[: local.n]


def _worthless(problem: Problem, local: Local) -> np.ndarray:
    """(n,) states where the minimiser can hold the play without reward against every strategy: value 0."""
    played = played_rows(local.weights if local.agent == FIXED_AGENT else None, len(local.reward))
    usable = usable_rows(played, local.reward != 0.0)
    nature = local.leaving_moves if problem.nature_proper else local.moves
    start = np.concatenate([np.ones(local.n, dtype=bool), np.zeros(local.m, dtype=bool)])
    quantifier = ANY_ROW if local.agent == MIN_AGENT else ALL_ROWS
    return local.graph.hold_set(nature, usable, quantifier, start)[: local.n]


def _sure(problem: Problem, local: Local, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(where (n,), rows (n,), p (T,)): states where the maximisers reach an exit of value 1 with probability 1, the
    agent's rows and nature's distributions for that.

    For a region the graph knows only the hull, in which a helpful nature may do more than in the region: then none.
    """
    rows, p = local.state_ptr[:-1].copy(), np.zeros(0)
    goal = np.concatenate([np.zeros(local.n, dtype=bool), lower[local.exits] == 1.0])
    nobody = np.zeros(local.n, dtype=bool), rows, p
    if not goal.any() or (local.maximise and local.cs.kind > INTERVAL):
        return nobody
    played = local.weights > 0.0
    start = goal.copy()
    start[: local.n] = True
    quantifier = DRAWN_ROW if local.agent == FIXED_AGENT else ANY_ROW if local.agent == MAX_AGENT else ALL_ROWS
    unpaid = np.zeros(len(played), dtype=bool)
    inside = local.graph.finite_set(local.moves, played, unpaid, quantifier, local.maximise, True, goal, start)
    one = inside[: local.n]
    if not one.any():
        return nobody
    p = local.central(~inside)
    if local.agent == MAX_AGENT:
        possible = p > 0.0 if local.maximise else local.hi > 0.0
        safe = np.logical_and.reduceat(inside[local.successor] | ~possible, local.row_ptr[:-1])
        safe &= one[local.row_state]
        nature = moves(p, p) if local.maximise else local.moves
        left = local.graph.progress_rows(nature, safe, safe, unpaid, not local.maximise, rows)
        if left != local.n - int(one.sum()):  # some row was not found
            return nobody
    return one, rows, p


def _exact(
    problem: Problem, local: Local, lower: np.ndarray, upper: np.ndarray, guess: np.ndarray, budget: int
) -> ComponentBounds:
    """Bounds on states whose value is finite and not determined by the graph, by strategies and their chains."""
    n = local.n
    exit_low, exit_high = lower[local.exits], upper[local.exits]
    first = exit_low if problem.proper_max else exit_high
    game = iterate_strategies(local, problem.proper_max, np.concatenate([guess[local.states], first]), budget)
    proper, steps = _proper_bound(problem, local, game, first, budget)
    other, more = _other_bound(problem, local, game, exit_high if problem.proper_max else exit_low, budget)
    low, high = (proper, other) if problem.proper_max else (other, proper)
    rows = local.row_of[game.rows] if len(game.rows) else game.rows
    keep, p = np.zeros(0, dtype=np.int64), np.zeros(0)
    if problem.nature_proper:
        keep, p = _transitions_of(problem, local), game.p
    return ComponentBounds(
        local.states, low[:n], np.maximum(high[:n], low[:n]), rows, keep, p, game.steps + steps + more
    )


def _is_swept(local: Local) -> bool:
    """Whether to sweep first: not where chains are hardly smaller than the model and cheap to factorise."""
    has_few_choices = len(local.successor) <= FEW_SUCCESSORS * local.n
    return len(local.successor) >= SWEPT_FROM and not (has_few_choices and is_narrow(local))


def _from_the_exits(problem: Problem, local: Local, lower: np.ndarray) -> np.ndarray:
    """(n,) the states by their distance from the exits that are worth something."""
    ends = np.isfinite(lower[local.exits]) if problem.criterion.pays else lower[local.exits] != 0.0
    return local.states[local.graph.backward_order(ends)[0]]


def _swept(
    problem: Problem,
    local: Local,
    lower: np.ndarray,
    upper: np.ndarray,
    guess: np.ndarray,
    width: float,
    budget: int,
) -> ComponentBounds | None:
    """The same by sweeps, on states in the order of their distance from the exits; None if they take too long."""
    found = swept_bounds(problem, local, lower[local.exits], upper[local.exits], guess[local.states], width, budget)
    if found is None:
        return None
    n, none = local.n, np.zeros(0, dtype=np.int64)
    rows = local.row_of[found.rows] if len(found.rows) else none
    return ComponentBounds(local.states, found.lower[:n], found.upper[:n], rows, none, np.zeros(0), found.steps, True)


def _verified(
    problem: Problem, checked: Local, values: np.ndarray, is_upper: bool, witness: Witness | None = None
) -> tuple[np.ndarray, bool]:
    """Clip a candidate to the trivial range and check its inequality with directed rounding."""
    n = checked.n
    clip(problem, n, values)
    image = checked.bellman(values, upward=is_upper)[:n]
    if witness is not None:
        charges = np.where(checked.weights > 0.0, witness.charges(values), 0.0)
        # a check adds them in another order, which rounds differently
        charged = np.maximum.reduceat(charges, checked.state_ptr[:-1]) + 4.0 * UNIT_ROUNDOFF * np.abs(values[:n])
        image += charged if is_upper else -charged
    # Only the graph proves infinite values: inf >= inf would accept a finite cost beyond the largest float.
    good = image <= values[:n] if is_upper else (image >= values[:n]) & np.isfinite(values[:n])
    return values, bool(good.all())


def _is_strict(checked: Local, values: np.ndarray, is_upper: bool, zero: bool = True) -> bool:
    """Whether a verified candidate is strict in every state; from below with ``zero``, in those with a value > 0."""
    image, inner = checked.bellman(values, upward=is_upper)[: checked.n], values[: checked.n]
    return bool(((image < inner) if is_upper else (image > inner) | (zero & (inner <= 0.0))).all())


def _margins(checked: Local, values: np.ndarray, is_upper: bool) -> list[float]:
    """Extra costs per step to try: slightly more than directed rounding takes away, then growing."""
    size = scale_of(checked, values)
    image = checked.bellman(values, upward=is_upper)[: checked.n]
    missing = image - values[: checked.n] if is_upper else values[: checked.n] - image
    missing = missing[np.isfinite(missing)]
    most = 1e-12 if checked.cs.kind <= INTERVAL else 1e-8  # regions are known only up to their tightness
    first = max(FIRST_MARGIN * size, min(2.0 * float(missing.max(initial=0.0)), most * size))
    sign = 1.0 if is_upper else -1.0
    return [sign * first * MARGIN_GROWTH**k for k in range(MARGIN_ATTEMPTS)]


def _candidates(
    fixed: Local, game: Strategies, start: np.ndarray, margins: list[float], checked: Local
) -> Iterator[tuple[np.ndarray, int]]:
    """Values that may verify, with the steps they took: for every margin those of the game's own strategies, which
    hardly depend on it, then those of the best responses to the fixed ones.

    The rows of a curved set are bounded by functions that no distribution attains if the bounds are loose. Then the
    checked operator itself is iterated.
    """
    for k, margin in enumerate(margins):
        kept = fixed.chain(start, game.rows, game.p, margin)
        if kept is not None:
            yield kept, 1
        result = improve(fixed, start, margin)
        yield result.values.copy(), result.steps
        if k > 0 and checked.cs.kind == CURVED:
            yield checked.swept(start, margin, FALLBACK_SWEEPS)


def _collapsed_candidates(
    quotient: Quotient, start: np.ndarray, margins: list[float]
) -> Iterator[tuple[np.ndarray, int]]:
    """The same with collapsed end components, where the game's strategies have no meaning."""
    inner = quotient.down(start)
    for margin in margins:
        if not quotient.local.n:
            yield quotient.up(inner), 0
        else:
            result = improve(quotient.local, inner, margin)
            yield quotient.up(result.values), result.steps


def _within(budget: int, candidates: Iterator[tuple[np.ndarray, int]]) -> Iterator[tuple[np.ndarray, int]]:
    """Candidates until their steps exceed the budget."""
    while budget > 0:
        found = next(candidates, None)
        if found is None:
            return
        budget -= found[1]
        yield found


def _proper_bound(
    problem: Problem, local: Local, game: Strategies, exits: np.ndarray, budget: int
) -> tuple[np.ndarray, int]:
    """The bound attained by the proper side's strategy: (values, steps)."""
    is_upper = not problem.proper_max
    fixed = local.fix_agent(game.rows) if problem.agent_proper else local
    checked, witness = fixed, None
    if problem.nature_proper:
        fixed = fixed.fix_nature(game.p)
        if not problem.criterion.contracts:  # otherwise no witness is needed: nature may choose again in the check
            checked = fixed
            witness = Witness.of(local.rows, game.p, local.cs.lower, local.cs.upper, local.cs.kind > INTERVAL)
    steps = 0
    hull_only = problem.nature_proper and local.cs.kind > INTERVAL  # only the hull of its distributions is known
    # a check takes no row as spent: nobody may hold it
    unaided = hull_only and problem.criterion.signed and problem.criterion.must_reach
    held = can_hold(replace(local, maximise=True) if unaided else local, problem.proper_max, fixed, game.p)
    ends = problem.criterion.contracts or not held.any()
    if ends:
        start = np.concatenate([game.values[: local.n], exits])
        free = local.fix_agent(game.rows) if problem.agent_proper else local
        candidates = _candidates(fixed, game, start, _margins(free, start, is_upper), checked)
        spare = None
        for found, used in _within(budget - game.steps, candidates):
            steps += used
            values, good = _verified(problem, checked, found, is_upper, witness)
            if good and hull_only:
                # The operator must agree, and strictly: a check does not take them as evidence that the play ends.
                good = _verified(problem, free, values, is_upper)[1]
                if good and not (problem.criterion.contracts or _is_strict(free, values, is_upper)):
                    good, spare = False, values.copy() if spare is None else spare
            if good:
                return values, steps
        if spare is not None:
            return spare, steps
    lost_mass = witness is not None and witness.mass.max() > 0.5 * FALLBACK_MARGIN  # what iterates cannot attain
    if is_upper or problem.criterion.contracts or hull_only or lost_mass:
        return _trivial(problem, local, exits, is_upper), steps
    return _from_below(fixed, exits, budget), steps


def _other_bound(
    problem: Problem, local: Local, game: Strategies, exits: np.ndarray, budget: int
) -> tuple[np.ndarray, int]:
    """The bound on the best that the proper side can do: (values, steps)."""
    is_upper = problem.proper_max
    opponent_agent = problem.agent != FIXED_AGENT and not problem.agent_proper
    checked = local.fix_agent(game.rows) if opponent_agent else local
    fixed = checked
    if not problem.nature_proper and not local.nature_fixed:
        fixed = fixed.fix_nature(game.p)
    steps = 0
    quotient = None if problem.criterion.contracts else collapse(fixed)
    start = np.concatenate([game.values[: local.n], exits])
    margins = _margins(checked, start, is_upper)
    if quotient is None:
        candidates = _candidates(fixed, game, start, margins, checked)
    else:
        candidates = _collapsed_candidates(quotient, start, margins)
    for found, used in _within(budget - game.steps, candidates):
        steps += used
        values, good = _verified(problem, checked, found, is_upper)
        if good and problem.criterion.sums_endlessly:  # what never ends must not stay below its total
            good = _is_strict(checked, values, is_upper, zero=False)
        if good:
            return values, steps
    if is_upper or problem.criterion.contracts or problem.criterion.signed:
        return _trivial(problem, local, exits, is_upper), steps
    return _from_below(checked, exits, budget), steps


def _trivial(problem: Problem, local: Local, exits: np.ndarray, is_upper: bool) -> np.ndarray:
    """A trivial bound."""
    payment, end = np.abs(local.reward).max(initial=0.0), np.abs(exits).max(initial=0.0)
    worst = problem.criterion.trivial(is_upper, payment, end)
    return np.concatenate([np.full(local.n, worst), exits])


def _from_below(checked: Local, exits: np.ndarray, budget: int) -> np.ndarray:
    """Iterates from 0 always stay below the value; a small cost per step keeps them inductive."""
    values = np.concatenate([np.zeros(checked.n), exits])
    for _ in range(min(FALLBACK_SWEEPS, budget)):
        margin = -FALLBACK_MARGIN * scale_of(checked, values)
        image = checked.bellman(values, upward=False, offset=margin)
        rise = float((image - values)[: checked.n].max(initial=0.0))
        np.maximum(values, image, out=values)
        if rise <= 0.0:
            break
    # Early values may have been rounded less than late ones: lower them until the certificate holds.
    for _ in range(FALLBACK_SWEEPS):
        image = checked.bellman(values, upward=False, offset=-FALLBACK_MARGIN * scale_of(checked, values))
        np.maximum(image[: checked.n], 0.0, out=image[: checked.n])
        if (values <= checked.bellman(values, upward=False))[: checked.n][values[: checked.n] > 0.0].all():
            return values
        np.minimum(values, image, out=values)
    return np.concatenate([np.zeros(checked.n), exits])
