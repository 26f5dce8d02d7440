"""Assignment of gradients to buckets: groups of the script, and flat buckets of small gradients.

An operation of Horovod costs each rank some 60 us of computing at any size. A flat bucket pays this cost once, plus a
copy per gradient.
"""

from __future__ import annotations

import itertools
import operator
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.exchange.base import Exchange
from paceline.exchange.weighing import mean_of
from paceline.split.spans import SPANS, spans
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.bucket import DENSE, Bucket, FlatBucket, Gradient, listed

# A bucket is sent when its last gradient is ready. It contains gradients of one span only, so that the first does not
# wait for long.
_TYPES = (torch.float16, torch.float32, torch.float64)
Group = tuple[Tensor, ...]


class Buckets:
    """`all` gradients in the order of the parameter groups, including later additions, and the bucket `of` each.

    The assignment is computed once, not in every update.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: ParameterNames,
        groups: int | Sequence[Sequence[Tensor]] | None,
        sparse_as_dense: bool,
        small_bytes: int,
        shapes_stay: bool,
        spans: Callable[[], int] = lambda: SPANS,
    ) -> None:
        """Assign parameters to buckets, with `groups` as in `form_groups`, which raises UsageError.

        `small_bytes`: gradients of at most this size that are in no group go into flat buckets; 0 disables these.
        `shapes_stay`: the library keeps results by name, of one shape each. `spans()`: number of spans (`spans` below).
        """
        self.all: list[Gradient] = []
        self.of: dict[Gradient, Bucket] = {}
        self._optimizer = optimizer
        self._names = names
        self._groups = form_groups(groups, [parameter for _, parameter in names.items()])
        self._sparse_as_dense = sparse_as_dense
        self._small_bytes = small_bytes
        self._shapes_stay = shapes_stay
        self._spans = spans
        self._generations: dict[str, int] = {}
        self._known: dict[Tensor, Gradient] = {}
        self._places: list[list[Tensor]] = []  # the parameters by group at the last `update`
        self._flats: dict[str, FlatBucket] = {}

    def find(self, parameter: Tensor) -> Gradient | None:
        """Return the gradient of `parameter`, if the optimizer has it."""
        return self._known.get(parameter)

    @property
    def stale(self) -> bool:
        """True if the groups have other parameters than at the last `update`."""
        groups = self._optimizer.param_groups
        return len(groups) != len(self._places) or any(
            len(group["params"]) != len(known) or not all(map(operator.is_, group["params"], known))
            for group, known in zip(groups, self._places, strict=True)
        )

    def update(self) -> set[str]:
        """Name parameters added since. A replacement gets the name, group and bucket of the parameter that it replaces.

        Returns the names under which gradients of replaced parameters were exchanged.
        """
        replaced = self._replace(self._replaced())
        param_groups = self._optimizer.param_groups
        self._places = [list(group["params"]) for group in param_groups]
        for index in range(len(param_groups)):
            self._names.add_group(param_groups, index)
        parameters = list(itertools.chain(*self._places))
        fresh = [parameter for parameter in parameters if parameter not in self._known]
        for parameter in fresh:
            name = self._names[parameter]
            self._known[parameter] = Gradient(parameter, name, self._generations.get(name, 0))
        for parameter in fresh:
            gradient, group = self._known[parameter], self._groups.get(parameter)
            if group is None:
                self.of[gradient] = Bucket([gradient], self._sparse_as_dense)
                gradient.small = fits(parameter, self._small_bytes)
            elif gradient not in self.of:
                bucket = Bucket([self._known[other] for other in group], always_dense=True)
                self.of.update(dict.fromkeys(bucket.gradients, bucket))
        self.all = [self._known[parameter] for parameter in parameters]
        small = [gradient for gradient in self.all if gradient.small and gradient.sparse_dims is None]
        if len(small) == 1:
            small[0].small = False  # it has no neighbour, so need not wait for the others' layouts
        return replaced

    def form_flat(self, agreed: Iterable[Gradient]) -> None:
        """Form flat buckets of `agreed`. The ranks have just agreed on their layouts, and form the same buckets."""
        small = {gradient for gradient in agreed if gradient.small and gradient.sparse_dims == DENSE}
        for gradients in neighbours(self.all, small, self._spans()):
            flat = FlatBucket(gradients)
            self._names.together(flat.name, [one.parameter for one in gradients])
            self._flats[flat.name] = flat
            self.of.update(dict.fromkeys(gradients, flat))

    def stay_single(self, names: Iterable[str]) -> None:
        """Keep gradients of these names out of flat buckets: their values in flight were sent separately."""
        wanted = set(names)
        self._dissolve([flat for flat in self._flats.values() if not wanted.isdisjoint(flat.names)])
        for gradient in self._known.values():
            gradient.small = gradient.small and gradient.name not in wanted

    def forget(self) -> None:
        """Forget all agreements after a change of ranks: they agree again (agreement.py), then form flat buckets."""
        self._dissolve(list(self._flats.values()))
        for gradient in self._known.values():
            gradient.sparse_dims, gradient.idle = None, False

    def _dissolve(self, flats: Iterable[FlatBucket]) -> None:
        for flat in flats:
            del self._flats[flat.name]
            for gradient in flat.gradients:
                gradient.waiting, gradient.owed, gradient.last_bucket = 0, None, ()
                self.of[gradient] = Bucket([gradient], self._sparse_as_dense)

    # --- other parameters in the places of those in param_groups -----------------------------------------------------

    def refuse_uncounted(self) -> None:
        """Raise UsageError if parameters were replaced, and have gradients that were not counted."""
        replaced = self._replaced() if self.stale else {}
        if any(parameter.grad is not None for parameter in replaced.values()):
            raise UsageError(
                f"Rank {horovod.rank()}: {len(replaced)} parameters were replaced in param_groups, and have gradients "
                "of backward passes that were not counted.",
                "Call optimizer.zero_grad() after parameters are replaced and before the next backward().",
            )

    def replaced(self, at_rest: bool, pending: bool) -> bool:
        """Return True if parameters were replaced since the last `update`.

        Raises UsageError if gradients of the old parameters are in flight between updates (not `at_rest`), or if the
        new parameters have gradients already between backward() and step() (`pending`).
        """
        replaced = self._replaced()
        names = listed([one.name for one in self.all if one.parameter in replaced])
        if replaced and not at_rest:
            raise UsageError(
                f"Rank {horovod.rank()}: the parameters {names} were replaced while gradients of the old ones are in "
                "flight.",
                "Call optimizer.drain() on all ranks before parameters are replaced, between step() and backward().",
            )
        if pending and any(parameter.grad is not None for parameter in replaced.values()):
            raise UsageError(
                f"Rank {horovod.rank()}: the parameters {names} were replaced between backward() and step(), by ones "
                "that have gradients.",
                "Replace parameters after step(), or by ones without gradients.",
            )
        return bool(replaced)

    def _replaced(self) -> dict[Tensor, Tensor]:
        """Return replaced parameters and their replacements at the same positions in the groups."""
        places = [group["params"] for group in self._optimizer.param_groups]
        present = {parameter for group in places for parameter in group}
        pairs = ((old, new) for many in zip(self._places, places) for old, new in zip(*many))  # up to the shorter one
        return {old: new for old, new in pairs if old not in present and new not in self._known}

    def _replace(self, replaced: dict[Tensor, Tensor]) -> set[str]:
        gone = {self._known.pop(old) for old in replaced}
        flats = [flat for flat in self._flats.values() if not gone.isdisjoint(flat.gradients)]
        self._dissolve(flats)
        for gradient in itertools.chain(*(flat.gradients for flat in flats)):
            gradient.sparse_dims = None  # the ranks agree on them again, and form buckets
        for gradient in gone:
            del self.of[gradient]
        for old, new in replaced.items():
            name = self._names.succeed(old, new)
            if self._shapes_stay and old.shape != new.shape:
                self._generations[name] = self._generations.get(name, 0) + 1
        self._groups = {
            replaced.get(parameter, parameter): tuple(replaced.get(other, other) for other in group)
            for parameter, group in self._groups.items()
        }
        return {gradient.name for gradient in gone} | {flat.name for flat in flats}

    # --- what is in flight ----------------------------------------------------------------------------------------

    def by_name(self, exchange: Exchange, results: Mapping[Any, Any]) -> dict[str, Any]:
        """Return results in flight by the names of gradients, and the sums owed to members of flat buckets.

        Results with weights are divided by them; contributions not yet combined are saved with their weight.
        """
        found: dict[str, Any] = {}
        for name, value in results.items():
            flat = self._flats.get(name)
            found.update({name: value} if flat is None else flat.split(value))
        if not exchange.weighted:
            return found
        shapes = {gradient.name: tuple(gradient.parameter.shape) for gradient in self.all}
        return {
            name: value if isinstance(value, dict) else mean_of(value, shapes[name], exchange.divides)
            for name, value in found.items()
        }

    def settle(self) -> dict[str, Any]:
        """Return the results owed to gradients of flat buckets, by name; nothing is in flight afterwards."""
        gradients = [gradient for flat in self._flats.values() for gradient in flat.gradients]
        owed = {gradient.name: gradient.owed for gradient in gradients if gradient.owed is not None}
        for gradient in gradients:
            gradient.waiting, gradient.owed = 0, None
        return owed


def form_groups(groups: int | Sequence[Sequence[Tensor]] | None, parameters: Sequence[Tensor]) -> dict[Tensor, Group]:
    """Return parameter -> its group, by the argument `groups`; parameters without a group are left out.

    A number makes that many groups of neighbours of nearly equal length out of `parameters`; a list of lists is used
    unchanged. None and 0 mean no groups. A group of mixed element types or devices is split, because one operation has
    one type. Raises UsageError for anything else.
    """
    count = 0 if groups is None else groups
    wanted: Sequence[Sequence[Tensor]] = []
    if isinstance(count, (list, tuple)):
        wanted = _checked(count, parameters)
    elif not isinstance(count, int) or isinstance(count, bool) or count < 0:
        is_number = isinstance(count, int) and not isinstance(count, bool)
        found = f"groups={count} is negative" if is_number else f"groups is of type {type(count).__name__}"
        raise UsageError(f"{found}.", "Use a number of groups >= 0, or a list of lists of tensors.")
    elif count:
        length, longer = divmod(len(parameters), count)
        bounds = [i * length + min(i, longer) for i in range(count + 1)]
        wanted = [parameters[low:high] for low, high in itertools.pairwise(bounds)]
    formed: dict[Tensor, Group] = {}
    for members in wanted:
        kinds: dict[object, list[Tensor]] = {}
        for member in members:
            kinds.setdefault((member.dtype, member.device), []).append(member)
        for kind in kinds.values():
            if len(kind) > 1:
                formed.update(dict.fromkeys(kind, tuple(kind)))
    return formed


def _checked(groups: Sequence[Sequence[Tensor]], parameters: Sequence[Tensor]) -> Sequence[Sequence[Tensor]]:
    known, seen = set(parameters), set()
    for number, members in enumerate(groups):
        is_list = isinstance(members, (list, tuple))
        for position, member in enumerate(members if is_list else [members]):
            where = f"groups[{number}][{position}]" if is_list else f"groups[{number}]"
            if not is_list or not isinstance(member, Tensor):
                raise UsageError(
                    f"{where} is of type {type(member).__name__}.", "Each group is a list of the model's parameters."
                )
            where = f"{where} (shape {tuple(member.shape)})"
            if member not in known:
                raise UsageError(
                    f"{where} is not a parameter of the optimizer.", "Put only parameters of the optimizer into groups."
                )
            if member in seen:
                raise UsageError(f"{where} is in groups twice.", "A parameter travels in one group.")
            seen.add(member)
    return groups


def fits(parameter: Tensor, most_bytes: int) -> bool:
    """Return True if dense gradients of `parameter` may be in a flat bucket: on the CPU, at most `most_bytes` bytes."""
    return (
        parameter.nbytes <= most_bytes
        and parameter.dtype in _TYPES
        and type(parameter.data) is Tensor
        and parameter.layout == torch.strided
        and parameter.device.type == "cpu"
        and parameter.is_contiguous()
        and parameter.numel() > 0
    )


def neighbours(gradients: Sequence[Gradient], small: set[Gradient], count: int = SPANS) -> list[list[Gradient]]:
    """Return buckets of two or more gradients in `small`, in the order of the backward pass: from the last one on.

    `gradients`: all, in the order of the parameter groups, in about `count` spans.
    """
    made: list[list[Gradient]] = []
    for span in spans([gradient.parameter.nbytes for gradient in gradients], count):
        by_type: dict[torch.dtype, list[Gradient]] = {}
        for gradient in (gradients[number] for number in span):
            if gradient in small:
                by_type.setdefault(gradient.parameter.dtype, []).append(gradient)
        made += by_type.values()
    return [bucket for bucket in made if len(bucket) > 1]


def digest(gradients: Sequence[Gradient], small: set[Gradient]) -> int:
    """Return a number that is equal on ranks that form equal buckets of `small`, whichever are sparse; 0: none."""
    if not small:
        return 0
    described = [(one.name, tuple(one.parameter.shape), str(one.parameter.dtype), one in small) for one in gradients]
    return (zlib.crc32(repr(described).encode()) >> 1) or 1
