"""Help against stale gradients for a Keras optimizer, under both backends (see paceline.pipelined.staleness)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from paceline.keras.backend import keras
from paceline.keras.exchange.own_variables import zeros_variable
from paceline.pipelined.settings import Pipelined
from paceline.pipelined.staleness import moved, rate_factor, retention, trend

# Variables of the model by their places in the optimizer's list.
Variables = Mapping[int, Any]
State = dict[str, Any]


class StalenessHelp:
    """Makes updates with the rescheduled rate, and looks ahead in between; all of it can be compiled.

    Between updates a variable is either real, which is what the updates made of it, or ahead: what it is expected to be
    when the gradients that are computed now are applied. An element that somebody else wrote to while it was ahead, as
    loading weights does, keeps what was written.
    """

    def __init__(self, settings: Pipelined) -> None:
        self._settings = settings
        self._gamma = retention(settings.correction, settings.delay) if settings.correction else 0.0
        self._updates = zeros_variable((), "int32")  # with gradients that are late
        self._distance = zeros_variable((), "int32")  # how many updates variables are ahead
        self._known: dict[int, Any] = {}
        self._trends: dict[int, Any] = {}
        self._real: dict[int, Any] = {}  # meaningful while ahead
        self._late: Any = False  # whether gradients of the update that is made now are

    def update(self, variables: Variables, step: Callable[[], Any], late: Any) -> None:
        """Call `step`, which updates `variables`, on the real weights. `late`: its gradients are K - 1 updates old."""
        self._meet(variables)
        self._come_back(variables)
        before = {place: keras.ops.copy(variable) for place, variable in self._corrected(variables).items()}
        self._late = late
        try:
            step()
        finally:
            self._late = False
        self._updates.assign(self._updates + keras.ops.cast(late, "int32"))
        for place, old in before.items():
            change = variables[place] - old
            self._trends[place].assign(trend(self._trends[place], change, self._gamma))

    def rescaled(self, rate: Any) -> Any:
        """The learning rate of the update that is made now, where the optimizer's own is `rate`."""
        steps = self._settings.anneal_steps
        if not steps or self._late is False:
            return rate
        progress = keras.ops.minimum(keras.ops.cast(self._updates, "float32") / steps, 1.0)
        factor = rate_factor(self._settings.delay, progress)
        return rate * keras.ops.cast(keras.ops.where(self._late, factor, 1.0), rate.dtype)

    def look_ahead(self, variables: Variables, updates: Any) -> None:
        """Let `variables` be those expected after so many further updates."""
        self._meet(variables)
        self._come_back(variables)
        self._distance.assign(keras.ops.cast(updates, "int32"))
        for place, variable in self._corrected(variables).items():
            self._real[place].assign(variable)
            variable.assign(self._ahead(place))

    @contextlib.contextmanager
    def real_weights(self) -> Iterator[None]:
        """A context in which all variables are what the updates made of them. Not in a graph."""
        distance = int(keras.ops.convert_to_numpy(self._distance))
        self.look_ahead(self._known, 0)
        try:
            yield
        finally:
            self.look_ahead(self._known, distance)

    def state(self) -> State:
        """What a run that goes on from here needs, as NumPy arrays."""
        return {
            "updates": int(keras.ops.convert_to_numpy(self._updates)),
            "distance": int(keras.ops.convert_to_numpy(self._distance)),
            "trends": {place: _array(delta) for place, delta in self._trends.items()},
            "real": {place: _array(real) for place, real in self._real.items()},
        }

    def load(self, state: State | None, variables: Variables) -> None:
        """Go on where `state` was taken, `variables` included where it looked ahead; None: from the beginning."""
        self.forget()
        if state is None:
            return
        chosen = {place: variables[place] for place in state["trends"]}
        self._meet(chosen)
        self._updates.assign(state["updates"])
        for place, variable in chosen.items():
            self._trends[place].assign(state["trends"][place])
            if state["distance"]:
                variable.assign(state["real"][place])
        self.look_ahead(chosen, state["distance"])

    def forget(self) -> None:
        """Put the real weights back and begin anew. Not in a graph."""
        self.look_ahead(self._known, 0)
        self._updates.assign(0)
        for delta in self._trends.values():
            delta.assign(keras.ops.zeros_like(delta))

    def _meet(self, variables: Variables) -> None:
        for place, variable in variables.items():
            if place not in self._known and self._settings.correction:
                self._trends[place], self._real[place] = (
                    zeros_variable(variable.shape, keras.backend.standardize_dtype(variable.dtype)) for _ in range(2)
                )
            self._known[place] = variable

    def _corrected(self, variables: Variables) -> Variables:
        return variables if self._settings.correction else {}

    def _ahead(self, place: int) -> Any:
        distance = keras.ops.cast(self._distance, self._real[place].dtype)
        return moved(self._real[place], self._trends[place], distance)

    def _come_back(self, variables: Variables) -> None:
        for place, variable in self._corrected(variables).items():
            real = keras.ops.where(keras.ops.equal(variable, self._ahead(place)), self._real[place], variable)
            variable.assign(keras.ops.where(self._distance > 0, real, variable))


def _array(variable: Any) -> np.ndarray[Any, Any]:
    return np.array(keras.ops.convert_to_numpy(variable))
