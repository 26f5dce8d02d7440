"""Paceline modules that Horovod's Python files import, in a Horovod that Paceline built (handover.py)."""
