"""Modules of higher layers that lines added to Horovod use: the only upward imports."""

from __future__ import annotations

import importlib
from types import ModuleType

LIFECYCLE = "paceline.lifecycle"
KERAS_3 = "paceline.keras3.hooks"
# Horovod's name of a framework -> module with its wrappers.
FRAMEWORKS = {"tensorflow": "paceline.tensorflow", "torch": "paceline.torch"}


def module(name: str) -> ModuleType:
    """Import the module with one of these names."""
    return importlib.import_module(name)
