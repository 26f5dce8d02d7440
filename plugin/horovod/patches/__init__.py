"""Edits that correct faults of Horovod."""
