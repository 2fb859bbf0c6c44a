"""Beyond rectangular: bounds for one common parameter, by affine value functions (the paper's P_U).

    region ─► Frame ─► Expansion ─► AffineBound ─► AffineProof ─► lower, upper
              (a ball    (value and   (slack raised   (the proof)
               around it)  gradient)    until it holds)

Rectangular bounds let nature choose a different parameter in every row; the truth is one parameter for all rows. See
`affine` for the theorem, docs/guarantees.md for its proof.
"""

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, Side
from rpl_agent.core.coupled.bounds import CoupledBounds, coupled_bounds
from rpl_agent.core.coupled.claims import RegionClaim, SignedValue, difference_bound
from rpl_agent.core.regions.frame import Frame, frame_of
