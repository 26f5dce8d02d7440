"""Weighted means: gradients of a rank count by its work, in samples or tokens.

A gradient g of a rank with weight w is sent as w g with w appended, one element more. The mean over the ranks is the
sum of the first divided by the sum of the second, whatever the exchange does in between: sum(w g) / sum(w).
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paceline.exchange.base import Exchange
from paceline.log import log
from paceline.torch.errors import UsageError

# Weight of an empty batch on a rank that has not finished (uneven.py): far below all others, above 0.
PRESENT = 1e-30
_NOTHING = 1e-20  # sums up to this are of empty batches


class Weighing(NamedTuple):
    """Weight of this rank in an update, and the factor by which its gradients must still be multiplied."""

    weight: float
    factor: float


class RankWeight:
    """Weight of this rank in the current update: the sum over its backward passes.

    Public attributes: given, the weight of coming passes (None: ranks count alike); total, the weight of all ranks in
    the last combined gradients, None if unknown; nobody, True if no rank had data then; through, True if this rank has
    finished its data on purpose; last, weight of this rank in the previous update.
    """

    def __init__(self, exchange: Exchange | None) -> None:
        self.given: float | None = None
        self.total: float | None = None
        self.nobody = False
        self.through = False
        self.last: float | None = None
        self._exchange = exchange
        self._sum = 0.0  # of the passes of this update so far
        self._passes = 0
        self._updates = 0  # so far
        self._reported = False

    def give(self, weight: Any, exchanged: bool, begun: bool, several: bool) -> None:
        """Set the weight of coming passes.

        `exchanged`, `begun`: True if gradients of this update are in flight, or have been computed; `several`: True if
        it has several passes. Raises UsageError for an invalid weight, and if it would apply to a part of a pass.
        """
        found = checked(weight)
        change = not several or (found is not None) != (self._passes > 0)
        if found != self.given and (exchanged or (begun and change)):
            raise UsageError(
                f"weight={weight!r} was set after the backward pass began, whose gradients travel already.",
                "Set optimizer.weight before backward(), or after step().",
            )
        self.given = found

    @property
    def _next(self) -> float | None:
        always = self._exchange is not None and self._exchange.settings.weighs
        return 1.0 if self.given is None and always else self.given

    def of_pass(self, number: int, several: bool) -> float | None:
        """Count a pass once. Returns the factor of its gradients now, if several passes are summed.

        Raises UsageError for a pass without a weight after others with one.
        """
        weight = self._next
        if weight is None and self._passes:
            raise UsageError(
                "A backward pass came without a weight after others of the same update with one.",
                "Set optimizer.weight for all passes of backward_passes_per_step.",
            )
        if weight is None:
            return None
        if number > self._passes:
            self._passes = number
            self._sum += weight
        return weight if several else None

    @contextlib.contextmanager
    def within(self, before: float | None) -> Iterator[None]:
        """Context of passes with the given weight; without any pass it counts as one without a gradient."""
        updates = self._updates
        try:
            yield
            if not self._passes and self._updates == updates and self.given is not None:
                self._passes, self._sum = 1, self.given
        finally:
            self.given = before

    def weighing(self, several: bool) -> Weighing | None:
        """Return the weighing of a bucket that is complete now; None: unweighted."""
        if self._passes:  # the script may have left the context of the passes
            return Weighing(self._sum, 1.0 if several else self._sum)
        weight = self._next
        return None if weight is None else Weighing(weight, weight)

    def clear(self) -> None:
        """Begin a new update."""
        weighing = self.weighing(True)
        self.last = None if weighing is None else weighing.weight
        self._sum, self._passes = 0.0, 0
        self._updates += 1

    def know_total(self, totals: Sequence[Tensor], answered: bool) -> None:
        """Note the total weights of an `answered` update; warn once if they are 0."""
        exchange = self._exchange
        assert exchange is not None
        exchange.around.worked(self._sum)
        exchanged = exchange.settings.exchanges_gradients
        ranks = exchange.wire.process_set.size() if exchanged else 1  # Horovod has divided by it
        # Reading a total waits for its device: only a rank that must know whether to continue does so.
        known = () if exchange.divides or not answered else [one for one in totals if self.through or not one.is_cuda]
        total = max((ranks * float(one) for one in known), default=None)
        # Without a result no rank has a gradient, or others own it.
        self.nobody = exchanged and answered and not (exchange.divides or exchange.settings.sharded) and not total
        self.total = 0.0 if total is not None and total < _NOTHING else total
        if (
            self.total == 0
            and exchanged
            and not (self._reported or self.through)
            and exchange.wire.process_set.rank() == 0
        ):
            self._reported = True
            log("all ranks gave the weight 0 in an update: its gradients are zeros.")

    def divide_here(self, gradients: Sequence[Any], several: bool) -> None:
        """Without other ranks: turn sums of several passes into means."""
        weighing = self.weighing(several)
        if weighing is None:
            return
        self.total = weighing.weight
        grads = [one.parameter.grad for one in gradients if one.parameter.grad is not None]
        with torch.no_grad():
            for grad in grads:
                if self.total == 0:
                    grad.zero_()
                elif weighing.factor == 1:
                    grad.div_(self.total)


def checked(weight: Any) -> float | None:
    """Return a weight as a number; None stays. Raises UsageError if it is negative, infinite or not a number."""
    if weight is None:
        return None
    try:
        found = float(weight)
    except (TypeError, ValueError, RuntimeError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise UsageError(
            f"weight={weight!r} cannot be used.",
            "Use a finite number >= 0: the samples or tokens of this rank's batch, 0 where it has none.",
        )
    return found


def check_type(name: str, tensor: Tensor) -> None:
    """Raise UsageError for a gradient that cannot be exchanged with a weight."""
    if tensor.is_sparse:
        raise UsageError(
            f"The gradient of {name!r} is sparse, and optimizer.weight was set: sparse gradients have no weights.",
            "Give DistributedOptimizer sparse_as_dense=True, or set no weight.",
        )
    if tensor.dtype == torch.float16:
        raise UsageError(
            f"The gradient of {name!r} is of float16, in which sums of weights do not fit.",
            "Use parameters of float32 (with torch.autocast) or of bfloat16, or set no weight.",
        )


def rounded(name: str) -> UsageError:
    """Return the error for a weight that an exchange would keep in flight separately from its gradient."""
    return UsageError(
        f"optimizer.weight was set, and a codec rounds the gradient of {name!r}; the exchange is not synchronous.",
        'Use codec="none", no collective of our own for bfloat16, or exchange="sync".',
    )


def times(gradient: Tensor, factor: float) -> Tensor:
    """Return a gradient times a weight; zeros if the weight is 0, as a loss of nothing may have given NaN."""
    return torch.zeros_like(gradient) if factor <= PRESENT else gradient * factor


def with_weight(tensor: Tensor, weighing: Weighing) -> Tensor:
    """Return the tensor to send for a dense gradient: its elements times the factor, with the weight appended."""
    flat = tensor.new_empty(tensor.numel() + 1)
    if weighing.factor <= PRESENT:
        flat.zero_()
    else:
        torch.mul(tensor.view(-1), weighing.factor, out=flat[:-1])
    flat[-1] = weighing.weight
    return flat


def scale(flat: Tensor, weighing: Weighing) -> None:
    """Scale `flat`, gradients with an extra element, and set its last element to the weight."""
    if weighing.factor <= PRESENT:
        flat.zero_()
    elif weighing.factor != 1:
        flat.mul_(weighing.factor)
    flat[-1] = weighing.weight


def worked(flat: Tensor) -> bool:
    """Divide a result by its last element, the weight; return False if that is 0."""
    return float(divide(flat)) > _NOTHING


def divide(flat: Tensor) -> Tensor:
    """Divide a result by its last element, the weight, unless that is 0; return the weight."""
    total = flat[-1]
    if not flat.is_cuda:
        if float(total) > 0:
            flat[:-1].div_(total)
    else:  # without waiting for the device
        flat[:-1].div_(torch.where(total > 0, total, torch.ones_like(total)))
    return total


def about_weights(error: str) -> str:
    """Return a remedy if Horovod's error has shapes of one gradient with and without a weight; else ""."""
    shapes = [
        tuple(map(int, re.findall(r"\d+", found))) for found in re.findall(r"tensor of shape \[([\d, ]*)\]", error)
    ]
    sizes = sorted(map(math.prod, shapes))
    if len(shapes) != 2 or sizes[1] != sizes[0] + 1 or (sizes[1],) not in shapes:
        return ""
    return (
        "\nThe element more may be a weight. Set optimizer.weight on all ranks in the same updates; "
        "0 on a rank without data."
    )
