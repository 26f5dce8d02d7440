"""Guard that refuses torch.amp.GradScaler for the optimizer of a stage. Pipelines do not scale losses."""

from __future__ import annotations

import torch

from paceline.errors import UsageError


class _Refusing:
    """Replaces the attribute by which an optimizer reports to GradScaler that it unscales; read before each step."""

    def __bool__(self) -> bool:
        raise UsageError(
            "torch.amp.GradScaler was given the optimizer of a stage: hvd.Pipeline.step() makes the updates, and "
            "scales no losses.",
            "Leave the scaler out. torch.autocast with dtype=torch.bfloat16 needs none.",
        )


def refuse_scalers(optimizer: torch.optim.Optimizer) -> None:
    """Make `scaler.step(optimizer)` raise UsageError."""
    optimizer._step_supports_amp_scaling = _Refusing()
