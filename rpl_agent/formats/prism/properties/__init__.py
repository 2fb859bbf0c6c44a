"""Properties of a model: state formulas, path formulas as automata, and the corresponding objectives."""
