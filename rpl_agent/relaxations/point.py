"""A known MDP as a relaxation: nature has one choice per row."""

from __future__ import annotations

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model import MDP
from rpl_agent.relaxations.base import CompiledRelaxation
from rpl_agent.relaxations.row_set import POINT, compiled_set


class Point(CompiledRelaxation):
    """The MDP itself; robust and optimistic values coincide.

    Raises
    ------
    ModelError
        A row whose probabilities are not a distribution.
    """

    def __init__(self, mdp: MDP, name: str = "point") -> None:
        pmdp = mdp.pmdp
        if not (np.isfinite(mdp.probability).all() and (mdp.probability >= 0).all()):
            t = int(np.flatnonzero(~(mdp.probability >= 0) | ~np.isfinite(mdp.probability))[0])
            raise ModelError(f"probability {mdp.probability[t]} at {pmdp.transition_name(t)}")
        total = np.add.reduceat(mdp.probability, pmdp.row_ptr[:-1])
        bad = np.abs(total - 1.0) > 1e-9
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(f"probabilities sum to {total[row]:.12g} at {pmdp.row_name(row)}")
        probability = np.zeros(pmdp.num_expressions)
        probability[pmdp.expression] = mdp.probability
        super().__init__(pmdp, compiled_set(POINT, probability, probability), name)
        self.mdp = mdp
