"""Wrapping an optimizer: Keras 3's with all arguments, others as Horovod does."""

from __future__ import annotations

import inspect
from typing import Any

from paceline.arguments import exchange_asked
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.fusion.adapters import fuse
from paceline.horovod.shims import unmodified
from paceline.registry.exchanges import lists_exchanges
from paceline.registry.making import maker
from paceline.tensorflow.exchange.adapter import TensorFlowAdapter
from paceline.tensorflow.horovod import horovod_tensorflow, keras3

_horovods = unmodified.original(horovod_tensorflow.DistributedOptimizer)


@lists_exchanges
def DistributedOptimizer(
    optimizer: Any, *args: Any, fusion: Any = None, exchange: str | ExchangeSettings | None = None, **kwargs: Any
) -> Any:
    """An optimizer that averages gradients over all ranks before it applies them.

    Arguments are those of horovod.tensorflow.DistributedOptimizer, and `fusion`: how gradients are merged into messages
    (docs/fusion.md); None: as PACELINE_FUSION says. For an optimizer of Keras `groups` is heeded, which Horovod forgets
    on the way; see docs/keras.md. `use_locking` has no meaning for those. `exchange`, for optimizers of Keras:

    {exchanges}

    Raises UserError for an exchange that is not synchronous with another optimizer.
    """
    fuse("tensorflow", fusion)
    chosen = exchange_asked(exchange)
    if not keras3.is_optimizer(optimizer):
        if not chosen.synchronous:
            raise UserError(
                f"{type(optimizer).__name__} is no optimizer of Keras 3; its gradients can only be synchronous.",
                'Use an optimizer of tf.keras, or exchange="sync".',
            )
        return _horovods(optimizer, *args, **kwargs)
    import horovod.tensorflow.keras

    given = dict(inspect.signature(_horovods).bind(optimizer, *args, **kwargs).arguments)
    given.pop("use_locking", None)
    before, keras3.exchange = keras3.exchange, maker(chosen, TensorFlowAdapter)
    try:
        return horovod.tensorflow.keras.DistributedOptimizer(**given)
    finally:
        keras3.exchange = before
