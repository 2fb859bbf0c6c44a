"""Affine functions of values over a product of small polytopes, whose rows are proved by products of two cuts."""
