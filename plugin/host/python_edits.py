"""Edits of Horovod's Python files for Keras 3."""

from paceline.host.edits import Edit

KERAS3_EDITS: tuple[Edit, ...] = ()
