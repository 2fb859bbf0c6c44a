"""What polynomials over a domain can be shown to do: affine factors, ranges over boxes, Taylor models."""
