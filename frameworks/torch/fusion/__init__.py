"""Merging gradients by plan."""
