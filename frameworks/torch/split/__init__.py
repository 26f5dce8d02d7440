"""Split exchange in PyTorch: weights in flight, and sharded optimizer state."""
