"""Sound robust value computation: every returned number is a bound, and `Solution.check` proves it independently."""

from rpl_agent.core.solver.solution import Solution
from rpl_agent.core.solver.solve import solve, solve_at, solve_both
