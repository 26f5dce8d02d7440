"""Wrapping an optimizer: Keras 3's with all arguments, others as Horovod does."""

from __future__ import annotations

from typing import Any

from paceline.codecs.encoding import Encoding
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.gradient_arguments import asked
from paceline.horovod.shims import unmodified
from paceline.keras3 import hooks
from paceline.keras3.tensorflow_wire import TensorFlowWire
from paceline.native.library import loaded
from paceline.registry.exchanges import lists_exchanges
from paceline.registry.making import maker
from paceline.tensorflow.horovod import horovod_tensorflow as hvd

_horovods = unmodified.original(hvd.DistributedOptimizer)


@lists_exchanges
def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = hvd.Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = hvd.Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = hvd.global_process_set,
    scale_local_gradients: bool = True,
    *,
    fusion: Any = None,
    exchange: str | ExchangeSettings | None = None,
    codec: str | None = None,
    error_feedback: bool | None = None,
    collective: str | None = None,
    weight: Any = None,
) -> Any:
    """Wrap an optimizer so that it averages gradients over all ranks before it applies them.

    Arguments are those of horovod.tensorflow.DistributedOptimizer, and `fusion`: how gradients are merged into messages
    (docs/methods/fusion.md); None: from PACELINE_FUSION. For a Keras optimizer `groups` takes effect, which Horovod
    ignores (see docs/guides/keras.md), and `use_locking` has no effect. `exchange`, for Keras optimizers:

    {exchanges}

    `codec`, `error_feedback`, `collective` and `weight`, also for Keras optimizers, are those of
    hvd.DistributedOptimizer of paceline.keras (docs/methods/codecs.md, docs/methods/collectives.md,
    docs/guides/weights.md). None: from the environment variables.

    Raises UserError for unusable settings. For other optimizers it also raises UserError for an exchange that is not
    synchronous, a codec, a collective or a weight.
    """
    found = asked(fusion, exchange, codec, error_feedback, collective)
    given = {
        "name": name,
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "average_aggregated_gradients": average_aggregated_gradients,
        "num_groups": num_groups,
        "groups": groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    if not hooks.is_optimizer(optimizer):
        if not found.exchange.synchronous:
            raise UserError(
                f"{type(optimizer).__name__} is not an optimizer of Keras 3; its gradients can only be synchronous.",
                'Use an optimizer of tf.keras, or exchange="sync".',
            )
        if found.choice.own:
            raise UserError(
                f"{type(optimizer).__name__} is not an optimizer of Keras 3; how its gradients travel, only variables "
                "say.",
                "Use an optimizer of tf.keras, or PACELINE_CODEC and PACELINE_COLLECTIVE.",
            )
        if weight is not None:
            raise UserError(
                f"{type(optimizer).__name__} is not an optimizer of Keras 3; its gradients have no weights.",
                "Use an optimizer of tf.keras, or DistributedGradientTape(weight=).",
            )
        found.fuse("tensorflow")
        return _horovods(optimizer, use_locking=use_locking, **given)
    import horovod.tensorflow.keras

    from paceline.keras3.optimizer import find

    found.check(compression, hvd.Compression.none)
    found.fuse("tensorflow")
    before = hooks.exchange, hooks.encoding
    hooks.exchange = maker(found.exchange, TensorFlowWire)
    hooks.encoding = Encoding(loaded("tensorflow"), process_set, found.choice)
    try:
        made = horovod.tensorflow.keras.DistributedOptimizer(optimizer, **given)
    finally:
        hooks.exchange, hooks.encoding = before
    if weight is not None:
        find(made).weight = weight
    return made
