"""From a linked program to a `ParametricMDP`: states, transitions, probabilities, labels and rewards."""
