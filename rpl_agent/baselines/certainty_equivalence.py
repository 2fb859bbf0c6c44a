"""Maximum-likelihood greedy: plan as if the estimate were the truth."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.model import ParametricMDP, Policy

#: Probabilities below this are treated as this inside the logarithm, so that the search can start at the border.
FLOOR = 1e-12


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

    def _config(self) -> dict[str, Any]:
        return super()._config() | {"structured": self.structured, "weight": self.weight}

    @property
    def theta(self) -> np.ndarray:
        """(d,) maximum-likelihood parameters."""
        if self._theta is None or self._theta[0] != self.num_timesteps:
            start = None if self._theta is None else self._theta[1]
            pmdp = self.world.pmdp
            successes = np.bincount(pmdp.expression, weights=self.transition_count, minlength=pmdp.num_expressions)
            self._theta = (self.num_timesteps, maximum_likelihood(pmdp, successes, start))
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


def maximum_likelihood(pmdp: ParametricMDP, successes: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """θ (d,) in the domain that maximises Σ_f K_f ln f[θ], for successes K (F,); unidentified directions stay put."""
    table, domain = pmdp.table, pmdp.domain
    center = domain.center()
    used = np.flatnonzero((successes > 0) & ~table.is_constant)
    if len(used) == 0:
        return center
    weight = successes[used] / successes[used].sum()
    coefficients = table.coefficients[used]
    exponents = table.monomials

    def monomials(theta: np.ndarray, column: int | None = None) -> np.ndarray:
        """Values (M,) of the monomials, or of their derivatives in one parameter."""
        powers, factor = exponents, np.ones(len(exponents))
        if column is not None:
            factor = powers[:, column].astype(float)
            powers = powers.copy()
            powers[:, column] = np.maximum(0, powers[:, column] - 1)
        return factor * np.prod(theta[None, :] ** powers, axis=1)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value = np.maximum(coefficients @ monomials(theta), FLOOR)
        ratio = weight / value
        gradient = np.array([-ratio @ (coefficients @ monomials(theta, j)) for j in range(len(theta))])
        return float(-weight @ np.log(value)), gradient

    constraints = []
    if len(domain.A):
        constraints.append({"type": "ineq", "fun": lambda x: domain.b - domain.A @ x, "jac": lambda x: -domain.A})
    begin = center if start is None else 0.99 * start + 0.01 * center  # off the border, where the gradient is finite
    result = minimize(
        loss, begin, jac=True, method="SLSQP", bounds=list(zip(domain.lower, domain.upper)), constraints=constraints,
        options={"ftol": 1e-12, "maxiter": 200},
    )  # fmt: skip
    theta = np.clip(result.x, domain.lower, domain.upper)
    # SLSQP may end a rounding error outside: come back along the line to the interior point
    for share in (0.0, 1e-9, 1e-6, 1e-3, 1.0):
        point = (1 - share) * theta + share * center
        if domain.contains(point):
            return point
    return center
