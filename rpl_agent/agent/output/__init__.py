"""What a run tells: logs, TensorBoard, views on a terminal, the policy at work."""
