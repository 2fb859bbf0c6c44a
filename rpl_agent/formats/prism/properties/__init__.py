"""Properties of a model: state formulas, path formulas as automata, and the objectives they ask for."""
