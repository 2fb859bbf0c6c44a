"""What is true of a model, with data or without: no learning, no files."""
