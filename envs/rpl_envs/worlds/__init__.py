"""The worlds of the paper: one file each, a function from a size to a `Benchmark`."""
