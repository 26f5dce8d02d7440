"""A rank that trains a model whose gradients are all ones, and reads its peak memory from the kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.examples.benchmarks.harness import connections
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.harness.system import load
from paceline.examples.benchmarks.steps.worker import WARM_UP_STEPS, Measured, Run, StepWorker

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5)
_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
_RATE = 1e-4


class _Layer(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(side, side))

    def forward(self, activation: torch.Tensor) -> torch.Tensor:
        """Add the sum of the weights to the scalar; the backward pass allocates a gradient of ones."""
        return activation + self.weight.sum()


class Layers(nn.Module):
    """`layers` square float32 matrices of `side` rows. A call returns a scalar, whose backward() makes the gradients.

    No activation is kept.
    """

    def __init__(self, layers: int, side: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(_Layer(side) for _ in range(layers)))

    def forward(self) -> torch.Tensor:
        """Run the forward pass."""
        result: torch.Tensor = self.layers(torch.zeros((), requires_grad=True))
        return result


Wrapped = tuple[nn.Module, Any]  # the module to call, and the optimizer to step


def alone(place: Place) -> Callable[[Layers, Any], Wrapped]:
    """No exchange: what the measurement itself counts above parameters and gradients."""
    return lambda model, make: (model, make(model.parameters()))


def ddp(place: Place) -> Callable[[Layers, Any], Wrapped]:
    """PyTorch's DistributedDataParallel over Gloo, with its defaults."""
    connections.connect_torch(place)
    parallel = nn.parallel.DistributedDataParallel
    return lambda model, make: (parallel(model, init_sync=False), make(model.parameters()))


def zero(place: Place) -> Callable[[Layers, Any], Wrapped]:
    """DistributedDataParallel with ZeroRedundancyOptimizer."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    parallel = ddp(place)

    def wrap(model: Layers, make: Any) -> Wrapped:
        module, _ = parallel(model, make)
        return module, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=make.func, **make.keywords)

    return wrap


def fsdp(place: Place) -> Callable[[Layers, Any], Wrapped]:
    """FSDP2, each layer by itself."""
    from torch.distributed.fsdp import fully_shard

    connections.connect_torch(place)

    def wrap(model: Layers, make: Any) -> Wrapped:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        return model, make(model.parameters())

    return wrap


def horovod(place: Place) -> Callable[[Layers, Any], Wrapped]:
    """Plain Horovod script."""
    connections.connect_horovod(place)
    import horovod.torch as hvd

    return lambda model, make: (model, hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters()))


def paceline(place: Place) -> Callable[[Layers, Any], Wrapped]:
    """Script with Paceline's optimizer; PACELINE_* variables choose the exchange."""
    connections.connect_horovod(place)
    import paceline.torch as hvd

    return lambda model, make: (model, hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters()))


class MemoryWorker(StepWorker):
    """Trains, and reports bytes as figures of `Measured`.

    "before": resident with the parameters and a connected library, before the optimizer was wrapped. "peak": the most
    since then; "steady": the most in the steps of the last order alone (without it, where the kernel refuses to reset).
    "state": of the optimizer. `options`: "training" is "module:function", "optimizer" a name, "layers" and "side".
    """

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        super().__init__(options.get("planned", False))
        torch.set_num_threads(1)
        connect: Any = load(options["training"])
        wrap = connect(place)
        make = partial(_OPTIMIZERS[options["optimizer"]], lr=_RATE)
        # The first update imports a hundred megabytes of modules, whatever the size of the model.
        small = Layers(1, 1)
        _step(small, make(small.parameters()))
        model = Layers(options["layers"], options["side"])
        self._resets = reset_peak()
        self._before = resident("VmRSS")
        self._module, self._optimizer = wrap(model, make)
        self.hello = self.warm_up(WARM_UP_STEPS)

    def step(self) -> None:
        """Make a training step."""
        _step(self._module, self._optimizer)

    def checked_step(self) -> None:
        """Make a step; cases of training steps check gradients."""
        self.step()

    def measure(self, run: Run) -> Measured:
        """Make the steps and read the memory."""
        peak = resident("VmHWM")
        self._resets = self._resets and reset_peak()
        begin_s = time.monotonic()
        made = run.fill + run.settle + run.steps
        for _ in range(made):
            self.step()
        wall_s = (time.monotonic() - begin_s) * run.steps / made
        steady = resident("VmHWM")
        figures = {"before": self._before, "peak": max(peak, steady), "state": state_bytes(self._optimizer)}
        return Measured(run.steps, wall_s, figures | ({"steady": steady} if self._resets else {}), None, self.merging())


def _step(module: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad(set_to_none=True)
    module().backward()
    optimizer.step()


def resident(field: str) -> float:
    """Return VmRSS or VmHWM (its peak) of this process in bytes."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024.0 * int(line.split()[1])


def reset_peak() -> bool:
    """Make the resident memory of now the peak. Return False where the kernel does not allow this."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def state_bytes(optimizer: Any) -> float:
    """Return the bytes of all tensors in the state of an optimizer on this rank."""
    state = getattr(optimizer, "optim", optimizer).state  # ZeroRedundancyOptimizer holds the local one there
    tensors = [one for entries in state.values() for one in entries.values() if isinstance(one, torch.Tensor)]
    return float(sum(getattr(one, "to_local", lambda one=one: one)().nbytes for one in tensors))  # FSDP2 has shards
