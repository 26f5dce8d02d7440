"""Wrapping an optimizer: Keras 3's with all arguments, others as Horovod does."""

from __future__ import annotations

import inspect
from typing import Any

from paceline.codecs.travel import Travel
from paceline.errors import UserError
from paceline.gradient_arguments import NAMES, asked, takes_gradient_arguments
from paceline.horovod.shims import unmodified
from paceline.keras3 import hooks
from paceline.keras3.tensorflow_wire import TensorFlowWire
from paceline.native.library import loaded
from paceline.registry.making import maker
from paceline.tensorflow.horovod import horovod_tensorflow

_horovods = unmodified.original(horovod_tensorflow.DistributedOptimizer)


@takes_gradient_arguments
def DistributedOptimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """An optimizer that averages gradients over all ranks before it applies them.

    Arguments are those of horovod.tensorflow.DistributedOptimizer, and `fusion`: how gradients are merged into messages
    (docs/fusion.md); None: as PACELINE_FUSION says. For an optimizer of Keras `groups` is heeded, which Horovod forgets
    on the way; see docs/keras.md. `use_locking` has no meaning for those. `exchange`, for optimizers of Keras:

    {exchanges}

    `codec`, `error_feedback` and `collective`, for these as well: how gradients travel, as of hvd.DistributedOptimizer
    of paceline.keras (docs/codecs.md, docs/collectives.md); None: as the variables say.

    Raises UserError for settings that cannot be used, and with another optimizer for an exchange that is not
    synchronous and for a codec or collective.
    """
    found = asked("DistributedOptimizer", {name: kwargs.pop(name) for name in NAMES if name in kwargs})
    if not hooks.is_optimizer(optimizer):
        if not found.exchange.synchronous:
            raise UserError(
                f"{type(optimizer).__name__} is no optimizer of Keras 3; its gradients can only be synchronous.",
                'Use an optimizer of tf.keras, or exchange="sync".',
            )
        if found.choice.own:
            raise UserError(
                f"{type(optimizer).__name__} is no optimizer of Keras 3; how its gradients travel, only variables say.",
                "Use an optimizer of tf.keras, or PACELINE_CODEC and PACELINE_COLLECTIVE.",
            )
        found.fuse("tensorflow")
        return _horovods(optimizer, *args, **kwargs)
    import horovod.tensorflow.keras

    given = dict(inspect.signature(_horovods).bind(optimizer, *args, **kwargs).arguments)
    given.pop("use_locking", None)
    none = horovod_tensorflow.Compression.none
    found.check(given.get("compression", none), none)
    found.fuse("tensorflow")
    process_set = given.get("process_set", horovod_tensorflow.global_process_set)
    before = hooks.exchange, hooks.travel
    hooks.exchange = maker(found.exchange, TensorFlowWire)
    hooks.travel = Travel(loaded("tensorflow"), process_set, found.choice)
    try:
        return horovod.tensorflow.keras.DistributedOptimizer(**given)
    finally:
        hooks.exchange, hooks.travel = before
