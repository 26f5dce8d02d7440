"""Wrapping an optimizer of Keras 3, and loading models that were trained with one."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.codecs.travel import Travel
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
    """`optimizer` as one that averages gradients over all ranks before it applies them.

        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())), loss=...)

    The result is another face of the same optimizer: same class name, same variables, same files, and gradients are
    averaged before anything else happens to them (unscaling, clipping, weight decay). Wrapping a LossScaleOptimizer
    wraps the optimizer in it and returns it.

    Args:
        optimizer: an instance of keras.optimizers.Optimizer; it may have been built, trained or loaded.
        name: how operations are named, with the variable's index in the optimizer's list behind it; by default after
            the optimizer's class. Exchanges that are not synchronous number equal names in the order of first use,
            which must be the same on all ranks.
        device_dense, device_sparse: TensorFlow devices for Horovod's operations.
        compression: hvd.Compression.none or hvd.Compression.fp16.
        sparse_as_dense: make sparse gradients dense before they travel.
        gradient_predivide_factor: with op=Average, divide by it before the sum and by size() / it afterwards.
        op: hvd.Average or hvd.Sum.
        backward_passes_per_step: add up so many gradients before they travel and are applied.
        average_aggregated_gradients: divide that sum by the number of passes.
        groups: a number of groups, or lists of variables, whose gradients travel as one message. `num_groups` is its
            old name.
        process_set: average over these ranks only.
        scale_local_gradients: divide gradients of variables registered by `register_local_var` by the number of ranks.
        fusion: how gradients are merged into messages (docs/methods/fusion.md), for all operations of this process;
            None: as PACELINE_FUSION says.
        exchange: what becomes of gradients before the update.
            {exchanges}
            The result also has drain(), in_flight() and load_in_flight(state).
        codec: how gradients travel: "none" (as they are), or a codec such as "q8" (docs/methods/codecs.md); not with
            `compression`. None: as PACELINE_CODEC says.
        error_feedback: whether what the codec loses of a gradient is added to the next one; in_flight() has it, to be
            saved. None: it is.
        collective: how gradients in CPU memory move between ranks: "horovod" (its own), "linear", "ring", "direct",
            "doubling" or "auto" (docs/methods/collectives.md). None: as PACELINE_COLLECTIVE says; with a codec and
            neither, "direct". These three are the same on all ranks, which compare them before the first update.
        weight: how much this rank's gradients count (docs/guides/weights.md), on all ranks: "samples", the batch size
            in Model.fit; a number, or a variable that a script assigns before each step. It can be set later, too
            (`optimizer.weight`). None: as PACELINE_WEIGHT says.

    Raises UserError for what is no optimizer, for one that is wrapped already, and for settings that cannot be used.
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
            travel=Travel(loaded(wire.LIBRARY), process_set, found.choice),
            weight=weight,
        ),
    )


def PartialDistributedOptimizer(optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """As DistributedOptimizer, but gradients of `local_layers` (a layer or several, built) stay on their rank."""
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
    """Load a saved model and wrap its optimizer, which goes on with the state it was saved with.

    `custom_optimizers`: classes of optimizers that the file may name. `choices`: further arguments of
    keras.models.load_model (compile, safe_mode) and of DistributedOptimizer. `legacy_opts` is accepted, Keras 3 has no
    legacy optimizers. Raises TypeError for arguments that neither has, and what keras.models.load_model raises.
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
