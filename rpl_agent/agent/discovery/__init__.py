"""An agent without a model: states are discovered, and `rpl_agent.guarantee.open_world` bounds what they are worth."""
