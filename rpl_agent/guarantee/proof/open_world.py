"""`prove_open`: the proof of a certificate without a model, for `guarantee.open_checker`.

Bounds are searched again in floats, from the largest return on and with all data; every bound of a row that was found
is written down in its order. The checker follows them in rationals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rpl_agent.core.evidence.ledger import OPEN_REST, OpenLedger, of_states
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.schema import jsonable
from rpl_agent.guarantee import checker, open_checker
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.played import FinishedPlays, PlayedPolicy, lower_return
from rpl_agent.guarantee.open_world.values import (
    SuccessorCaps,
    UpperValues,
    known_states,
    levels,
    lower_values,
    ranges,
    shares_of,
)
from rpl_agent.guarantee.stakes import MIXTURE, MOST_SWEEPS, upper_mean

#: By how much logarithms of wealth exceed what is needed, tried one after the other: floats are not rationals.
MARGINS = (1e-6, 1e-3, 3e-2)
#: The fall of a value, as a share of its range, that makes other rows look again.
NOTICED = 1e-6


def prove_open(
    certificate: OpenCertificate,
    assumptions: Assumptions,
    data: OpenData,
    commands: list[Any],
    played: PlayedPolicy | None,
    most: float = math.inf,
) -> dict[str, Any]:
    """Prove a certificate's claims from these data: for its δ, and for the policy that was played.

    commands : the environment's own actions, by number; only shown, like the names of states.
    If it takes more than ``most`` inequalities, or none are found, the result says so under "refused".
    """
    try:
        size = len(data.visits) * assumptions.layers
        checker.need(size <= most, f"{size:,} inequalities are more than {most:,}: rpl certify RUN proves them")
        for margin in MARGINS:
            proof = OpenAttempt(certificate, assumptions, data, played, margin).made()
            proof["data"] |= {"names": jsonable(data.states), "commands": jsonable(commands)}
            try:
                open_checker.check(proof)
                return proof
            except checker.Refused as error:
                refused = error
        raise refused
    except checker.Refused as error:
        return {"format": open_checker.FORMAT, "refused": str(error)}


def stated_open(certificate: OpenCertificate, proof: dict[str, Any]) -> OpenCertificate:
    """The certificate with the numbers of its proof."""
    if "refused" in proof:
        return replace(certificate, unproved=str(proof["refused"]))
    claim, plays = proof["claim"], _number_of_plays(proof)
    return replace(certificate, lower=claim["lower"], upper=claim["upper"], plays=plays, proved=True, unproved="")


def _number_of_plays(proof: dict[str, Any]) -> int:
    return sum(play[3] for play in proof["lower"]["plays"]) if proof["lower"] is not None else 0


def belongs_open(proof: dict[str, Any], certificate: OpenCertificate) -> list[str]:
    """The ways in which a proof is not about this certificate."""
    data, lower, told = proof["data"], proof["lower"], certificate.to_dict()
    assumed, rows = Assumptions.of_proof(proof["assumed"]), data["states"] * data["actions"]
    pairs = {
        "world": (proof["world"], certificate.model),
        "delta": (proof["delta"], certificate.delta),
        "objective": (assumed.objective.describe(), certificate.objective),
        "list of facts": (_facts(assumed.sentences()), _facts(certificate.assumed)),
        "lower bound": (proof["claim"]["lower"], certificate.lower),
        "upper bound": (proof["claim"]["upper"], certificate.upper),
        "number of steps": (sum(outcome[3] for outcome in data["outcomes"]), certificate.samples),
        "number of episodes": (sum(count for _, count in data["starts"]), certificate.episodes),
        "number of states": (data["states"], certificate.states),
        "number of rows": (rows, certificate.rows),
        "number of rows never tried": (rows - len({outcome[0] for outcome in data["outcomes"]}), certificate.untried),
        "number of plays": (_number_of_plays(proof), certificate.plays if lower else 0),
    }
    if lower is not None:
        pairs["policy"] = (_listed(data, lower, len(told["policy"])), told["policy"])
        unseen = [lower["unseen"]] * (data["states"] - len(told["policy"]))
        pairs["policy of other states"] = (
            [data["commands"][lower["unseen"]], *([unseen] * len(lower["rules"]))],
            [told["elsewhere"], *(rule[len(told["policy"]) :] for rule in lower["rules"])],
        )
    problems = [f"the {name} of the proof is not the certificate's" for name, (one, two) in pairs.items() if one != two]
    return problems + _unnamed(data)


def _unnamed(data: dict[str, Any]) -> list[str]:
    """A problem if actions do not have a name each: the policy of a certificate is told in these."""
    commands = data["commands"]
    is_named = len(commands) == len(set(map(repr, commands))) == data["actions"]
    return [] if is_named else ["the actions of the proof do not have a name each"]


def _facts(sentences: Sequence[str]) -> list[str]:
    """Without the range of all returns, which also has those of states that a proof does not list."""
    return [sentence.partition(", all in ")[0] for sentence in sentences]


def _listed(data: dict[str, Any], lower: dict[str, Any], known: int) -> list[Any]:
    """The policy of a proof as certificates list it."""
    found = []
    for s, name in enumerate(data["names"][:known]):
        commands = [data["commands"][rule[s]] for rule in lower["rules"]]
        found.append([name, commands[0] if len(commands) == 1 else commands])
    return found


def grouped_plays(episodes: FinishedPlays) -> Counter[tuple[float, int, int, int]]:
    """How often plays were alike: what they earned, the steps and the state of a cut, the stake."""
    steps = np.where(episodes.cut_in == END, 0, episodes.steps)
    columns = (episodes.numbers(), steps, episodes.cut_in, episodes.stake)
    return Counter(zip(*(column.tolist() for column in columns)))


def listed_plays(plays: Counter[tuple[float, int, int, int]]) -> list[list[Any]]:
    """Plays as a proof lists them."""
    return [[*play[:3], count, play[3]] for play, count in plays.items()]


def counts_since(before: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Counts of outcomes since a policy was fixed."""
    found = np.array(counts, dtype=np.int64)
    found[: len(before)] -= before
    return found


class OpenAttempt:
    """One attempt to prove a certificate."""

    def __init__(
        self,
        certificate: OpenCertificate,
        assumptions: Assumptions,
        data: OpenData,
        played: PlayedPolicy | None,
        margin: float,
    ):
        self.certificate, self.assumptions, self.data, self.played = certificate, assumptions, data, played
        self.margin = margin

    def made(self) -> dict[str, Any]:
        low, high = self.assumptions.overall
        upper, lower = self._upper(), self._lower()
        claim = {"lower": low if lower is None else lower["start"], "upper": high if upper is None else upper["start"]}
        return {
            "format": open_checker.FORMAT,
            "world": self.certificate.model,
            "delta": self.certificate.delta,
            "assumed": self._assumed(),
            "data": self._data(),
            "upper": upper,
            "lower": lower,
            "claim": claim,
        }

    def _assumed(self) -> dict[str, Any]:
        assumed, strange = self.assumptions, dict[Any, int]()
        successors = None
        if assumed.successors is not None:
            successors, strange = SuccessorCaps(assumed, self.data).listed()
        own, overall = None, None
        if callable(assumed.returns):
            own = [assumed.range_of(state, assumed.layers) for state in (*self.data.states, *strange)]
            overall = assumed.overall if assumed.rewards is None or assumed.states is not None else None
        return {
            "discount": assumed.discount,
            "horizon": assumed.horizon,
            "returns": None if own is not None else assumed.returns,
            "rewards": assumed.rewards,
            "state_returns": own,
            "overall": overall,
            "deterministic": assumed.deterministic,
            "successors": successors,
            "known_states": known_states(assumed),
        }

    def _data(self) -> dict[str, Any]:
        data = self.data
        return {
            "states": len(data.states),
            "actions": data.actions,
            "starts": [[s, n] for s, n in enumerate(data.starts) if n],
            "outcomes": [list(entry) for entry in zip(data.rows, data.rewards, data.successors, data.counts)],
        }

    # ------------------------------------------------------------------ no policy returns more
    def _upper(self) -> dict[str, Any] | None:
        data, assumed = self.data, self.assumptions
        if not data.total:
            return None
        ledger = OpenLedger.of(self.certificate.delta * math.exp(-self.margin))
        if assumed.horizon is None:
            row_share, start_share = shares_of(assumed, ledger)
            share = row_share / data.actions
            rows = np.arange(len(data.visits)).reshape(-1, data.actions)
            search = RowSteps(assumed, data, rows, share)
            part, values = {"steps": search.run()}, search.values
        else:
            upper = UpperValues(assumed, data.actions, ledger)
            upper.update(data)
            part, values, start_share = {"values": upper.listed()}, upper.values[-1], upper.start_share
        starts = np.array(data.starts, dtype=float)
        seen = np.flatnonzero(starts)
        return {**part, "start": upper_mean(values[seen], starts[seen], *assumed.overall, start_share)}

    # ------------------------------------------------------------------ the policy returns at least
    def _lower(self) -> dict[str, Any] | None:
        played, data, assumed = self.played, self.data, self.assumptions
        if played is None or not played.complete():
            return None
        share = math.exp(-self.margin) * played.share
        table = played.policy.table(len(data.states))
        episodes = played.complete()
        plays = grouped_plays(episodes)
        rest, since, after = None, [], None
        if (episodes.cut_in != END).any():
            counts = counts_since(played.before, data.counts)
            since = [[int(k), int(counts[k])] for k in np.flatnonzero(counts)]
            rest, after = self._rest(table, counts, played.before, OPEN_REST * share)
        numbers = np.array([self._number(earned, steps, cut, after) for earned, steps, cut, _ in plays])
        counts, stakes = np.array(list(plays.values()), dtype=float), np.array([play[3] for play in plays])
        found = lower_return(numbers, counts, stakes, assumed.overall, share)
        return {
            "policy_number": played.number,
            "rules": table.tolist(),
            "unseen": played.policy.unseen,
            "plays": listed_plays(plays),
            "since": since,
            "rest": rest,
            "start": found,
        }

    def _rest(
        self, table: np.ndarray, counts: np.ndarray, before: np.ndarray, share: float
    ) -> tuple[dict[str, Any], np.ndarray]:
        """(part of the proof, lower bounds (H, S)) for what follows in states where plays were cut."""
        assumed, data = self.assumptions, self.data
        if assumed.horizon is None:
            rows = np.arange(len(data.states))[:, None] * data.actions + table[0][:, None]
            search = RowSteps(assumed, data, rows, share, counts)
            return {"steps": search.run()}, -search.values[None, :]
        found = lower_values(assumed, data, table, before, share)
        low, _ = ranges(assumed, data, 0)
        values = [[None if v <= bound else -v for v, bound in zip(*pair)] for pair in zip(found.tolist(), low.tolist())]
        return {"values": values}, found

    def _number(self, earned: float, steps: int, cut: int, after: np.ndarray | None) -> float:
        if cut == END or after is None:
            return earned
        layer = 0 if self.assumptions.horizon is None else self.assumptions.horizon - 1 - steps
        rest = self.assumptions.discount**steps * float(after[layer, cut])
        return earned + rest - 8.0 * UNIT_ROUNDOFF * (steps + 2) * (abs(earned) + abs(rest))


class _Row(NamedTuple):
    """The outcomes of a row, rewards negated for lower bounds."""

    reward: np.ndarray
    successor: np.ndarray
    counts: np.ndarray


class RowSteps:
    """Bounds of rows without a horizon, one after the other, each from the values that the earlier ones gave.

    rows : (S, n) the rows of every state; ``share`` of δ, of each of the n.
    since : (E,) counts of outcomes for *lower* bounds of the rows' values; everything is then negated.
    """

    def __init__(
        self, assumptions: Assumptions, data: OpenData, rows: np.ndarray, share: float, since: np.ndarray | None = None
    ):
        low, high = (ends[0] for ends in ranges(assumptions, data, 0))
        self._low, self.high = (low, high) if since is None else (-high, -low)
        self._assumptions, self._rows = assumptions, rows
        self._levels = levels(of_states(share, 0, len(rows), known_states(assumptions)))
        self._caps = SuccessorCaps(assumptions, data) if since is None and assumptions.successors is not None else None
        self._outcomes = self._by_row(data, since)
        self.values = self.high.copy()
        self._bound = {row: self.high[s] for s, own in enumerate(rows.tolist()) for row in own}
        self._tested = dict.fromkeys(self._bound, -1)
        self._changed, self._clock = np.zeros(len(rows), dtype=np.int64), 0
        self._steps: list[list[Any]] = []

    def _by_row(self, data: OpenData, since: np.ndarray | None) -> dict[int, _Row]:
        sign, used = 1.0 if since is None else -1.0, set(self._rows.ravel().tolist())
        counts = data.counts if since is None else since.tolist()
        found: dict[int, list[tuple[float, int, int]]] = {row: [] for row in used}
        for row, reward, successor, count in zip(data.rows, data.rewards, data.successors, counts):
            if count and row in used:
                found[row].append((sign * reward, successor, count))
        return {
            row: _Row(
                np.array([r for r, _, _ in own]),
                np.array([s for _, s, _ in own], dtype=np.int64),
                np.array([float(n) for _, _, n in own]),
            )
            for row, own in found.items()
        }

    def run(self) -> list[list[Any]]:
        """(row, bound) in the order in which they were found."""
        for sweep in range(MOST_SWEEPS):
            if self._caps is not None:
                self._cap(self._caps)
            states = range(len(self.values))
            fell = [self._lower(s) for s in (states if sweep % 2 else reversed(states))]
            if not any(fell):
                break
        return self._steps

    def _cap(self, caps: SuccessorCaps) -> None:
        """Bounds by what may follow, at the values before this sweep."""
        found = caps.rows(self.values, 0)
        for row, bound in enumerate(found.tolist()):
            if bound < self._bound[row] - NOTICED * abs(bound):
                self._bound[row] = bound
                self._steps.append([row, bound])
        for s in range(len(self.values)):
            self._settle(s)

    def _lower(self, s: int) -> bool:
        """Bound the rows of a state anew, the largest first, until that one no longer moves; whether the value fell."""
        own = self._rows[s].tolist()
        while True:
            row = max(own, key=self._bound.__getitem__)
            outcomes = self._outcomes[row]
            after = outcomes.successor[outcomes.successor >= 0]
            is_new = self._tested[row] < 0 or bool((self._changed[after] > self._tested[row]).any())
            if not len(outcomes.counts) or not is_new:
                break
            self._tested[row] = self._clock
            found = self._bound_of(s, outcomes, self._bound[row])
            if found < self._bound[row]:
                self._bound[row] = found
                self._steps.append([row, found])
        return self._settle(s)

    def _settle(self, s: int) -> bool:
        best = max(self._bound[row] for row in self._rows[s].tolist())
        fall, self.values[s] = self.values[s] - best, best
        if fall <= NOTICED * (self.high[s] - self._low[s]):
            return False
        self._clock += 1
        self._changed[s] = self._clock
        return True

    def _bound_of(self, s: int, outcomes: _Row, known: float) -> float:
        low, high = float(self._low[s]), float(self.high[s])
        rest = np.where(outcomes.successor < 0, 0.0, self._assumptions.discount * self.values[outcomes.successor])
        slack = 8.0 * UNIT_ROUNDOFF * (np.abs(outcomes.reward) + np.abs(rest) + abs(low))
        numbers = outcomes.reward + rest + slack
        if self._assumptions.deterministic:
            return min(known, float(numbers.max()))
        x = np.clip((numbers - low) / (high - low) * (1.0 + 8.0 * UNIT_ROUNDOFF), 0.0, 1.0)
        ceiling = min(1.0, (known - low) / (high - low))
        found = core.stake_upper(MIXTURE, len(x), x, outcomes.counts, None, float(self._levels[s]), ceiling)
        return min(known, low + found * (high - low) + 8.0 * UNIT_ROUNDOFF * (abs(low) + high - low))
