"""Exchange options of a Keras optimizer, and checkpoints of gradients in flight."""
