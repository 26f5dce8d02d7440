"""What the split exchange is given: an allreduce cut in two, between which one rank makes the update.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020 (stage 1): each rank
keeps the optimizer's state of its share of the parameters. Here shares are whole parameters, so that any optimizer
whose parameters do not know each other can be used, and both halves travel along a chain (Linear Pipelining, Wang et
al., 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.exchange.declaration import Declaration, ExchangeSettings, setting

SPLIT_TAG = -2


@dataclass(frozen=True)
class Split(ExchangeSettings):
    """Updates use the gradients of their own step, of all ranks, and are made by one rank for each parameter.

    `independent`: the user's word that an update of a parameter depends on this parameter alone, for optimizers that
    are not torch's own, of which that is known.
    """

    tag: ClassVar[int] = SPLIT_TAG
    in_step: ClassVar[bool] = True
    owned: ClassVar[bool] = True
    torch_alone: ClassVar[bool] = True

    independent: bool = setting(False)


DECLARATION = Declaration(
    settings=Split,
    short="split (in their step, by one rank for each parameter, whose new weights travel under the next forward pass)",
    text="gradients are reduced to the rank that updates their parameter, and new weights are broadcast while the next "
    "forward pass begins (PyTorch)",
)
