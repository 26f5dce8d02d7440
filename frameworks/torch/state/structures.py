"""Structures of dicts, lists and tuples, in which optimizers keep their state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any


def within(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Copy `value` with every member converted; anything but a dict, list or tuple is returned as it is."""
    if isinstance(value, dict):
        made = copy.copy(value)  # of the same class
        made.update({key: convert(one) for key, one in value.items()})
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(convert, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(convert, value))
    return value
