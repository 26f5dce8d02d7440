"""torchft's systems of local.py: each rank is a replica group of its own, and rank 0 runs the lighthouse."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

from paceline.examples.benchmarks.harness.connections import publish, published
from paceline.examples.benchmarks.harness.hosts import interface_of
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.training.local import TRAIN_LIMIT_S
from paceline.examples.benchmarks.training.local_worker import CharactersWorker
from paceline.local.turns import parted

_LIMIT = timedelta(seconds=TRAIN_LIMIT_S)


class TorchftWorker(CharactersWorker):
    """Trains with torchft's DiLoCo. Raises RuntimeError if an average was unused or did not include all ranks."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        address = place.host_addresses[place.host]
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(address)
        self._averages = 0
        self._store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        self._lighthouse = _lighthouse(place)
        super().__init__(place, options)

    def wrap(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer itself; torchft averages in its hooks."""
        place, local = self.place, self.options["local"]
        address = place.host_addresses[place.host]
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=_LIMIT),
            load_state_dict=self.model.load_state_dict,
            state_dict=self.model.state_dict,
            min_replica_size=place.size,
            use_async_quorum=False,  # DiLoCo needs it
            timeout=_LIMIT,
            quorum_timeout=_LIMIT,
            connect_timeout=_LIMIT,
            rank=0,
            world_size=1,
            store_addr=address,
            store_port=self._store.port,
            lighthouse_addr=published(_lighthouse_file(place)),
            replica_id=f"replica_{place.rank}",
            hostname=address,
            init_sync=False,  # all ranks begin with equal weights
        )
        count = local.get("fragments", 1)
        fragments = [self.model] if count == 1 else _fragments(self.model, count)
        outer = [
            torch.optim.SGD(
                one.parameters(), lr=local["outer_lr"], momentum=local["outer_momentum"], nesterov=local["nesterov"]
            )
            for one in fragments
        ]
        averaging = DiLoCo(
            self._manager,
            fragments,
            optimizer,
            outer,
            sync_every=local["sync_every"],
            fragment_sync_delay=local.get("delay", 0),
            fragment_update_alpha=local.get("mixing", 0.0),
        )
        averaging.__enter__()  # the training lasts as long as the process
        self._averages = self.options["steps"] // local["sync_every"] * count
        return optimizer

    def meet(self) -> None:
        """Connect to all ranks and wait for them."""
        self._manager.start_quorum()
        self._mean([torch.zeros(1)])

    def average(self) -> None:
        """Give all ranks the mean of their models."""
        made, used = self._manager.current_step(), self._manager.batches_committed()
        if (made, used) != (self._averages, self._averages * self.place.size):
            raise RuntimeError(f"{made} averages of {used} models in all, expected {self._averages} of all ranks")
        self._manager.start_quorum()
        self._mean([one.data for one in self.model.parameters()])

    def _mean(self, tensors: list[torch.Tensor]) -> None:
        for work in [self._manager.allreduce(one) for one in tensors]:
            work.wait()
        if self._manager.errored() or self._manager.num_participants() != self.place.size:
            raise RuntimeError(f"{self._manager.num_participants()} ranks met: {self._manager.errored()}")


def _lighthouse_file(place: Place) -> Path:
    return Path(place.folder) / "lighthouse"


def _lighthouse(place: Place) -> LighthouseServer | None:
    """Start the server on rank 0 and publish its address. Return None on other ranks."""
    if place.rank:
        return None
    milliseconds = round(TRAIN_LIMIT_S * 1e3)
    server = LighthouseServer(
        bind="0.0.0.0:0", min_replicas=place.size, join_timeout_ms=milliseconds, heartbeat_timeout_ms=milliseconds
    )
    # Its default address has the machine's name, which other hosts cannot resolve.
    port = server.address().rpartition(":")[2].rstrip("/")
    publish(_lighthouse_file(place), f"http://{place.host_addresses[0]}:{port}")
    return server


def _fragments(model: nn.Module, count: int) -> list[nn.Module]:
    """Return modules with the weights of Paceline's fragments."""
    weights = list(model.parameters())
    parts = parted({number: one.numel() for number, one in enumerate(weights)}, count)
    return [nn.ParameterList(weights[number] for number in part) for part in parts]
