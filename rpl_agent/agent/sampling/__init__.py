"""Sources of data: episodes, checked step by step against the model, in streams that can be stored."""
