"""Wrapped optimizer of PyTorch, and the exchange of its gradients."""
