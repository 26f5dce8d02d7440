"""Reduce, the bounds of collectives, and networks as they were measured."""
