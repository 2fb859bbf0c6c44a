"""Algebra of polynomials over a domain: affine factors, ranges over boxes, Taylor models."""
