"""Learners that differ in the model that they plan in: R-MAX, UCRL2, UCBVI, PSRL, and greedily in the estimate."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.likelihood.estimate import point_estimate
from rpl_agent.model import Policy


class RMax(ModelBased):
    """R-MAX (Brafman and Tennenholtz 2002) for total rewards and reachability.

    A row is known after ``known_after`` visits, then taken at its frequencies; until then it is as good as can be.

    "As good as can be" is the value of the row's best successor: the support graph is known, so the original's
    global maximum can be replaced by it. Replans when rows become known or double, not in between.
    """

    name: ClassVar[str] = "rmax"

    def __init__(self, *, known_after: int = 20, **common: Any):
        super().__init__(**common)
        if known_after < 1:
            raise ModelError(f"known_after {known_after} must be at least 1")
        self.known_after = known_after

    def _explore(self) -> Policy:
        unknown = self.row_count < self.known_after
        radius = np.where(unknown, 2.0, 0.0)  # radius 2 is the whole simplex over the support
        return self._planned(self.frequencies(), radius=radius)


class UCRL2(ModelBased):
    """UCRL2 (Jaksch, Ortner and Auer 2010): optimism over L1 balls, by extended value iteration.

    Plan in the best model within ‖p − p̂‖₁ ≤ sqrt(14 m ln(2 R t / δ) / N), until a row's count doubles.

    The radius is the original's with the number S of states replaced by the number m of successors of the
    row (the support graph is known), SA by the number R of rows, t the steps so far. Rewards are known. The
    objective is the episodes' total value instead of the average reward: extended value iteration is the same.
    """

    name: ClassVar[str] = "ucrl2"

    def __init__(self, *, delta: float = 0.05, **common: Any):
        super().__init__(**common)
        if not 0 < delta < 1:
            raise ModelError(f"delta {delta} is outside (0, 1)")
        self.delta = delta

    def radius(self) -> np.ndarray:
        """(R,) L1 radii; a row with one successor has nothing to learn."""
        pmdp = self.world.pmdp
        successors = np.diff(pmdp.row_ptr)
        log = np.log(2.0 * pmdp.num_rows * max(1, self.num_timesteps) / self.delta)
        return np.where(successors > 1, np.sqrt(14.0 * successors * log / np.maximum(1, self.row_count)), 0.0)

    def _explore(self) -> Policy:
        return self._planned(self.frequencies(), radius=self.radius())


class UCBVI(ModelBased):
    """UCBVI (Azar, Osband and Munos 2017) with Hoeffding bonuses, for total rewards and reachability.

    Plan in the empirical model with the bonus  c · range · sqrt(ln(2 R t / δ) / (2 N)),  until a row doubles.

    The total-reward analogue: the original's horizon H bounds every value of a successor; here the range of the
    current optimistic values over the row's successors takes its place (the support is known, so p̂·V cannot be
    further from p·V than Hoeffding allows on that range), and a bonus never leads past the best successor.
    """

    name: ClassVar[str] = "ucbvi"

    def __init__(self, *, delta: float = 0.05, scale: float = 1.0, **common: Any):
        super().__init__(**common)
        if not 0 < delta < 1 or scale <= 0:
            raise ModelError(f"delta {delta} must lie in (0, 1) and scale {scale} be positive")
        self.delta = delta
        self.scale = scale

    def bonus(self) -> np.ndarray:
        """(R,) bonuses per unit of range; a row never tried gets the best successor."""
        log = np.log(2.0 * self.world.pmdp.num_rows * max(1, self.num_timesteps) / self.delta)
        width = self.scale * np.sqrt(log / (2.0 * np.maximum(1, self.row_count)))
        return np.where(self.row_count > 0, width, 1.0)

    def _explore(self) -> Policy:
        return self._planned(self.frequencies(), bonus=self.bonus())


class PSRL(ModelBased):
    """PSRL (Osband, Russo and Van Roy 2013): sample a model from the posterior, act optimally in it.

    An independent Dirichlet posterior per row over its (known) successors.

    A new sample whenever a row's count doubles, and after k episodes at the latest for the k-th sample (the rule of
    Ouyang et al. 2017): far fewer plans than one per episode, and still samples without end.

    ``concentration`` is the prior's pseudo-count per successor (1 is uniform over the simplex).
    """

    name: ClassVar[str] = "psrl"

    def __init__(self, *, concentration: float = 1.0, **common: Any):
        super().__init__(**common)
        if concentration <= 0:
            raise ModelError(f"concentration {concentration} must be positive")
        self.concentration = concentration

    def sample(self) -> np.ndarray:
        """(T,) probabilities drawn from the posterior: normalised gammas."""
        pmdp = self.world.pmdp
        draws = self._rng.standard_gamma(self.transition_count + self.concentration)
        draws = np.maximum(draws, 1e-300)  # a tiny concentration can underflow; a row must keep mass
        return draws / np.add.reduceat(draws, pmdp.row_ptr[:-1])[pmdp.transition_row]

    def _patience(self) -> int:
        return max(1, self.num_updates)

    def _explore(self) -> Policy:
        return self._planned(self.sample())


#: Pseudo-observations per bound of the domain: enough to stay inside, too few to be seen.
BARRIER = 1e-6


class CertaintyEquivalence(ModelBased):
    """Greedy in the estimated model, with the agent's own share of exploration.

    Parameters
    ----------
    structured : estimate θ jointly from all transitions through the known expressions (maximum likelihood over
        the domain); otherwise one frequency per transition, over the known support.
    weight : probability of the greedy action while sampling; the rest is spread over the others.
    """

    name: ClassVar[str] = "certainty-equivalence"

    def __init__(self, *, structured: bool = False, weight: float = 0.9, **common: Any):
        super().__init__(**common)
        if not 0 <= weight <= 1:
            raise ModelError(f"weight {weight} is outside [0, 1]")
        self.structured = structured
        self.weight = weight
        self._theta: tuple[int, np.ndarray] | None = None

    @property
    def theta(self) -> np.ndarray:
        """(d,) maximum-likelihood parameters."""
        if self._theta is None or self._theta[0] != self.num_timesteps:
            start = None if self._theta is None else self._theta[1]
            pmdp, found = self.world.pmdp, None if self.world.pmdp.num_parameters else np.zeros(0)
            if pmdp.num_parameters:
                found = point_estimate(pmdp, self.experience.counts, start, BARRIER)
            if found is None:
                raise ModelError(f"structured: {pmdp!r} has more parameters than can be estimated jointly")
            self._theta = (self.num_timesteps, found)
        return self._theta[1]

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = super()._arrays()
        if self._theta is not None:
            arrays |= {"theta": self._theta[1], "theta_at": np.array(self._theta[0])}
        return arrays

    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        super()._set_arrays(arrays)
        self._theta = (int(arrays["theta_at"]), arrays["theta"]) if "theta" in arrays else None

    def estimate(self) -> np.ndarray:
        if not self.structured:
            return super().estimate()
        pmdp = self.world.pmdp
        probability = np.clip(pmdp.table.evaluate(self.theta), 0.0, 1.0)[pmdp.expression]
        return probability / np.add.reduceat(probability, pmdp.row_ptr[:-1])[pmdp.transition_row]

    def _explore(self) -> Policy:
        return self._planned(self.estimate()).mixed(self.world.pmdp, self.weight)
