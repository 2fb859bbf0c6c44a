"""The known structure: polynomials, the table Λ, parametric MDPs, objectives, policies, the simulator."""

from rpl_agent.core.model.algebra.ranges import range_on_box
from rpl_agent.core.model.building.array_builder import Block, build_vectorized
from rpl_agent.core.model.building.binding import Binding
from rpl_agent.core.model.building.builder import build
from rpl_agent.core.model.building.matrices import from_matrices
from rpl_agent.core.model.building.validation import Defect, require_valid, restrict_domain, validate
from rpl_agent.core.model.caching import cached_fact, cached_on
from rpl_agent.core.model.csr import best_rows, gather, in_parts, owners, reached
from rpl_agent.core.model.domain import Domain, simplex
from rpl_agent.core.model.expressions import ExpressionTable, Reduction
from rpl_agent.core.model.objectives.criterion import Criterion, Discounted, Horizon, Instant, Reach, Total
from rpl_agent.core.model.objectives.objective import Kind, Limit, Objective, Task, Unreached
from rpl_agent.core.model.objectives.sense import Nature, Sense
from rpl_agent.core.model.pmdp import MDP, ParametricMDP, Reward
from rpl_agent.core.model.policy import Policy
from rpl_agent.core.model.polynomial import Polynomial, as_polynomial
from rpl_agent.core.model.simulate import Batch, Simulator
from rpl_agent.core.model.states import StateIndex, paying
from rpl_agent.core.model.unused import without_unused
