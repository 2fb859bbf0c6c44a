"""The paper's tables and figures, comparisons with other agents, one page to look at; see `experiments.api`."""
