"""Wire of a Keras optimizer on PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from paceline.collectives.reduce import REDUCE_NAMES
from paceline.keras.backend import horovod_module as hvd
from paceline.keras.backend import wire as module
from paceline.split.keras_wire import OwnersKerasWire
from paceline.torch.exchange.tensors import TorchTensors


class TorchKerasWire(OwnersKerasWire, TorchTensors):
    """Eager wire whose weights are variables of Keras."""

    def __init__(self, settings: Any, word: str) -> None:
        """Set up the wire of one optimizer; `word`: the exchange's."""
        super().__init__(module, "torch", settings, word)

    # Operations of the split exchange.

    def packed(self, tensors: Sequence[Any]) -> Any:
        """Return one flat tensor of these; a single tensor unchanged."""
        return tensors[0] if len(tensors) == 1 else torch.cat([one.reshape(-1) for one in tensors])

    def unpacked(self, flat: Any, like: Sequence[Any]) -> list[Any]:
        """Return the tensors in `flat`, in the shapes of the tensors or variables `like`."""
        if len(like) == 1:
            return [flat]
        parts = flat.split([math.prod(one.shape) for one in like])
        return [part.view(tuple(one.shape)) for part, one in zip(parts, like, strict=True)]

    def reduce_name(self, owner: int, name: str) -> str:
        """Return the name of a reduce to `owner`."""
        return f"{REDUCE_NAMES}{owner}.{name}"

    def broadcasts(self, tensors: Sequence[Any], roots: Sequence[int], names: Sequence[str]) -> list[Any]:
        """Broadcast each tensor from its root and return the results."""
        handles = [
            hvd.broadcast_async(module._carried(tensor.contiguous()), root, name=name, process_set=self.process_set)
            for tensor, root, name in zip(tensors, roots, names, strict=True)
        ]
        return [hvd.synchronize(handle).to(tensor.dtype) for handle, tensor in zip(handles, tensors, strict=True)]

    def squares(self, tensors: Sequence[Any]) -> Any:
        """Return the sum of all squares in float64."""
        return sum((one.double().square().sum() for one in tensors), torch.zeros((), dtype=torch.float64))

    def count_infinite(self, tensors: Sequence[Any]) -> Any:
        """Return the number of elements that are not finite, in float64."""
        return sum(((~one.isfinite()).sum().double() for one in tensors), torch.zeros((), dtype=torch.float64))

    def totals(self, number: Any, word: str) -> Any:
        """Return a float64 vector with the scalar `number` of each rank."""
        own = torch.zeros(int(self.process_set.size()), dtype=torch.float64)
        own[int(self.process_set.rank())] = number
        settings = self.sums()
        return module.start([own], settings, f"{settings.name}_{word}")()[0]

    def nan_if_any(self, numbers: Any, zero: Any) -> Any:
        """Return NaN if a number of this vector is above 0, else `zero`."""
        return math.nan if bool((numbers > 0).any()) else zero

    def filled(self, like: Any, number: Any) -> Any:
        """Return a tensor of this number, in the shape and type of `like`."""
        return torch.full_like(like, number)

    def zero_after(self, tensors: Sequence[Any]) -> Any:
        """Return 0: PyTorch runs every operation."""
        return 0

    def norm_without(self, squares: Any, rank: int) -> Any:
        """Return the root of the sum of `squares`, without the one of `rank`."""
        return (squares[:rank].sum() + squares[rank + 1 :].sum()).sqrt()

    def emptied(self, variable: Any) -> None:
        """Release the memory of a variable, which has no elements then."""
        variable._value = torch.nn.Parameter(variable.value.detach().new_zeros(0), requires_grad=False)
        variable._shape = (0,)
