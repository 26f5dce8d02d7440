"""Time of each layer of a model: a forward and a backward pass of a sample micro-batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import UsageError
from paceline.torch.stages.tensors import StageTensors
from paceline.torch.stages.undisturbed import undisturbed

# Number of repetitions. The first is not counted. The minimum of the others excludes other load on the machine.
_TURNS = 4
# A layer is not repeated after this total time.
_ENOUGH_S = 1.0


def seconds_per_layer(modules: Sequence[nn.Module], sample: Any, device: torch.device | None) -> list[float]:
    """Seconds of both passes together for each of `modules`, each called with the result of the one before.

    `sample`: input of the first module, a micro-batch: a tensor, or a tuple or list of tensors. `device`: None times
    modules where they are. Buffers, gradients and random numbers are restored afterwards. Raises UsageError if a module
    rejects its input.
    """
    value: Any = sample
    found = []
    for number, module in enumerate(modules):
        own = next((one.device for one in module.parameters()), torch.device("cpu"))
        here = device or own
        try:
            with undisturbed(module.to(here), here):
                seconds, value = _timed(module, value, here)
        except Exception as error:
            raise UsageError(
                f"Layer {number} ({type(module).__name__}) cannot be timed on sample=: {type(error).__name__}: {error}",
                "Give sample= as one micro-batch of what the first layer takes, or cut by costs= or names.",
            ) from error
        finally:
            module.to(own)
        found.append(seconds)
    return found


def _timed(module: nn.Module, value: Any, device: torch.device) -> tuple[float, Any]:
    """Return the time of both passes, and the layer's output without a graph."""
    stage = StageTensors(device)
    kind, tensors = stage.members(value, "What it is given")
    tensors = [one.to(device) for one in tensors]
    times: list[float] = []
    output: Any = None
    while len(times) < _TURNS and (len(times) < 2 or sum(times) < _ENOUGH_S):
        # Clones are not leaves; layers may change them in place.
        leaves = [one.detach().requires_grad_(_differentiable(one)) for one in tensors]
        inputs = [one.clone() for one in leaves]
        _finish(device)
        begin = time.perf_counter()
        with torch.enable_grad():
            output = module(stage.whole(kind, inputs))
        out_kind, outputs = stage.members(output, "What it returned")
        roots = [one for one in outputs if one.requires_grad]
        wanted = [one for one in (*leaves, *module.parameters()) if one.requires_grad]
        if roots and wanted:
            torch.autograd.grad(roots, wanted, [torch.ones_like(one) for one in roots], allow_unused=True)
        _finish(device)
        times.append(time.perf_counter() - begin)
        output = stage.whole(out_kind, [one.detach() for one in outputs])
    return min(times[1:]), output


def _differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
