"""Collectives of our own, beside those that move gradients."""
