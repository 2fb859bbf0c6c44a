"""The paper's tables and figures, comparisons with other agents, and report pages; see `experiments.api`."""
