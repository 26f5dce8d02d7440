"""Paceline's systems of local.py."""

from __future__ import annotations

from typing import Any

import torch

import paceline.torch as hvd
from paceline.examples import replicas_torch
from paceline.examples.benchmarks.harness.connections import connect_horovod
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.training.local_worker import CharactersWorker


class PacelineWorker(CharactersWorker):
    """Trains with Paceline's optimizer."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        connect_horovod(place)
        super().__init__(place, options)

    def wrap(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return Paceline's optimizer, with the exchange of the system."""
        local = self.options["local"]
        return hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.model.named_parameters(),
            exchange="sync" if local is None else hvd.Local(**local),
            codec=self.options["codec"],
        )

    def meet(self) -> None:
        """Wait for all ranks."""
        hvd.barrier()

    def average(self) -> None:
        """Give all ranks the mean of their models. No message is in flight: the last step used one."""
        replicas_torch.average(self.model)
