"""What a run keeps: checkpoints, the state in them, run folders."""
