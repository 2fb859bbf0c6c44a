"""Objectives: directions, criteria, plain words, and arrays over a model."""
