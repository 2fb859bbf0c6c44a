"""Polynomial models: level sets of the `parameters`, block by block; a `cover` by boxes if they are not convex."""
