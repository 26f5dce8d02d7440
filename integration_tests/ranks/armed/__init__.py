"""Steps that are negotiated once."""
