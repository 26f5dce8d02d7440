"""A stage at work: what a schedule says is done, with tensors of any framework (tensors.py)."""
