"""Edits that end faults of Horovod."""
