"""Storage of runs: checkpoints, their contents, run folders."""
