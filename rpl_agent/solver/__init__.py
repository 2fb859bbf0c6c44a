"""Sound robust value computation: every number returned is a bound, and `Solution.check` proves it again."""

from rpl_agent.solver.solution import Solution
from rpl_agent.solver.solve import solve, solve_at, solve_both
