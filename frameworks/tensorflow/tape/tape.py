"""A tf.GradientTape whose gradients are averages over all ranks.

As with Keras optimizers, the wrapped tape is not copied. The result is another view of the same tape: its class
inherits from the tape's class and shares its attributes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.arguments import warn_weight_unused
from paceline.errors import UserError
from paceline.exchange.base import Exchange
from paceline.exchange.declaration import ExchangeSettings
from paceline.gradient_arguments import asked
from paceline.keras3 import on_tensorflow as wire
from paceline.keras3.hooks import local_weights
from paceline.keras3.settings import Settings
from paceline.keras3.weighing import check as check_weight
from paceline.keras3.weighing import combined, own
from paceline.registry.exchanges import lists_exchanges
from paceline.tensorflow.horovod import horovod_tensorflow as hvd
from paceline.tensorflow.tape.exchange import TAPE_NAME, check, encoding_for, exchange_for
from paceline.tensorflow.tape.numbers import numbered_name
from paceline.tensorflow.tape.updates import expect_update


class _State:
    """State of a wrapped tape, in addition to the attributes it shares with the original one."""

    def __init__(self, settings: Any, chosen: ExchangeSettings) -> None:
        self.settings = settings
        self.chosen = chosen
        self.local: set[Any] = set()
        # Exchanges of the calls of gradient() so far.
        self.exchanges: list[Exchange] = []
        self.inside = False  # within jacobian(), which calls gradient() for each row

    def reducer(self, sources: Sequence[Any], word: str = "") -> Any:
        """Return the reducer for gradients of these sources; with a word, for values that no update uses."""
        if self.chosen.synchronous or word:
            name = numbered_name(self.settings.name + word, self.settings.process_set.process_set_id, sources)
            return wire.Reducer(dataclasses.replace(self.settings, name=name))
        exchange = exchange_for(self.chosen, sources, self.exchanges)
        return wire.Reducer(dataclasses.replace(self.settings, exchange=exchange))


def _key(source: Any) -> Any:
    return wire.native(source).ref()


class _Distributed:
    """Paceline's part of the made class; `super()` is the class of the wrapped tape."""

    __slots__ = ()
    _distributed_state: _State

    def register_local_source(self, source: Any) -> None:
        """Keep the gradient of `source` on this rank, divided by the number of ranks (scale_local_gradients)."""
        self._distributed_state.local.add(_key(source))

    @tf.autograph.experimental.do_not_convert
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """Return averaged gradients, as tf.GradientTape.gradient. `use_generic_names` has no effect."""
        inherited = super().gradient  # type: ignore[misc]
        structure = inherited(target, sources, output_gradients, unconnected_gradients)
        state = self._distributed_state
        return structure if state.inside else self._averaged(sources, structure)

    @tf.autograph.experimental.do_not_convert
    def jacobian(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the averaged tf.GradientTape.jacobian. With every exchange it waits for all ranks, without delay."""
        return self._whole(super().jacobian, target, sources, args, kwargs)  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def batch_jacobian(self, target: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the averaged tf.GradientTape.batch_jacobian. Batches must have the same size on all ranks."""
        return self._whole(super().batch_jacobian, target, source, args, kwargs)  # type: ignore[misc]

    def _whole(self, inherited: Any, target: Any, sources: Any, args: Any, kwargs: Any) -> Any:
        state = self._distributed_state
        state.inside = True
        try:
            structure = inherited(target, sources, *args, **kwargs)
        finally:
            state.inside = False
        return self._averaged(sources, structure, "_jacobian")

    def _averaged(self, sources: Any, structure: Any, word: str = "") -> Any:
        state = self._distributed_state
        natives = [wire.native(source) for source in tf.nest.flatten(sources)]
        keys = [native.ref() for native in natives]
        grads = tf.nest.flatten(structure)
        reduce = state.reducer(natives, word)
        exchanged = []
        for index, (grad, key) in enumerate(zip(grads, keys, strict=True)):
            if grad is not None and key not in state.local:
                exchanged.append(index)
            elif grad is not None:
                grads[index] = own(wire, reduce, state.settings, state.settings.weight, grad)
        chosen = [grads[i] for i in exchanged]
        with wire.after_checks():
            reduced = combined(
                *(wire, reduce, state.settings, state.settings.weight, chosen, [True] * len(chosen)),
                lambda given: reduce(given, [keys[i] for i in exchanged], exchanged, _key),
            )
        if reduce.exchange is not None and exchanged:
            expect_update(reduce.exchange, [natives[i] for i in exchanged], reduced)
        for index, grad in zip(exchanged, reduced, strict=True):
            grads[index] = grad
        return tf.nest.pack_sequence_as(sources, grads)

    @property
    def answered(self) -> Any:
        """Boolean tensor: True if the last gradients are real, False while a pipelined exchange fills."""
        exchanges = self._distributed_state.exchanges
        return tf.convert_to_tensor(exchanges[-1].answered) if exchanges else tf.constant(True)

    @tf.autograph.experimental.do_not_convert
    def get_local_and_global_gradients(
        self, target: Any, sources: Sequence[Any], output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Return pairs of source and gradient: those of registered local sources, then the averaged ones."""
        local: list[tuple[Any, Any]] = []
        averaged: list[tuple[Any, Any]] = []
        for source, grad in zip(sources, self.gradient(target, sources, output_gradients), strict=True):
            (local if _key(source) in self._distributed_state.local else averaged).append((source, grad))
        return local, averaged


@tf.autograph.experimental.do_not_convert
@lists_exchanges
def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = hvd.Compression.none,
    sparse_as_dense: bool = False,
    op: Any = hvd.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = hvd.global_process_set,
    scale_local_gradients: bool = True,
    name: str = TAPE_NAME,
    *,
    fusion: Any = None,
    exchange: str | ExchangeSettings | None = None,
    codec: str | None = None,
    error_feedback: bool | None = None,
    collective: str | None = None,
    weight: Any = None,
) -> Any:
    """Wrap a tape so that its gradients are averages over all ranks.

        with tf.GradientTape() as tape:
            loss = ...
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    Arguments are those of horovod.tensorflow.DistributedGradientTape, and:

    - `name`: prefix of operation names; the index of the source follows. Sources distinguish tapes of one name: the
      second list gets "_2" after the name. Tapes that different threads use for the first time need different names.
    - `fusion`: how gradients are merged into messages (docs/methods/fusion.md); None: from PACELINE_FUSION.
    - `exchange`: what happens to gradients before the update:

    {exchanges}

    While a pipelined exchange has no gradients yet, they are zeros, `tape.answered` is False, and a Keras optimizer
    skips the update.

    - `codec`: encoding of gradients in messages: "none", or a codec such as "q8" (docs/methods/codecs.md), with or
      without `error_feedback`, whose residuals tape_in_flight() saves.
    - `collective`: how gradients move between ranks (docs/methods/collectives.md). `codec` and `collective` must be the
      same on all ranks; None: from the environment variables.
    - `weight`: weight of this rank's gradients, its number of samples or tokens (docs/guides/weights.md): a number or a
      scalar tensor, on all ranks; None: all ranks count alike.

    Raises UserError for unusable settings.
    """
    if isinstance(gradtape, _Distributed):
        raise UserError("DistributedGradientTape got a tape that is wrapped already.", "Wrap it once.")
    found = asked(fusion, exchange, codec, error_feedback, collective)
    check(found.exchange)
    found.check(compression, hvd.Compression.none)
    found.fuse("tensorflow")
    choices = Settings(
        *(name, op, hvd.Average, process_set, compression, device_dense, device_sparse),
        *(sparse_as_dense, gradient_predivide_factor),
        groups=groups if groups is not None else (num_groups or None),
        scale_local_gradients=scale_local_gradients,
        encoding=encoding_for(name, process_set, found.choice, found.exchange),
        weight=weight,
    )
    check_weight(weight, choices, by_samples=False)
    if weight is None:
        warn_weight_unused(hvd.rank())
    wrapped: Any = type(gradtape)
    tape: Any = object.__new__(_class_for(wrapped))
    object.__setattr__(tape, "__dict__", gradtape.__dict__)
    object.__setattr__(tape, "_distributed_state", _State(choices, found.exchange))
    return tape


@functools.cache
def _class_for(wrapped: Any) -> type[Any]:
    """Return a subclass of `wrapped`, the class of a tape, with averaged gradients."""
    return type(wrapped.__name__, (_Distributed, wrapped), {"__slots__": ("_distributed_state",)})


@tf.autograph.experimental.do_not_convert
def PartialDistributedGradientTape(gradtape: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """As DistributedGradientTape, but gradients of `local_layers` (a Keras layer or several) stay on their rank."""
    weights = local_weights(tf.keras, local_layers)
    tape = DistributedGradientTape(gradtape, *args, **kwargs)
    for weight in weights:
        tape.register_local_source(weight)
    return tape
