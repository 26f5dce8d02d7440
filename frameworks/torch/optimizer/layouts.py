"""Agreement of all ranks on which gradients are sparse, and which there are at all.

A dense gradient is reduced, a sparse one is gathered: ranks that disagree would wait for each other for ever. A rank
on which a parameter had no gradient cannot know which of the two the others do. So the ranks tell each other once, at
the first exchange of a parameter, and keep to the answer. While no rank has a gradient of a parameter, nothing travels
of it and they ask again in every update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from paceline.codecs.choice import Choice
from paceline.exchange.declaration import ExchangeSettings
from paceline.registry.agreement import agreement, differing
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.member import Member

DENSE = 0
# Added to numbers that are compared, and to their negatives: so the zeros of a rank that has joined say nothing.
_SAID = 1 << 40


class Layouts:
    """Finds Member.sparse_dims: how many dimensions of its gradients are sparse (1 for embeddings), `DENSE` if none."""

    def __init__(self, process_set: Any, scope: str = "") -> None:
        """`scope`: what stands before all names, so that no other optimizer has them."""
        self.scope = scope
        self._process_set = process_set

    def agree(self, members: Sequence[Member], exchange: ExchangeSettings, choice: Choice, buckets: int = 0) -> bool:
        """Agree on `members` with the other ranks, all of which call this with the same.

        Sparse if a rank has a sparse gradient and none has a dense one. Those that no rank has a gradient of are idle
        under a synchronous exchange, dense under the others. Waits for all ranks. Raises UsageError, on all ranks, if
        they have different exchanges, codecs or collectives.

        `buckets`: what must be the same on all ranks for them to form buckets, or 0. Returns whether it is.
        """
        mine = agreement(exchange, self._process_set.size(), choice)
        gradients = [member.parameter.grad for member in members]
        # One row per parameter: sparse dimensions seen here, and whether a dense gradient was. Then the exchange: the
        # maximum of its numbers, and of their negatives, which is minus the minimum, both above 0.
        seen = torch.tensor(
            [
                *(
                    (0, 0) if gradient is None else (gradient.sparse_dim(), 0) if gradient.is_sparse else (0, 1)
                    for gradient in gradients
                ),
                *((_SAID + number, _SAID - number) for number in (*mine, buckets)),
            ],
            dtype=torch.int64,
        )
        operation = f"{self.scope}{members[0].name}.layouts"
        handle = horovod.allreduce_async_(seen, name=operation, op=horovod.Max, process_set=self._process_set)
        rows = horovod.synchronize(handle).tolist()
        found, numbers = rows[: len(members)], rows[len(members) :]
        *most, most_buckets = [high - _SAID for high, _ in numbers]
        *least, least_buckets = [_SAID - negative for _, negative in numbers]
        if most != least:
            raise UsageError(
                f"The ranks use different exchanges, codecs or collectives; rank {horovod.rank()} sees "
                f"{differing(least, most, mine)}.",
                "Give all ranks the same exchange=, codec=, error_feedback= and collective=, or the same "
                "PACELINE_EXCHANGE, PACELINE_CODEC and PACELINE_COLLECTIVE, and variables that belong to them.",
            )
        for member, (sparse_dims, dense) in zip(members, found, strict=True):
            member.idle = exchange.synchronous and not dense and not sparse_dims
            if not member.idle:
                member.sparse_dims = DENSE if dense else sparse_dims
        return buckets > 0 and most_buckets == least_buckets

    def look(self, members: Sequence[Member]) -> None:
        """Learn which of `members`, that `agree` was given before, have a gradient on any rank in this update.

        All ranks call this with the same, and wait for each other. It is a sum of floating-point numbers, which does
        not keep steps from being armed.
        """
        gradients = [member.parameter.grad for member in members]
        # By member, over the ranks: how many have a sparse gradient, its sparse dimensions, how many a dense one.
        seen = torch.tensor(
            [
                (0, 0, 0) if gradient is None else (1, gradient.sparse_dim(), 0) if gradient.is_sparse else (0, 0, 1)
                for gradient in gradients
            ],
            dtype=torch.float32,
        )
        operation = f"{self.scope}{members[0].name}.used"
        handle = horovod.allreduce_async_(seen, name=operation, op=horovod.Sum, process_set=self._process_set)
        for member, (sparse, dims, dense) in zip(members, horovod.synchronize(handle).tolist(), strict=True):
            member.idle = not (sparse or dense)
            if member.sparse_dims is None and not member.idle:
                member.sparse_dims = DENSE if dense else round(dims / sparse)
