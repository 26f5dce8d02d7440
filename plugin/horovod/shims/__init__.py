"""Paceline's part of Horovod's Python face: the Horovod that Paceline builds imports it (host/handover.py)."""
