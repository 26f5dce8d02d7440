"""Agreement of all ranks on which gradients are sparse.

A dense gradient is reduced, a sparse one is gathered: ranks that disagree would wait for each other for ever. A rank
on which a parameter had no gradient cannot know which of the two the others do. So the ranks tell each other once, at
the first exchange of a parameter, and keep to the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.codecs.choice import Choice
from paceline.exchange.declaration import ExchangeSettings
from paceline.registry.agreement import agreement, differing
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod

DENSE = 0


class Layouts:
    """Parameter -> number of sparse dimensions of its gradients (1 for embeddings), `DENSE` if they are dense."""

    def __init__(self, process_set: Any, scope: str = "") -> None:
        """`scope`: what stands before all names, so that no other optimizer has them."""
        self.scope = scope
        self._process_set = process_set
        self._agreed: dict[Tensor, int] = {}

    def known(self, parameter: Tensor) -> bool:
        """Whether the ranks have agreed on `parameter`."""
        return parameter in self._agreed

    def sparse_dims(self, parameter: Tensor) -> int:
        """The agreed number of sparse dimensions."""
        return self._agreed[parameter]

    def agree(self, parameters: Sequence[Tensor], name: str, exchange: ExchangeSettings, choice: Choice) -> None:
        """Agree on `parameters` with the other ranks, all of which call this with the same parameters.

        Sparse if a rank has a sparse gradient and none has a dense one. Waits for all ranks. Raises UsageError, on all
        ranks, if they have different exchanges, codecs or collectives.
        """
        if not parameters:
            return
        mine = agreement(exchange, self._process_set.size(), choice)
        gradients = [parameter.grad for parameter in parameters]
        # One row per parameter: sparse dimensions seen here, and whether a dense gradient was. Then the exchange: the
        # maximum of its numbers, and of their negatives, which is minus the minimum.
        seen = torch.tensor(
            [
                *(
                    (0, 0) if gradient is None else (gradient.sparse_dim(), 0) if gradient.is_sparse else (0, 1)
                    for gradient in gradients
                ),
                *((number, -number) for number in mine),
            ],
            dtype=torch.int32,
        )
        operation = f"{self.scope}{name}.layouts"
        handle = horovod.allreduce_async_(seen, name=operation, op=horovod.Max, process_set=self._process_set)
        rows = horovod.synchronize(handle).tolist()
        found, numbers = rows[: -len(mine)], rows[-len(mine) :]
        most, least = [high for high, _ in numbers], [-negative for _, negative in numbers]
        if most != least:
            raise UsageError(
                f"The ranks use different exchanges, codecs or collectives; rank {horovod.rank()} sees "
                f"{differing(least, most, mine)}.",
                "Give all ranks the same exchange=, codec=, error_feedback= and collective=, or the same "
                "PACELINE_EXCHANGE, PACELINE_CODEC and PACELINE_COLLECTIVE, and variables that belong to them.",
            )
        for parameter, (sparse_dims, dense) in zip(parameters, found, strict=True):
            self._agreed[parameter] = DENSE if dense else sparse_dims

    def forget(self) -> None:
        """Agree anew: the ranks have changed."""
        self._agreed.clear()
