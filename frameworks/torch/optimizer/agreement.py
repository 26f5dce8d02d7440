"""Agreement of all ranks on which gradients are sparse, and which exist at all.

A dense gradient is reduced, a sparse one is gathered: ranks that disagree would wait for each other for ever. A rank
without a gradient for a parameter cannot know which of the two the others do. So the ranks compare once, at the first
exchange of a parameter, and keep the result. While no rank has a gradient for it, nothing is exchanged, and they
compare again in every update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from paceline.exchange.declaration import ExchangeSettings
from paceline.registry.agreement import agreement, differing
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.bucket import DENSE, Gradient
from paceline.torch.optimizer.wire import TorchWire

# Added to the compared numbers and to their negatives, so that the zeros of a joined rank have no effect.
_SAID = 1 << 40


def agree(gradients: Sequence[Gradient], wire: TorchWire, exchange: ExchangeSettings, buckets: int = 0) -> bool:
    """Find Gradient.sparse_dims with the other ranks.

    All ranks call this with the same gradients, and wait for each other. A gradient is sparse, with that many sparse
    dimensions (1 for embeddings), if a rank has a sparse one and none has a dense one. Gradients that no rank has are
    idle under a synchronous exchange, dense under the others. Raises UsageError, on all ranks, if their exchanges,
    codecs or collectives differ.

    `buckets`: a number that must be equal on all ranks for them to form buckets, or 0. Returns True if it is equal.
    """
    mine = agreement(exchange, wire.process_set.size(), wire.encoding.choice)
    # One row per gradient: its sparse dimensions here, and 1 if it is dense here. Then the exchange: the maximum of its
    # numbers and of their negatives, which is minus the minimum, both above 0.
    rows = [
        *((dims, dense) for _, dims, dense in map(_layout, gradients)),
        *((_SAID + number, _SAID - number) for number in (*mine, buckets)),
    ]
    found = combined(
        wire, f"{wire.compared}{gradients[0].name}.layouts", torch.tensor(rows, dtype=torch.int64), horovod.Max
    )
    numbers = found[len(gradients) :]
    *most, most_buckets = [high - _SAID for high, _ in numbers]
    *least, least_buckets = [_SAID - negative for _, negative in numbers]
    if most != least:
        raise UsageError(
            f"The ranks use different exchanges, codecs or collectives; rank {horovod.rank()} sees "
            f"{differing(least, most, mine)}.",
            "Give all ranks the same exchange=, codec=, error_feedback= and collective=, or the same "
            "PACELINE_EXCHANGE, PACELINE_CODEC and PACELINE_COLLECTIVE, and variables that belong to them.",
        )
    for gradient, (sparse_dims, dense) in zip(gradients, found, strict=False):
        gradient.idle = exchange.in_step and not dense and not sparse_dims
        if not gradient.idle:
            gradient.sparse_dims = DENSE if dense else sparse_dims
    return buckets > 0 and most_buckets == least_buckets


def look(gradients: Sequence[Gradient], wire: TorchWire) -> None:
    """Find out which of `gradients`, which were given to `agree` before, exist on any rank in this update.

    All ranks call this with the same gradients, and wait for each other. It is a sum of floating-point numbers, so that
    steps can still be armed.
    """
    rows = torch.tensor(list(map(_layout, gradients)), dtype=torch.float32)
    found = combined(wire, f"{wire.compared}{gradients[0].name}.used", rows, horovod.Sum)
    for gradient, (sparse, dims, dense) in zip(gradients, found, strict=True):
        gradient.idle = not (sparse or dense)
        if gradient.sparse_dims is None and not gradient.idle:
            gradient.sparse_dims = DENSE if dense else round(dims / sparse)


def _layout(gradient: Gradient) -> tuple[int, int, int]:
    """Return 1 if there is a sparse gradient here, its sparse dimensions, and 1 if there is a dense one; else zeros."""
    grad = gradient.parameter.grad
    return (0, 0, 0) if grad is None else (1, grad.sparse_dim(), 0) if grad.is_sparse else (0, 0, 1)


def combined(wire: TorchWire, name: str, rows: torch.Tensor, op: Any) -> list[list[Any]]:
    """Return the rows of all ranks, combined by `op`; the ranks wait for each other."""
    handle = horovod.allreduce_async_(rows, name=name, op=op, process_set=wire.process_set)
    result: list[list[Any]] = horovod.synchronize(handle).tolist()
    return result
