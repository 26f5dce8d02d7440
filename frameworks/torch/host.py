"""Horovod's PyTorch module, checked; the other modules take it from here."""

from __future__ import annotations

from typing import Any

from paceline.host.load import load
from paceline.native.library import loaded, world

horovod_torch: Any = load("torch")


def session() -> object:
    """An object that is another one whenever the ranks begin anew."""
    return world(loaded("torch"))
