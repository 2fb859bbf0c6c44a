"""How much data is needed: the expected gap and regret after n episodes, from a guess of θ, before any data are drawn.

1. *Visits.* The agent's planner sees data drawn at the guess and chooses what to sample next, from few
   episodes to many, as in a run. Every block of episodes has expected visits per row.
2. *σ.* The Fisher information of these visits gives the standard deviation of the value, σ² = G'I⁻¹G with G the
   value's gradient. A single interval for the value alone cannot be narrower than 2 z σ.
3. *Price.* The cost of the confidence set beyond that has no formula, so it is computed: data are drawn at the
   guess, row by row and not step by step (10^9 episodes cost as much as 10^5), and certified like real data.

A forecast is an estimate without a guarantee: it is as good as the guess. It ignores that a run keeps
the best of its certificates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent.agent.exploration import Exploration, ForCertificate, alternates, optimistic_share
from rpl_agent.agent.exploration.design import optimum_gradient
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.agent.planner import Planner
from rpl_agent.agent.sampling.experience import Experience
from rpl_agent.agent.schedule import RegretGoal
from rpl_agent.core.coupled.attribution import DENSE_PARAMETERS, fisher_information, point_frame, slopes
from rpl_agent.core.errors import ModelError, require_count, require_positive
from rpl_agent.core.evidence.counts import MOST, Counts
from rpl_agent.core.evidence.marks import bet_shares
from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.model.simulate import absorbing_states, row_visits
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config

#: Episodes of the first block, and how fast blocks grow.
FIRST, GROWTH = 4, 1.25
#: Beyond this many episodes the plan is kept: it has converged.
PLAN_KEPT = 200_000
#: Steps for which a play is followed if nothing cuts it.
FOLLOWED = 10_000
#: Marks are taken between slices of the data: at blocks, and at this many shares of the plan.
SLICES = 40
#: Default numbers of episodes of a curve. A search for a gap starts at the first number, and ends when the gap is met
#: and less than this share of it is left over, or after this many evaluations.
CURVE = (100, 1_000, 10_000, 100_000, 1_000_000)
START, CLOSE, TRIES = 1_000, 0.02, 8
#: Fewest and most data sets for each number of episodes; more are drawn while the standard error of the mean gap
#: exceeds this share of the gap. With few data and badly identified parameters gaps differ by a factor of two.
FEWEST_DRAWS, MOST_DRAWS, PRECISE = 3, 32, 0.05
#: Multiples of a search's answer that are drawn as well.
AROUND = (0.01, 0.1, 10.0)


class Sampler(NamedTuple):
    """The source of the data: the agent, or a policy."""

    limit: int | None  # steps after which the environment cuts an episode
    weight: float = 0.9
    exploration: Exploration = ForCertificate()
    policy: Policy | None = None


@dataclass(frozen=True, eq=False)
class Forecast:
    """A forecast; arrays (n,), one entry per number of episodes."""

    episodes: np.ndarray  # increasing
    gap: np.ndarray  # upper − lower, mean over the draws
    least: np.ndarray  # gap over the draws
    most: np.ndarray
    sigma: np.ndarray  # remaining standard deviation of the value, nan if unknown
    value: float  # the optimum at the guess
    steps: float  # mean number of steps in an episode
    delta: float
    regret: np.ndarray  # mean over the draws
    wanted: float | None = None  # gap, or regret
    needed: int | None = None  # episodes for it
    aim: str = "gap"  # what is wanted, "gap" or "regret"

    @property
    def ideal(self) -> np.ndarray:
        """The width of a single interval for the value alone, 2 z σ."""
        return -2.0 * scipy.special.ndtri(self.delta / 2.0) * self.sigma

    @property
    def price(self) -> np.ndarray:
        """Gap over ideal: the price of a bound that holds at all times, for a policy chosen from the data."""
        return self.gap / self.ideal

    def table(self) -> list[dict[str, float]]:
        """One row per number of episodes."""
        columns = {"gap": self.gap, "least": self.least, "most": self.most, "sigma": self.sigma, "price": self.price}
        columns["regret"] = self.regret
        return [
            {"episodes": int(n), **{name: float(column[k]) for name, column in columns.items()}}
            for k, n in enumerate(self.episodes)
        ]

    def plot(self, path: Any, title: str = "") -> None:
        """Plot the curve to a file; its suffix determines the format."""
        from rpl_agent.agent.output.plotting.forecast import plot_forecast

        plot_forecast(self, path, title)


def forecast(
    pmdp: ParametricMDP,
    objective: Objective,
    theta: np.ndarray | Mapping[str, float],
    config: Config,
    sampler: Sampler,
    *,
    gap: float | None = None,
    regret: float | str | None = None,
    episodes: Sequence[int] = (),
    draws: int | None = None,
    seed: int = 0,
) -> Forecast:
    """The expected gap and regret: after each of ``episodes``, or around the number that ``gap`` or ``regret`` needs.

    regret : an amount, or a share of the value such as "1%"
    draws : data sets per number of episodes; None: as many as `enough` asks for.
    """
    _check_wishes(gap, regret, episodes, draws)
    guess = (pmdp, objective, theta, config, sampler)
    imagined = _Imagined(*guess, np.random.default_rng([seed]))
    value = imagined.best.middle
    # Optimism tries a row until it has seen enough of it. With many unknowns, some of them rarely seen, data must
    # therefore decide what is tried next: each data set is a run of its own.
    in_turn = alternates(pmdp) and sampler.policy is None and pmdp.num_parameters <= DENSE_PARAMETERS
    known: dict[int, np.ndarray] = {}  # episodes -> (2, draws) gaps and regrets

    def drawn(n: int) -> np.ndarray:
        if n not in known:
            found: list[tuple[float, float]] = []
            while not (enough([one for one, _ in found]) if draws is None else len(found) == draws):
                rng = np.random.default_rng([seed, n, len(found)])
                data = _Imagined(*guess, rng, n).data() if in_turn else imagined.draw(n, rng)
                certificate = certify(pmdp, data, objective, config)
                found.append((certificate.gap, certificate.regret))
            known[n] = np.array(found).T
        return known[n]

    needed, wanted = None, gap
    if gap is not None:
        needed = _search(lambda n: drawn(n)[0], gap, imagined.most)
    elif regret is not None:
        wanted = RegretGoal.parse(regret).most(value, value)
        needed = _search_regret(lambda n: float(drawn(n)[1].mean()), wanted, imagined.most)
    asked = episodes or (CURVE if needed is None else [max(1, round(share * needed)) for share in AROUND])
    points = np.unique([n for n in (*asked, *([] if needed is None else [needed])) if n <= imagined.most])
    gaps, regrets = zip(*(drawn(n) for n in points.tolist()))
    mean, least, most = (np.array([summary(g) for g in gaps]) for summary in (np.mean, np.min, np.max))
    return Forecast(
        points,
        mean,
        least,
        most,
        imagined.sigma(points),
        value,
        imagined.steps,
        config.delta,
        np.array([one.mean() for one in regrets]),
        wanted,
        needed,
        "gap" if regret is None else "regret",
    )


def _check_wishes(gap: Any, regret: Any, episodes: Sequence[Any], draws: Any) -> None:
    """Raise unless these are what `forecast` takes."""
    if gap is not None:
        require_positive("gap", gap)
        if gap == np.inf:
            raise ModelError("gap inf must be finite: leave it out for a curve")
    if gap is not None and regret is not None:
        raise ModelError("plan for a gap or for a regret, one at a time")
    for number in episodes:
        require_count("episodes", number)
    if draws is not None:
        require_count("draws", draws)


def enough(gaps: Sequence[float]) -> bool:
    """Whether these gaps are enough to determine their mean."""
    n = len(gaps)  # infinite gaps have no deviation
    return n >= MOST_DRAWS or (n >= FEWEST_DRAWS and not np.std(gaps, ddof=1) > PRECISE * np.mean(gaps) * n**0.5)


def _search_regret(mean: Callable[[int], float], wanted: float, most: int) -> int:
    """The least number of episodes found after which the mean regret is small enough.

    Regrets fall with the data, and to zero at once where a policy is proved to be the best: the search keeps a bracket.
    """
    n, low, high = min(START, most), 0, None
    for _ in range(TRIES):
        found = mean(n)
        if found <= wanted:
            high = n
        else:
            low = n
        if n == most and high is None:
            raise ModelError(f"a regret of {wanted:g} needs more than {most:,} episodes, as many as can be counted")
        if high == 1 or (high is not None and high - low <= max(1, CLOSE * high)):
            break
        factor = float(np.clip(found / wanted if np.isfinite(found) else 100.0, 1e-2, 1e2))
        ahead = round(n * (max(factor, 2.0) if found > wanted else min(factor, 0.5)))
        if high is not None and not low < ahead < high:
            ahead = round((max(low, 1) * high) ** 0.5)
        n = int(np.clip(ahead, low + 1, most if high is None else max(high - 1, 1)))
    if high is None:
        raise ModelError(f"a regret of {wanted:g} takes more than {low:,} episodes: give a larger one")
    return high


def _search(drawn: Any, gap: float, most: int) -> int:
    """The least number of episodes found after which the mean gap is small enough."""
    n, least = min(START, most), None
    for _ in range(TRIES):
        mean = float(drawn(n).mean())
        if mean <= gap:
            least = n if least is None else min(least, n)
            if n == 1 or mean >= (1.0 - CLOSE) * gap:
                break
        elif n == most:
            raise ModelError(f"a gap of {gap:g} needs more than {most:,} episodes, as many as can be counted")
        aim = (1.0 - 0.5 * CLOSE) * gap
        factor = (mean / aim) ** 2 if np.isfinite(mean) else 100.0
        ahead = int(np.clip(round(n * np.clip(factor, 1e-3, 1e4)), 1, most))
        if ahead == n:
            if mean <= gap:
                break
            ahead = n + 1
        n = ahead
    return n if least is None else least


class _Imagined:
    """Simulated runs at a guess: expected visits per row, block by block.

    planned : the episodes of a single run, if the data are to be its own
    """

    def __init__(
        self,
        pmdp: ParametricMDP,
        objective: Objective,
        theta: Any,
        config: Config,
        sampler: Sampler,
        rng: np.random.Generator,
        planned: int | None = None,
    ):
        self.pmdp, self.objective, self.sampler, self._rng = pmdp, objective, sampler, rng
        self._plan = planned  # episodes of a single run, whose data have bets
        self.mdp = pmdp.instantiate(theta)
        self.stop = objective.resolve(pmdp).decided | absorbing_states(pmdp)
        self.best = solve_at(pmdp, self.mdp.theta, objective)
        self._planner, self._data = Planner(pmdp, objective, config), Experience(pmdp).counts
        self._ends: list[int] = []  # episodes at the end of each block
        self._visits: list[np.ndarray] = []  # (R,) per episode of each block
        self._extend(1)

    @property
    def steps(self) -> float:
        """Mean length of an episode of the last block."""
        return float(self._visits[-1][~self.pmdp.is_silent[self.pmdp.row_state]].sum())

    @property
    def most(self) -> int:
        """The most episodes that can be counted."""
        return int(MOST / (4.0 * max(1.0, self._visits[-1].sum())))

    def _extend(self, episodes: int) -> None:
        while not self._ends or (self._ends[-1] < episodes and self._ends[-1] != MOST):
            done = self._ends[-1] if self._ends else 0
            end = max(FIRST, int(done * GROWTH))
            if self.sampler.policy is not None:
                end, visits = MOST, self._followed(self.sampler.policy)
            elif done >= PLAN_KEPT:  # a run samples a mixture along the way, and so do later blocks
                recent = [v for v, e in zip(self._visits, self._ends) if e > done / 2]
                end, visits = MOST, np.mean(recent, axis=0)
            else:
                visits = self._planned(done)
            self._ends.append(end)
            self._visits.append(visits)
            if self._plan is not None:
                self._live(done, min(end, self._plan), visits)
            elif end < MOST:
                self._see((end - done) * visits)

    def _see(self, mean: np.ndarray) -> None:
        """Add outcomes of so many visits (R,), rounded up or down without bias."""
        visits = np.floor(mean + self._rng.random(len(mean))).astype(np.int64)
        self._data.add_batch(self._outcomes(visits, self._rng))

    def _live(self, done: int, end: int, visits: np.ndarray) -> None:
        """The episodes of a block, in slices between which marks can be taken."""
        assert self._plan is not None
        for until in self._slices(self._plan):
            if done < until <= end:
                self._see((until - done) * visits)
                self._data.bet(until / self._plan)
                done = until
        if done < end:
            self._see((end - done) * visits)

    def _slices(self, episodes: int) -> list[int]:
        """Numbers of episodes at which marks can be taken."""
        shares = [round(episodes * k / SLICES) for k in range(1, SLICES)]
        shares += [round(episodes * share) for share in bet_shares(self.pmdp)]
        return sorted({e for e in [*shares, episodes] if 0 < e <= episodes})

    def data(self) -> Counts:
        """The data of the planned run, in which what is tried depends on what was seen."""
        assert self._plan is not None
        self._extend(self._plan)
        return self._data

    def _planned(self, done: int) -> np.ndarray:
        """Visits of the agent's next episodes after this many."""
        planner, goal = self._planner, SamplingGoal(done, False, self.sampler.limit) if done else None
        policy = planner.plan(self._data, self.sampler.exploration, goal)
        if policy is None:
            return self._visits[-1]
        visits = self._followed(policy.at(0).mixed(self.pmdp, self.sampler.weight))
        if planner.informative is None:
            return visits
        share = optimistic_share(done, max(FIRST, int(done * GROWTH)), alternates(self.pmdp))
        return share * visits + (1.0 - share) * self._followed(planner.informative)

    def _followed(self, policy: Policy) -> np.ndarray:
        """(R,) visits per episode; none in states where episodes end."""
        steps = FOLLOWED if self.sampler.limit is None else self.pmdp.solver_step(self.sampler.limit)
        visits = row_visits(self.mdp, policy, steps, self.stop)
        return np.where(self.stop[self.pmdp.row_state], 0.0, visits)

    def _total(self, episodes: int) -> np.ndarray:
        """(R,) visits in the first ``episodes``."""
        self._extend(episodes)
        bounds = np.minimum(np.concatenate([[0], self._ends]), episodes)
        return np.tensordot(np.diff(bounds).astype(float), np.array(self._visits), 1)

    def draw(self, episodes: int, rng: np.random.Generator) -> Counts:
        """Data of this many episodes, in slices between which marks can be taken."""
        self._extend(episodes)
        ends = sorted({e for e in self._ends if e <= episodes} | set(self._slices(episodes)))
        counts, before = Experience(self.pmdp).counts, np.zeros(self.pmdp.num_rows, dtype=np.int64)
        offset = rng.random(self.pmdp.num_rows)  # rounds expected visits up or down without bias
        for end in ends:
            visits = np.floor(self._total(end) + offset).astype(np.int64)
            counts.add_batch(self._outcomes(visits - before, rng))
            counts.bet(end / episodes)
            before = visits
        return counts

    def _outcomes(self, visits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(T,) successors of visits (R,): one multinomial per row, drawn successor by successor."""
        pmdp, p = self.pmdp, self.mdp.probability
        found, left = np.zeros(pmdp.num_transitions, dtype=np.int64), visits.copy()
        rest = np.ones(pmdp.num_rows)
        sizes = np.diff(pmdp.row_ptr)
        rows = np.flatnonzero(left > 0)
        for k in range(int(sizes.max(initial=0))):
            rows = rows[(sizes[rows] > k) & (left[rows] > 0)]
            t = pmdp.row_ptr[rows] + k
            last = sizes[rows] == k + 1
            chance = np.where(last, 1.0, np.clip(p[t] / np.maximum(rest[rows], 1e-300), 0.0, 1.0))
            found[t] = rng.binomial(left[rows], chance)
            left[rows] -= found[t]
            rest[rows] -= p[t]
        return found

    def sigma(self, episodes: np.ndarray) -> np.ndarray:
        """(n,) standard deviation of the value after each number of episodes."""
        pmdp, theta, best, found = self.pmdp, self.mdp.theta, self.best, []
        few = pmdp.num_parameters <= DENSE_PARAMETERS and slopes(pmdp, theta) is not None
        gradient = optimum_gradient(best.problem, point_frame(pmdp, theta), best.policy) if few else None
        if gradient is None:
            return np.full(len(episodes), np.nan)
        for n in episodes.tolist():
            amounts = np.bincount(
                pmdp.expression, self._total(n)[pmdp.transition_row] * self.mdp.probability, pmdp.num_expressions
            )
            inverse = np.linalg.pinv(fisher_information(pmdp, amounts, theta), rcond=1e-12, hermitian=True)
            found.append(float(np.sqrt(max(gradient @ inverse @ gradient, 0.0))))
        return np.array(found)
