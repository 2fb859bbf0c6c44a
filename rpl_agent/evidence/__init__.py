"""What was seen: counts, pooling, intervals, and the statistics of the confidence sets."""
