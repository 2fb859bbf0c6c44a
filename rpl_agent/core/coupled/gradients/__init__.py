"""How gradients of values are found: by sweeps in large chains, and between those of nearly equal actions."""
