"""Polynomial models: level sets of the `parameters`, block by block."""
