"""PACELINE_EXCHANGE for scripts that use Horovod's module: its wrapper becomes ours."""

from __future__ import annotations

import horovod.torch

import paceline.torch


def install() -> None:
    """Put ours in the place of Horovod's."""
    horovod.torch.DistributedOptimizer = paceline.torch.DistributedOptimizer
    horovod.torch.broadcast_optimizer_state = paceline.torch.broadcast_optimizer_state
