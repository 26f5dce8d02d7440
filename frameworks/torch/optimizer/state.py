"""Broadcast of optimizer state, of a model together with it, and what the elastic TorchState needs of both."""

from __future__ import annotations

import copy
from typing import Any

import torch
from horovod.torch.elastic.state import ModelStateHandler, OptimizerStateHandler, get_handler_registry

from paceline.horovod.shims import unmodified
from paceline.registry.exchanges import described
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.wrapper import WrappedOptimizer
from paceline.torch.state.broadcasts import agree_on, broadcast_module, broadcast_parameters, broadcast_structure
from paceline.torch.state.saved import tensors
from paceline.torch.state.travelling import carried

_horovods = unmodified.original(horovod.functions.broadcast_optimizer_state)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give every rank the optimizer state of `root_rank`, as horovod.torch.broadcast_optimizer_state, and what is in
    flight.

    Where no rank has state yet it is Horovod's, which takes a step with zero gradients to make state (with weight decay
    the parameters move, on all ranks alike). Otherwise the other ranks load what the root has, be it of some of the
    parameters only. State of any type and memory layout.

    Raises UsageError (a ValueError) on all ranks while one of them has partial rounds that are not drained, and if
    their parameter groups are not alike; ValueError for LBFGS (use broadcast_state).
    """
    held = _held(optimizer)
    if isinstance(held, torch.optim.LBFGS):
        _horovods(held, root_rank, model)  # refuses it
    someone_has_state, horovod_cannot = _asked(optimizer)
    if someone_has_state or horovod_cannot:
        _broadcast_state(held, root_rank)
    else:
        _horovods(held, root_rank, model)
    _broadcast_in_flight(optimizer, root_rank)


def broadcast_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, root_rank: int = 0) -> None:
    """Make all ranks go on from what `root_rank` has: one call at the start and after loading a checkpoint on one rank.

    Parameters and buffers of `model`, also buffers that are not saved; state and options of `optimizer`, wrapped or
    plain, of whatever structure; gradients in flight of a pipelined exchange. Tensors of any type and memory layout;
    each rank keeps its own layout of the model. Nothing is updated: an optimizer without state stays without.

    Raises UsageError (a ValueError) on all ranks if their models or parameter groups are not alike, or while one of
    them has partial rounds that are not drained.
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
    """Whether a rank has state, and whether one has parameters that Horovod does not take.

    State that ranks share out is collected on all of them. Raises UsageError on all ranks if one has partial rounds
    that are not drained.
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
    # torch turns what it loads into the parameter's type; the root may have it in another.
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

    What differs from rank to rank belongs to a world and ends with it: it is not kept, and to load it all ranks would
    have to meet, which they cannot once one is lost.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        """Keep a copy."""
        optimizer = self.value
        own = type(optimizer) is WrappedOptimizer and optimizer.states_differ
        if type(optimizer) is WrappedOptimizer and optimizer.state_is_shared_out:
            optimizer.consolidate_state_dict(to=None)
        self._saved_optimizer_state = copy.deepcopy((optimizer.held if own else optimizer).state_dict())

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
    """Let TorchState handle models and optimizers with ours, where users have not put handlers of their own."""
    registry: list[tuple[Any, Any]] = get_handler_registry()
    ours = {ModelStateHandler: ModelHandler, OptimizerStateHandler: WrappedOptimizerHandler}
    registry[:] = [(kind, ours.get(handler, handler)) for kind, handler in registry]
