"""Pictures. Matplotlib is loaded only when one is drawn."""
