"""Output of a run: logs, TensorBoard, terminal views, and the policy in action."""
