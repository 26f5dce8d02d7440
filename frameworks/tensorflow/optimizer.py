"""Wrapping an optimizer: Keras 3's with all arguments, others as Horovod does."""

from __future__ import annotations

import inspect
from typing import Any

from paceline.fusion.adapters import fuse
from paceline.tensorflow.host import horovod_tensorflow, keras3


def DistributedOptimizer(optimizer: Any, *args: Any, fusion: Any = None, **kwargs: Any) -> Any:
    """An optimizer that averages gradients over all ranks before it applies them.

    Arguments are those of horovod.tensorflow.DistributedOptimizer, and `fusion`: how gradients are merged into messages
    (docs/fusion.md); None: as PACELINE_FUSION says. For an optimizer of Keras `groups` is heeded, which
    Horovod forgets on the way; see docs/keras.md. `use_locking` has no meaning for those.
    """
    fuse("tensorflow", fusion)
    original = horovod_tensorflow.DistributedOptimizer
    if not keras3.is_optimizer(optimizer):
        return original(optimizer, *args, **kwargs)
    import horovod.tensorflow.keras

    given = dict(inspect.signature(original).bind(optimizer, *args, **kwargs).arguments)
    given.pop("use_locking", None)
    return horovod.tensorflow.keras.DistributedOptimizer(**given)
