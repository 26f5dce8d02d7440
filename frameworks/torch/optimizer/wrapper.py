"""The optimizer that the user steps: it holds theirs, averages gradients first, and delegates everything else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.exchange.base import Exchange
from paceline.exchange.ending import at_end
from paceline.steps import Steps
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.agreement import combined
from paceline.torch.optimizer.reduction import Reduction
from paceline.torch.optimizer.weights import Weights
from paceline.torch.split.state import SHARE, SharedState
from paceline.torch.state.saved import plain_of, tensors

# Key of gradients in flight in state_dict().
IN_FLIGHT = "paceline_in_flight"


class WrappedOptimizer(Weights, torch.optim.Optimizer):
    """An optimizer whose step() uses gradients combined over all ranks; made by `DistributedOptimizer`.

    It holds the user's optimizer (`held`), which keeps the state and makes the updates. All attributes and methods not
    described here are the held optimizer's: state, param_groups, defaults, hooks, representation, pickle (a copy or
    pickle is a plain optimizer over copies of the parameters: wrap it again to use it).

    Public attributes: held, op, process_set, backward_passes_per_step.
    """

    def __init__(
        self,
        held: torch.optim.Optimizer,
        reduction: Reduction,
        exchange: Exchange,
        op: int,
        process_set: Any,
        alone: bool,
        shared: SharedState | None = None,
    ) -> None:
        # Not Optimizer.__init__: there is one state, and the held optimizer has it.
        own = {
            "held": held,
            "op": op,
            "process_set": process_set,
            "_alone": alone,
            "_exchange": exchange,
            "_reduction": reduction,
            "_shared": shared,
            "_skip": False,
            "_steps": Steps(),
            "_loss_type": None,
            "_mean_loss": None,
        }
        self.__dict__.update(own)
        reduction.watch_all()
        if not (alone or exchange.settings.in_step):
            at_end(exchange, self.drain, self._weights, "optimizer.drain()")

    # --- the update ---------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Update the parameters with gradients combined over all ranks.

        Waits for the exchange unless synchronize() has done so. While gradients of several backward passes are being
        accumulated, a call before the update is due does nothing and returns None.

        With a closure, each evaluation is treated as a separate update: the closure's gradients are combined, and so is
        the loss it returns, so that all ranks take the same decisions.

        With an exchange that is not synchronous the closure is evaluated exactly once, also if the update is skipped,
        and this rank's own loss is returned. Raises UsageError for optimizers that evaluate it again.
        """
        # A scheduler made before wrapping checks here that updates come first; some calls make none.
        self.held._opt_called = True
        if closure is not None and self._exchange.settings.synchronous:
            result = self.held.step(lambda: self._evaluate(closure), *args, **kwargs)
            self._mean_loss = None
            self._reduction.updated()
            return result
        if closure is not None:
            loss = self._evaluate_once(closure)
            self._update(lambda: self.held.step(self._evaluated(loss), *args, **kwargs))
            return loss
        due = self._reduction.passes.count_call()
        if self._skip:
            if self._reduction.pending:
                raise UsageError(
                    "step() was called in skip_synchronize() while gradients were still in flight.",
                    "Call synchronize() before skip_synchronize(), or leave skip_synchronize() out.",
                )
        elif not due and not self._reduction.finished:
            self._reduction.buckets.refuse_uncounted()
            return None
        else:
            self._finish()
        return self._update(lambda: self.held.step(*args, **kwargs))

    def discard(self, set_to_none: bool = True) -> None:
        """Drop the gradients on all ranks, instead of step(), and clear `parameter.grad` as zero_grad() does.

        Use it to skip a batch, and if the backward pass of one model leaves gradients in another. All ranks must call
        it, also those without a gradient; no exchange is left half done. Training continues as if the gradients since
        the last update had not been computed. In particular:

        - After synchronize(), the gradients that it put into `parameter.grad` are dropped. For a pipelined exchange
          they are delayed by K - 1 updates; gradients in flight stay.
        - For a pipelined exchange before synchronize(), gradients in flight stay, too, except those computed since the
          last update.
        - For a partial exchange all gradients in flight are dropped, as by a `drain` without its update: late gradients
          are summed already. The models of the ranks are averaged then.

        Raises UserError if not all ranks call it within a minute, or not all after synchronize(). Raises
        HorovodInternalError, naming the parameter, if a rank is lost.
        """
        looked = self._reduction.finished
        parted = self._reduction.discard()
        if not self._alone:
            # Otherwise a rank that called step() instead would silently have other weights from here on.
            self._exchange.meet("discard", [int(looked)], "whether synchronize() came before")
        self.held.zero_grad(set_to_none=set_to_none)
        if parted:
            self._exchange.around.average(self._weights)

    def drain(self) -> int:
        """Apply the updates whose gradients are in flight. Nothing to do for a synchronous exchange.

        For a pipelined exchange, call it before evaluation, before saving with another tool than `state_dict`, and at
        the end. All ranks must call it after the same update. The next K - 1 updates are skipped, as at the beginning.
        An update whose gradients overflowed, scaled by a GradScaler, is skipped.

        For a partial exchange it makes one update with all contributions that this rank has not received yet:
        afterwards, replicas trained with plain SGD are equal. All ranks must call it after their last update.

        Afterwards gradients are as after zero_grad(): None where they were None, else zeros in the same tensors.

        Returns:
            The number of updates.
        """
        updates = 0
        for scale in self._reduction.drain():
            gradients = [p.grad for group in self.held.param_groups for p in group["params"] if p.grad is not None]
            values = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
            if scale != 1.0:
                for gradient in gradients:
                    gradient.div_(scale)
                if not all(bool(torch.isfinite(value).all()) for value in values):
                    continue
            self._exchange.around.update_of_drain(self._weights, self.held.step)
            updates += 1
        self._exchange.drained(self._weights, updates)
        self._reduction.restart()  # not `updated`: the script's way of counting passes is known already
        return updates

    def real_weights(self) -> contextlib.AbstractContextManager[None]:
        """Context, for evaluation and saving, in which parameters are the weights that updates produced.

        Only a pipelined exchange with a correction changes parameters between updates: to a prediction of the weights
        to which their gradients will be applied.
        """
        return self._exchange.real_weights()

    @contextlib.contextmanager
    def pipelining(self) -> Iterator[None]:
        """Context, such as one epoch, at whose end updates in flight are applied (`drain`)."""
        yield
        self.drain()

    def synchronize(self) -> None:
        """Combine the gradients over all ranks now; afterwards `parameter.grad` holds the results.

        For work on the combined gradients before step(), such as clipping. It completes an accumulation early if called
        during one. A second call without a new gradient does nothing. All ranks must call it.
        """
        self._finish()
        self._exchange.share()

    def evaluate(self, closure: Callable[[], Any]) -> Any:
        """Evaluate a closure, combine its gradients as synchronize() does, and return its loss as step(closure) does.

        For work on the combined gradients inside the closure that step() gets: step() recognises the loss. Without
        this, that is with synchronize() in the closure, the loss costs a message of its own.
        """
        if self._exchange.settings.synchronous:
            return self._evaluate(closure)
        loss = closure()
        self.synchronize()
        return loss

    def _finish(self) -> None:
        if not self._reduction.finished:
            self._reduction.finish()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Context in which step() does not exchange gradients. Not needed after synchronize(), which step() detects."""
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients; does nothing while gradients of several backward passes are being accumulated.

        Raises UsageError while gradients are in flight: another rank may be about to apply them.
        """
        self._reduction.watch_all()  # replaced parameters, before their first gradient
        if not self._reduction.finished and self._reduction.passes.accumulating():
            return
        if self._reduction.pending:
            raise UsageError(
                "zero_grad() was called between backward() and step(): gradients are in flight.",
                "Call step() first; to drop the gradients of all ranks call discard() on all of them.",
            )
        self._reduction.restart()
        self.held.zero_grad(set_to_none=set_to_none)

    # --- setting up -----------------------------------------------------------------------------------------------

    @property
    def backward_passes_per_step(self) -> int:
        """Number of backward passes whose gradients are summed for one update."""
        return self._reduction.passes.per_update

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change the number of backward passes of an update; gradients accumulated so far are dropped."""
        if passes < 1:
            raise UsageError(f"backward_passes_per_step={passes} is below 1.", "Use 1 or more.")
        if self._reduction.pending:
            raise UsageError(
                "backward_passes_per_step was changed while gradients were in flight.", "Change it after step()."
            )
        self._reduction.passes.per_update = passes
        self._reduction.restart()
        self._reduction.watch_all()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the held optimizer; its gradients are exchanged from now on. All ranks must add it."""
        self.held.add_param_group(param_group)
        self._reduction.watch_all()

    def state_dict(self) -> dict[str, Any]:
        """Return the held optimizer's state, which a plain optimizer can load, and the reverse.

        It includes gradients in flight, and this rank's residuals of error feedback, under a key that plain optimizers
        ignore.
        """
        state = self.held.state_dict() if self._shared is None else self._shared.state_dict()
        return self._with_in_flight(state)

    def consolidate_state_dict(self, to: int | None = 0) -> None:
        """Collect sharded optimizer state on rank `to` (None: on all ranks), for `state_dict` on that rank.

        All ranks must call it, between step() and backward(). Does nothing unless the exchange shards the state.
        """
        if self._shared is not None:
            self._shared.consolidate(to)

    def local_state_dict(self) -> dict[str, Any]:
        """Return the state on this rank, for one file per rank; the same rank of as many ranks can load it."""
        return self.state_dict() if self._shared is None else self._with_in_flight(self._shared.local_state_dict())

    @property
    def _parameter_names(self) -> dict[Tensor, str]:
        """Names by parameter: Horovod's own attribute, which tools read."""
        return {one.parameter: one.name for one in self._reduction.buckets.all}

    @property
    def state_is_shared_out(self) -> bool:
        """True if other ranks hold a part of the optimizer state."""
        return self._shared is not None and self._shared.partial

    @property
    def state_is_lost(self) -> bool:
        """True if ranks of a previous world held a part of the optimizer state."""
        self._reduction.forget_if_ranks_changed()
        return self._shared is not None and self._shared.lost

    def hold_whole_state(self) -> None:
        """Collect sharded optimizer state on all ranks, until the next update. All ranks must call it."""
        if self._shared is not None:
            self._shared.hold()

    def _with_in_flight(self, state: dict[str, Any]) -> dict[str, Any]:
        in_flight = self.in_flight()
        return state if in_flight is None else {**state, IN_FLIGHT: tensors(in_flight)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the held optimizer's state; all ranks must load the same.

        It replaces gradients in flight and the residuals of error feedback by those in the state.
        """
        self.forget()
        if self._shared is not None:
            self._shared.load(state_dict)
        self.held.load_state_dict({key: value for key, value in state_dict.items() if key not in (IN_FLIGHT, SHARE)})
        self.load_in_flight(state_dict.get(IN_FLIGHT))

    def in_flight(self) -> dict[str, Any] | None:
        """Return gradients in flight and residuals (paceline.exchange.in_flight_state); None if there are none."""
        return self._reduction.in_flight()

    @property
    def exchange_tag(self) -> int:
        """Tag of the exchange in saved states."""
        return self._exchange.settings.tag

    @property
    def states_differ(self) -> bool:
        """True if saved states of this optimizer's exchange differ between ranks."""
        return self._exchange.settings.states_differ

    @property
    def state_is_this_ranks_own(self) -> bool:
        """True if there is state in flight that differs between ranks, which a broadcast would overwrite."""
        state = self.in_flight()
        return state is not None and self._exchange.differs(state)

    def load_in_flight(self, state: dict[str, Any] | None) -> None:
        """Continue with gradients in flight from `in_flight` or `state_dict`; None: without any."""
        self._reduction.load_in_flight(None if state is None else plain_of(state), self._weights)

    def forget(self) -> None:
        """Drop gradients in flight and the agreements of the ranks, for a start with other ranks."""
        self._reduction.forget()

    def before_unscaling(self, scale: float = 1.0) -> None:
        """Called before a GradScaler reads the gradients: it must read the update's gradients, on every rank."""
        self._reduction.before_unscaling(scale)

    def after_unscaling(self, found: dict[torch.device, Tensor]) -> dict[torch.device, Tensor]:
        """Return found_inf of a GradScaler, by device, combined over the ranks if gradients are sharded."""
        if self._shared is None or self._alone or self._exchange.shared:
            return found
        worst = max((float(one) for one in found.values()), default=0.0)
        wire: Any = self._exchange.wire
        ((flag,),) = combined(wire, f"{wire.label}.found_inf", torch.tensor([[worst]]), horovod.Max)
        if not found:
            return {torch.device("cpu"): torch.tensor([flag])}
        for one in found.values():
            one.fill_(flag)
        return found

    # --- delegation to the held optimizer
    # -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if "held" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.held, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Schedulers replace step of the object they are given; all attributes that are not ours belong to the held
        # optimizer.
        if name in self.__dict__ or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.held, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
        else:
            delattr(self.held, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The held optimizer's class, so that isinstance(optimizer, torch.optim.SGD) stays True."""
        return type(self.held) if "held" in self.__dict__ else WrappedOptimizer

    def __repr__(self) -> str:
        return repr(self.held)

    def __dir__(self) -> list[str]:
        return sorted({*dir(WrappedOptimizer), *self.__dict__, *dir(self.held)})

    def __getstate__(self) -> Any:
        return self.held.__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.held.__setstate__(state)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.held.__reduce_ex__(protocol)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _update(self, step: Callable[[], Any]) -> Any:
        """Call `step`, the held optimizer's, with the gradients that an exchange has completed, if there are any."""
        self._reduction.updated()
        self._steps.count()
        return self._exchange.update(self._weights, step)

    def _weights(self) -> dict[int, Tensor]:
        """Parameters by their number in the groups."""
        return dict(enumerate(parameter for group in self.held.param_groups for parameter in group["params"]))

    def _evaluate_once(self, closure: Callable[[], Any]) -> Any:
        if isinstance(self.held, torch.optim.LBFGS):
            raise self._again()
        with torch.enable_grad():
            loss = closure()
        self._finish()
        return loss

    def _evaluated(self, loss: Any) -> Callable[[], Any]:
        """Return a closure for a loss that was evaluated already."""
        losses = [loss]

        def closure() -> Any:
            if not losses:
                raise self._again()
            return losses.pop()

        return closure

    def _again(self) -> UsageError:
        return UsageError(
            f"step(closure) on rank {horovod.rank()}: expected an optimizer that evaluates its closure once, found "
            f"{type(self.held).__name__}, which needs the gradients of all ranks at once to evaluate it again.",
            'Use exchange="sync" with this optimizer.',
        )

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        if loss is None or loss is self._mean_loss or self._alone:
            self.synchronize()
            return loss
        mean_loss = self._combining(loss, self._weight_now())
        self.synchronize()
        self._mean_loss = mean_loss()
        return self._mean_loss


# torch wraps the step of every optimizer class in code that runs its step hooks; the held optimizer's own step does so.
WrappedOptimizer.step.hooked = True  # type: ignore[attr-defined]
