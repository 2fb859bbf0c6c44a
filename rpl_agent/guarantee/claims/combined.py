"""`CombinedModel`: several objectives as rewards of one model, so that any weighted sum of them is one total.

A play of the model is *over* where every objective is settled: decided, or worth nothing more. From there one step
leads to the end and pays 1 to each probability whose target was reached. A weighted sum needs no memory if nothing that
is settled before the play is over can become open again, and if targets are reached only where the play is over;
anything else is refused by name.

    w P(F a) with w < 0  is  w + |w| (1 − P(F a)): a play that is over without a pays |w|, and so does one that never
    ends. For the latter, a state gets an action that ends the play if a play can be held there at some parameter of the
    region (a chance may be zero at one of them), and only if it can be held without a loss in the sum, such as the
    infinite cost of a target that is missed.

With that every probability is a reward of the sign that the sum is optimised for, and the solver needs no losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Objective, ParametricMDP, Reward, Sense, Task, gather, reached
from rpl_agent.core.native import UNIT_ROUNDOFF, Struct
from rpl_agent.core.relaxations.base import model_rows
from rpl_agent.core.solver.graph import ANY_ROW, graph_bounds, held_states, moves, played_rows, usable_rows

#: names in the combined model
END, SUM = "over", "sum"
#: the least and the most of every expression, (F,) each
Hull = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """A model with one objective whose value plus ``constant`` is a weighted sum of values."""

    pmdp: ParametricMDP
    origin: np.ndarray  # (R',) the model's row for each row, −1 for rows that end the play
    objective: Objective
    constant: float
    rounding: float  # error of the sum from the scaling of discounted rewards

    def less(self, bound: float, weights: np.ndarray, thresholds: np.ndarray, sense: Sense) -> float:
        """A bound on Σ weights_k (V_k − thresholds_k) from one on this total, rounded to where the sum is better."""
        size = abs(bound) + float(np.abs(weights) @ np.abs(thresholds)) + abs(self.constant)
        slack = self.rounding + (8.0 + len(weights)) * UNIT_ROUNDOFF * 2.0 * size
        ends = (self.constant, -float(weights @ thresholds))
        return bound + sum(ends) - (slack if sense is Sense.MIN else -slack)


class CombinedModel:
    """The plays of a model with several objectives.

    objectives : the first one is optimised; directions of the others do not matter here
    """

    def __init__(self, pmdp: ParametricMDP, objectives: Sequence[Objective]) -> None:
        self.pmdp, self.objectives = pmdp, tuple(objectives)
        self.tasks = [_task(pmdp, objective) for objective in self.objectives]
        if len({task.objective.discount for task in self.tasks}) > 1:
            texts = " and ".join(objective.describe() for objective in self.objectives)
            raise ModelError(f"{texts} have different discounts and cannot be combined: give them the same")
        self.settled = [_settled(pmdp, task) for task in self.tasks]
        self.over = np.logical_and.reduce(self.settled)
        self._require_no_memory()

    @property
    def discount(self) -> float:
        return self.tasks[0].objective.discount

    def _require_no_memory(self) -> None:
        """Raise unless the state alone says what each objective still has to gain."""
        pmdp = self.pmdp
        source = pmdp.row_state[pmdp.transition_row]
        for task, settled in zip(self.tasks, self.settled):
            early = settled & ~self.over
            wrong = early[source] & ~settled[pmdp.successor]
            counts_targets = task.criterion.at_target > 0.0
            if counts_targets:  # after a state to avoid, targets no longer count
                wrong |= early[source] & task.target[pmdp.successor]
            bad = np.flatnonzero(wrong)
            state = int(source[bad[0]]) if len(bad) else -1
            if counts_targets and state < 0:
                open_targets = np.flatnonzero(task.target & ~self.over & _reachable(pmdp))
                state = int(open_targets[0]) if len(open_targets) else -1
            if state >= 0:
                raise ModelError(
                    f"{task.objective.describe()} is settled in state {state} = {pmdp.state_name(state)}, where "
                    "plays go on: a policy would have to remember it. Make it part of the state, or end the play there"
                )

    @cached_property
    def _one(self) -> int:
        """The expression 1, which leads to the end."""
        table = self.pmdp.table
        known = np.flatnonzero(table.is_constant & (table.constant == 1.0))
        if not len(known):
            raise ModelError("the model has no certain transition: plays of several objectives cannot be ended")
        return int(known[0])

    @cached_property
    def gains(self) -> np.ndarray:
        """(K, S) what a play that is over in a state pays to each objective."""
        return np.array([task.target & (task.criterion.at_target > 0.0) for task in self.tasks])

    def ended(self, stoppable: np.ndarray) -> tuple[ParametricMDP, np.ndarray]:
        """(the model in which plays that are over lead to an end, (R',) the row of the model for each of its rows).

        stoppable : (S,) states that get an action that ends the play; such a row, and those of the end, are −1.
        """
        pmdp, S = self.pmdp, self.pmdp.num_states
        kept = np.flatnonzero(~self.over[pmdp.row_state])
        added = np.concatenate([np.flatnonzero(self.over), np.flatnonzero(stoppable & ~self.over), [S]])
        state = np.concatenate([pmdp.row_state[kept], added])
        is_new = np.concatenate([np.zeros(len(kept), bool), np.ones(len(added), bool)])
        order = np.lexsort((is_new, state))
        origin = np.concatenate([kept, np.full(len(added), -1)])[order]
        lengths = np.where(origin >= 0, np.diff(pmdp.row_ptr)[origin], 1)
        row_ptr = np.concatenate([[0], np.cumsum(lengths)])
        successor, expression = np.full(row_ptr[-1], S), np.full(row_ptr[-1], self._one)
        own = origin >= 0
        inside = np.repeat(own, lengths)
        moved = gather(pmdp.row_ptr, origin[own])[0]
        successor[inside], expression[inside] = pmdp.successor[moved], pmdp.expression[moved]
        ended = replace(
            pmdp,
            state_ptr=np.searchsorted(state[order], np.arange(S + 2)),
            action=np.where(own, pmdp.action[origin], pmdp.num_actions),
            row_ptr=row_ptr,
            successor=successor,
            expression=expression,
            labels={END: np.arange(S + 1) == S},
            rewards={},
            action_names=(*pmdp.action_names, "end the play"),
            variables={},
            state_values=None,
            silent=None,
            own_actions=None,
            name=f"{pmdp.name}, combined",
        )
        return ended, origin

    def rewards(self, ended: ParametricMDP, origin: np.ndarray) -> np.ndarray:
        """(K, R') what each row of `ended` pays to each objective."""
        found = np.zeros((len(self.tasks), ended.num_rows))
        own, ends = origin >= 0, np.append(self.over, False)[ended.row_state]
        for k, (task, settled) in enumerate(zip(self.tasks, self.settled)):
            found[k, own] = np.where(settled[self.pmdp.row_state[origin[own]]], 0.0, task.reward[origin[own]])
            found[k, ends] = self.gains[k][ended.row_state[ends]]
        return found

    def weighted(self, weights: np.ndarray, sense: Sense, hull: Hull) -> WeightedSum:
        """A bound on the optimum of Σ weights_k V_k over all policies, as the value of one total.

        hull : the least and the most of every expression (F,) over the region that the optimum is taken over

        Raises
        ------
        ModelError
            An infinite cost would make the sum better.
        """
        return self.total(weights, sense, *self.ended(self._stops(weights, self._turned(weights), sense, hull)))

    def _turned(self, weights: np.ndarray) -> np.ndarray:
        """(K,) the probabilities that count against the sum."""
        return np.array([not task.criterion.pays for task in self.tasks]) & (weights < 0.0)

    def total(self, weights: np.ndarray, sense: Sense, ended: ParametricMDP, origin: np.ndarray) -> WeightedSum:
        """The weighted sum as a total of a model made by `ended`, whose other rows ``origin`` (R',) are."""
        turned, paid = self._turned(weights), self.rewards(ended, origin)
        over = origin < 0
        over[ended.row_state == self.pmdp.num_states] = False  # the end itself pays nothing
        paid[turned] = np.where(over, 1.0 - paid[turned], 0.0)
        reward = self._outward(np.where(turned, -weights, weights), paid, sense)
        ended = replace(ended, rewards={SUM: Reward(np.zeros(ended.num_states), reward)})
        if self.discount < 1.0:
            objective = Objective.discounted(SUM, self.discount, target=END, sense=sense)
        elif sense is Sense.MIN:
            objective = Objective.cost(SUM, target=END)
        else:
            objective = Objective.total(SUM, target=END)
        rounding = float(np.abs(weights) @ [task.rounding for task in self.tasks])
        return WeightedSum(ended, origin, objective, float(weights[turned].sum()), rounding)

    def _outward(self, weights: np.ndarray, paid: np.ndarray, sense: Sense) -> np.ndarray:
        """(R',) the weighted sum of payments (K, R'), moved by all errors of its terms to where the optimum is better.

        A payment is inexact where its reward is, and by the rounding of the sum.
        """
        sizes, sums = np.abs(paid), weights @ paid
        rounding = (len(weights) + 2.0) * UNIT_ROUNDOFF
        errors = np.zeros(len(sums))
        for weight, task, size in zip(np.abs(weights), self.tasks, sizes):
            error = task.reward_error
            off = size * error.share if math.isfinite(error.share) else np.full_like(size, error.amount)
            errors += weight * (off + rounding * size)
        is_single = np.count_nonzero(weights) == 1 and np.abs(weights).max() == 1.0  # then nothing is rounded
        if is_single and not any(task.reward_error.amount for task in self.tasks):
            return sums
        turn = 1.0 if sense is Sense.MAX else -1.0
        return np.where(errors > 0.0, np.nextafter(sums + turn * errors * (1.0 + 1e-9), turn * np.inf), sums)

    def _stops(self, weights: np.ndarray, turned: np.ndarray, sense: Sense, hull: Hull) -> np.ndarray:
        """(S,) where plays that never end may be as good as those that end."""
        if self.discount < 1.0:
            return np.zeros_like(self.over)
        costs = weights if sense is Sense.MIN else -weights
        needless = self.over.copy()
        for cost, task, settled in zip(costs, self.tasks, self.settled):
            if task.objective.must_reach and cost > 0.0:  # whoever stays before the target pays without end
                needless |= ~settled
            elif task.objective.must_reach and cost < 0.0 and self._held(~settled, False, hull).any():
                raise ModelError(f"the infinite cost of {task.objective.describe()} would make a sum better")
        if sense is Sense.MAX and not turned.any():  # endless plays are worth just what they collect
            return np.zeros_like(self.over)
        return self._held(~needless, self._losing(costs), hull)

    def _losing(self, costs: np.ndarray) -> np.ndarray | bool:
        """(R,) the rows that make the sum worse whenever they are taken; False if some row makes it better."""
        state = self.pmdp.row_state
        paid = [np.where(settled[state], 0.0, task.reward) for task, settled in zip(self.tasks, self.settled)]
        total = costs @ np.array(paid)
        return total > 0.0 if (total >= 0.0).all() else False

    def _held(self, start: np.ndarray, losing: np.ndarray | bool, hull: Hull) -> np.ndarray:
        """(S,) the part of ``start`` in which a policy can stay forever at some parameter, without losing rows."""
        pmdp = self.pmdp
        usable = usable_rows(played_rows(None, pmdp.num_rows), losing)

        def nature() -> Struct:  # a row may stay if no chance to leave is certainly positive
            certain, _ = graph_bounds(False, *hull, model_rows(pmdp))
            return moves(certain, np.ones(pmdp.num_transitions))

        return held_states(pmdp, usable, ANY_ROW, start, nature)


def _task(pmdp: ParametricMDP, objective: Objective) -> Task:
    if objective.horizon is not None:
        raise ModelError(
            f"{objective.describe()} has a horizon: limits and curves are for plays without one (returns that can fall "
            "take the environment's time limit: make it without one, or minimise a cost until a label)"
        )
    return objective.resolve(pmdp)


def _settled(pmdp: ParametricMDP, task: Task) -> np.ndarray:
    """(S,) where an objective is decided, or has nothing more to gain whatever happens."""
    if task.objective.must_reach:
        return task.decided
    useful = task.target & (task.criterion.at_target > 0.0)
    useful[pmdp.row_state[(task.reward != 0.0) & ~task.decided[pmdp.row_state]]] = True
    open_moves = ~task.decided[pmdp.row_state[pmdp.transition_row]]
    source, target = pmdp.row_state[pmdp.transition_row][open_moves], pmdp.successor[open_moves]
    return task.decided | ~reached(target, source, np.flatnonzero(useful), pmdp.num_states)


def _reachable(pmdp: ParametricMDP) -> np.ndarray:
    source = pmdp.row_state[pmdp.transition_row]
    return reached(source, pmdp.successor, np.array([pmdp.initial_state]), pmdp.num_states)
