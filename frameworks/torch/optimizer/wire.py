"""Exchange of a PyTorch optimizer's gradients and weights with Horovod (see paceline.exchange.wire)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from paceline.codecs.choice import Choice
from paceline.codecs.encoding import Encoding
from paceline.collectives.reduce import REDUCE_NAMES
from paceline.errors import UserError
from paceline.exchange.wire import HALF_ROUNDING, Array, Bucket, Key, Work
from paceline.horovod import check, gpu
from paceline.horovod.shims.host_staging import captured
from paceline.native.halves import REDUCE_SCATTER_NAMES
from paceline.native.library import loaded
from paceline.split.exchange import EVERYONE
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.split_wire import OwnersTensors
from paceline.torch.optimizer.trial import Trial
from paceline.torch.optimizer.weighing import Weighing, about_weights, with_weight, worked
from paceline.torch.state.saved import array_of, from_plain, plain_of
from paceline.torch.state.transfer import AVERAGED, to_reduce


class TorchWire(OwnersTensors):
    """Reduces over the ranks of `process_set` with Horovod.

    `op`, `compression` and `gradient_predivide_factor` are those of horovod.torch.DistributedOptimizer. A sparse
    gradient is gathered, not reduced, and is not compressed.
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
        """Set up the wire of one optimizer.

        `scope`: prefix of all names, which no other optimizer has. `word`: Declaration.word, after the prefix, so that
        names differ from those of operations without an exchange; "" for the synchronous one. `choice`: codec and
        collective.
        """
        self.library = loaded("torch")
        self.process_set = process_set
        self.encoding = Encoding(self.library, process_set, choice)
        self.scope = f"{scope}{word}." if word else scope
        self.compared = scope  # prefix of compared values, without the word: exchanges of the ranks may differ
        self.tried: Trial | None = None  # if passes use weights changed by this rank's own gradients
        self._optimizer = optimizer
        self._names = names
        self._compression = compression
        self._compresses = compression is not horovod.Compression.none
        # Horovod itself divides by the number of ranks after the sum when the operation is Average.
        factor = gradient_predivide_factor if op == horovod.Average else 1.0
        self._options = {"op": op, "prescale_factor": 1.0 / factor, "postscale_factor": factor}
        self._operations: dict[tuple[str, bool], _Operation] = {}  # by the name of a bucket, and exact or not

    @cached_property
    def label(self) -> str:
        """Name of the optimizer for errors: its first parameter, with the prefix."""
        return self.compared + self._names.items()[0][0]

    def start(self, bucket: Bucket, tensors: Sequence[Tensor], exact: bool = False, owner: int | None = None) -> Work:
        """Start the allreduce of a bucket, or its reduce to `owner` or EVERYONE (Wire.start, OwnersWire.start).

        Raises UsageError for the latter if Horovod would reduce the tensors on their GPU.
        """
        if owner is not None and tensors[0].is_cuda and (library := _reduces_on_gpus()):
            raise UsageError(
                f"{bucket.name}: the split exchange on rank {horovod.rank()} expected a tensor that Horovod reduces in "
                f"CPU memory, found one on {tensors[0].device}, where {library} reduces it.",
                'Use exchange="sync", or a Horovod that was built without HOROVOD_GPU_OPERATIONS, which copies it to '
                "CPU memory.",
            )
        if tensors[0].is_sparse:
            gathered = horovod.sparse_allreduce_async(
                tensors[0], name=self._name(bucket), op=self._options["op"], process_set=self.process_set
            )
            return lambda: [gathered()]
        operation = self._operations.get((bucket.name, exact))
        if operation is None or not operation.is_of(bucket, owner):
            parameters = [self._names.parameter(str(member)) for member in bucket.members]
            name = self._name(bucket, exact, owner)
            options = {"name": name, "process_set": self.process_set, **self._options}
            operation = _Operation(bucket, owner, full_names(name, len(bucket.members)), parameters, options)
            self._operations[bucket.name, exact] = operation
        if not exact:
            self.encoding.begin(bucket.name, operation.full_names, bucket.members, operation.parameters)
        if not self._compresses:
            return operation.start(tensors)
        compressed = [self._compression.compress(tensor) for tensor in tensors]
        wait = operation.start([tensor for tensor, _ in compressed])
        return lambda: [
            self._compression.decompress(result, context)
            for result, (_, context) in zip(wait(), compressed, strict=True)
        ]

    def full_names(self, bucket: Bucket, exact: bool = False) -> list[str]:
        """Return Horovod's names for the operations of a bucket."""
        return full_names(self._name(bucket, exact), len(bucket.members))

    def _name(self, bucket: Bucket, exact: bool = False, owner: int | None = None) -> str:
        reduced = "" if owner is None else REDUCE_SCATTER_NAMES if owner == EVERYONE else f"{REDUCE_NAMES}{owner}."
        if exact:
            return reduced + self.scope + bucket.name
        # All gradients of a bucket have one type.
        return (
            reduced
            + self.scope
            + self.encoding.choice_of([self._names.parameter(str(bucket.members[0]))]).mark
            + bucket.name
        )

    def against_weights(self) -> str:
        """Return the option that excludes weights; "" if there is none."""
        if self._options["op"] != horovod.Average:
            return "op=hvd.Sum"
        if self._compresses:
            return "compression="
        return ""

    def reduces_as(self) -> tuple[bool, float | None]:
        """Return if results are averages, and the unit roundoff of compression; None if unknown."""
        known = {horovod.Compression.none: 0.0, horovod.Compression.fp16: HALF_ROUNDING}
        return self._options["op"] == horovod.Average, known.get(self._compression)

    def encodes(self, bucket: Bucket) -> bool:
        """Return True if a lossy codec may encode gradients of the bucket."""
        parameters = [self._names.parameter(str(member)) for member in bucket.members]
        return self.encoding.choice_of(parameters).lossy

    def waits_here(self, tensors: Sequence[Any]) -> bool:
        """Return True for sparse gradients: they are gathered, and their results wait in Python."""
        return isinstance(tensors[0], dict) or bool(getattr(tensors[0], "is_sparse", False))

    waits_later = True

    def start_means(
        self,
        weights: Mapping[int, Tensor],
        values: Mapping[int, Tensor] | None = None,
        work: float | None = None,
        encoded: bool = False,
        kind: str = "",
    ) -> Callable[[], dict[int, Tensor]]:
        """Start allreduces, one for each weight; those of bfloat16 in float32."""
        held = {index: weight.detach() for index, weight in weights.items()} if values is None else values
        sent = {index: to_reduce(one) for index, one in held.items()}
        if work is not None:
            weighing = Weighing(work, work)
            sent = {index: with_weight(tensor, weighing) for index, tensor in sent.items()}
        mark, last = self.encoding.choice.mark if encoded else "", ".".join(filter(None, (kind, "average")))
        handles = {}
        for index, tensor in sent.items():
            member = self._names[weights[index]]
            name = f"{self.scope}{mark}{member}.{last}"
            if encoded:
                self.encoding.begin(name, functools.partial(full_names, name, 1), [member], [tensor])
            handles[index] = horovod.allreduce_async_(
                tensor, name=name, op=horovod.Average, process_set=self.process_set
            )

        def wait() -> dict[int, Tensor]:
            for handle in handles.values():
                horovod.synchronize(handle)
            if work is None:
                return sent
            # Without any work on any rank the models stay unchanged.
            found = {index: flat for index, flat in sent.items() if worked(flat)}
            return {index: flat[:-1].view(weights[index].shape) for index, flat in found.items()}

        return wait

    def moments(self, weights: Mapping[int, Tensor]) -> Mapping[str, Mapping[int, Tensor]]:
        """Return entries of the optimizer's state; zeros for a parameter without state on this rank so far.

        Raises UsageError if no parameter has any.
        """
        kept = {
            index: {kind: one for kind, one in self._optimizer.state.get(weight, {}).items() if _alike(one, weight)}
            for index, weight in weights.items()
        }
        kinds = sorted({kind for one in kept.values() for kind in one})
        if not kinds:
            raise UsageError(
                f"Rank {horovod.rank()}: moments_every was given, and {type(self._optimizer).__name__} has no moments.",
                "Leave moments_every out, or use an optimizer with momentum, such as Adam.",
            )
        return {
            kind: {index: one[kind] if kind in one else torch.zeros_like(weights[index]) for index, one in kept.items()}
            for kind in kinds
        }

    def trial(self) -> Trial:
        """Return trial steps with the gradients that buckets submit from now on."""
        self.tried = Trial(self._optimizer)
        return self.tried

    def among(self, process_set: Any) -> TorchWire:
        """Return a wire of the same parameters over another process set."""
        none = horovod.Compression.none
        scope = f"{self.scope}inside."
        return TorchWire(self._optimizer, self._names, horovod.Average, none, 1.0, process_set, scope, "", Choice())

    def update_set(self, weights: Mapping[int, Tensor]) -> None:
        """Return None: every update changes all weights."""

    def shared(self, weights: Mapping[int, Tensor], members: set[Key]) -> Mapping[int, Tensor]:
        """Return all weights that may have changed, also frozen ones.

        Frozen ones of types without a mean (integers, float8, complex) were never trained.
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

    def as_sent(self, tensor: Tensor) -> Array:
        """Return a result as it is sent, compressed."""
        return array_of(self._compression.compress(tensor)[0])

    def plain(self, result: Any) -> Any:
        """Return a result in its saved form."""
        return plain_of(result)

    def from_plain(self, value: Any) -> Tensor:
        """Return the result for a saved form."""
        return from_plain(value)

    @contextlib.contextmanager
    def rescheduled(self, rate: Callable[[Any], Any]) -> Iterator[None]:
        """Context with learning rates of the parameter groups changed by `rate`, for the optimizer's step."""
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


@functools.cache
def _reduces_on_gpus() -> str:
    """Return the library by which Horovod reduces tensors on GPUs; "" if it copies them to CPU memory."""
    inputs = check.built_from()
    return "" if inputs is None else gpu.of_allreduces(inputs)


def _alike(one: Any, weight: Tensor) -> bool:
    """Return True for a tensor of floating point numbers in the shape of a weight of at least one dimension."""
    return isinstance(one, Tensor) and one.shape == weight.shape and weight.dim() > 0 and one.is_floating_point()


def full_names(name: str, count: int) -> list[str]:
    """Return Horovod's names for the tensors of an operation."""
    if count == 1:
        return [f"allreduce.{name}"]
    return [f"grouped_allreduce.{name}_{n + 1}of{count}" for n in range(count)]


class _Operation:
    """The allreduce of one bucket, in place, started in every update: everything that stays the same."""

    def __init__(
        self,
        bucket: Bucket,
        owner: int | None,
        full_names: Sequence[str],
        parameters: Sequence[Tensor],
        options: dict[str, Any],
    ) -> None:
        """Keep the constants. `full_names`: Horovod's names, one per tensor. `options`: of allreduce_async_."""
        self.parameters = parameters
        self._owner = owner
        self._bucket = bucket
        self._dtype = parameters[0].dtype
        self._full_names = full_names
        self._options = options
        self._type: Any = None  # type of the tensors that `_enqueue` is for
        self._enqueue: Callable[[Tensor], int] = self._slowly

    def is_of(self, bucket: Bucket, owner: int | None) -> bool:
        """True if this is still the operation of `bucket`: names may depend on the type of its parameters."""
        return self._bucket is bucket and self._owner == owner and self.parameters[0].dtype is self._dtype

    def full_names(self) -> Sequence[str]:
        """Horovod's names, one per tensor."""
        return self._full_names

    def start(self, tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
        """Submit `tensors`, dense and contiguous and of one type; the returned function waits and returns the results.

        Raises ValueError for a type that Horovod does not support and during the capture of a CUDA graph,
        HorovodInternalError if ranks disagree.
        """
        if tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
            raise captured(self._full_names[0], horovod.rank())
        if len(tensors) > 1:
            handle = horovod.grouped_allreduce_async_(tensors, **self._options)
            return lambda: list(horovod.synchronize(handle))
        tensor = tensors[0]
        kind = tensor.dtype, tensor.is_cuda
        if kind != self._type:
            self._type, self._enqueue = kind, self._resolved(tensor)
        handle = self._enqueue(tensor)
        return lambda: [horovod.synchronize(handle)]

    def _slowly(self, tensor: Tensor) -> int:
        return int(horovod.allreduce_async_(tensor, **self._options))

    def _resolved(self, tensor: Tensor) -> Callable[[Tensor], int]:
        """Return the core of Horovod's allreduce_async_ for tensors of this type, without its repeated checks."""
        name, process_set, op, before, after = (
            self._options[key] for key in ("name", "process_set", "op", "prescale_factor", "postscale_factor")
        )
        library = horovod.mpi_ops.mpi_lib
        function = getattr(library, horovod.mpi_ops._allreduce_function_factory(tensor), None)
        if op == horovod.Adasum or horovod.rocm_built() or function is None:
            return self._slowly  # it reports a missing function
        encoded = name.encode()

        def enqueue(tensor: Tensor) -> int:
            try:
                handle = function(tensor, tensor, 1, encoded, op, before, after, process_set.process_set_id)
            except RuntimeError as error:
                raise horovod.HorovodInternalError(error) from error
            horovod.mpi_ops._handle_map[handle] = tensor, tensor
            return int(handle)

        return enqueue


def named(error: Exception, names: str) -> Exception:
    """Convert `error`, raised by an exchange of gradients with these names, for users.

    Errors with their own remedy stay, and so do foreign ones: a signal handler of the script may raise anything.
    """
    if isinstance(error, UserError):
        return error
    if "same name as another tensor" in str(error):
        return UsageError(
            f"A gradient named {names} is already in flight.",
            "Two optimizers use this name at the same time: give their named_parameters different prefixes.",
        )
    if isinstance(error, horovod.HorovodInternalError):
        return horovod.HorovodInternalError(f"Gradient of {names}: {error}{about_weights(str(error))}")
    if "is not supported" in str(error):
        return UsageError(
            f"The gradient of {names} cannot be exchanged: {error}",
            "Use parameters of a type that Horovod carries (float16, bfloat16, float32 or float64).",
        )
    return error
