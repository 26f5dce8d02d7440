"""TensorFlow passes and weights of pipeline stages; driven by paceline.keras."""
