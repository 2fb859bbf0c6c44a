"""Where data come from: sources of episodes, every step compared with the model, streams that can be stored."""
