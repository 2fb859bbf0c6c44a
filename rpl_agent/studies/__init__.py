"""Comparisons: other agents, the paper's tables and figures, their report pages."""
