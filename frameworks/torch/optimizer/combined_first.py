"""Make clipping and GradScaler work on combined gradients.

torch.nn.utils.clip_grad_norm_ and clip_grad_value_ change gradients in place. Trainers call them right after the
backward pass, while gradients are in flight: each rank would clip its own, and differently.

A GradScaler looks for infinities in the gradients before it calls step(), and skips the call if there are any. Each
rank must decide on the combined gradients: then an infinity on one rank is one on all, and all skip the same step.

torch has no hooks at these places, so the functions are wrapped, once. Only calls with our parameters and optimizers
change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paceline.torch.optimizer.claims import reductions_of
from paceline.torch.optimizer.sharded_clipping import clip_shared_norm
from paceline.torch.optimizer.wrapper import WrappedOptimizer

_MARK = "_paceline_combines_first"


def combine_first() -> None:
    """Make torch's two clipping functions, and every GradScaler of this process, combine gradients first."""
    _wrap(torch.nn.utils, "clip_grad_norm_", lambda original: _clipping(original, clip_shared_norm))
    _wrap(torch.nn.utils, "clip_grad_value_", lambda original: _clipping(original, None))
    # torch before 2.3 only has it in torch.cuda.amp.
    _wrap(getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler, "_unscale_grads_", _unscaling)


def _wrap(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    if not hasattr(original, _MARK):
        wrapped = functools.wraps(original)(wrapper(original))
        setattr(wrapped, _MARK, True)
        setattr(owner, name, wrapped)


def _clipping(original: Callable[..., Any], shared: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the wrapper of `original`; `shared(reduction, parameters, ...)` replaces it for sharded gradients."""

    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        for reduction in reductions_of(given):
            reduction.before_clipping(lambda: original(given, *args, **kwargs))
            if reduction.finished and reduction.wire.tried is not None:
                reduction.wire.tried.clipped(lambda: original(given, *args, **kwargs))
            if shared is not None and reduction.sharded and reduction.finished:
                return shared(reduction, given, *args, **kwargs)
            if reduction.sharded and all(one.grad is None for one in given):  # other ranks own all of them
                return None
        return original(given or parameters, *args, **kwargs)

    return clip


def _unscaling(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale_grads(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if type(optimizer) is WrappedOptimizer:
            optimizer.before_unscaling(self.get_scale())
            return optimizer.after_unscaling(original(self, optimizer, *args, **kwargs))
        return original(self, optimizer, *args, **kwargs)

    return unscale_grads
