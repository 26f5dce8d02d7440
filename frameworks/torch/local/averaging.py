"""Averaging the models of all ranks now and then, where an exchange lets them drift apart
(paceline.partial.settings).
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.native.library import loaded
from paceline.partial.settings import UPDATES
from paceline.pipelined.settings import InFlight
from paceline.torch.host import horovod_torch as horovod
from paceline.torch.optimizer.names import ParameterNames
from paceline.torch.state.travelling import put_back, to_reduce


class ModelAveraging:
    """After every `every` updates of a rank, and after a drain, its parameters become the mean of all ranks'; 0: never.

    The ranks wait for each other there, so all must make equally many updates; partial rounds of those that have not
    come yet do not wait for those that have.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, every: int, names: ParameterNames, process_set: Any, scope: str = ""
    ) -> None:
        """`scope`: see SyncExchange."""
        self._scope = scope
        self._optimizer = optimizer
        self._every = every
        self._names = names
        self._process_set = process_set
        self._updates = 0

    def updated(self) -> None:
        """An update was made."""
        self._updates += 1
        if self._every and self._updates % self._every == 0:
            self.average()

    def before_drain(self) -> None:
        """Raises UserError, within a minute, where ranks have made unequally many updates: they would wait for ever."""
        if self._every:
            parameter = self._optimizer.param_groups[0]["params"][0]
            InFlight(loaded("torch"), self._process_set.process_set_id).meet(
                f"paceline.average.{self._scope}{self._names[parameter]}", [self._updates], UPDATES
            )

    def drained(self) -> None:
        """Every rank has been given all results, but averages have divided what it had before."""
        self._updates = 0
        if self._every:
            self.average()

    def average(self) -> None:
        """Average now; all ranks must. Means of bfloat16 are made in float32."""
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        travelling = [to_reduce(parameter.detach()) for parameter in parameters]
        handles = [
            horovod.allreduce_async_(
                tensor,
                name=f"{self._scope}{self._names[parameter]}.average",
                op=horovod.Average,
                process_set=self._process_set,
            )
            for parameter, tensor in zip(parameters, travelling, strict=True)
        ]
        with torch.no_grad():
            for handle, parameter, tensor in zip(handles, parameters, travelling, strict=True):
                horovod.synchronize(handle)
                put_back(parameter, tensor)
