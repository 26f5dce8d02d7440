"""Averaging the models of all ranks now and then, where an exchange lets them drift apart
(paceline.partial.settings).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from paceline.keras.backend import horovod_module as hvd
from paceline.keras.backend import keras, wire
from paceline.keras.exchange.own_variables import zeros_variable
from paceline.local.averaging import VariableAverage
from paceline.partial.updates import PartialUpdates


def value_of(variable: Any) -> Any:
    """The tensor in a variable of Keras, through which no gradient flows."""
    return keras.ops.stop_gradient(wire.native(variable))


class ModelAveraging:
    """After every `every` updates, and after a drain, exchanged variables become the mean of all ranks'.

    Stands where a pipelined exchange has its StalenessHelp. The ranks wait for each other there, so all must make
    equally many updates; partial rounds of those that have not come yet do not wait for those that have. Counts in a
    variable, so that a compiled step goes on by itself.
    """

    def __init__(self, every: int, updates: PartialUpdates, settings: Any) -> None:
        """`settings` are those of the optimizer."""
        self._every = every
        self._updates = updates
        self._average = VariableAverage(
            wire,
            dataclasses.replace(
                settings,
                name=f"{settings.name}_average",
                op=settings.average,
                compression=hvd.Compression.none,
                gradient_predivide_factor=1.0,
                groups=None,
                exchange=None,
            ),
            value_of,
        )
        self._count = zeros_variable((), "int32")  # updates since the last average

    def updates(self) -> int:
        """Updates since the last average. Not in a graph."""
        return int(keras.ops.convert_to_numpy(self._count.value))

    def update(self, variables: Mapping[int, Any], step: Callable[[], Any], late: Any) -> None:
        """Call `step`, which updates `variables`, and average if that is due. `late`: it is the update of a drain.

        After a drain every rank has been given all results, but averages have divided what it had before.
        """
        step()
        # Those of layers that stay on their rank do not travel.
        shared = {place: variable for place, variable in variables.items() if place in self._updates.places}

        def average() -> Any:
            self._average(shared)
            return keras.ops.zeros(())

        if late:
            average()
            self._count.assign(0)
            return
        self._count.assign((self._count + 1) % self._every)
        keras.ops.cond(keras.ops.equal(self._count, 0), average, lambda: keras.ops.zeros(()))

    def rescaled(self, rate: Any) -> Any:
        """The learning rate stays as it is."""
        return rate

    def look_ahead(self, variables: Mapping[int, Any], updates: Any) -> None:
        """Variables are always what the updates made of them."""

    def real_weights(self) -> contextlib.AbstractContextManager[None]:
        """A context in which nothing is different."""
        return contextlib.nullcontext()

    def forget(self) -> None:
        """The ranks changed: all count from the beginning. Not in a graph."""
        self._count.assign(0)
