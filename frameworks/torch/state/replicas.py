"""hvd.check_replicas of PyTorch."""

from __future__ import annotations

import torch

from paceline.exchange.replicas import check
from paceline.native.library import loaded


def check_replicas(model: torch.nn.Module) -> None:
    """Raise UserError on all ranks, naming the first, unless the parameters of `model` are bitwise equal.

    Call it on all ranks after the same step; ranks exchange a checksum of each parameter. Buffers, such as the running
    means of BatchNorm, belong to each rank.
    """
    parameters = dict(model.named_parameters())
    check(
        loaded("torch"),
        (
            (name, one.detach().cpu().reshape(-1).view(torch.uint8).numpy().reshape(*one.shape, one.element_size()))
            for name, one in parameters.items()
        ),
    )
