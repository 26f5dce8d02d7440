"""Gradients in flight of a Keras optimizer as a part of the elastic state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from paceline.errors import UsageError
from paceline.exchange.elastic import carry_over
from paceline.keras3.optimizer import find
from paceline.keras3.update import communication
from paceline.native.library import loaded


class InFlight:
    """Gradients in flight of `optimizer`, if it is wrapped, with a saved copy.

    What differs from rank to rank ends with its world and is not saved: loading it requires all ranks, also lost ones.
    """

    def __init__(self, optimizer: Any) -> None:
        self._wrapped = find(optimizer)
        if self._wrapped is not None:
            carry_over(loaded(keras.backend.backend()), self.take, self.put)
        self.save()

    def take(self) -> dict[str, Any] | None:
        """Return what all ranks have in flight; None if there is nothing."""
        if self._wrapped is None:
            return None
        exchange = self._wrapped._distributed.exchange
        found: dict[str, Any] | None = None
        if exchange is None or not exchange.settings.states_differ:
            found = self._wrapped.in_flight()
        return found

    def put(self, state: dict[str, Any] | None) -> None:
        """Drop what is in flight and accumulated, and continue with `state`."""
        if self._wrapped is not None:
            self._wrapped.forget_accumulated()
            if state is not None:
                self._wrapped.load_in_flight(state)

    def save(self) -> None:
        """Save a copy."""
        self._saved = self.take()

    def restore(self) -> None:
        """Restore the last copy."""
        self.put(self._saved)

    def sync(self, synchronise: Callable[[], None]) -> None:
        """Call `synchronise()`, which makes the weights equal on all ranks; then continue with rank 0's gradients.

        Raises UsageError if rank 0 has another exchange.
        """
        exchange = None if self._wrapped is None else self._wrapped._distributed.exchange
        own = None if exchange is None else exchange.agreement()
        state, expected = communication().broadcast_object((self.take(), own), 0, "KerasState.in_flight")
        if own != expected:
            raise UsageError(
                f"A rank of an elastic job has another exchange than rank 0: found {own}, expected {expected} (numbers "
                "of its settings).",
                "Give the optimizer the same exchange and options on all ranks.",
            )
        self.put(None)
        synchronise()
        self.put(state)
        self.save()
