"""Evidence against the model: `alternatives` to it, the `infimum` of their sum, the e-value (`misspecification`)."""
