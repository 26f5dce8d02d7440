"""Collectives of our own, besides those for gradients."""
