"""The data: counts, pooling, intervals, and the statistics of the confidence sets."""
