"""A checker for certificates without a model: `python open_checker.py PROOF.json[.gz]`; any other goes to checker.py.

This file and its neighbour checker.py, Python's standard library, big integers and fractions. It reads what was counted
in a world of which only a few facts are stated, a policy π that was fixed and then played, and a claim, and proves

    with probability ≥ 1 − δ over the data:   lower ≤ V(π)  and  V(best policy) ≤ upper,

or names the first inequality that fails. V is the mean (discounted) return from the start. It does not search.

*Bets.* Stakes b_i in (0, 1) and their weights w_i, whose sum is ≤ 1, are constants of this file, so they depend on no
data. Let numbers y_1, y_2, … ≤ h have mean M given the past. Then Σ_i w_i Π_k (1 + b_i (M − y_k)/(h − M)) is a positive
martingale that begins with at most 1, so it ever reaches 1/α with probability ≤ α (Ville). It grows with M, and falls
with every y_k. So, with probability ≥ 1 − α: if it is ≥ 1/α at a number m < h in place of M, with any Y_k ≥ y_k in
place of y_k, then M ≤ m. The same holds for Π_k (1 + c_k (M − y_k)/(h − M)), if the stake c_k was chosen before y_k was
drawn, whatever it depends on; and whatever Y_k takes the place of y_k, the stake stays what it was.

*Upper.* y = r + γV*(s') for the outcomes of one row (an action in a state), Y = r + γU(s') with a U ≥ V* shown before.
The file lists bounds of rows in an order in which each follows from the earlier ones, from U = h on; with a horizon,
the U of every number of steps to go. The start is one more row. *Lower.* The same, turned round (every number negated),
for returns of plays of π, with stakes planned before each play or with fixed ones, each with a share of its own. A play
that was cut adds γ^T Lo(s) for the state s that it was cut in, Lo ≤ V^π by the rows of π, from steps after π was fixed.

*Shares of δ.* Half for rows: divided by actions and steps to go, then among states in the order of their first visits:
the k-th with 2^j ≤ k < 2^(j + 1) has 2^−j / ((j + 1)(j + 2)), which sum to 1 (equal ones where the number of states is
stated). 1/20 for the start; if every action has one outcome, no row bets, and the start has their half too. The j-th
policy that is fixed has 449/1000 of 4/(j (j + 1)(j + 2)), which sum to 1: 17/20 of it for planned bets on its plays,
1/20 for fixed ones, 99/1000 for Lo.

Trusted: these two files; that `assumed`, `delta`, `policy_number` and `data` are the reader's; and the reader's
assumptions: observations are a Markov state, the stated facts, states are listed by first visit, every outcome was
counted, π was fixed as the policy of that number before its plays and before `since`, and the plays are all those that
were planned, with their stakes, before they began, in the order of their starts, up to the first that was still
running.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from fractions import Fraction
from typing import Any, NamedTuple

if __package__:
    from rpl_agent.guarantee import checker
else:  # beside checker.py, without the package
    import checker  # type: ignore[import-not-found,no-redef]

from_file, need, up, down, BITS = checker.exact, checker.need, checker.up, checker.down, checker.BITS

FORMAT = "rpl-open-proof/2"
#: The stakes, for ever, and their weights 1/3 · (2/3)^k, times 3^11.
STAKES = [Fraction(97, 100) * Fraction(2, 5) ** k for k in range(11)]
WEIGHTS, WHOLE = [2**k * 3 ** (10 - k) for k in range(11)], 3**11
#: Planned stakes, by their places.
PLANNED_STAKES = [Fraction(99, 100) * Fraction(4, 5) ** k for k in range(64)]
#: Shares of δ.
ROWS, START, POLICIES = Fraction(1, 2), Fraction(1, 20), Fraction(449, 1000)
PLANNED, PLAYS, REST = Fraction(17, 20), Fraction(1, 20), Fraction(99, 1000)
#: Bits of a product, which is rounded down after every factor.
PRECISION = 96
#: Limits of a file: bounds of rows, and these times their outcomes.
MOST_TESTS, MOST_WORK = 5_000_000, 20_000_000
END = -1

Number = tuple[int, int]  # m · 2^e, by m and e


class Play(NamedTuple):
    """Plays of the policy that returned the same: minus what was earned and is left, rounded up."""

    worth: int
    often: int
    stake: int  # its place


# ====================================================================== bets
def times(a: Number, b: Number) -> Number:
    """The product, rounded down."""
    m, e = a[0] * b[0], a[1] + b[1]
    extra = m.bit_length() - PRECISION
    return (m >> extra, e + extra) if extra > 0 else (m, e)


def power(base: Number, n: int) -> Number:
    """The n-th power, rounded down after every product."""
    found: Number = (1, 0)
    while n:
        if n & 1:
            found = times(found, base)
        base, n = times(base, base), n >> 1
    return found


def grown(numbers: list[tuple[int, int]], stake: Fraction, m: int, ceiling: int) -> Number:
    """Π (1 + stake (m − y)/(ceiling − m)) over (y, how often), rounded down; m < ceiling."""
    p, q, room = stake.numerator, stake.denominator, ceiling - m
    total: Number = (1, 0)
    for y, count in numbers:
        factor = ((q * room + p * (m - min(y, ceiling))) << PRECISION) // (q * room)
        total = times(total, power((factor, -PRECISION), count))
    return total


def whole_part(number: Number) -> int:
    """The number times 2^64, rounded down."""
    shift = number[1] + 64
    return number[0] << min(shift, 1 << 16) if shift >= 0 else number[0] >> min(-shift, 1 << 16)


def plan_shows(plays: list[Play], m: int, ceiling: int, share: Fraction) -> bool:
    """Whether bets with planned stakes show that the mean of the plays' numbers is at most m; m < ceiling."""
    total: Number = (1, 0)
    for place, stake in enumerate(PLANNED_STAKES):
        own = [(play.worth, play.often) for play in plays if play.stake == place]
        total = times(total, grown(own, stake, m, ceiling))
    return whole_part(total) >= (1 << 64) / share


class Bet:
    """Whether bets show that a mean is at most m; `first` is the stake that won last, to be tried first."""

    def __init__(self) -> None:
        self.first = 5

    def shows(self, numbers: list[tuple[int, int]], m: int, ceiling: int, share: Fraction) -> bool:
        """numbers : (number, how often), at most the ceiling, all times 2^BITS; m too."""
        room, wanted, won = ceiling - m, (WHOLE << 64) / share, 0
        if room <= 0:
            return m >= ceiling
        for k in sorted(range(len(STAKES)), key=lambda k: abs(k - self.first)):
            won += WEIGHTS[k] * whole_part(grown(numbers, STAKES[k], m, ceiling))
            if won >= wanted:
                self.first = k
                return True
        return False


# ====================================================================== what is assumed, and what was counted
def whole(number: Any, least: int, what: str) -> int:
    """The whole number in the file; refused if it is anything else, or below ``least``."""
    fine = isinstance(number, int) and not isinstance(number, bool) and number >= least
    need(fine, f"{what} is {number!r}, not a whole number of at least {least}")
    return int(number)


def pair(given: Any, what: str) -> tuple[Fraction, Fraction]:
    """The two ends of a range in the file, in order."""
    low, high = map(from_file, given)
    need(low <= high, f"{what} has its ends in the wrong order")
    return low, high


class Assumed:
    """The facts that the reader states; `ceiling` is the most that a state can return, `floor` the least."""

    def __init__(self, data: dict[str, Any], states: int) -> None:
        self.discount, self.horizon = from_file(data["discount"]), data["horizon"]
        need(0 < self.discount <= 1, f"the discount is {float(self.discount)}")
        if self.horizon is not None:
            whole(self.horizon, 1, "the horizon")
        self.layers = self.horizon or 1
        need(self.layers * max(states, 1) <= MOST_TESTS, f"more than {MOST_TESTS:,} states times steps to go")
        self.deterministic = data["deterministic"]
        need(isinstance(self.deterministic, bool), "deterministic is neither true nor false")
        given, paid, own = (data[name] for name in ("returns", "rewards", "state_returns"))
        self.returns = None if given is None else pair(given, "the range of returns")
        self.rewards = None if paid is None else pair(paid, "the range of rewards")
        self.own = None if own is None else [pair(ends, "the returns of a state") for ends in own]
        need(self.own is None or len(self.own) >= states, "a state has no range of returns")
        need(self.own is None or self.returns is None, "returns are stated for all states and for each")
        need((given, paid, own) != (None, None, None), "neither returns nor rewards are bounded")
        self.known = data["known_states"]
        need(self.known is None or whole(self.known, 1, "known_states") >= states, "more states than there are")
        self._weights = self._sums()

    def _sums(self) -> list[Fraction]:
        """What a reward of 1 in every step returns, by steps to go, rounded up; one number without a horizon."""
        if self.horizon is None:
            bounded = self.returns is not None or self.discount < 1
            need(bounded, "rewards without a discount or a horizon bound nothing")
            return [1 / (1 - self.discount)] if self.discount < 1 else [Fraction(0)]
        found = [Fraction(1)]
        while len(found) < self.layers:
            found.append(Fraction(up(1 + self.discount * found[-1]), checker.ONE))
        return found

    def range_of(self, state: int | None, layer: int) -> tuple[int, int]:
        """(least, most) that a play from a state returns, with layer + 1 steps to go; of any state (None)."""
        ends = list[tuple[Fraction, Fraction]]()
        if self.rewards is not None and (self.horizon is not None or self.discount < 1):
            (low, high), weight = self.rewards, self._weights[layer]
            ends.append((low if low >= 0 else low * weight, high if high <= 0 else high * weight))
        given = self.returns if self.own is None or state is None else self.own[state]
        if given is not None:
            partly = self.horizon is not None and layer + 1 < self.layers  # a play may be nearly over
            ends.append((min(given[0], Fraction(0)), max(given[1], Fraction(0))) if partly else given)
        low, high = max(low for low, _ in ends), min(high for _, high in ends)
        need(low <= high, "the stated ranges exclude each other")
        return down(low), up(high)

    def share(self, state: int) -> Fraction:
        """The share of the state with this number, from 0, by first visit."""
        if self.known is not None:
            return Fraction(1, self.known)
        j = (state + 1).bit_length() - 1
        return Fraction(1, (1 << j) * (j + 1) * (j + 2))


class Outcome(NamedTuple):
    """What followed a row, and how often."""

    row: int
    reward: Fraction
    successor: int
    number: int


class Data:
    """Outcomes of rows, and starts; row s · actions + a is action a in state s."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.states, self.actions = whole(data["states"], 1, "states"), whole(data["actions"], 1, "actions")
        need(self.states * self.actions <= MOST_TESTS, f"more than {MOST_TESTS:,} rows")
        self.outcomes = [self._outcome(*given) for given in data["outcomes"]]
        distinct = {(o.row, o.reward, o.successor) for o in self.outcomes}
        need(len(distinct) == len(self.outcomes), "an outcome is counted twice")
        self.starts = [(whole(s, 0, "a start"), whole(n, 1, "a number of starts")) for s, n in data["starts"]]
        need(len(dict(self.starts)) == len(self.starts) > 0, "there is no start, or one is counted twice")
        need(all(s < self.states for s, _ in self.starts), "a start does not exist")
        self.episodes, self.steps = sum(n for _, n in self.starts), sum(o.number for o in self.outcomes)

    def _outcome(self, row: Any, reward: Any, successor: Any, count: Any) -> Outcome:
        fine = whole(row, 0, "a row") < self.states * self.actions and END <= successor < self.states
        need(isinstance(successor, int) and fine, "an outcome has a row or a successor that does not exist")
        return Outcome(row, from_file(reward), successor, whole(count, 1, "a count"))

    def by_row(self, counts: list[int]) -> list[list[tuple[int, int, int]]]:
        """Per row (reward rounded up, successor, count)."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(self.states * self.actions)]
        for outcome, count in zip(self.outcomes, counts, strict=True):
            if count:
                found[outcome.row].append((up(outcome.reward), outcome.successor, count))
        return found

    def respects(self, assumed: Assumed, successors: list[list[int]] | None) -> None:
        """Refuse data that contradict a stated fact."""
        seen = set[int]()
        for row, reward, successor, _ in self.outcomes:
            if assumed.rewards is not None:
                low, high = assumed.rewards
                slack = Fraction(1, 10**9) * max(Fraction(1), abs(low), abs(high))  # sums of floats
                need(low - slack <= reward <= high + slack, f"the reward {float(reward)} is outside its range")
            need(successors is None or successor in successors[row], f"a successor of row {row} is not among the given")
            need(not (assumed.deterministic and row in seen), f"row {row} has two outcomes, but one is assumed")
            seen.add(row)


# ====================================================================== bounds of values
class Values:
    """Upper bounds of the values of states, from the outcomes of their rows; for lower ones every number is negated.

    rows : per state its rows' numbers in ``outcomes``; ``share``: of δ for all rows of all states; turned : −1 for
    lower bounds.
    """

    def __init__(
        self,
        assumed: Assumed,
        outcomes: list[list[tuple[int, int, int]]],
        rows: list[list[list[int]]],
        share: Fraction,
        turned: int = 1,
    ) -> None:
        self.assumed, self.outcomes, self.rows, self.turned = assumed, outcomes, rows, turned
        number = max(len(rows[0][0]), 1) * assumed.layers
        self.shares = [share / number * assumed.share(s) for s in range(len(rows[0]))]
        self.bets = [Bet() for _ in outcomes]
        self.successors: list[list[int]] | None = None
        need(len(rows[0]) * assumed.layers <= MOST_TESTS, f"more than {MOST_TESTS:,} values")

    def ceilings(self, layer: int) -> list[int]:
        """(S) the most that a state's value can be."""
        side = 1 if self.turned > 0 else 0
        if self.assumed.own is None:
            return [self.turned * self.assumed.range_of(None, layer)[side]] * len(self.rows[0])
        return [self.turned * self.assumed.range_of(s, layer)[side] for s in range(len(self.rows[0]))]

    def holds(self, row: int, state: int, m: int, ceiling: int, after: list[int], layer: int) -> bool:
        """Whether r + γ after[s'] has a mean of at most m in a row; ``after`` bounds the values of what follows."""
        if m >= ceiling:
            return True
        numbers = []
        for reward, successor, count in self.outcomes[row]:
            rest = 0 if successor == END else after[successor]
            numbers.append((self.turned * reward + up_times(self.assumed.discount, rest) + (self.turned < 0), count))
        if self.successors is not None and m >= self.cap(row, after, layer):
            return True
        if self.assumed.deterministic:
            return bool(numbers) and m >= numbers[0][0]
        return bool(numbers) and self.bets[row].shows(numbers, m, ceiling, self.shares[state])

    def cap(self, row: int, after: list[int], layer: int) -> int:
        """The largest reward and the largest value of what may follow."""
        assert self.successors is not None and self.assumed.rewards is not None
        worth = list[int]()
        for s in self.successors[row]:
            worth.append(0 if s == END else after[s] if s < len(after) else self._strange(s, layer))
        return up(self.assumed.rewards[1]) + up_times(self.assumed.discount, max(worth))

    def _strange(self, state: int, layer: int) -> int:
        """The most that a state which was never visited can return, with one step less to go."""
        if self.assumed.horizon is None:
            return self.assumed.range_of(state if self.assumed.own else None, 0)[1]
        return self.assumed.range_of(state if self.assumed.own else None, layer - 1)[1] if layer else 0

    def layered(self, values: list[list[Any]]) -> list[list[int]]:
        """(H, S) bounds with h + 1 steps to go, each from those with one step less."""
        need(len(values) == self.assumed.layers, "values of a wrong number of steps to go")
        found, after = list[list[int]](), [0] * len(self.rows[0])
        for layer, given in enumerate(values):
            ceilings, now = self.ceilings(layer), list[int]()
            need(len(given) == len(ceilings), "a state has no value")
            for s, (value, ceiling) in enumerate(zip(given, ceilings)):
                m = ceiling if value is None else min(down(from_file(value)), ceiling)
                for row in self.rows[layer][s]:
                    fits = self.holds(row, s, m, ceiling, after, layer)
                    need(fits, f"the value of state {s} with {layer + 1} steps to go does not follow in row {row}")
                now.append(m)
            found.append(now)
            after = now
        return found

    def settled(self, steps: list[Any]) -> list[int]:
        """(S) bounds without a horizon: each step (row, bound) follows from the values that earlier steps gave."""
        need(len(steps) <= MOST_TESTS, f"more than {MOST_TESTS:,} steps")
        ceilings, states = self.ceilings(0), dict[int, int]()
        for s, rows in enumerate(self.rows[0]):
            states |= dict.fromkeys(rows, s)
        bound = {row: ceilings[s] for row, s in states.items()}
        values = list(ceilings)
        for row, given in steps:
            need(row in bound, f"row {row!r} does not exist")
            s, m = states[row], down(from_file(given))
            need(self.holds(row, s, m, ceilings[s], values, 0), f"the bound {given!r} of row {row} does not follow")
            bound[row] = min(bound[row], m)
            values[s] = max(bound[r] for r in self.rows[0][s])
        return values

    def proved(self, part: dict[str, Any]) -> list[list[int]]:
        """(H, S) the bounds that a part of the file proves; without a horizon H is 1."""
        work = sum(map(len, self.outcomes)) * self.assumed.layers
        need(work <= MOST_WORK, f"more than {MOST_WORK:,} outcomes times steps to go")
        return [self.settled(part["steps"])] if self.assumed.horizon is None else self.layered(part["values"])


def up_times(factor: Fraction, number: int) -> int:
    """factor · number, rounded up."""
    return -(-factor.numerator * number // factor.denominator)


# ====================================================================== the claim
class Statement:
    """The content of a file."""

    def __init__(self, proof: dict[str, Any]) -> None:
        need(proof.get("format") == FORMAT, f"the format is {proof.get('format')!r}, not {FORMAT!r}")
        need("refused" not in proof, f"the file has no proof: {proof.get('refused')}")
        self.proof, self.delta, told = proof, from_file(proof["delta"]), proof["assumed"]
        need(0 < self.delta < 1, f"delta is {float(self.delta)}")
        self.data = Data(proof["data"])
        self.assumed = Assumed(told, self.data.states)
        self.successors = self._successors(told["successors"])
        self.data.respects(self.assumed, self.successors)
        self.overall = self._overall(told["overall"])
        self.slack = max(checker.ONE, *map(abs, self.overall)) // 10**9  # returns are sums of floats

    def _successors(self, given: Any) -> list[list[int]] | None:
        """Per row the states that may follow it, −1 for the end; None if nothing was stated."""
        if given is None:
            return None
        need(self.assumed.rewards is not None, "successors without a range of rewards bound nothing")
        need(len(given) == self.data.states * self.data.actions, "successors of a wrong number of rows")
        known = self.data.states if self.assumed.own is None else len(self.assumed.own)
        for row, following in enumerate(given):
            need(bool(following), f"nothing follows row {row}")
            for s in following:
                strange = self.assumed.own is None or s < known
                need(isinstance(s, int) and s >= END and strange, f"a successor of row {row} does not exist")
        return given  # type: ignore[no-any-return]

    def _overall(self, given: Any) -> tuple[int, int]:
        """(least, most) of the start, which may be any state."""
        if self.assumed.returns is not None or self.assumed.own is None:
            return self.assumed.range_of(None, self.assumed.layers - 1)
        if given is None:
            return self.assumed.range_of(None, self.assumed.layers - 1)
        low, high = pair(given, "the range of all returns")
        fits = all(low <= a and b <= high for a, b in self.assumed.own)
        need(fits, "a state's returns are outside the range of all returns")
        return down(low), up(high)

    def upper(self) -> int:
        """No policy returns more, times 2^BITS."""
        part = self.proof["upper"]
        if part is None:
            return self.overall[1]
        rows = [[self.data.actions * s + a for a in range(self.data.actions)] for s in range(self.data.states)]
        counts = [o.number for o in self.data.outcomes]
        layers = [rows] * self.assumed.layers
        bounds = Values(self.assumed, self.data.by_row(counts), layers, ROWS * self.delta)
        bounds.successors = self.successors
        values, claimed = bounds.proved(part)[-1], down(from_file(part["start"]))
        numbers = [(values[s], n) for s, n in self.data.starts]
        share = START + ROWS if self.assumed.deterministic else START
        fits = Bet().shows(numbers, claimed, self.overall[1], share * self.delta)
        need(fits, f"the bound {part['start']!r} of the start does not follow from those of its states")
        return claimed

    def lower(self) -> int:
        """The policy returns at least this, times 2^BITS."""
        part = self.proof["lower"]
        if part is None:
            return self.overall[0]
        number = whole(part["policy_number"], 1, "the number of the policy")
        share = POLICIES * self.delta * 4 / (number * (number + 1) * (number + 2))
        rest = self._rest(part, REST * share)
        plays = [self._play(play, rest) for play in part["plays"]]
        need(sum(play.often for play in plays) <= self.data.episodes, "more plays of the policy than episodes")
        claimed, floor = up(from_file(part["start"])), self.overall[0]
        fits = claimed <= floor or plan_shows(plays, -claimed, -floor, PLANNED * share)
        fits = fits or Bet().shows([play[:2] for play in plays], -claimed, -floor, PLAYS * share)
        need(fits, f"the bound {part['start']!r} of the policy does not follow from its plays")
        return claimed

    def _play(self, given: Any, rest: list[list[int]] | None) -> Play:
        """Plays in the file that returned the same; ``rest`` (H, S) bounds what follows a cut, negated."""
        earned, steps, cut, count, stake = given
        worth = -down(from_file(earned))
        if whole(cut, END, "the state of a cut") != END:
            worth += self._after(whole(steps, 0, "the steps of a play"), cut, rest)
        else:  # below it, what was earned would count as the least return
            need(-worth >= self.overall[0] - self.slack, f"a play returned {earned!r}, less than any play can")
        need(-worth <= self.overall[1] + self.slack, f"a play returned {earned!r}, more than any play can")
        need(whole(stake, 0, "the stake of a play") < len(PLANNED_STAKES), "the stake of a play does not exist")
        return Play(worth, whole(count, 1, "a number of plays"), stake)

    def _after(self, steps: int, state: int, rest: list[list[int]] | None) -> int:
        """−γ^T Lo(s) rounded up, for a play that was cut in state s after T steps."""
        if rest is None:
            raise checker.Refused("a play was cut, and there are no bounds of what follows")
        need(state < self.data.states, "a play was cut in a state that does not exist")
        layer = 0 if self.assumed.horizon is None else self.assumed.layers - 1 - steps
        need(layer >= 0, "a play was cut after its horizon")
        value = rest[layer][state]
        low, high = Discounts(self.assumed.discount).enclosed(steps)
        return -(-(high if value > 0 else low) * value >> BITS)

    def _rest(self, part: dict[str, Any], share: Fraction) -> list[list[int]] | None:
        """(H, S) −Lo, from the outcomes of the policy's rows since it was fixed; None if no play was cut."""
        rules, actions = part["rules"], self.data.actions
        need(len(rules) == self.assumed.layers, "the policy has a wrong number of steps to go")
        fine = all(isinstance(a, int) and 0 <= a < actions for rule in rules for a in rule)
        need(fine and all(len(rule) == self.data.states for rule in rules), "the policy plays what does not exist")
        if part["rest"] is None:
            return None
        since = [0] * len(self.data.outcomes)
        for k, count in part["since"]:
            known = whole(k, 0, "an outcome") < len(since) and since[k] == 0
            possible = known and whole(count, 1, "a count") <= self.data.outcomes[k].number
            need(possible, "outcomes since the policy was fixed exceed all outcomes")
            since[k] = count
        rows = [[[actions * s + a] for s, a in enumerate(rule)] for rule in rules]
        return Values(self.assumed, self.data.by_row(since), rows, share, -1).proved(part["rest"])


class Discounts:
    """Powers of the discount, enclosed."""

    def __init__(self, discount: Fraction) -> None:
        self._ends = down(discount), up(discount)

    def enclosed(self, steps: int) -> tuple[int, int]:
        """Both ends of the discount to the power ``steps``, times 2^BITS."""
        return _power(self._ends[0], steps, 1), _power(self._ends[1], steps, -1)


def _power(base: int, n: int, side: int) -> int:
    """The n-th power, rounded down (side 1) or up (−1) after every product."""
    total = checker.ONE
    while n:
        total = side * (side * total * base >> BITS) if n & 1 else total
        base, n = side * (side * base * base >> BITS), n >> 1
    return total


def check(proof: dict[str, Any]) -> dict[str, Any]:
    """What the file proves; raises `checker.Refused` with the reason if something fails."""
    statement, claim = Statement(proof), proof["claim"]
    upper, lower = (Fraction(bound, checker.ONE) for bound in (statement.upper(), statement.lower()))
    need(lower <= upper, "the policy returns more than any policy can: the data or the facts are false")
    need(from_file(claim["upper"]) >= upper, f"upper {claim['upper']!r} is claimed, but {float(upper)!r} is proved")
    need(from_file(claim["lower"]) <= lower, f"lower {claim['lower']!r} is claimed, but {float(lower)!r} is proved")
    plays = sum(count for *_, count, _ in proof["lower"]["plays"]) if proof["lower"] is not None else 0
    return {"lower": claim["lower"], "upper": claim["upper"], "plays": plays, "statement": statement}


def sentence(proof: dict[str, Any], found: dict[str, Any]) -> str:
    """What was proved, as one sentence."""
    data = found["statement"].data
    return (
        f"proved with probability ≥ 1 − {proof['delta']} over {data.steps:,} steps of {data.episodes:,} episodes: this "
        f"policy returns at least {found['lower']} (it was played {found['plays']:,} times); no policy returns more "
        f"than {found['upper']}"
    )


def question(proof: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What was asked and assumed, one line each; names are quoted and cut, so that none can imitate a line."""
    told, statement = proof["assumed"], found["statement"]
    data, assumed, lower = statement.data, statement.assumed, proof["lower"]
    horizon = "none" if told["horizon"] is None else told["horizon"]
    tried = len({o.row for o in data.outcomes})
    facts = ["observations are a Markov state"]
    for name in ("returns", "rewards"):
        facts += [] if told[name] is None else [f"{name} lie in [{told[name][0]}, {told[name][1]}]"]
    if told["state_returns"] is not None:
        facts.append(f"returns from each state lie in a range of its own, SHA-256 {digest(told['state_returns'])}")
        facts += [] if told["overall"] is None else [f"all these ranges lie in {told['overall']}"]
    facts += ["every action has one outcome"] if assumed.deterministic else []
    if told["successors"] is not None:
        facts.append(f"only the given states follow a row, SHA-256 {digest(told['successors'])}")
    facts += [] if assumed.known is None else [f"there are at most {assumed.known:,} states"]
    lines = [
        f"objective: max return; discount {told['discount']}; horizon {horizon}",
        f"world: {checker.quoted(proof['world'])}, {data.states:,} states seen in the order of their first visits, "
        f"{data.actions:,} actions",
        *(f"assumed: {fact}" for fact in facts),
        f"rows: {tried:,} tried, {data.states * data.actions - tried:,} never tried count as the largest return",
        f"data: SHA-256 {digest(proof['data'])}",
    ]
    if lower is not None:
        name = f"number {lower['policy_number']} of those fixed, SHA-256 {digest([lower['rules'], lower['unseen']])}"
        lines.append(f"policy: {name}; fixed before its plays, every play that was begun counts")
        lines.append(f"plays: SHA-256 {digest([lower['plays'], lower['since']])}")
    return [*lines, f"delta: {proof['delta']}"]


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def main(arguments: list[str]) -> int:
    """Return 0 if proved, 1 if refused, 2 if there is no file to read; files of other proofs go to `checker.main`."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    try:
        proof = checker.read(arguments[0])
        if not str(proof.get("format", "")).startswith("rpl-open-proof"):
            return int(checker.main(arguments))
        found = check(proof)
        lines = [sentence(proof, found), *question(proof, found)]
    except (checker.Refused, *checker.MALFORMED) as error:
        text = str(error) if isinstance(error, checker.Refused) else f"the file is malformed: {error!r}"
        print(f"refused: {checker.shortened(text)}")
        return 1
    except OSError as error:
        print(error)
        return 2
    print("\n  ".join(lines))
    return 0


def command() -> None:
    """Run `main` on the words of the shell."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the reader closes, as with `| head`
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    command()
