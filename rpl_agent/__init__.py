"""Learn a certified policy for a system whose structure is known and whose parameters are not."""
