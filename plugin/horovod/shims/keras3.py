"""Functions of paceline.keras3.hooks, by name, for the lines added to Horovod's Python files for Keras 3."""

from __future__ import annotations

from typing import Any

from paceline.horovod import above


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(above.module(above.KERAS_3), name)
