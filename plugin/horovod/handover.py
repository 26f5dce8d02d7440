"""Brings the modules of paceline.horovod.shims where the Horovod that Paceline builds asks for them.

Stands there as horovod/_paceline/__init__.py: `from horovod._paceline import glue` is `paceline.horovod.shims.glue`. So
what these modules do is the installed Paceline's, and a change of it needs no other Horovod.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if importlib.util.find_spec("paceline") is None:
        raise ImportError(
            f"This Horovod was built by Paceline, and the package paceline is not installed for {sys.executable}.\n"
            "Install Paceline on every host from its clone (pip install FOLDER), or install Horovod as it is published."
        )
    return importlib.import_module(f"paceline.horovod.shims.{name}")
