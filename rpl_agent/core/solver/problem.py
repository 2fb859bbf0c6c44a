"""`Problem`: a relaxation and an objective as one bundle of arrays, checked before any iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import (
    Criterion,
    Nature,
    Objective,
    ParametricMDP,
    Policy,
    Sense,
    Task,
    Unreached,
    cached_fact,
    cached_on,
)
from rpl_agent.core.native import Struct, core, read_only
from rpl_agent.core.relaxations.base import POINT, CompiledSet, Relaxation, longest_row, model_rows, workspace
from rpl_agent.core.solver.graph import (
    ALL_ROWS,
    ANY_ROW,
    CYCLIC,
    DRAWN_ROW,
    SINK,
    TRIVIAL,
    ModelGraph,
    graph_bounds,
    held_states,
    model_graph,
    moves,
    played_rows,
    usable_rows,
)

MAX_AGENT, MIN_AGENT, FIXED_AGENT = core.MAX_AGENT, core.MIN_AGENT, core.FIXED_AGENT
#: more cyclic layers than this are solved together if they are small enough: one factorisation beats many
MAX_LAYERS, MERGE_LIMIT = 24, 60_000


@dataclass(frozen=True, eq=False)
class Structure:
    """The solution order: rounds of one backward pass over trivial states and one fixpoint over cyclic ones."""

    sinks: np.ndarray
    rounds: tuple[tuple[np.ndarray, np.ndarray], ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """The players, their directions and the objective.

    proper_max : whether the maximiser is the *proper* side, the one whose improper strategies are worthless: plays
        that never end give a maximiser nothing (reachability, rewards) and cost a minimiser infinity (costs).

    Totals of both signs (`Task.signed`) are solved and checked as costs: see `as_cost`.
    """

    relaxation: Relaxation
    task: Task
    nature: Nature
    policy: Policy | None
    agent: int  # MAX_AGENT, MIN_AGENT or FIXED_AGENT (then ``weights`` (R,) is the policy)
    maximise: bool  # direction of nature
    weights: np.ndarray
    mirrors: Problem | None = None  # the problem of gains that this one of costs stands for
    is_hull: bool = False  # nature may do less than the relaxation says: its inner side proves nothing
    dropped: np.ndarray | None = None  # (R,) rows that no policy takes (`coupled.optimality`)

    @classmethod
    def of(
        cls,
        relaxation: Relaxation,
        objective: Objective,
        nature: Nature,
        policy: Policy | None,
        reward_error: float = 0.0,
    ) -> Problem:
        """The problem with ``reward_error`` as a share of each reward that nature may add or take."""
        pmdp = relaxation.pmdp
        maximise = nature.direction(objective.sense) is Sense.MAX
        task = objective.resolve(pmdp)
        require_end(pmdp, task)
        if task.signed:
            reward_error += task.reward_error.share
        if reward_error > 0.0:
            task = replace(task, reward=task.reward_end(reward_error, maximise))
        require_actions(pmdp)
        require_bounds(relaxation)
        agent = MAX_AGENT if objective.sense is Sense.MAX else MIN_AGENT
        weights = np.zeros(0)
        if policy is not None:
            policy.require_fit(pmdp)
            agent = FIXED_AGENT
            if policy.rows is None or policy.rows.ndim == 1:
                weights = policy.shares(pmdp)
            elif objective.horizon is None:
                raise ModelError("a step-dependent policy needs an objective with a horizon")
        return cls(relaxation, task, nature, policy, agent, maximise, weights)

    # ------------------------------------------------------------------ the question
    @property
    def objective(self) -> Objective:
        return self.task.objective

    @property
    def pmdp(self) -> ParametricMDP:
        return self.relaxation.pmdp

    @property
    def reward(self) -> np.ndarray:
        return self.task.reward

    @property
    def gamma(self) -> float:
        return self.objective.discount

    @property
    def criterion(self) -> Criterion:
        """What a play is worth."""
        return self.task.criterion

    @cached_property
    def resting_rows(self) -> np.ndarray:
        """(R,) rows that lead back to their own state and pay nothing, if steps are neither counted nor discounted."""
        pmdp = self.pmdp
        if self.objective.horizon is not None or self.criterion.contracts:
            return np.zeros(pmdp.num_rows, dtype=bool)
        back = pmdp.successor == pmdp.row_state[pmdp.transition_row]
        return np.asarray(np.logical_and.reduceat(back, pmdp.row_ptr[:-1]) & (self.reward == 0.0))

    @cached_property
    def resting_states(self) -> np.ndarray:
        """(S,) states that have no other rows: sinks, of which no label has to speak."""
        return np.asarray(np.logical_and.reduceat(self.resting_rows, self.pmdp.state_ptr[:-1]))

    @property
    def as_cost(self) -> Problem:
        """A total of both signs as a cost: gains are negative costs. Any other problem as it is."""
        return self._mirrored if self.criterion.signed and self.objective.sense is not Sense.MIN else self

    @cached_property
    def _mirrored(self) -> Problem:
        objective = replace(self.objective, sense=Sense.MIN, unreached=Unreached.ACCUMULATE)
        task, agent = replace(self.task, objective=objective, reward=-self.reward), -self.agent
        return replace(self, task=task, agent=agent, maximise=not self.maximise, mirrors=self)

    @cached_property
    def proper_max(self) -> bool:
        return self.criterion.proper_max(self.objective.sense)

    @property
    def agent_proper(self) -> bool:
        return self.agent == (MAX_AGENT if self.proper_max else MIN_AGENT)

    @property
    def nature_proper(self) -> bool:
        return self.maximise == self.proper_max

    # ------------------------------------------------------------------ arrays
    @property
    def cs(self) -> CompiledSet:
        compiled = self.relaxation.compiled()
        assert compiled is not None
        return compiled

    @cached_property
    def order(self) -> np.ndarray | None:
        """(n,) undecided states, successors first, without sinks; None with cycles or a discount."""
        return None if self.forward is None else self.forward.rounds[0][0]

    @cached_property
    def rank(self) -> np.ndarray | None:
        """(S,) int32 numbers that increase along every play, if such an order exists."""
        if self.order is None:
            return None
        rank = np.full(self.pmdp.num_states, -1, np.int32)
        rank[self.order] = np.arange(len(self.order), 0, -1, dtype=np.int32)
        return rank

    @cached_property
    def position(self) -> np.ndarray:
        """(S,) scratch space of `ModelGraph.extract`, all -1 between calls."""
        return np.full(self.pmdp.num_states, -1, dtype=np.int64)

    @cached_property
    def absorbing_graph(self) -> ModelGraph:
        """The graph with decided states absorbing: a play ends there."""
        pmdp = self.pmdp
        source = pmdp.row_state[pmdp.transition_row]
        successor = read_only(np.where(self.task.decided[source], source, pmdp.successor), np.int32)
        return ModelGraph(pmdp.state_ptr, pmdp.row_ptr, successor, pmdp.num_states)

    def finite_states(self, weights: np.ndarray | None, nature_helps: bool) -> np.ndarray:
        """(S,) bool, where the minimisers can keep the total finite; the agent is fixed to weights (R,), or free."""
        quantifier = DRAWN_ROW if weights is not None else ANY_ROW if self.agent == MIN_AGENT else ALL_ROWS
        return self.absorbing_graph.finite_set(
            self.moves(),
            played_rows(weights, self.pmdp.num_rows),
            self.reward > 0.0,
            quantifier,
            nature_helps,
            self.criterion.must_reach,
            self.task.target,
            np.ones(self.pmdp.num_states, dtype=bool),
        )

    def graph_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(lo, hi) (T,) of nature, as used by the graph."""
        compiled = self.relaxation.compiled()
        known = compiled is not None and compiled.kind == POINT
        return graph_bounds(known, *self.relaxation.bounds(), model_rows(self.pmdp))

    def moves(self, willing: bool = True, support: np.ndarray | None = None) -> Struct:
        """Nature for the model's graph; ``willing`` to hold the play, or not.

        ``support`` (T,) says in which rows nature is fixed and where it then puts mass: 1 yes, 0 no, -1 free.
        """
        lo, hi = self.graph_bounds()
        if support is not None:
            lo, hi = np.where(support >= 0.0, support, lo), np.where(support >= 0.0, support, hi)
        rows = model_rows(self.pmdp)
        return moves(lo if willing else None, hi, self.relaxation.compiled(), rows, self.pmdp.num_states)

    def held_states(
        self,
        usable: np.ndarray,
        quantifier: int,
        start: np.ndarray,
        willing: bool = True,
        support: np.ndarray | None = None,
    ) -> np.ndarray:
        """(S,) the largest part of ``start`` in which the play can stay, see `ModelGraph.hold_set` and `moves`."""
        held = held_states(self.pmdp, usable, quantifier, start, lambda: self.moves(willing, support), self.rank)
        if not willing or self.relaxation.compiled() is not None:
            return held
        # A set without kernels is queried through the protocol. What cannot stay in a set cannot stay in a smaller one.
        long = np.diff(self.pmdp.row_ptr) > 2  # with two successors, f and 1 - f, the hull is exact
        while True:
            rows = np.flatnonzero(long & (usable == 2) & held[self.pmdp.row_state])
            outside = np.empty(len(rows))
            self.relaxation.expectation((~held).astype(float), Sense.MIN, outside, rows)
            if not len(rows) or not (outside > 0.0).any():
                return held
            usable = usable.copy()
            usable[rows[outside > 0.0]] = 1
            held = held_states(self.pmdp, usable, quantifier, held, lambda: self.moves(support=support))

    @cached_property
    def game(self) -> Struct:
        """The problem as the struct of the sweeps."""
        return self._game(self.agent, self.weights)

    def game_of(self, weights: np.ndarray) -> Struct:
        """The same with the agent fixed to weights (R,)."""
        return self._game(FIXED_AGENT, weights)

    def _game(self, agent: int, weights: np.ndarray) -> Struct:
        return core.Game(
            agent=agent,
            maximise=self.maximise,
            gamma=self.gamma,
            state_ptr=self.pmdp.state_ptr,
            rows=model_rows(self.pmdp),
            reward=self.reward,
            weights=weights,
            set=self.cs,
        )

    def scratch(self) -> Struct:
        """Scratch space of sweeps."""
        return workspace(self.cs, longest_row(self.pmdp), self.pmdp.num_rows)

    def boundary(self) -> np.ndarray:
        """(S,) values of decided states, 0 elsewhere; for instantaneous rewards, values of all states."""
        if self.task.final is not None:
            return self.task.final.copy()
        values = np.zeros(self.pmdp.num_states)
        values[self.task.target] = self.criterion.at_target
        return values

    @cached_property
    def structure(self) -> Structure:
        """The solution order; cached with the model, because data change the bounds but not the graph."""
        if self.forward is not None:
            return self.forward
        return self._cached("cyclic", lambda: _cyclic_structure(self.pmdp, self.task.decided, self.criterion.contracts))

    @cached_property
    def forward(self) -> Structure | None:
        """The same if plays cannot come back, as one round; None if they can."""
        if self.criterion.contracts:  # a loop is worth r / (1 - gamma): an ordinary fixpoint
            return None
        return self._cached("forward", lambda: _forward_structure(self.pmdp, self.task.decided))

    def _cached(self, kind: str, build: Callable[[], Structure | None]) -> Any:
        known, key = structures(self.pmdp), (kind, self.task.decided.tobytes(), self.criterion.contracts)
        if key not in known:
            if len(known) > 16:
                known.clear()
            known[key] = build()
        return known[key]


@cached_fact
def require_actions(pmdp: ParametricMDP) -> None:
    """Raise if a state has no action."""
    idle = np.flatnonzero(pmdp.state_ptr[1:] == pmdp.state_ptr[:-1])
    if len(idle):
        raise ModelError(
            f"state {idle[0]} = {pmdp.state_name(int(idle[0]))} has no action: give it one that leads back to it"
        )


def require_bounds(relaxation: Relaxation) -> None:
    """Refuse bounds of expressions that are not finite or cross; a compiled set is checked once."""
    compiled = relaxation.compiled()
    if compiled is None or compiled.lower is not relaxation.bounds()[0]:
        _require_bounds(relaxation)
    else:
        cached_on(compiled, "bounds are consistent", lambda _: _require_bounds(relaxation))


def _require_bounds(relaxation: Relaxation) -> None:
    lower, upper = relaxation.bounds()
    bad = ~(lower <= upper) | ~np.isfinite(lower) | ~np.isfinite(upper)
    if bad.any():
        f = int(np.flatnonzero(bad)[0])
        named = relaxation.pmdp.table.polynomial(f)
        raise ModelError(f"bounds [{lower[f]}, {upper[f]}] of expression {named} are not finite, or cross")


def require_end(pmdp: ParametricMDP, task: Task) -> None:
    """Raise for a total of gains and losses, unless plays end or lose forever whenever all chances are positive."""
    if not task.signed:
        return
    gain = task.reward if task.objective.sense is Sense.MAX else -task.reward

    def held(spent: np.ndarray | bool) -> np.ndarray:
        usable = usable_rows(played_rows(None, pmdp.num_rows), spent)
        return held_states(pmdp, usable, ANY_ROW, ~task.decided, lambda: moves(None, np.ones(pmdp.num_transitions)))

    stays, source = held(False), pmdp.row_state[pmdp.transition_row]
    part = model_graph(pmdp).components(~stays)[1]
    back = np.logical_and.reduceat(stays[source] & (part[source] == part[pmdp.successor]), pmdp.row_ptr[:-1])
    bad = held(gain < 0.0) if stays.any() and not task.objective.must_reach else np.zeros_like(stays)
    bad[pmdp.row_state[back & (gain > 0.0)]] = True
    if bad.any():
        state = pmdp.state_name(int(np.flatnonzero(bad)[0]))
        raise task.without_end(pmdp, f"from {state} on plays can last forever without a loss, or gain again and again")


def structures(pmdp: ParametricMDP) -> dict[tuple[str, bytes, bool], Structure | None]:
    """Cached structures, by their kind, the decided states and whether there is a discount."""
    return cached_on(pmdp, "structures", lambda _: {})


def _forward_structure(pmdp: ParametricMDP, decided: np.ndarray) -> Structure | None:
    forward = model_graph(pmdp).forward_order(decided)
    if forward is None:
        return None
    none = np.zeros(0, dtype=np.int64)
    if len(forward) + np.count_nonzero(decided) == len(decided):
        return Structure(none, ((forward, none),))
    loops = ~decided
    loops[forward] = False
    return Structure(np.flatnonzero(loops), ((forward, none),))


def _cyclic_structure(pmdp: ParametricMDP, decided: np.ndarray, discounted: bool) -> Structure:
    graph = model_graph(pmdp)
    order, component, _ = graph.components(decided)
    kind, depth = graph.layers(decided, order, component, not discounted)
    kind[decided] = SINK
    cyclic = kind == CYCLIC
    last = int(depth[kind != SINK].max(initial=0))
    if last > MAX_LAYERS and int(((depth > 0) | cyclic).sum()) <= MERGE_LIMIT:
        cyclic = (kind != SINK) & (cyclic | (depth > 0))
        depth = np.zeros_like(depth)
        last = 0
    kinds = np.where(cyclic, CYCLIC, kind)[order]
    depths = depth[order]
    rounds = []
    if last == 0:
        rounds.append((order[kinds == TRIVIAL], order[kinds == CYCLIC]))
    else:
        by_depth = np.argsort(depths, kind="stable")
        ends = np.searchsorted(depths[by_depth], np.arange(last + 2))
        for d in range(last + 1):
            part = by_depth[ends[d] : ends[d + 1]]
            rounds.append((order[part[kinds[part] == TRIVIAL]], order[part[kinds[part] == CYCLIC]]))
    sinks = np.flatnonzero((kind == SINK) & ~decided)
    return Structure(sinks, tuple(rounds))


def step_rows(policy: Policy | None, horizon: int) -> tuple[np.ndarray | None, int]:
    """(rows, stride) of a deterministic policy for the core: rows[k * stride] (S,) with k + 1 steps to go."""
    if policy is None or policy.rows is None:
        return None, 0
    if policy.rows.ndim == 1:
        return np.ascontiguousarray(policy.rows, np.int64), 0
    rules = policy.rows[:horizon]
    if len(rules) < horizon:  # the last rule persists
        rules = rules[np.minimum(np.arange(horizon), len(rules) - 1)]
    return np.ascontiguousarray(rules[::-1]), rules.shape[1]  # no copy of what the solver wrote from the end on
