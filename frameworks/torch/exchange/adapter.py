"""How exchanges see an optimizer of PyTorch (see paceline.exchange.adapter)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from paceline.codecs.choice import Choice
from paceline.codecs.travel import Travel
from paceline.exchange.adapter import Array, Bucket, Key, Work
from paceline.native.library import loaded
from paceline.torch.errors import UsageError
from paceline.torch.exchange.operation import Operation
from paceline.torch.exchange.tensors import TorchTensors
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.names import ParameterNames
from paceline.torch.state.saved import array_of, from_plain, plain_of
from paceline.torch.state.travelling import AVERAGED, to_reduce


class TorchAdapter(TorchTensors):
    """Reduces over the ranks of `process_set` with Horovod.

    `op`, `compression` and `gradient_predivide_factor` mean what they mean in horovod.torch.DistributedOptimizer. A
    sparse gradient is gathered, not reduced, and is not compressed.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: ParameterNames,
        op: int,
        compression: Any,
        gradient_predivide_factor: float,
        process_set: Any,
        scope: str,
        word: str,
        choice: Choice,
    ) -> None:
        """`scope`: what stands before all names, so that no other optimizer has them. `word`: Declaration.word, behind
        it, so that no operation without an exchange has them; "" for the synchronous one. `choice`: how gradients
        travel.
        """
        self.library = loaded("torch")
        self.process_set = process_set
        self.travel = Travel(self.library, process_set, choice)
        self.scope = f"{scope}{word}." if word else scope
        self._compared = scope  # what ranks compare has no word in it: their exchanges may differ
        self._optimizer = optimizer
        self._names = names
        self._op = op
        self._compression = compression
        self._compresses = compression is not horovod.Compression.none
        # Horovod itself divides by the number of ranks after the sum when the operation is Average.
        factor = gradient_predivide_factor if op == horovod.Average else 1.0
        self._factors = 1.0 / factor, factor
        self._operations: dict[tuple[str, bool], Operation] = {}  # by the name of a bucket, and whether exact

    @cached_property
    def label(self) -> str:
        """See Adapter.label: the optimizer's first parameter."""
        return self._compared + self._names.items()[0][0]

    def start(self, bucket: Bucket, tensors: Sequence[Tensor], exact: bool = False) -> Work:
        """See Adapter.start."""
        if tensors[0].is_sparse:
            gathered = horovod.sparse_allreduce_async(
                tensors[0], name=self._name(bucket), op=self._op, process_set=self.process_set
            )
            return lambda: [gathered()]
        operation = self._operations.get((bucket.name, exact))
        if operation is None or not operation.is_of(bucket):
            operation = self._operation(bucket, exact)
        if not exact:
            self.travel.begin(bucket.name, operation.full_names, bucket.members, operation.parameters)
        if not self._compresses:
            return operation.start(tensors)
        compressed = [self._compression.compress(tensor) for tensor in tensors]
        wait = operation.start([tensor for tensor, _ in compressed])
        return lambda: [
            self._compression.decompress(result, context)
            for result, (_, context) in zip(wait(), compressed, strict=True)
        ]

    def _operation(self, bucket: Bucket, exact: bool) -> Operation:
        parameters = [self._names.parameter(str(member)) for member in bucket.members]
        name, names = self._name(bucket, exact), self.full_names(bucket, exact)
        made = Operation(bucket, name, names, parameters, self._op, self._factors, self.process_set)
        self._operations[bucket.name, exact] = made
        return made

    def full_names(self, bucket: Bucket, exact: bool = False) -> list[str]:
        """See Adapter.full_names."""
        name, count = self._name(bucket, exact), len(bucket.members)
        if count == 1:
            return [f"allreduce.{name}"]
        return [f"grouped_allreduce.{name}_{n + 1}of{count}" for n in range(count)]

    def _name(self, bucket: Bucket, exact: bool = False) -> str:
        if exact:
            return self.scope + bucket.name
        # All of a bucket are of one type.
        return self.scope + self.travel.choice_of([self._names.parameter(str(bucket.members[0]))]).mark + bucket.name

    def waits_here(self, tensors: Sequence[Any]) -> bool:
        """See Adapter.waits_here."""
        return isinstance(tensors[0], dict) or bool(getattr(tensors[0], "is_sparse", False))

    def means(self, weights: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """See Adapter.means: of bfloat16 in float32. May write into the weights."""
        travelling = {index: to_reduce(weight.detach()) for index, weight in weights.items()}
        names = {index: f"{self.scope}{self._names[weights[index]]}.average" for index in travelling}
        handles = [
            horovod.allreduce_async_(tensor, name=names[index], op=horovod.Average, process_set=self.process_set)
            for index, tensor in travelling.items()
        ]
        for handle in handles:
            horovod.synchronize(handle)
        return travelling

    def update_set(self, weights: Mapping[int, Tensor]) -> None:
        """See Adapter.update_set."""

    def shared(self, weights: Mapping[int, Tensor], members: set[Key]) -> Mapping[int, Tensor]:
        """See Adapter.shared: all that may have changed, frozen ones as well.

        Frozen ones of types without a mean (whole numbers, float8, complex) were never trained.
        """
        found = {index: weight for index, weight in weights.items() if weight.requires_grad or weight.dtype in AVERAGED}
        for weight in found.values():
            if weight.dtype not in AVERAGED:
                raise UsageError(
                    f"Rank {horovod.rank()}: the parameter {self._names[weight]!r} of {weight.dtype} cannot be "
                    "averaged over the ranks.",
                    "Use parameters of float16, bfloat16, float32 or float64, or freeze it: requires_grad_(False).",
                )
        return found

    def travelling(self, tensor: Tensor) -> Array:
        """See Adapter.travelling."""
        return array_of(self._compression.compress(tensor)[0])

    def plain(self, result: Any) -> Any:
        """See Adapter.plain."""
        return plain_of(result)

    def from_plain(self, value: Any) -> Tensor:
        """See Adapter.from_plain."""
        return from_plain(value)

    @contextlib.contextmanager
    def rescheduled(self, rate: Callable[[Any], Any]) -> Iterator[None]:
        """See Adapter.rescheduled: rates of the parameter groups, while the optimizer steps."""
        groups = [group for group in self._optimizer.param_groups if "lr" in group]
        rates = [group["lr"] for group in groups]
        for group, own in zip(groups, rates, strict=True):
            changed = rate(own)
            if changed is not own:
                group["lr"] = changed
        try:
            yield
        finally:
            for group, own in zip(groups, rates, strict=True):
                group["lr"] = own
