"""What is asked of a model: directions, criteria, objectives in words and as arrays."""
