"""From descriptions to models: builders, the order of actions, validation, hidden parameters, bindings."""
