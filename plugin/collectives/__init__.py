"""Collectives of our own, beside those that move gradients; bounds of all of them, and networks as measured."""
