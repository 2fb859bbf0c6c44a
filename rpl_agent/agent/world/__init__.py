"""What is known of an environment: its model, actions, observations, rewards and time limit."""
