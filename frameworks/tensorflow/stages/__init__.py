"""What stages of a pipeline compute with TensorFlow; paceline.keras drives it."""
