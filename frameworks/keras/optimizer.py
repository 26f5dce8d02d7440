"""Wrapping an optimizer of Keras 3, and loading models that were trained with one."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.codecs.encoding import Encoding
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.gradient_arguments import asked
from paceline.keras.backend import horovod_module as hvd
from paceline.keras.backend import keras, wire
from paceline.keras.exchange.making import exchange_of
from paceline.keras3 import hooks
from paceline.keras3.optimizer import distribute
from paceline.keras3.settings import Settings
from paceline.native.library import loaded
from paceline.registry.exchanges import lists_exchanges


@lists_exchanges
def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = hvd.Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = hvd.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
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

        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())), loss=...)

    The result is another view of the same optimizer: same class name, same variables, same files. Gradients are
    averaged before all other processing (unscaling, clipping, weight decay). For a LossScaleOptimizer, the inner
    optimizer is wrapped and the LossScaleOptimizer returned.

    Args:
        optimizer: an instance of keras.optimizers.Optimizer; it may have been built, trained or loaded.
        name: prefix of operation names; the variable's index in the optimizer's list follows. Default: from the
            optimizer's class. Exchanges that are not synchronous number equal names in the order of first use, which
            must be the same on all ranks.
        device_dense, device_sparse: TensorFlow devices for Horovod's operations.
        compression: hvd.Compression.none or hvd.Compression.fp16.
        sparse_as_dense: convert sparse gradients to dense ones before the exchange.
        gradient_predivide_factor: with op=Average, divide by it before the sum and by size() / it afterwards.
        op: hvd.Average or hvd.Sum.
        backward_passes_per_step: sum the gradients of this number of passes before they are exchanged and applied.
        average_aggregated_gradients: divide that sum by the number of passes.
        groups: a number of groups, or lists of variables, whose gradients form one message each. `num_groups` is its
            old name.
        process_set: average over these ranks only.
        scale_local_gradients: divide gradients of variables registered by `register_local_var` by the number of ranks.
        fusion: how gradients are merged into messages (docs/methods/fusion.md), for all operations of this process;
            None: from PACELINE_FUSION.
        exchange: what happens to gradients before the update.
            {exchanges}
            The result also has drain(), in_flight() and load_in_flight(state).
        codec: encoding of gradients in messages: "none", or a codec such as "q8" (docs/methods/codecs.md); not with
            `compression`. None: from PACELINE_CODEC.
        error_feedback: add the encoding error of a gradient to the next one; in_flight() includes the residuals, to be
            saved. None: True.
        collective: how gradients in CPU memory move between ranks: "horovod" (its own), "linear", "ring", "direct",
            "doubling" or "auto" (docs/methods/collectives.md). None: from PACELINE_COLLECTIVE; with a codec and
            neither, "direct". These three must be the same on all ranks, which compare them before the first update.
        weight: weight of this rank's gradients (docs/guides/weights.md), on all ranks: "samples", the batch size in
            Model.fit; a number, or a variable that a script assigns before each step. It can be set later, too
            (`optimizer.weight`). None: from PACELINE_WEIGHT.

    Raises:
        UserError: the argument is not an optimizer or is wrapped already, or settings are unusable.
    """
    if op not in (hvd.Average, hvd.Sum):
        raise UserError(f"op={op} cannot be used for gradients of Keras.", "Use op=hvd.Average or op=hvd.Sum.")
    found = asked(fusion, exchange, codec, error_feedback, collective)
    found.check(compression, hvd.Compression.none)
    found.fuse(keras.backend.backend())
    return distribute(
        optimizer,
        Settings(
            name=name or f"Distributed{type(optimizer).__name__}",
            op=op,
            average=hvd.Average,
            process_set=process_set,
            compression=compression,
            device_dense=device_dense,
            device_sparse=device_sparse,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups if groups is not None else (num_groups or None),
            scale_local_gradients=scale_local_gradients,
            exchange=exchange_of(found.exchange),
            encoding=Encoding(loaded(wire.LIBRARY), process_set, found.choice),
            weight=weight,
        ),
    )


def PartialDistributedOptimizer(optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """As DistributedOptimizer, but gradients of `local_layers` (built layers, one or several) stay on their rank."""
    weights = hooks.local_weights(keras, local_layers)
    wrapped = DistributedOptimizer(optimizer, *args, **kwargs)
    for weight in weights:
        wrapped.register_local_var(weight)
    return wrapped


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type[Any]] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = hvd.Compression.none,
    legacy_opts: bool = False,
    **choices: Any,
) -> Any:
    """Load a saved model and wrap its optimizer, which continues with its saved state.

    Args:
        filepath: path of the saved model.
        custom_optimizers: classes of optimizers that the file may name.
        custom_objects: further objects that the file may name.
        compression: as of DistributedOptimizer.
        legacy_opts: accepted and ignored; Keras 3 has no legacy optimizers.
        **choices: further arguments of keras.models.load_model (compile, safe_mode) and of DistributedOptimizer.

    Raises:
        TypeError: neither function has the argument. Errors of keras.models.load_model are passed on.
    """
    known = inspect.signature(keras.models.load_model).parameters
    loading = {word: choices.pop(word) for word in list(choices) if word in known}
    return hooks.load_model(
        keras,
        lambda optimizer: DistributedOptimizer(optimizer, compression=compression, **choices),
        filepath,
        custom_optimizers,
        custom_objects,
        **loading,
    )
