"""The modules of higher floors that lines added to Horovod reach: no other import goes upwards."""

from __future__ import annotations

import importlib
from types import ModuleType

LIFECYCLE = "paceline.lifecycle"
KERAS_3 = "paceline.keras3.hooks"
# With the wrappers of a framework, in Horovod's words.
FRAMEWORKS = {"tensorflow": "paceline.tensorflow", "torch": "paceline.torch"}


def module(name: str) -> ModuleType:
    """The module of one of these names."""
    return importlib.import_module(name)
