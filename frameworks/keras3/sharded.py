"""Optimizers whose update and state ranks share (exchange="split"): slots and updates of this rank's own variables.

Each trained variable has one owner. The optimizer's slots (moments and so on) of a variable have elements on its owner
only; on other ranks they are empty variables in the same places, so that Keras' indices and files stay the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras

from paceline import variables as environment
from paceline.errors import UsageError
from paceline.exchange.keras_slots import slots_of
from paceline.keras3.settings import Settings


def check(optimizer: Any, settings: Settings) -> None:
    """Raise UsageError for an optimizer, or settings, that the split exchange cannot have."""
    kind, chosen = type(optimizer), settings.exchange.chosen
    together = tuple(
        getattr(keras.optimizers, name) for name in ("Nadam", "MultiOptimizer") if hasattr(keras.optimizers, name)
    )
    sync = 'use exchange="sync".'
    refused = (
        (
            isinstance(optimizer, together),
            f"{kind.__name__}, whose variables have a state in common",
            sync.capitalize(),
        ),
        (
            not (kind.__module__.startswith("keras.src.") or chosen.independent or chosen.elementwise),
            f"{kind.__name__}, of which nobody has said that its update of a variable depends on this one alone",
            'Use exchange="sync", or exchange=hvd.Split(independent=True) if it does.',
        ),
        (optimizer.use_ema, "use_ema=True", f"Leave it out, or {sync}"),
        (
            bool(optimizer.gradient_accumulation_steps),
            f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}",
            "Give backward_passes_per_step=, average_aggregated_gradients=True to DistributedOptimizer instead.",
        ),
        (settings.groups is not None, "groups=, but owners decide the groups", f"Leave it out, or {sync}"),
        (
            settings.encoding is not None and settings.encoding.choice.lossy,
            "a codec of gradients",
            f"Leave codec= and PACELINE_CODEC out, or {sync}",
        ),
        (environment.elastic(), "an elastic job: ranks that leave take their part of the state", sync.capitalize()),
    )
    for present, found, remedy in refused:
        if present:
            raise UsageError(f'exchange="split" was given together with {found}.', remedy)


class Sharded:
    """Part of the made class before Distributed, which `super()` reaches."""

    __slots__ = ()

    @property
    def _distributed(self) -> Any:
        state: Any = super()._distributed  # type: ignore[misc]
        if state.exchange.wire.optimizer is None:
            state.exchange.wire.optimizer = weakref.ref(self)
        return state

    def _owns(self, variable: Any) -> bool:
        """True if this rank updates the variable; all ranks update a variable whose gradient stays on its rank."""
        state, key = self._distributed, self._var_key(variable)  # type: ignore[attr-defined]
        owner = state.exchange.owner_of(str(self._trainable_variables_indices[key]))  # type: ignore[attr-defined]
        return key in state.local or owner == state.exchange.rank

    # --- slots --------------------------------------------------------------------------------------------------------

    def build(self, variables: Any) -> None:
        """Make slots of this rank's own variables, and empty ones of the others."""
        super().build(variables)  # type: ignore[misc]
        self._release()

    def _release(self) -> None:
        """Empty the slots of other ranks' variables, if any have elements."""
        state = self._distributed
        if not state.exchanges:
            return
        trained = self._trainable_variables  # type: ignore[attr-defined]
        for _, index, slot in slots_of(self):
            if not _empty(slot) and not self._owns(trained[index]):
                state.exchange.wire.emptied(slot)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        """Make a slot, which is empty if another rank owns the variable."""
        known = self._trainable_variables_indices  # type: ignore[attr-defined]
        built = bool(self._trainable_variables) and self._var_key(reference_variable) in known  # type: ignore[attr-defined]
        if not built or not self._distributed.exchanges or self._owns(reference_variable):
            return super().add_variable_from_reference(reference_variable, name, initializer)  # type: ignore[misc]
        of = getattr(reference_variable, "path", reference_variable.name).replace("/", "_").replace(":", "_")
        return self.add_variable(  # type: ignore[attr-defined]
            shape=(0,), dtype=reference_variable.dtype, name=f"{of}_{name or 'var'}"
        )

    def assign(self, variable: Any, value: Any) -> None:
        """Assign a value; optimizers that assign to slots while they build them have empty ones."""
        if not _empty(variable):
            super().assign(variable, value)  # type: ignore[misc]

    def register_local_var(self, var: Any) -> None:
        """Keep the gradients of `var` on this rank. Raises UsageError after its slots were made on one rank only."""
        if self.built and self._distributed.exchanges:  # type: ignore[attr-defined]
            raise UsageError(
                f"The variable {var.name!r} became one that stays on its rank, after ranks had shared its state.",
                "Call register_local_var() before the optimizer is built.",
            )
        super().register_local_var(var)  # type: ignore[misc]

    # --- updates ------------------------------------------------------------------------------------------------------

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        if not self._distributed.exchanges:
            super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]
            return
        self._release()
        own = [pair for pair in zip(grads, trainable_variables, strict=True) if self._owns(pair[1])]
        super()._backend_apply_gradients([grad for grad, _ in own], [one for _, one in own])  # type: ignore[misc]

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        state = self._distributed
        if not (self.global_clipnorm and state.exchanges):  # type: ignore[attr-defined]
            own: list[Any] = super()._clip_gradients(grads)  # type: ignore[misc]
            return own
        # Keras divides by the norm of what it gets: one more number stands for all gradients of other ranks.
        others = keras.ops.cast(state.exchange.wire.norm_of_others(grads), grads[0].dtype if grads else "float32")
        clipped: list[Any] = super()._clip_gradients([*grads, others])  # type: ignore[misc]
        return clipped[:-1]

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        if variables:
            super()._apply_weight_decay(variables)  # type: ignore[misc]

    def _backend_update_step(self, grads: Sequence[Any], trainable_variables: Sequence[Any], rate: Any) -> None:
        if trainable_variables:  # Keras on PyTorch takes no empty lists
            super()._backend_update_step(grads, trainable_variables, rate)  # type: ignore[misc]

    # --- the whole state ----------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int | None = 0) -> None:
        """Collect the whole state on rank `to`, or on all ranks, which can save the model then. Not in a graph.

        All ranks must call it, after the same update.
        """
        state = self._distributed
        state.collected = None
        if not state.exchanges:
            return
        exchange = state.exchange
        keeps = to is None or to == state.wire.hvd.rank()
        whole: dict[int, Any] = {}
        slots = list(slots_of(self))
        for owner, root in enumerate(exchange.wire.process_set.ranks):
            here = owner == exchange.rank
            mine = {
                number: keras.ops.convert_to_numpy(slot)
                for number, (_, index, slot) in enumerate(slots)
                if here and exchange.owner_of(str(index)) == owner
            }
            found = self._sent(mine if here else None, root, f"state.{owner}")
            whole.update({id(slots[number][2]): value for number, value in found.items()} if keeps else {})
        if keeps:
            state.collected = int(exchange.wire.updates.value()), whole

    def take_state(self, root_rank: int) -> None:
        """Take the state of the own variables from a root that has loaded the whole state. All ranks must call it."""
        if not self._distributed.exchanges:
            return
        slots = list(slots_of(self))
        whole = None
        if root_rank == self._distributed.wire.hvd.rank() and not any(_empty(slot) for _, _, slot in slots):
            whole = {number: keras.ops.convert_to_numpy(slot) for number, (_, _, slot) in enumerate(slots)}
        found = self._sent(whole, root_rank, "state")
        self._release()
        for number, value in (found or {}).items():
            if not _empty(slots[number][2]):
                slots[number][2].assign(value)

    def _sent(self, value: Any, root: int, word: str) -> Any:
        """Return the root's `value` on all ranks."""
        wire = self._distributed.exchange.wire
        name = f"paceline.split.{wire.label}.{word}"
        return self._distributed.wire.hvd.broadcast_object(value, root, name=name, process_set=wire.process_set)

    def whole(self, variable: Any) -> Any:
        """Return the value of one of the optimizer's variables; of a slot on another rank, its collected value.

        Raises UsageError unless the state was collected since the last update.
        """
        if not _empty(variable):
            return keras.ops.convert_to_numpy(variable)
        state, name = self._distributed, self.name  # type: ignore[attr-defined]
        if state.collected is None or state.collected[0] != int(state.exchange.wire.updates.value()):
            raise UsageError(
                f"The optimizer {name!r} was saved on rank {state.wire.hvd.rank()}, which has the state of its own "
                "variables only.",
                "Call model.optimizer.consolidate_state_dict() on all ranks before rank 0 saves.",
            )
        return state.collected[1][id(variable)]

    def save_own_variables(self, store: Any) -> None:
        """Save the whole state. Raises UsageError as `whole`."""
        save(self, self, store)

    def load_own_variables(self, store: Any) -> None:
        """Load this rank's part of a whole state."""
        load(self, self, store, super().load_own_variables)  # type: ignore[misc]


def save(optimizer: Any, sharded: Sharded, store: Any) -> None:
    """Save the whole state of `optimizer`, which is or holds `sharded`."""
    for number, variable in enumerate(optimizer.variables):
        store[str(number)] = sharded.whole(variable)


def load(optimizer: Any, sharded: Any, store: Any, inherited: Callable[[Any], None]) -> None:
    """Load this rank's part of a whole state into `optimizer`, which is or holds `sharded`."""
    if len(store.keys()) != len(optimizer.variables):
        inherited(store)  # warns
        return
    for number, variable in enumerate(optimizer.variables):
        if not _empty(variable):
            variable.assign(store[str(number)])
    sharded._distributed.exchange.loaded()


def slots_on_owners(optimizer: Any) -> list[Any]:
    """Return the variables of a wrapped optimizer, or None, that differ between ranks."""
    if not isinstance(optimizer, Sharded) or not optimizer._distributed.exchanges:
        return []
    return [slot for _, _, slot in slots_of(optimizer)]


def _empty(variable: Any) -> bool:
    return tuple(variable.shape) == (0,)
