"""Whether the ranks of a PyTorch example hold the same weights, and making it so."""

from __future__ import annotations

import zlib

import torch
from torch import nn

import paceline.torch as hvd


def equal(model: nn.Module) -> bool:
    """Whether all ranks hold bit for bit the same weights."""
    checksum = zlib.crc32(b"".join(weights.numpy().tobytes() for weights in model.state_dict().values()))
    checksums = hvd.allgather(torch.tensor([checksum], dtype=torch.int64), name="checksum")
    return len(checksums.unique()) == 1


def average(model: nn.Module) -> float:
    """Give all ranks the mean of their weights, all floating-point; returns by how much a weight was away from it.

    What a partial exchange needs before all ranks evaluate or save: its replicas drift apart unless they are trained
    with plain SGD (docs/methods/partial.md). The distance is the largest of all weights and ranks.
    """
    apart = torch.zeros(1)
    for name, weights in model.state_dict().items():
        mean = hvd.allreduce(weights, name=f"mean.{name}")
        apart = torch.maximum(apart, (weights - mean).abs().max())
        weights.copy_(mean)
    return hvd.allreduce(apart, op=hvd.Max, name="apart").item()
