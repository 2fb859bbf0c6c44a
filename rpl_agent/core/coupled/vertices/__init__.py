"""Functions of values over products of small polytopes, judged at vertices."""
