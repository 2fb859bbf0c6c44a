"""Facts about an environment: its model, actions, observations, rewards and time limit."""
