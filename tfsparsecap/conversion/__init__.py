"""Reading published PyTorch checkpoints."""
