"""Broadcast of optimizer state, also together with a model, and handlers for the elastic TorchState."""

from __future__ import annotations

import copy
from typing import Any

import torch
from horovod.torch.elastic.state import ModelStateHandler, OptimizerStateHandler, get_handler_registry

from paceline.exchange.elastic import carry_over
from paceline.horovod.shims import unmodified
from paceline.native.library import loaded
from paceline.registry.exchanges import described
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.wrapper import WrappedOptimizer
from paceline.torch.state.broadcasts import agree_on, broadcast_module, broadcast_parameters, broadcast_structure
from paceline.torch.state.saved import tensors
from paceline.torch.state.transfer import carried

_horovods = unmodified.original(horovod.functions.broadcast_optimizer_state)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Broadcast the optimizer state of `root_rank` and its gradients in flight.

    Arguments are those of horovod.torch.broadcast_optimizer_state. If no rank has state yet, Horovod's function takes a
    step with zero gradients to create it (with weight decay the parameters change, equally on all ranks). Otherwise the
    other ranks load the root's state, which may cover only some of the parameters. State may have any type and memory
    layout.

    Raises:
        UsageError: (a ValueError) on all ranks, if one of them has partial rounds that are not drained, or if their
            parameter groups differ.
        ValueError: for LBFGS (use broadcast_state).
    """
    held = _held(optimizer)
    if isinstance(held, torch.optim.LBFGS):
        _horovods(held, root_rank, model)  # raises
    someone_has_state, horovod_cannot = _asked(optimizer)
    if someone_has_state or horovod_cannot:
        _broadcast_state(held, root_rank)
    else:
        _horovods(held, root_rank, model)
    _broadcast_in_flight(optimizer, root_rank)


def broadcast_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, root_rank: int = 0) -> None:
    """Make all ranks continue from `root_rank`: one call at the start and after loading a checkpoint on one rank.

    It broadcasts parameters and buffers of `model`, also buffers that are not saved; state and options of `optimizer`,
    wrapped or plain, of any structure; and gradients in flight of a pipelined exchange. Tensors may have any type and
    memory layout; each rank keeps its own layout of the model. Nothing is updated: an optimizer without state stays
    without.

    Raises:
        UsageError: (a ValueError) on all ranks, if their models or parameter groups differ, or one of them has partial
            rounds that are not drained.
    """
    broadcast_module(model, root_rank)
    if optimizer is not None:
        _asked(optimizer)
        _broadcast_state(_held(optimizer), root_rank)
        _broadcast_in_flight(optimizer, root_rank)


def _held(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    # Horovod's own wrappers (Adasum) are known to it.
    return optimizer.held if type(optimizer) is WrappedOptimizer else optimizer


def _asked(optimizer: torch.optim.Optimizer) -> tuple[bool, bool]:
    """Return whether any rank has state, and whether any has parameters that Horovod does not support.

    Sharded state is collected on all ranks. Raises UsageError on all ranks if one has partial rounds that are not
    drained.
    """
    held = _held(optimizer)
    rounds = type(optimizer) is WrappedOptimizer and optimizer.state_is_this_ranks_own
    parameters = [parameter for group in held.param_groups for parameter in group["params"]]
    shared_out = type(optimizer) is WrappedOptimizer and optimizer.state_is_shared_out
    mine = [len(held.state_dict()["state"]) > 0, not all(map(carried, parameters)), rounds, shared_out]
    asked = torch.tensor(mine, dtype=torch.int32)
    handle = horovod.allreduce_async_(asked, name="paceline.optimizer_has_state", op=horovod.Max)
    has_state, horovod_cannot, undrained, shared_out = (bool(one) for one in horovod.synchronize(handle).tolist())
    if undrained:
        raise UsageError(
            f"The state of an optimizer was to be broadcast to rank {horovod.rank()}: expected nothing that differs "
            f"from rank to rank, found {_found(optimizer)}.",
            "Call drain() on all ranks first; to go on without it, every rank loads its own state_dict().",
        )
    if shared_out:
        optimizer.hold_whole_state()
    return has_state, horovod_cannot


def _found(optimizer: torch.optim.Optimizer) -> str:
    return described(optimizer.exchange_tag) if type(optimizer) is WrappedOptimizer else "it on another rank"


def _broadcast_state(held: torch.optim.Optimizer, root_rank: int) -> None:
    groups = [[(tuple(one.shape), str(one.dtype)) for one in group["params"]] for group in held.param_groups]
    agree_on("the optimizer's parameter groups", groups)
    state = broadcast_structure(held.state_dict(), root_rank, "paceline.optimizer_state")
    if horovod.rank() == root_rank:
        return
    held.load_state_dict(state)
    # torch converts loaded state to the parameter's type; the root may have another type.
    loaded = held.state_dict()["state"]
    for key, values in state["state"].items():
        for name, value in values.items() if isinstance(values, dict) else ():
            found = loaded[key].get(name)
            if isinstance(value, torch.Tensor) and isinstance(found, torch.Tensor) and found.dtype != value.dtype:
                loaded[key][name] = value.to(found.device)


def _broadcast_in_flight(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    if type(optimizer) is WrappedOptimizer:
        in_flight = broadcast_structure(tensors(optimizer.in_flight()), root_rank, "paceline.in_flight")
        optimizer.forget()
        optimizer.load_in_flight(in_flight)


class WrappedOptimizerHandler(OptimizerStateHandler):
    """Saves, restores and synchronizes an optimizer, wrapped or plain, in a TorchState.

    State that differs from rank to rank ends with its world and is not saved: loading it requires all ranks, also lost
    ones.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()
        carry_over(loaded("torch"), self.take, self.put)

    def save(self) -> None:
        """Save a copy."""
        optimizer = self.value
        own = type(optimizer) is WrappedOptimizer and optimizer.states_differ
        if type(optimizer) is WrappedOptimizer and optimizer.state_is_shared_out:
            optimizer.consolidate_state_dict(to=None)
        self._saved_optimizer_state = copy.deepcopy((optimizer.held if own else optimizer).state_dict())

    def take(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the gradients in flight, which all ranks have, and the optimizer state if ranks held parts of it."""
        optimizer = self.value
        if type(optimizer) is not WrappedOptimizer or optimizer.states_differ:
            return None, None
        if optimizer.state_is_shared_out:
            optimizer.consolidate_state_dict(to=None)
            return None, copy.deepcopy(optimizer.state_dict())
        return optimizer.in_flight(), None

    def put(self, taken: tuple[dict[str, Any] | None, dict[str, Any] | None]) -> None:
        """Continue in a new world with what `take` returned."""
        in_flight, state = taken
        if state is not None:
            self.value.load_state_dict(state)
        elif in_flight is not None:
            self.value.forget()
            self.value.load_in_flight(in_flight)

    def sync(self) -> None:
        """Broadcast the state of rank 0."""
        if type(self.value) is WrappedOptimizer and self.value.state_is_lost:
            self.restore()
        broadcast_optimizer_state(self.value, root_rank=0)


class ModelHandler(ModelStateHandler):
    """Saves, restores and synchronizes a model of any type and memory layout in a TorchState."""

    def sync(self) -> None:
        """Broadcast the parameters and buffers of rank 0."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)


def register_elastic_handlers() -> None:
    """Make TorchState handle models and optimizers with our handlers, except where users have registered their own."""
    registry: list[tuple[Any, Any]] = get_handler_registry()
    ours = {ModelStateHandler: ModelHandler, OptimizerStateHandler: WrappedOptimizerHandler}
    registry[:] = [(kind, ours.get(handler, handler)) for kind, handler in registry]
