"""GradScaler sees combined gradients.

A GradScaler looks for infinities in the gradients before it calls step(), and skips the call if there are any. Each
rank must take that decision on the combined gradients: an infinity on one rank is then one on all, and all skip the
same step. torch has no public hook at that place, so the one method that reads the gradients is wrapped. It is changed
for optimizers of ours alone.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from paceline.torch.optimizer.wrapper import WrappedOptimizer

_MARK = "_paceline_combines_first"


def combine_before_unscaling() -> None:
    """Let every GradScaler of this process combine the gradients of a WrappedOptimizer before it reads them."""
    # torch before 2.3 has it in torch.cuda.amp alone.
    scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    original = scaler._unscale_grads_
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def unscale_grads(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if type(optimizer) is WrappedOptimizer:
            optimizer.before_unscaling(self.get_scale())
        return original(self, optimizer, *args, **kwargs)

    setattr(unscale_grads, _MARK, True)
    scaler._unscale_grads_ = unscale_grads
