"""Gradients of one optimizer on their way: started as they appear, put back when all have arrived."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.exchange.adapter import Answer, Bucket, Weights
from paceline.exchange.base import Exchange
from paceline.native.library import loaded, world
from paceline.torch.errors import UsageError
from paceline.torch.fusion.groups import Group
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.accumulation import GradientAccumulation
from paceline.torch.optimizer.hooks import GradientHooks
from paceline.torch.optimizer.layouts import DENSE, Layouts
from paceline.torch.optimizer.storage import lent
from paceline.torch.state.travelling import TRAVELS_AS


class Reduction:
    """Watches the parameters of `optimizer` and exchanges their gradients with the other ranks.

    A gradient starts to travel in the backward pass, right after the last of its accumulations; gradients of a group
    start together. `finish` starts what is missing, in the order of the parameters, waits, and stores the results in
    `parameter.grad`. Without an `exchange` (one rank) passes are counted and nothing travels.

    `finished` is true from `finish` until a new gradient appears or `restart`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: ParameterNames,
        groups: dict[Tensor, Group],
        exchange: Exchange | None,
        layouts: Layouts,
        accumulation: GradientAccumulation,
        sparse_as_dense: bool,
    ) -> None:
        self.finished = False
        self._optimizer = optimizer
        self._names = names
        self._groups = groups
        self._exchange = exchange
        self._layouts = layouts
        self._accumulation = accumulation
        self._sparse_as_dense = sparse_as_dense
        self._counts: dict[Tensor, int] = {}
        self._started: dict[Group, Answer] = {}
        self._travelled: dict[Tensor, Group] = {}  # what a parameter last travelled with
        self._library = loaded("torch")
        self._world = world(self._library)
        self._handles: object = None  # Horovod's table of what travels, when the last of it was started
        self._hooks: dict[Tensor, GradientHooks] = {}
        # One thread per device runs hooks.
        self._lock = threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether gradients have appeared whose exchange is not complete."""
        return self._exchange is not None and bool(self._counts)

    def watch_all(self) -> None:
        """Watch every parameter of the optimizer that is not watched yet, and name those that came since."""
        param_groups = self._optimizer.param_groups
        for index, group in enumerate(param_groups):
            if any(parameter not in self._names for parameter in group["params"]):
                self._names.add_group(param_groups, index)
            # With one rank and one pass per update there is nothing to see: the hooks would only cost.
            if self._exchange is not None or self._accumulation.per_update > 1:
                for parameter in group["params"]:
                    if parameter not in self._hooks and parameter.is_leaf and parameter.is_floating_point():
                        self._hooks[parameter] = GradientHooks(parameter, self)

    def restart(self) -> None:
        """Begin a new update; gradients that were finished are as good as local ones from here on."""
        self.finished = False
        self._counts.clear()

    def forget(self) -> None:
        """Give up what is travelling and all that was agreed, without waiting: the ranks failed or changed."""
        self._world = world(self._library)
        self._started.clear()
        if self._exchange is not None:
            self._exchange.forget()
        self._layouts.forget()
        self._accumulation.restart()
        self.restart()

    def finish(self) -> None:
        """Complete the exchange of every gradient; afterwards `parameter.grad` holds the results on all ranks.

        A parameter that had no gradient contributes zeros. Raises HorovodInternalError, naming the parameter, when
        ranks disagree on a shape or type or when a rank is lost.
        """
        self._forget_if_ranks_changed()
        if self._exchange is not None:
            self.watch_all()
            with torch.no_grad():
                for group, results in self._exchange_all():
                    for parameter, result in zip(group, results or [None] * len(group), strict=True):
                        self._store(parameter, result)
            self._exchange.complete()
        self._counts.clear()
        self.finished = True

    def discard(self) -> bool:
        """Complete the exchange of every gradient and drop the results; all ranks must.

        After `finish` these are the ones that it stored, before it what was computed since. Returns whether the
        replicas must be averaged to be equal again. Leaves `parameter.grad` to the caller.
        """
        parted = False
        self._forget_if_ranks_changed()
        if self._exchange is not None:
            answers: dict[str, list[Tensor]] = {}
            if not self.finished:
                self.watch_all()
                with torch.no_grad():
                    answers = {self._names[group[0]]: results for group, results in self._exchange_all() if results}
            parted = self._exchange.discard(answers)
        self._accumulation.restart()
        self.restart()
        return parted

    def rescale(self, scale: float) -> None:
        """Scale the results by `scale`, the GradScaler's of this update: in flight it may have been another one."""
        factor = self._exchange.rescaled(scale) if self._exchange is not None else 1.0
        if factor != 1.0:
            for group in self._optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(factor)

    def drain(self) -> Iterator[float]:
        """Put one update in flight after the other, oldest first, into `parameter.grad`; yields its GradScaler's scale.

        Afterwards gradients are as after zero_grad(): None where they were None, else zeros in the same tensors. Raises
        UsageError while gradients of a backward pass travel.
        """
        if self.pending or self._started:
            raise UsageError(
                "drain() was called between backward() and step().", "Call step() first, then drain() on all ranks."
            )
        if self._exchange is None:
            return
        drained = self._exchange.drain()
        if not drained:
            return
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        named: dict[Any, Tensor] = {self._names[parameter]: parameter for parameter in parameters}
        before = [parameter.grad for parameter in parameters]
        try:
            for results, scale in drained:
                self._accumulation.restart()
                self.restart()
                for parameter in parameters:
                    parameter.grad = None
                with torch.no_grad():
                    for name, result in results.items():
                        tensor = torch.from_numpy(result) if isinstance(result, np.ndarray) else result
                        self._store(named[name], tensor)
                yield scale
        finally:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
                if gradient is not None:
                    gradient.zero_()

    def in_flight(self) -> dict[str, Any] | None:
        """What is in flight, by the names of parameters, to be saved; None if nothing is."""
        self._forget_if_ranks_changed()
        return self._exchange.state() if self._exchange is not None else None

    def load_in_flight(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Go on with what was saved, with another optimizer of the same parameters; None: with nothing in flight."""
        if self._exchange is None:
            return
        if state is None:
            self._exchange.adapter.travel.load(None)
            return
        groups = self._all_groups()
        self._exchange.load(state, [self._bucket(group) for group in groups], weights)
        loaded = {name for results, _ in state["in_flight"] for name in results}
        self._travelled = {one: group for group in groups for one in group if self._names[one] in loaded}

    def _exchange_all(self) -> Iterator[tuple[Group, list[Tensor] | None]]:
        """Start what has not been started, then wait for one result after the other."""
        parameters = [
            parameter
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad or parameter in self._counts
        ]
        unknown = [parameter for parameter in parameters if not self._layouts.known(parameter)]
        assert self._exchange is not None
        with self._explained(unknown):
            name, choice = self._names[unknown[0]] if unknown else "", self._exchange.adapter.travel.choice
            self._layouts.agree(unknown, name, self._exchange.settings, choice)
        self._exchange.announce(len(parameters))
        started = {parameter for group in self._started for parameter in group}
        groups = dict.fromkeys(self._group(parameter) for parameter in parameters)
        missing = [group for group in groups if started.isdisjoint(group)]
        if missing:
            self._part(started, [parameter for group in missing for parameter in group])
        for group in missing:
            self._start(group)
        for group, answer in self._started.items():
            with self._explained(group):
                results = answer()
            yield group, results
        self._started.clear()

    def _part(self, started: Iterable[Tensor], missing: Iterable[Tensor]) -> None:
        """Give those in `missing` a gradient of their own where a script stored one tensor as that of several."""
        taken = {parameter.grad.data_ptr() for parameter in started if _has_dense_gradient(parameter)}
        for parameter in missing:
            if _has_dense_gradient(parameter):
                if parameter.grad.data_ptr() in taken:
                    parameter.grad = parameter.grad.clone()
                taken.add(parameter.grad.data_ptr())

    def arriving(self, parameter: Tensor) -> None:
        """Before a gradient is added to `parameter.grad`: refuse a pass too many while what travels is still whole."""
        with self._lock:
            self._begin_if_finished()
            count = self._counts.get(parameter, 0) + 1
            if count > self._accumulation.per_update:
                raise UsageError(
                    f"The gradient of {self._names[parameter]!r} was computed {count} times before step() or "
                    f"synchronize(); backward_passes_per_step={self._accumulation.per_update}.",
                    "Call step() after every backward_passes_per_step backward passes, or raise "
                    "backward_passes_per_step to accumulate gradients of several passes.",
                )

    def arrived(self, parameter: Tensor, handed: Tensor | None) -> None:
        """After the gradient `handed` was added to `parameter.grad`."""
        with self._lock:
            self._begin_if_finished()
            count = self._counts.get(parameter, 0) + 1
            if parameter.grad is not None and parameter.grad.requires_grad:
                raise UsageError(
                    f"The gradient of {self._names[parameter]!r} carries a graph of its own (create_graph=True).",
                    "Compute gradients of gradients with torch.autograd.grad and call backward() without create_graph.",
                )
            if self._exchange is not None and parameter.grad is not None and lent(parameter.grad, handed):
                with torch.no_grad():
                    parameter.grad = parameter.grad.clone()  # results are written there
            self._counts[parameter] = count
            self._accumulation.saw_gradient(count)
            if self._exchange is not None and count == self._accumulation.per_update:
                self._start_if_complete(parameter)

    def _start_if_complete(self, parameter: Tensor) -> None:
        group = self._group(parameter)
        if any(self._counts.get(member) != self._accumulation.per_update for member in group):
            return
        undecided = not (self._layouts.known(parameter) or self._always_dense(parameter))
        if undecided and parameter.grad is not None and parameter.grad.is_sparse:
            return  # `finish` learns first what the other ranks have
        with torch.no_grad():
            self._start(group)

    def _group(self, parameter: Tensor) -> Group:
        """The parameters that travel with this one: its group less the frozen, or itself."""
        group = self._groups.get(parameter)
        if group is None:
            return (parameter,)
        return tuple(member for member in group if member.requires_grad or member in self._counts)

    def _all_groups(self) -> list[Group]:
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        return list(dict.fromkeys(self._group(parameter) for parameter in parameters))

    def _bucket(self, group: Group) -> Bucket:
        """The group as exchanges see it: named after its first member."""
        names = tuple(self._names[parameter] for parameter in group)
        return Bucket(names[0], names)

    def _always_dense(self, parameter: Tensor) -> bool:
        return self._sparse_as_dense or parameter in self._groups

    def _start(self, group: Group) -> None:
        assert self._exchange is not None
        self._refuse_new_company(group)
        gradients = [self._outgoing(parameter) for parameter in group]
        self._handles = horovod.mpi_ops._handle_map  # made anew by every init()
        with self._explained(group):
            self._started[group] = self._exchange.start(self._bucket(group), gradients)

    def _refuse_new_company(self, group: Group) -> None:
        assert self._exchange is not None
        for parameter in group:
            before = self._travelled.get(parameter, group)
            # Tensors have no equality of their own.
            if self._exchange.filled and not (len(before) == len(group) and all(map(operator.is_, before, group))):
                raise UsageError(
                    f"Rank {horovod.rank()}: {self._names[parameter]!r} is in another group than in the update that is "
                    f"in flight; expected {self._names_of(before)}, found {self._names_of(group)}.",
                    "Call drain() on all ranks before a member of a group of gradients is frozen or unfrozen.",
                )
            self._travelled[parameter] = group

    def _outgoing(self, parameter: Tensor) -> Tensor:
        """What travels for `parameter`: its gradient, in the layout all ranks use, in a type that Horovod carries."""
        dims = DENSE
        if self._layouts.known(parameter) and not self._always_dense(parameter):
            dims = self._layouts.sparse_dims(parameter)
        gradient = parameter.grad
        if gradient is None and dims != DENSE:
            gradient = _no_rows(parameter, dims)
        elif gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter)
        elif gradient.is_sparse and dims == DENSE:
            gradient = gradient.to_dense()
        elif not gradient.is_sparse and dims != DENSE:
            gradient = gradient.to_sparse(dims)
        gradient = gradient.to(TRAVELS_AS.get(gradient.dtype, gradient.dtype))
        return gradient if gradient.is_sparse else gradient.contiguous()

    def _store(self, parameter: Tensor, result: Tensor | None) -> None:
        if result is None:
            parameter.grad = None
            return
        # What was in flight comes from CPU memory, wherever the parameter is.
        # Unknown only where a run goes on and brings out what was in flight before its first step.
        known = self._layouts.known(parameter)
        dims = self._layouts.sparse_dims(parameter) if known else result.sparse_dim() if result.is_sparse else DENSE
        if dims != DENSE:
            sparse = result if result.is_sparse else result.to_sparse(dims)
            parameter.grad = sparse.to(parameter.device, parameter.dtype)
        elif parameter.grad is None or parameter.grad.is_sparse:
            parameter.grad = result.to(parameter.device, parameter.dtype)
        elif parameter.grad is not result:
            parameter.grad.copy_(result)

    def _begin_if_finished(self) -> None:
        self._forget_if_ranks_changed()
        if self.finished:
            self._accumulation.restart()
            self.restart()

    def _forget_if_ranks_changed(self) -> None:
        if self._world is not world(self._library):
            self.forget()
        elif self._started and self._handles is not horovod.mpi_ops._handle_map:
            self.forget()
            raise UsageError(
                f"Rank {horovod.rank()}: hvd.init() was called between backward() and step(), and Horovod has "
                "forgotten the gradients that travel.",
                "Call hvd.init() before the training, or between updates.",
            )

    def _names_of(self, group: Group | list[Tensor]) -> str:
        names = ", ".join(repr(self._names[parameter]) for parameter in group[:3])
        return names + (f" and {len(group) - 3} more" if len(group) > 3 else "")

    @contextlib.contextmanager
    def _explained(self, group: Group | list[Tensor]) -> Any:
        """Name the gradient in errors of Horovod, and leave nothing half done behind."""
        try:
            yield
        except (horovod.HorovodInternalError, ValueError) as error:
            names = self._names_of(group)
            self.forget()
            if isinstance(error, UsageError):
                raise
            if "same name as another tensor" in str(error):
                raise UsageError(
                    f"A gradient named {names} is already travelling.",
                    "Two optimizers use this name at the same time: give their named_parameters different prefixes.",
                ) from error
            if isinstance(error, ValueError):
                raise UsageError(
                    f"The gradient of {names} cannot be exchanged: {error}",
                    "Use parameters of a type that Horovod carries (float16, bfloat16, float32 or float64).",
                ) from error
            raise horovod.HorovodInternalError(f"Gradient of {names}: {error}") from error


def _no_rows(parameter: Tensor, sparse_dims: int) -> Tensor:
    """A sparse gradient of the shape of `parameter` without a single row."""
    return torch.sparse_coo_tensor(
        torch.empty((sparse_dims, 0), dtype=torch.int64, device=parameter.device),
        torch.empty((0, *parameter.shape[sparse_dims:]), dtype=parameter.dtype, device=parameter.device),
        parameter.shape,
        check_invariants=False,
    )


def _has_dense_gradient(parameter: Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and gradient.layout == torch.strided and gradient.numel() > 0
