"""PyTorch's tensors and weights for exchanges."""
