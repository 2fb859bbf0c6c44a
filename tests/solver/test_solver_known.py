"""Known models with cycles, solved by one call of the core: what factors give, at the width that was asked for."""

from __future__ import annotations

import importlib
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from benchmarks.cyclic_models import depot, drone, hall
from rpl_agent.core.model import Kind, Nature, Objective, Policy, Sense, Unreached
from rpl_agent.core.native import core
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.graph import model_graph
from rpl_agent.formats import prism
from tests.reference.fuzz import Dice, Tally, _usual
from tests.reference.random_models import known_sample
from tests.reference.solver import interval_model
from tests.solver.test_solver_sweeping import grid

engine = importlib.import_module("rpl_agent.core.solver.solve")
QUESTIONS = [
    *(Objective.reach("goal", sense=sense) for sense in Sense),
    *(
        Objective(Kind.REWARD, sense, "over", reward_name="cost", unreached=unreached)
        for sense in Sense
        for unreached in Unreached
    ),
]
COST = Objective.cost("cost", target="over")


def known_grid(side: int) -> Point:
    exact = grid(side, Fraction(0))
    return Point(exact.pmdp.instantiate(exact.bounds()[0]))


def known(table: list, **more) -> Point:
    pmdp, lower, _ = interval_model([[{j: (p, p) for j, p in row.items()} for row in rows] for rows in table], **more)
    return Point(pmdp.instantiate(lower))


@pytest.fixture
def calls(monkeypatch) -> list[bool]:
    """Whether the core solved each problem that was put to it."""
    found, inner = [], engine._known_bounds

    def counted(*given):
        answer = inner(*given)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(engine, "_known_bounds", counted)
    return found


@pytest.mark.parametrize("objective", QUESTIONS, ids=Objective.describe)
@pytest.mark.parametrize("fixed", [False, True])
def test_the_core_and_factors_agree(objective, fixed, monkeypatch, calls):
    point = known_grid(14)
    uniform = 1.0 / np.diff(point.pmdp.state_ptr)[point.pmdp.row_state]
    policy = Policy.randomised(uniform) if fixed else None
    swept = solve(point, objective, policy=policy, precision=1e-7)
    assert calls == [True] and swept.check() == [] and swept.converged
    monkeypatch.setattr(engine, "_known_bounds", lambda *given: None)
    exact = solve(point, objective, policy=policy, precision=1e-11)
    assert exact.check() == []
    assert (swept.lower_values <= exact.upper_values).all() and (exact.lower_values <= swept.upper_values).all()
    assert swept.gap <= 1e-7 * max(1.0, swept.upper)


def test_less_precision_takes_fewer_sweeps(calls):
    point, sweeps = known_grid(14), []
    for precision in (1e-1, 1e-3, 1e-6, 1e-9):
        found = solve(point, COST, precision=precision)
        assert found.converged and found.check() == [] and found.gap > 1e-3 * precision
        sweeps.append(found.iterations)
    assert sweeps == sorted(set(sweeps)) and all(calls)


@pytest.mark.parametrize("size", [7, 8, 10, 13])
def test_no_steps_are_counted_for_rows_that_still_change(size, calls):
    """Each count takes as many sweeps as the values do: coarse answers took up to 1.7 times as many as fine ones."""
    case, sweeps = drone(size), []
    pmdp, objective = prism.loads(case.text, case.constants).objective(case.properties[1])
    point = Point(pmdp.instantiate(np.zeros(0)))
    for precision in (1e-1, 1e-2, 1e-3, 1e-6):
        found = solve(point, objective, Nature.COOPERATIVE, precision=precision)
        assert found.converged and found.check() == []
        sweeps.append(found.iterations)
    assert max(sweeps) == sweeps[-1] and all(calls)


@pytest.mark.parametrize("side, most", [(21, 30), (66, 45)])
def test_sweeps_follow_the_plays_back_from_their_end(side, most, calls):
    """A carrier slips back all the time: sweeps in both directions took one for each slip, 44 and 79."""
    case = depot(side, side)
    pmdp, objective = prism.loads(case.text, case.constants).objective(case.properties[0])
    found = solve(Point(pmdp.instantiate(np.zeros(0))), objective, Nature.COOPERATIVE)
    assert found.converged and found.check() == [] and found.iterations < most and all(calls)


def test_steps_that_cost_about_the_same_are_counted_by_their_costs(calls):
    """In a corridor each step costs 1 or 3; if one is free, steps are counted by sweeps of their own."""
    size, sweeps = 150, []
    forth, back = Fraction(3, 5), Fraction(2, 5)
    table = [[{min(s + 1, size): forth, max(s - 1, 0): back}] for s in range(size)] + [[{size: Fraction(1)}]]
    for free in (size, size // 2):
        cost = [[0.0 if s in (free, size) else 1.0 + 2.0 * (s % 2)] for s in range(size + 1)]
        point = known(table, labels={"goal": {size}, "over": {size}}, cost=cost)
        found = solve(point, COST)
        assert found.converged and found.check() == [] and found.gap > 1e-9
        sweeps.append(found.iterations)
    assert sweeps[0] < 0.8 * sweeps[1] and all(calls)


def test_a_strategy_that_pays_for_large_margins_only_costs_no_digits(calls):
    """A drone gains by hovering if steps earn 1.6e-6 each, not if they earn a quarter of that."""
    case = drone(6)
    pmdp, objective = prism.loads(case.text, case.constants).objective(case.properties[0])
    point = Point(pmdp.instantiate(np.zeros(0)))
    for precision in (1e-3, 1e-4, 1e-5):
        found = solve(point, objective, Nature.COOPERATIVE, precision=precision)
        assert found.check() == [] and found.converged and found.gap > 0.1 * precision
        assert found.iterations < 100
    assert all(calls)


def test_a_warm_start_saves_sweeps(calls):
    point = known_grid(14)
    first = solve(point, COST)
    again = solve(point, COST, warm=first)
    assert again.check() == [] and again.iterations < first.iterations and all(calls)


def test_ways_without_a_choice_are_passed_at_once(calls):
    """A corridor that is tried again from its beginning: 200 steps there, each worth 1, and half of the tries fail."""
    half, one, last = Fraction(1, 2), Fraction(1), 199
    table = [[{i + 1: one}] for i in range(last)] + [[{0: half, last + 1: half}], [{last + 1: one}]]
    point = known(table, labels={"over": {last + 1}}, cost=[[1.0]] * (last + 1) + [[0.0]])
    found = solve(point, COST, precision=1e-9)
    assert found.check() == [] and found.lower <= 400.0 <= found.upper and found.converged
    assert calls == [True] and found.iterations < 20


def test_what_the_graph_decides_is_exact(calls):
    half, one = Fraction(1, 2), Fraction(1)
    retry = [[{0: half, 1: half}, {0: one}], [{0: half, 2: half}], [{2: one}], [{3: half, 4: half}], [{4: one}]]
    point = known(retry, labels={"goal": {2}, "bad": {4}})
    for sense, value in ((Sense.MAX, 1.0), (Sense.MIN, 0.0)):
        found = solve(point, Objective.reach("goal", sense=sense, avoid="bad"))
        assert found.check() == [] and found.lower_values[0] == found.upper_values[0] == value
        assert found.lower_values[3] == found.upper_values[3] == 0.0  # it can only get to what is avoided
    assert calls == [True, True]


def test_only_models_whose_plays_cannot_come_back_take_one_pass(calls):
    """The core also solves questions that end plays before they come back."""
    half, one = Fraction(1, 2), Fraction(1)
    for after_goal, by_core in ((0, True), (1, False)):
        point = known([[{1: half, 2: half}], [{after_goal: one}], [{2: one}]], labels={"goal": {1}})
        found = solve(point, Objective.reach("goal"))
        assert found.check() == [] and found.lower <= 0.5 <= found.upper and found.gap < 1e-14
        assert found.iterations == 1 and calls.pop() == by_core


def test_endless_rewards_are_left_to_others(calls):
    half, one = Fraction(1, 2), Fraction(1)
    table = [[{1: one}, {2: half, 3: half}], [{0: one}], [{2: one}], [{3: one}]]
    costs = [[0.0, 1.0], [0.0], [0.0], [1.0]]
    point = known(table, labels={"goal": {2}}, cost=costs)
    endless = Objective(Kind.REWARD, Sense.MAX, None, reward_name="cost", unreached=Unreached.ACCUMULATE)
    for objective in (Objective.reach("goal"), endless):
        assert solve(point, objective).check() == []
    assert calls == [True, False]


@pytest.mark.parametrize(
    ("rows", "costs"),
    [
        ([[{0: 1}, {2: 1}], [{1: 1}]], [[1.0, 3.0], [0.0]]),  # a loop that pays
        ([[{0: 1}, {2: 1}], [{1: 1}]], [[0.0, 3.0], [0.0]]),
        ([[{1: 1}, {2: 1}], [{0: 1}]], [[0.0, 3.0], [1.0]]),  # one half of it is free
        ([[{1: 1}, {2: 1}], [{0: 1}]], [[0.0, 3.0], [0.0]]),
        ([[{1: 1}, {2: 1}], [{0: 1}, {2: 1}]], [[1.0, 0.0], [1.0, 0.0]]),  # both can leave without paying
    ],
)
def test_loops_in_which_nothing_is_paid(rows, costs, calls):
    table = [[{j: Fraction(p) for j, p in row.items()} for row in state] for state in [*rows, [{2: 1}]]]
    point = known(table, labels={"over": {2}}, cost=[*costs, [0.0]])
    found = solve(point, COST)
    assert found.check() == [] and found.converged and calls == [True]
    assert found.middle == pytest.approx(costs[0][1], abs=1e-6)


def rooms(count: int, seed: int) -> Point:
    """Rooms of four cells each, through which a player walks for free, even backwards by a row that may miss; from a
    cell or two a door leads on: to the next room, to the one before, to the goal or into a pit. A door costs 1."""
    dice = np.random.default_rng(seed)
    half, goal, pit = Fraction(1, 2), 4 * count, 4 * count + 1
    table, costs = [], []
    for cell in range(4 * count):
        room, first = divmod(cell, 4)[0], cell - cell % 4
        rows = [{first + (cell + 1) % 4: Fraction(1)}, {first + (cell - 1) % 4: half, cell: half}]
        prices = [0.0, 0.0]
        for _ in range(1 if cell % 4 == 0 else int(dice.integers(2))):
            cuts = sorted(int(cut) for cut in dice.integers(1, 16, 2))
            ends = (min(first + 4, goal) + (0 if room + 1 == count else int(dice.integers(4))), max(first - 4, 0), pit)
            row: dict[int, Fraction] = {}
            for end, chance in zip(ends, (cuts[0], cuts[1] - cuts[0], 16 - cuts[1])):
                if chance:
                    row[end] = row.get(end, Fraction(0)) + Fraction(chance, 16)
            rows.append(row)
            prices.append(1.0)
        table.append(rows)
        costs.append(prices)
    table += [[{goal: Fraction(1)}], [{pit: half, goal: half}]]
    costs += [[0.0], [2.0]]
    return known(table, labels={"goal": {goal}, "over": {goal}, "pit": {pit}}, cost=costs)


def test_loops_that_fall_apart_one_state_a_round(calls):
    """A way back from j is no loop as soon as that from j - 1 is known to be none: as many rounds as there are ways."""
    size, half, tenth, one = 60, Fraction(1, 2), Fraction(1, 10), Fraction(1)
    goal, trap = 2 * size, 2 * size + 1
    leave = {goal: half, 0: half}
    table: list = [[{min(s + 1, size - 1): one}, leave, {size + max(s - 1, 0): one}] for s in range(size)]
    table += [[{size + j: one}, {j: tenth, size + j - 1 if j else trap: 1 - tenth}] for j in range(size)]
    table += [[{goal: one}], [{goal: half, trap: half}]]
    cost = [[0.0, 1.0, 0.0]] * size + [[0.0, 0.0]] * size + [[0.0], [3.0]]
    found = solve(known(table, labels={"goal": {goal}, "over": {goal}}, cost=cost), COST)
    assert found.converged and found.check() == [] and all(calls)
    assert found.lower <= 2.0 <= found.upper


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", [Objective.reach("goal", avoid="pit"), COST], ids=Objective.describe)
def test_a_player_who_may_walk_for_free_leaves_by_the_best_door(objective, seed, monkeypatch, calls):
    point = rooms(2 + 5 * seed, seed)
    swept = solve(point, objective)
    assert calls == [True] and swept.check() == [] and swept.converged
    kept = solve(point, objective, policy=swept.policy, precision=1e-9)
    assert kept.check() == [] and abs(kept.middle - swept.middle) <= 1e-6 * max(1.0, swept.upper)
    monkeypatch.setattr(engine, "_known_bounds", lambda *given: None)
    exact = solve(point, objective, precision=1e-11)
    assert exact.check() == [] and exact.converged
    assert (swept.lower_values <= exact.upper_values).all() and (exact.lower_values <= swept.upper_values).all()
    assert swept.gap <= 1e-6 * max(1.0, swept.upper)


@pytest.mark.parametrize("objective", [Objective.reach("goal", sense=Sense.MIN), COST], ids=Objective.describe)
def test_a_start_that_the_graph_decides_takes_no_sweeps(objective, calls):
    """Storm stops there, too: a question about the start alone took four times as long."""
    half, one = Fraction(1, 2), Fraction(1)
    table = [[{0: one}, {1: one}], [{0: half, 2: half}, {1: half, 3: half}], [{2: one}], [{3: one}]]
    costs = [[1.0, 1.0], [2.0, 1.0], [0.0], [1.0]]
    decided = [[{0: one}], *table[1:]] if objective is COST else table
    point = known(decided, labels={"goal": {2}, "over": {2}}, cost=[costs[0][: len(decided[0])], *costs[1:]])
    whole, start = solve(point, objective), solve(point, objective, everywhere=False)
    assert calls == [True, True] and start.check() == [] and start.converged
    assert start.iterations == 1 and (start.lower, start.upper) == (whole.lower, whole.upper)
    assert (start.lower_values <= whole.lower_values).all() and (whole.upper_values <= start.upper_values).all()


def test_states_behind_a_start_that_is_not_decided_keep_their_bounds():
    whole, start = solve(known_grid(8), COST), solve(known_grid(8), COST, everywhere=False)
    assert (start.lower_values == whole.lower_values).all() and (start.upper_values == whole.upper_values).all()


@pytest.mark.parametrize("question", range(2))
def test_walkers_are_led_to_their_door_in_few_sweeps(question, calls):
    """Rows that lead closer by a slip only took hundreds of sweeps to count, and long waits many digits."""
    case = hall(40)
    pmdp, objective = prism.loads(case.text, case.constants).objective(case.properties[question])
    found = solve(Point(pmdp.instantiate(np.zeros(0))), objective, Nature.COOPERATIVE)
    assert found.converged and found.check() == [] and found.iterations < 40 and all(calls)


@pytest.mark.parametrize("seed", range(6))
def test_random_known_models_against_an_exact_oracle(seed, calls):
    dice, tally = Dice(seed ^ (1 << 40)), Tally()
    _usual(dice, known_sample(dice), seed, 2, tally)
    assert tally.failures == [] and any(calls)


def test_nature_has_no_choice():
    against, along = (solve(known_grid(8), COST, nature) for nature in Nature)
    assert (against.lower_values == along.lower_values).all() and (against.upper_values == along.upper_values).all()


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_largest_totals_of_an_agent_who_may_stop(gamma):
    """Against plain value iteration."""
    point = known_grid(3)
    pmdp, rng = point.pmdp, np.random.default_rng(3)
    done = np.zeros(pmdp.num_states, dtype=bool)
    done[[8, 9]] = True
    chances = point.bounds()[0], pmdp.expression
    p = chances[0][pmdp.expression]
    reward = rng.normal(-0.3, 0.5, pmdp.num_rows)
    found = np.empty(pmdp.num_states)
    graph, scratch = model_graph(pmdp).both_ways, (None, None, None)
    allowed = partial(core.Effort, tolerance=1e-10, capacity=len(p))
    accurate = allowed(budget=10_000, most=np.inf)
    assert core.worst_totals(graph, gamma, *chances, reward, accurate, done.copy(), found, *scratch) > 0
    values = np.zeros(pmdp.num_states)
    for _ in range(3000):
        q = reward + gamma * np.add.reduceat(p * values[pmdp.successor], pmdp.row_ptr[:-1])
        values = np.where(done, 0.0, np.maximum(np.maximum.reduceat(q, pmdp.state_ptr[:-1]), 0.0))
    assert found.max() > 0.1 and np.allclose(found, values, atol=1e-7)
    always = np.ones(pmdp.num_rows)  # a total without end
    if gamma == 1.0:
        # it grows in every sweep: soon above a limit, whatever the budget
        for effort in (allowed(budget=500, most=np.inf), allowed(budget=10**9, most=1e3)):
            none = np.zeros_like(done)
            assert core.worst_totals(graph, 1.0, *chances, always, effort, none, found, *scratch) == -1
