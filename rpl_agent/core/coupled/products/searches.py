"""`Searches`: bounds by functions that take seconds to find, over a product of blocks.

There are two kinds. Rows that hold over a ball and cuts (`gradients.over_cuts`) are better where the region is small: a
row pays for the length of its slope. Rows that are products of cuts (`products.gain`) need no ball, and are better
where it is larger than the simplex that it lies in. What is better for a policy's value is better for all of them.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.core.coupled.affine import AffineProof, Side
from rpl_agent.core.coupled.expansion import StepExpansion, ValueExpansion
from rpl_agent.core.coupled.gradients.over_cuts import can_search, over_cuts
from rpl_agent.core.coupled.products.gain import least_sum, rooms_of
from rpl_agent.core.coupled.products.rows import Term


class Searches:
    """Tries both kinds on the first side of a policy's value, where they are cheap, and then the better one first."""

    def __init__(self, proof: AffineProof, expansion: ValueExpansion | StepExpansion) -> None:
        self.proof, self.expansion = proof, expansion
        self.ways, self.are_compared = [self._over_cuts, self._by_products], False

    def bound(self, side: Side, every_policy: bool, known: float) -> float:
        """The best bound that was found, infinite without one; ``known`` is one that holds already."""
        found, nothing = list[float](), side.value * np.inf
        compares = not (every_policy or self.are_compared)
        for way in self.ways:
            found.append(way(side, every_policy, min([known, *found], key=lambda bound: side.value * bound)))
            if np.isfinite(found[-1]) and not compares:
                break
        if compares:
            self.are_compared = True
            if side.value * found[0] > side.value * found[-1]:
                self.ways.reverse()
        return min([nothing, *found], key=lambda bound: side.value * bound)

    def _over_cuts(self, side: Side, every_policy: bool, known: float) -> float:
        proof = self.proof
        if proof.cuts is None or not can_search(proof.problem, self.expansion):
            return side.value * np.inf
        bound = over_cuts(proof.problem, self.expansion, side, every_policy, *proof.cuts)
        if bound is None or proof.issues(bound):
            return side.value * np.inf
        return bound.at(proof.region, proof.problem.pmdp.initial_state)

    def _by_products(self, side: Side, every_policy: bool, known: float) -> float:
        problem, value = self.proof.problem, Term(-side.value, None if every_policy else self.expansion.policy)
        rooms = rooms_of(problem, self.proof.region)
        found = None if rooms is None else least_sum(problem, rooms, [value], -side.value * known)
        return side.value * np.inf if found is None else -side.value * found.bound
