"""The wrapper of an optimizer."""
