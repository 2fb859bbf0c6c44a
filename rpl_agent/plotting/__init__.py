"""Pictures for people who would rather look. Matplotlib is loaded only when one is drawn."""
