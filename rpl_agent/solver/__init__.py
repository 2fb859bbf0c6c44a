"""Sound robust value computation: every returned number is a bound, and `Solution.check` proves it independently."""

from rpl_agent.solver.solution import Solution
from rpl_agent.solver.solve import solve, solve_at, solve_both
