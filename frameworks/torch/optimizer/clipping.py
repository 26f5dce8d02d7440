"""Clipping sees combined gradients.

torch.nn.utils.clip_grad_norm_ and clip_grad_value_ change gradients in place. Trainers call them right after the
backward pass, while gradients are in flight: each rank would clip its own, and differently. torch has no hook at that
place, so the two functions are wrapped. They are changed for parameters of optimizers of ours alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paceline.torch.optimizer.owners import reductions_of

_MARK = "_paceline_combines_first"


def combine_before_clipping() -> None:
    """Let torch's two clipping functions combine gradients in flight before they read them."""
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        original = getattr(torch.nn.utils, name)
        if not hasattr(original, _MARK):
            setattr(torch.nn.utils, name, _combining(original))


def _combining(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        for reduction in reductions_of(given):
            reduction.before_clipping(lambda: original(given, *args, **kwargs))
        return original(given or parameters, *args, **kwargs)

    setattr(clip, _MARK, True)
    return clip
