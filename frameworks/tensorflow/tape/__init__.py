"""DistributedGradientTape."""
