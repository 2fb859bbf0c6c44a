"""Polynomial models: level sets of the `parameters`, block by block; a `cover` by boxes where they are not convex."""
