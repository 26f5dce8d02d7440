"""Help against stale gradients for a held PyTorch optimizer (see paceline.pipelined.staleness)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.pipelined.settings import Pipelined
from paceline.pipelined.staleness import moved, rate_factor, retention, trend

State = dict[str, Any]


class StalenessHelp:
    """Makes the updates of `optimizer` with the rescheduled rate, and looks ahead in between.

    Between updates a parameter holds one of two things:

        real    what the updates made of it
        ahead   what it is expected to be when the gradients that are computed now are applied

    `update` and `real_weights` put the real weights back. An element that somebody else wrote to while it was ahead, as
    loading a checkpoint does, keeps what was written. Does nothing where `settings` asks for no help.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, settings: Pipelined) -> None:
        self._optimizer = optimizer
        self._settings = settings
        self._gamma = retention(settings.correction, settings.delay) if settings.correction else 0.0
        self._corrects = settings.correction > 0 and settings.delay > 0
        self._updates = 0  # with gradients that are late
        self._trends: dict[Tensor, Tensor] = {}
        self._real: dict[Tensor, Tensor] = {}  # of the parameters that are ahead
        self._distance = 0  # how many updates these are ahead

    def update(self, step: Callable[[], Any], late: bool) -> Any:
        """Call `step`, the held optimizer's, on the real weights. `late`: its gradients are K - 1 updates old."""
        self._come_back()
        before = {parameter: parameter.detach().clone() for parameter in self._parameters()} if self._corrects else {}
        with self._rescheduled(late):
            result = step()
        self._updates += late
        for parameter, old in before.items():
            change = parameter.detach() - old
            known = self._trends.get(parameter)
            self._trends[parameter] = trend(torch.zeros_like(old) if known is None else known, change, self._gamma)
        return result

    def look_ahead(self, updates: int) -> None:
        """Let the parameters be those expected after so many further updates."""
        self._come_back()
        self._distance = updates
        if updates and self._corrects:
            with torch.no_grad():
                for parameter in self._parameters():
                    delta = self._trends.get(parameter)
                    if delta is not None:
                        self._real[parameter] = parameter.detach().clone()
                        parameter.copy_(moved(parameter, delta, updates))

    @contextlib.contextmanager
    def real_weights(self) -> Iterator[None]:
        """A context in which the parameters are what the updates made of them."""
        distance = self._distance
        self._come_back()
        try:
            yield
        finally:
            self.look_ahead(distance)

    def state(self) -> State | None:
        """What a run that goes on from here needs; None if that is nothing."""
        if not self._corrects and not self._settings.anneal_steps:
            return None
        by_place = list(enumerate(self._parameters()))
        return {
            "updates": self._updates,
            "distance": self._distance,
            "trends": {place: self._trends[one].clone() for place, one in by_place if one in self._trends},
            "real": {place: self._real[one].clone() for place, one in by_place if one in self._real},
        }

    def load(self, state: State | None) -> None:
        """Go on where `state` was taken, parameters included where it looked ahead; None: from the beginning."""
        self.forget()
        if state is None or self.state() is None:
            return
        parameters = self._parameters()
        self._updates = state["updates"]
        self._trends = {parameters[place]: delta.to(parameters[place]) for place, delta in state["trends"].items()}
        with torch.no_grad():
            for place, weights in state["real"].items():
                parameters[place].copy_(weights)
        self.look_ahead(state["distance"])

    def forget(self) -> None:
        """Put the real weights back and begin anew."""
        self._come_back()
        self._updates, self._distance = 0, 0
        self._trends.clear()

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def _come_back(self) -> None:
        with torch.no_grad():
            for parameter, real in self._real.items():
                untouched = parameter == moved(real, self._trends[parameter], self._distance).to(parameter.dtype)
                parameter.copy_(torch.where(untouched, real, parameter))
        self._real.clear()

    @contextlib.contextmanager
    def _rescheduled(self, late: bool) -> Iterator[None]:
        steps = self._settings.anneal_steps
        factor = rate_factor(self._settings.delay, self._updates / steps) if late and self._updates < steps else 1.0
        if factor == 1.0:
            yield
            return
        groups = [group for group in self._optimizer.param_groups if "lr" in group]
        rates = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates):
            group["lr"] = rate * factor
        try:
            yield
        finally:
            for group, rate in zip(groups, rates):
                group["lr"] = rate
