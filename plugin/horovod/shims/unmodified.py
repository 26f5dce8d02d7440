"""Variables for scripts that use Horovod's modules: its wrappers are ours under an exchange, a codec or buckets.

The names stay Horovod's own functions, so it does not matter when and under which name a script took them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from paceline import variables
from paceline.horovod import above


def asked() -> bool:
    """Whether the variables ask for an exchange that is not synchronous. Raises UserError for what cannot be used."""
    if not variables.given("exchange"):
        return False
    from paceline.config import exchange_of_variables

    return not exchange_of_variables().synchronous


def _buckets_asked() -> bool:
    """Whether the variables ask for buckets of small gradients, which PyTorch's wrapper has."""
    if not variables.given("debug", "fusion"):
        return False
    from paceline.config import buckets_beside

    return buckets_beside(None) > 0


def _codec_asked() -> bool:
    """Whether the variables ask for a codec, which travels gradients that a wrapper of ours has announced."""
    return variables.environ().get("PACELINE_CODEC", "none") != "none"


def ours_if_asked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of a function of Horovod: Paceline's of that name takes the call where it has what is asked for.

    Horovod's own is `original` of the result.
    """
    # The function's module is horovod.torch or below, or horovod.tensorflow: adapters have the names of frameworks.
    framework = function.__module__.split(".")[1]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if asked() or _codec_asked() or (framework == "torch" and _buckets_asked()):
            return getattr(above.module(above.FRAMEWORKS[framework]), function.__name__)(*args, **kwargs)
        return function(*args, **kwargs)

    return call


def original(function: Callable[..., Any]) -> Callable[..., Any]:
    """Horovod's own function, whatever is asked for."""
    own: Callable[..., Any] = getattr(function, "__wrapped__", function)
    return own
