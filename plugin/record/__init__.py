"""Records of training steps, and traces."""
