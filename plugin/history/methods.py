"""Replaced methods that do not keep their object alive: optimizers must be collected as without a history."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def weakly(one: Any, name: str) -> Callable[..., Any]:
    """Return a function that calls the method `name` of the class of `one`, as long as `one` lives."""
    method, reference = getattr(type(one), name), weakref.ref(one)

    def call(*arguments: Any, **options: Any) -> Any:
        return method(reference(), *arguments, **options)

    return call
