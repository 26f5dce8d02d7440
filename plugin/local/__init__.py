"""The local exchange: updates with a rank's own gradients, and periodic averages of models."""
