"""Parts of a model in which plays can return: strategies, sweeps, chains of fixed players, end components."""
