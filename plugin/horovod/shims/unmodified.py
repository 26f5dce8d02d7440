"""Exchanges, codecs and buckets by variables, for scripts that use Horovod's modules: wrappers become Paceline's.

The names remain Horovod's own functions, so it does not matter when and under which name a script imported them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from paceline import variables
from paceline.horovod import above


def asked() -> bool:
    """Return True if the variables request an exchange that is not synchronous. Raises UserError for invalid values."""
    if not variables.given("exchange"):
        return False
    from paceline.config import exchange_of_variables

    return not exchange_of_variables().synchronous


def _buckets_asked() -> bool:
    """Return True if the variables request buckets of small gradients, which PyTorch's wrapper supports."""
    if not variables.given("debug", "fusion"):
        return False
    from paceline.config import buckets_beside

    return buckets_beside(None) > 0


def _codec_asked() -> bool:
    """Return True if the variables request a codec, which needs gradients announced by one of Paceline's wrappers."""
    return variables.environ().get("PACELINE_CODEC") not in (None, "", "none")


def ours_if_asked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of Horovod: calls go to Paceline's function of that name if the variables request it.

    `original` of the result is Horovod's own function.
    """
    # The function's module is horovod.torch or below, or horovod.tensorflow.
    framework = function.__module__.split(".")[1]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if asked() or _codec_asked() or (framework == "torch" and _buckets_asked()):
            return getattr(above.module(above.FRAMEWORKS[framework]), function.__name__)(*args, **kwargs)
        return function(*args, **kwargs)

    return call


def original(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return Horovod's own function."""
    own: Callable[..., Any] = getattr(function, "__wrapped__", function)
    return own
