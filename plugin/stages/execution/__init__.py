"""Execution of a schedule on a stage, with tensors of any framework (tensors.py)."""
