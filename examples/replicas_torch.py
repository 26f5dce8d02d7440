"""Compare the weights of a PyTorch example between ranks, and average them."""

from __future__ import annotations

import zlib

import torch
from torch import nn

import paceline.torch as hvd


def equal(model: nn.Module) -> bool:
    """Return True if the weights of all ranks are bitwise equal."""
    checksum = zlib.crc32(b"".join(weights.numpy().tobytes() for weights in model.state_dict().values()))
    checksums = hvd.allgather(torch.tensor([checksum], dtype=torch.int64), name="checksum")
    return len(checksums.unique()) == 1


def average(model: nn.Module) -> float:
    """Replace the weights, all floating-point, by their mean over all ranks.

    A partial exchange needs this before all ranks evaluate or save: its replicas drift apart unless they are trained
    with plain SGD (docs/methods/partial.md). Returns the largest distance of a weight from its mean, over all weights
    and ranks.
    """
    apart = torch.zeros(1)
    for name, weights in model.state_dict().items():
        mean = hvd.allreduce(weights, name=f"mean.{name}")
        apart = torch.maximum(apart, (weights - mean).abs().max())
        weights.copy_(mean)
    return hvd.allreduce(apart, op=hvd.Max, name="apart").item()
