"""Broadcasts of models and optimizers of every type, memory layout and state, and averages of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, net

TYPES = [torch.bfloat16, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16, torch.bool, torch.int64]


def _of_all_kinds(rank: int) -> dict[str, torch.Tensor]:
    """Tensors of every type and layout, whose values identify the rank."""
    tensors = {str(dtype): (torch.arange(15).reshape(3, 5) + rank).to(torch.float32).to(dtype) for dtype in TYPES}
    image = torch.arange(2 * 3 * 5 * 7, dtype=torch.bfloat16).reshape(2, 3, 5, 7) + rank
    tensors["channels_last"] = image.float().to(memory_format=torch.channels_last)
    tensors["channels_last.bfloat16"] = image.to(memory_format=torch.channels_last)
    tensors["transposed"] = torch.arange(15.0).reshape(3, 5).t() + 100 * rank
    tensors["part"] = (torch.arange(21.0).reshape(3, 7) + rank)[:, 1::2]
    tensors["scalar"] = torch.tensor(3 + rank, dtype=torch.bfloat16)
    tensors["empty"] = torch.empty(0, 3, dtype=torch.bfloat16)
    return tensors


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@ranks(2)
def test_parameters_of_every_type_and_layout(rank: int, size: int) -> None:
    tensors, expected = _of_all_kinds(rank), _of_all_kinds(1)
    strides = {name: tensor.stride() for name, tensor in tensors.items()}
    hvd.broadcast_parameters(tensors, root_rank=1)
    for name, tensor in tensors.items():
        assert tensor.stride() == strides[name]
        assert torch.equal(_bits(tensor), _bits(expected[name])), name
    parameter = torch.nn.Parameter(torch.full((3,), float(rank), dtype=torch.bfloat16))
    hvd.broadcast_parameters([("named", parameter)], root_rank=1)
    hvd.broadcast_parameters([parameter], root_rank=1)
    assert parameter.tolist() == [1.0] * 3


def _step(model: Any, optimizer: Any, only: int | None = None) -> None:
    """A step that gives state to one of the model's layers, or to all."""
    optimizer.zero_grad()
    layers = [layer for layer in model if list(layer.parameters())]
    for parameter in (model if only is None else layers[only]).parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()


def _tensors(optimizer: Any) -> list[torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return [value for place in sorted(state) for _, value in sorted(state[place].items())]


@ranks(2)
def test_optimizer_state_of_bfloat16(rank: int, size: int) -> None:
    """All of them without state, and one that has loaded it; also in an elastic job's state."""
    for turn in range(2):
        model = net(seed=rank).to(torch.bfloat16)
        adam = torch.optim.AdamW(model.parameters(), lr=0.1 * (1 + rank))
        if turn == 1 and rank == 1:
            _step(model, adam)
        optimizer = hvd.DistributedOptimizer(adam, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        assert optimizer.param_groups[0]["lr"] == 0.2
        assert_replicas_equal(model, "bfloat16.model")
        for theirs in hvd.allgather_object(_tensors(optimizer), name="bfloat16.state"):
            assert len(theirs) == len(_tensors(optimizer)) and (theirs or turn == 0)
            assert all(torch.equal(mine, other) for mine, other in zip(_tensors(optimizer), theirs))
    model = net(seed=rank).to(torch.bfloat16)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=rank)
    state.sync()
    assert state.batch == 0
    assert_replicas_equal(model, "bfloat16.elastic")


@ranks(2)
def test_root_has_state_of_some_parameters_only(rank: int, size: int) -> None:
    """The other rank has none, or state of another layer of equal shapes, or of all."""
    for others in (None, 1, "all"):
        torch.manual_seed(rank)
        model = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 5))
        adam = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        if rank == 0:
            _step(model, adam, only=0)
        elif others is not None:
            _step(model, adam, None if others == "all" else 1)
        optimizer = hvd.DistributedOptimizer(adam, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert sorted(optimizer.state_dict()["state"]) == [0, 1]
        assert all(torch.equal(one, kept) for one, kept in zip(model.parameters(), before, strict=True))
        for theirs in hvd.allgather_object(_tensors(optimizer), name="some.state"):
            assert all(torch.equal(mine, other) for mine, other in zip(_tensors(optimizer), theirs, strict=True))
        _step(model, optimizer, only=1)
        assert_replicas_equal(model, "some.trained")


class _Averages(torch.optim.SGD):
    """Keeps state in a type other than the parameter's, in lists and in plain numbers."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["mean"] = state.get("mean", 0.0) + parameter.detach().double()
                state["history"] = [*state.get("history", []), (parameter.detach().clone(), len(state))]
        return super().step(closure)


@ranks(2)
def test_one_call_makes_model_and_optimizer_equal(rank: int, size: int) -> None:
    """Buffers that are not saved, all layouts, state of any structure, and gradients in flight."""
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).to(torch.bfloat16)
    model.to(memory_format=torch.channels_last)
    model.register_buffer("seen", torch.full((2,), rank), persistent=False)
    options = {"lr": 0.1 * (1 + rank), "momentum": 0.9}
    optimizer = hvd.DistributedOptimizer(
        _Averages(model.parameters(), **options), model.named_parameters(), exchange="pipelined"
    )
    for step in range(3):
        optimizer.zero_grad()
        images = torch.full((2, 3, 5, 5), 1.0 + step + rank, dtype=torch.bfloat16)
        model(images.to(memory_format=torch.channels_last)).square().sum().backward()
        optimizer.step()
    if rank == 0:  # as if only the root had loaded a checkpoint
        fresh = _Averages(model.parameters(), **options)
        optimizer.load_state_dict(fresh.state_dict())
    hvd.broadcast_state(model, optimizer, root_rank=1)
    assert optimizer.param_groups[0]["lr"] == 0.2
    assert model.seen.tolist() == [1, 1]
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)

    def everything() -> Any:
        state = optimizer.state_dict()
        in_flight = state.pop("paceline_in_flight")
        return [dict(model.named_parameters()), dict(model.named_buffers()), state, in_flight]

    for theirs in hvd.allgather_object(everything(), name="one_call"):
        torch.testing.assert_close(everything(), theirs, rtol=0, atol=0)
    assert optimizer.state_dict()["state"][0]["mean"].dtype == torch.float64
    assert optimizer.drain() == 1
    assert_replicas_equal(model, "one_call.drained")


@ranks(2)
def test_models_that_differ_are_refused_on_all_ranks(rank: int, size: int) -> None:
    with pytest.raises(hvd.UsageError, match=r"(?s)ranks differ at .*digests of the model.*same way on all ranks"):
        hvd.broadcast_state(torch.nn.Linear(3, 4 + rank))
    model = net(seed=rank)
    groups = [{"params": [one]} for one in model.parameters()] if rank else model.parameters()
    with pytest.raises(hvd.UsageError, match=r"(?s)digests of the optimizer.s parameter groups.*same way on all ranks"):
        hvd.broadcast_state(model, torch.optim.SGD(groups, lr=0.1))
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), [("rounds", weight)], exchange="solo")
    weight.sum().backward()
    optimizer.step()
    with pytest.raises(hvd.UsageError, match=r"(?s)partial exchange.*drain\(\)"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.drain()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
