"""Memoryless policies over rows: deterministic, randomised, and step-dependent for finite horizons."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.building.builder import Described, DescribedRows
from rpl_agent.core.model.building.policy_table import Entry, read_table, rows_by_step, table_weights
from rpl_agent.core.model.csr import gather
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP, Reward, nearest
from rpl_agent.core.model.polynomial import Polynomial


@dataclass(frozen=True)
class Policy:
    """Exactly one of ``rows`` and ``weights`` is given.

    rows : (S,) int64 chosen row of each state, or (H, S) with one decision rule per step.
    weights : (R,) float64 probability of each row within its state.

    >>> import rpl_envs
    >>> pmdp = rpl_envs.benchmark("Betting-25").pmdp
    >>> Policy.uniform(pmdp).weights.shape == (pmdp.num_rows,)
    True
    """

    rows: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.weights is None):
            raise ModelError("a policy is either deterministic or randomised: give rows or weights, not both")
        if self.rows is not None:
            rows = _checked("rows", self.rows, "iu", "whole numbers, (S,) or (H, S)")
            object.__setattr__(self, "rows", rows.astype(np.int64, copy=False))
        if self.weights is not None:
            weights = _checked("weights", self.weights, "iuf", "numbers, (R,)")
            object.__setattr__(self, "weights", weights.astype(np.float64, copy=False))

    @classmethod
    def deterministic(cls, rows: np.ndarray) -> Policy:
        return cls(rows=np.asarray(rows, dtype=np.int64))

    @classmethod
    def randomised(cls, weights: np.ndarray) -> Policy:
        return cls(weights=np.asarray(weights, dtype=float))

    @classmethod
    def uniform(cls, pmdp: ParametricMDP) -> Policy:
        sizes = np.diff(pmdp.state_ptr)
        return cls(weights=np.repeat(1.0 / np.maximum(sizes, 1), sizes))

    @classmethod
    def from_table(cls, pmdp: ParametricMDP, source: str | Path | Iterable[tuple[Any, Any, float]]) -> Policy:
        """A policy from a CSV file with the columns state, action, weight, or from such triples.

        A file with a column ``time_step`` has a rule for each step of a horizon.

        States and actions are named or numbered; state variables may have a column each. Weights are divided by their
        sum in each state. States that the policy cannot reach may be missing.

        >>> flip = lambda s: {"safe": {1: 1}, "bold": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}
        >>> model = build(0, flip, domain=["p"], labels={"won": lambda s: s == 1})
        >>> policy = Policy.from_table(model, [(0, "safe", 3), (0, "bold", 1)])
        >>> policy.to_table(model)[0]
        ('0', 'bold', 0.25)
        """
        if not isinstance(source, (str, Path)):
            return cls.of_weights(pmdp, table_weights(pmdp, source))
        tables = read_table(pmdp, source)
        if None in tables:
            return cls.of_weights(pmdp, table_weights(pmdp, tables[None]))
        return cls.from_rules(pmdp, tables)

    @classmethod
    def from_rules(cls, pmdp: ParametricMDP, tables: Mapping[int | None, Iterable[Entry]]) -> Policy:
        """A policy of a horizon from a table for each step, numbered from 0.

        The last rule persists, with the first action in states that it does not name.
        """
        rules = rows_by_step(pmdp, tables)
        steps = np.repeat(np.arange(len(rules)), pmdp.solver_steps_per_step)
        before = np.zeros(pmdp.solver_step(0), np.int64)  # nothing is chosen there
        return cls.deterministic(rules[[*before, *steps]])

    @classmethod
    def of_weights(cls, pmdp: ParametricMDP, weights: np.ndarray) -> Policy:
        """The policy with weights (R,), as a deterministic one if every state has one row of positive weight."""
        chosen = np.flatnonzero(weights > 0.0)
        single = len(chosen) == pmdp.num_states and np.array_equal(pmdp.row_state[chosen], np.arange(pmdp.num_states))
        return cls.deterministic(chosen) if single else cls.randomised(weights)

    def to_table(self, pmdp: ParametricMDP, path: str | Path | None = None) -> list[tuple[str, str, float]]:
        """(state, action, weight) of every positive weight, written to a CSV file if a path is given."""
        self.require_fit(pmdp)
        weights = self.as_weights(pmdp)
        entries = [
            (str(pmdp.state_value(int(pmdp.row_state[r]))), pmdp.action_names[pmdp.action[r]], float(weights[r]))
            for r in np.flatnonzero((weights > 0.0) & ~pmdp.is_silent[pmdp.row_state])
        ]
        if path is not None:
            with open(path, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("state", "action", "weight"), *entries])
        return entries

    @property
    def is_deterministic(self) -> bool:
        return self.rows is not None

    def at(self, step: int) -> Policy:
        """The decision rule of one step (the last one persists)."""
        if self.rows is None or self.rows.ndim == 1:
            return self
        return Policy(rows=self.rows[min(step, len(self.rows) - 1)])

    def as_weights(self, pmdp: ParametricMDP) -> np.ndarray:
        """(R,) probabilities per row."""
        if self.weights is not None:
            return self.weights
        assert self.rows is not None
        if self.rows.ndim != 1:
            raise ModelError("a step-dependent policy has no stationary weights; use policy.at(step)")
        weights = np.zeros(pmdp.num_rows)
        weights[self.rows] = 1.0
        return weights

    def shares(self, pmdp: ParametricMDP) -> np.ndarray:
        """(R,) the weights divided by their sum in every state: a distribution up to rounding of each weight."""
        weights = self.as_weights(pmdp).astype(np.float64, copy=False)
        if self.is_deterministic:
            return weights
        shares: np.ndarray = weights / np.add.reduceat(weights, pmdp.state_ptr[:-1])[pmdp.row_state]
        return shares

    def mixed(self, pmdp: ParametricMDP, weight: float = 0.9) -> Policy:
        """``weight`` on the chosen row, the rest uniform over the other enabled rows (the paper's sampler)."""
        if not 0.0 <= weight <= 1.0:
            raise ModelError(f"weight {weight} is outside [0, 1]")
        rows = self.at(0).rows
        if rows is None:
            raise ModelError("only a deterministic policy can be mixed")
        sizes = np.diff(pmdp.state_ptr)
        rest = np.where(sizes > 1, (1.0 - weight) / np.maximum(sizes - 1, 1), 0.0)
        weights = np.repeat(rest, sizes)
        weights[rows] = np.where(sizes > 1, weight, 1.0)
        return Policy(weights=weights)

    def induced_chain(self, pmdp: ParametricMDP) -> ParametricMDP:
        """The chain of a model under this policy: the same states, one row each, the same parameters."""
        self.require_fit(pmdp)
        if self.rows is not None and self.rows.ndim != 1:
            raise ModelError("a step-dependent policy does not induce a chain on the same states; use policy.at(step)")
        weights, states = self.as_weights(pmdp), np.arange(pmdp.num_states)
        played = np.flatnonzero(weights > 0.0)
        if len(played) == pmdp.num_states:
            moves, row_ptr = gather(pmdp.row_ptr, played)
            return replace(
                pmdp,
                state_ptr=np.append(states, len(states)),
                action=pmdp.action[played],
                row_ptr=row_ptr,
                successor=pmdp.successor[moves],
                expression=pmdp.expression[moves],
                rewards={name: reward.taken(states, played) for name, reward in pmdp.rewards.items()},
            )
        return self._mixed_chain(pmdp, weights)

    def _mixed_chain(self, pmdp: ParametricMDP, weights: np.ndarray) -> ParametricMDP:
        """`induced_chain` of a randomised policy: exact mixtures of the rows' expressions and rewards."""
        shares = _exact_shares(pmdp, weights)
        described: Described = []
        for played in shares:
            mixed: dict[int, Polynomial] = {}
            for row, share in played:
                for t in range(pmdp.row_ptr[row], pmdp.row_ptr[row + 1]):
                    part = pmdp.table.polynomial(int(pmdp.expression[t])) * share
                    i = int(pmdp.successor[t])
                    mixed[i] = mixed[i] + part if i in mixed else part
            described.append([("mixed", mixed)])
        pieces = DescribedRows(described, ("mixed",))
        table, rank = ExpressionTable.from_polynomials(list(pieces.distinct), pmdp.table.parameters).sorted()
        return replace(
            pmdp,
            state_ptr=np.array(pieces.state_ptr),
            action=np.array(pieces.action),
            table=table,
            row_ptr=np.array(pieces.row_ptr),
            successor=np.array(pieces.successors),
            expression=rank[pieces.expressions],
            rewards={name: _mixed_reward(reward, shares) for name, reward in pmdp.rewards.items()},
            action_names=("mixed",),
            own_actions=None,
        )

    def require_fit(self, pmdp: ParametricMDP) -> None:
        """Raise ModelError, naming the state, if this is not a policy of the model."""
        if self.rows is not None:
            if self.rows.shape[-1] != pmdp.num_states or self.rows.ndim > 2:
                raise ModelError(f"the policy has shape {self.rows.shape}, but the model has {pmdp.num_states} states")
            least = most = self.rows
            if least.ndim == 2:
                least, most = least.min(axis=0, initial=pmdp.num_rows), most.max(axis=0, initial=0)
            bad = (least < pmdp.state_ptr[:-1]) | (most >= pmdp.state_ptr[1:])
            if bad.any():
                state = int(bad.argmax())
                raise ModelError(
                    f"the policy chooses an action that is not enabled in state {state} = {pmdp.state_name(state)}"
                )
            return
        assert self.weights is not None
        if self.weights.shape != (pmdp.num_rows,):
            raise ModelError(
                f"the policy has weights of shape {self.weights.shape}, the model {pmdp.num_rows} state-action pairs"
            )
        bad = ~(np.isfinite(self.weights) & (self.weights >= 0))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(f"the policy has weight {self.weights[row]} at {pmdp.row_name(row)}")
        totals = np.add.reduceat(self.weights, pmdp.state_ptr[:-1])
        bad = np.abs(totals - 1.0) > 1e-9
        if bad.any():
            state = int(np.flatnonzero(bad)[0])
            raise ModelError(f"the policy's weights sum to {totals[state]} in state {state} = {pmdp.state_name(state)}")

    def row(self, pmdp: ParametricMDP, state: int, rng: np.random.Generator | None = None, step: int = 0) -> int:
        """The row taken in a state (drawn with rng if randomised; the most likely one without)."""
        if self.rows is not None:
            return int(self.at(step).rows[state])  # type: ignore[index]
        assert self.weights is not None
        lo, hi = int(pmdp.state_ptr[state]), int(pmdp.state_ptr[state + 1])
        if rng is None:
            return lo + int(np.argmax(self.weights[lo:hi]))
        cumulative = np.cumsum(self.weights[lo:hi])
        return lo + min(int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")), hi - lo - 1)

    def action(self, pmdp: ParametricMDP, state: int, rng: np.random.Generator | None = None, step: int = 0) -> int:
        """The action id taken in a state."""
        return int(pmdp.action[self.row(pmdp, state, rng, step)])


def _checked(name: str, given: Any, kinds: str, wanted: str) -> np.ndarray:
    """An array of a policy, if its type and number of dimensions can be right."""
    found = np.asarray(given)
    if found.dtype.kind not in kinds or found.ndim not in (1, 2):
        raise ModelError(f"the {name} of a policy have type {found.dtype} and shape {found.shape}, not {wanted}")
    return found


#: of each state the rows that are played, with their exact probabilities
Shares = list[list[tuple[int, Fraction]]]


def _exact_shares(pmdp: ParametricMDP, weights: np.ndarray) -> Shares:
    """The rows of positive weight (R,) in each state, with weights divided by their exact sum."""
    exact = [Fraction(weight) for weight in weights.tolist()]
    shares: Shares = []
    for s in range(pmdp.num_states):
        rows = range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1])
        total = sum(exact[row] for row in rows)
        shares.append([(row, exact[row] / total) for row in rows if exact[row]])
    return shares


def _mixed_reward(reward: Reward, shares: Shares) -> Reward:
    """The mean reward of the rows that each state plays, with a bound on its error."""

    def mean(numbers: np.ndarray, played: list[tuple[int, Fraction]]) -> Fraction | float:
        if not all(np.isfinite(numbers[row]) for row, _ in played):
            return float(sum(numbers[row] for row, _ in played))
        return sum((share * Fraction(float(numbers[row])) for row, share in played), Fraction(0))

    row, error = nearest(mean(reward.row, played) for played in shares)
    if reward.row_error is not None:
        given = np.array([float(mean(reward.row_error, played)) for played in shares])
        error = np.nextafter(np.nextafter(given, np.inf) + (0.0 if error is None else error), np.inf)
    return Reward(reward.state, row, reward.state_error, error)
