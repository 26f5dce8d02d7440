"""Settings of the split exchange: an allreduce in two halves, with the update between them on one rank.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020 (stage 1): each rank
keeps the optimizer state of its share of the parameters. Where the optimizer updates each element by itself, all ranks
have a shard of every bucket: gradients are reduce-scattered, new weights all-gathered. Otherwise a share consists of
whole parameters; both halves use a chain of ranks then (Linear Pipelining, Wang et al., 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.exchange.declaration import Declaration, ExchangeSettings, setting

SPLIT_TAG = -2


@dataclass(frozen=True)
class Split(ExchangeSettings):
    """ZeRO stage 1: one rank updates each parameter and broadcasts the new value.

    Args:
        independent: a statement of the user, needed for optimizers outside torch.optim and Keras: the update of each
            parameter depends only on this parameter.
        elementwise: a statement of the user: the update of each element depends only on this element's gradient and
            state, so that ranks may share the elements of a parameter (PyTorch).
    """

    tag: ClassVar[int] = SPLIT_TAG
    in_step: ClassVar[bool] = True
    sharded: ClassVar[bool] = True

    independent: bool = setting(False)
    elementwise: bool = setting(False)

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """Problem and remedy for tapes, which can never use this exchange."""
        return (
            'A tape was given exchange="split"; it does not know the optimizer, which ranks would share.',
            'Use hvd.DistributedOptimizer, or exchange="sync".',
        )


DECLARATION = Declaration(
    settings=Split,
    short="split (those of all ranks; each rank updates its part, and new weights follow during the forward pass)",
    text="gradients are reduced to the rank that updates their parameter, and new weights are broadcast: in PyTorch "
    "while the next forward pass begins, in Keras at once",
)
