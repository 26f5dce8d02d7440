"""Weights of ranks in a wrapped optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from paceline.exchange.base import Exchange
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.agreement import combined
from paceline.torch.optimizer.reduction import Reduction
from paceline.torch.optimizer.weighing import Weighing, divide, rounded, with_weight


class Weights:
    """Weights of this rank's gradients; a base of WrappedOptimizer, whose attributes it uses."""

    _alone: bool
    _exchange: Exchange
    _loss_type: torch.dtype | None  # of closures, once one was evaluated
    _mean_loss: Any  # over the ranks, of the closure that is being evaluated
    _reduction: Reduction
    _weights: Callable[[], dict[int, Any]]
    drain: Callable[[], int]
    op: int
    process_set: Any
    step: Callable[..., Any]
    synchronize: Callable[[], None]
    zero_grad: Callable[..., None]

    @property
    def weight(self) -> float | None:
        """Weight of this rank's gradients: its samples or tokens. None: all ranks count alike.

        Set it before backward(), on all ranks in the same updates: a number or a tensor with one, >= 0. The result is
        sum(w g) / sum(w) over the ranks, and over the passes of `backward_passes_per_step`. With 0 a rank takes part
        without data; an update in which all ranks have 0 has zeros for gradients. It stays until another is set.

        Raises UsageError for an invalid weight, after the backward pass began, together with op=hvd.Sum or
        compression=, and for a codec with an exchange that is not synchronous.
        """
        return self._reduction.weight.given

    @weight.setter
    def weight(self, weight: Any) -> None:
        if weight is not None and not self._alone:
            wire: Any = self._exchange.wire
            if not self._exchange.settings.synchronous and wire.encoding.choice.lossy:
                raise rounded(wire.label)
            if (found := wire.against_weights()) and self._exchange.settings.exchanges_gradients:
                raise UsageError(f"optimizer.weight was set together with {found}.", "Set no weight, or leave it out.")
        self._reduction.set_weight(weight)

    @contextlib.contextmanager
    def weighted(self, weight: Any) -> Iterator[None]:
        """Context of backward passes with a `weight` (see there).

        Without a pass it counts as a pass without a gradient.
        """
        before, self.weight = self.weight, weight
        with self._reduction.weight.within(before):
            yield

    @property
    def total_weight(self) -> float | None:
        """Weight of all ranks in the last combined gradients; None if unknown."""
        return self._reduction.weight.total

    def has_data(self, here: bool) -> bool:
        """Return False if it is known that no rank has data; all ranks report before each update whether they have.

        Ranks only communicate here if the weight of all ranks is known to owners alone.
        """
        if self._alone or not self._exchange.settings.sharded:
            return True
        wire: Any = self._exchange.wire
        ((found,),) = combined(wire, f"{wire.label}.data", torch.tensor([[float(here)]]), horovod.Max)
        return bool(found)

    def step_without_data(self, had_some: bool = True) -> bool:
        """Take part in an update with accumulated gradients, or none.

        Returns False, without an update, if no rank has data. An exchange that does not wait for late ranks does not
        need this, except for a first call of a rank that has not `had_some`: it waits for all ranks once.
        """
        exchange = self._exchange
        if self._alone or (had_some and not exchange.settings.ranks_meet):
            return False
        reduction, pending = self._reduction, self._reduction.pending
        reduction.weight.through = True
        try:
            if not reduction.finished:
                reduction.finish()
        finally:
            reduction.weight.through = False
        if not (exchange.settings.exchanges_gradients or pending):
            reduction.restart()
            around: Any = exchange.around
            around.idle = False
            around.update(self._weights, lambda: None, False)
            return not around.idle
        if reduction.weight.nobody:
            reduction.restart()
            return False
        if self._loss_type is not None:  # the others step with a closure
            self._combining(torch.zeros((), dtype=self._loss_type), reduction.weight.last)()
        self.step()
        self.zero_grad()
        return exchange.settings.ranks_meet

    def _weight_now(self) -> float | None:
        """Return the weight of this rank's gradients in the present update, also before they are combined."""
        weight = self._reduction.weight
        if self._reduction.finished:
            return weight.last
        weighing = weight.weighing(True)
        return None if weighing is None else weighing.weight

    def _combining(self, loss: Any, weight: float | None) -> Callable[[], Any]:
        """Begin to combine the losses of closures over the ranks, by `op` and by weights. Returns its wait.

        Begun while gradients are in flight, it needs no coordination round of its own.
        """
        value = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(loss, dtype=torch.float64)
        self._loss_type = value.dtype
        sent = value.reshape(1).to(torch.promote_types(value.dtype, torch.float32), copy=True)
        if weight is not None:
            sent = with_weight(sent, Weighing(weight, weight))
        op = horovod.Average if self.op == horovod.Average else horovod.Sum
        handle = horovod.allreduce_async_(sent, name="paceline.closure_loss", op=op, process_set=self.process_set)

        def wait() -> Any:
            combined_loss = horovod.synchronize(handle)
            if weight is not None:
                divide(combined_loss)
            found = combined_loss[0]
            return found.reshape(value.shape).to(value.dtype) if isinstance(loss, torch.Tensor) else found.item()

        return wait
