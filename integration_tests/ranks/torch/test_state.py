"""Broadcast of optimizer state and elastic jobs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, loss_of, net, parameters, train


def _wrapped(model: Any, weight_decay: float = 0.5) -> Any:
    return hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=weight_decay), model.named_parameters()
    )


def _states_equal(optimizer: Any, name: str) -> None:
    values = [
        value.reshape(-1).float() for state in optimizer.state_dict()["state"].values() for value in state.values()
    ]
    mine = torch.cat([*values, torch.tensor([group["lr"] for group in optimizer.param_groups])])
    for theirs in hvd.allgather(mine.unsqueeze(0), name=name):
        assert torch.equal(mine, theirs)


@ranks(2)
def test_only_the_root_has_loaded_a_checkpoint(rank: int, size: int) -> None:
    """The other rank gets its state from a step with zero gradients, whose weight decay must not change its model."""
    model = net()
    if rank == 0:
        checkpoint = torch.optim.AdamW(model.parameters(), lr=0.03, weight_decay=0.5)
        train(model, checkpoint, rank, 4)
    optimizer = _wrapped(model)
    if rank == 0:
        optimizer.load_state_dict(checkpoint.state_dict())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_replicas_equal(model, "state.root.before")
    assert optimizer.param_groups[0]["lr"] == 0.03
    assert optimizer.state_dict()["state"][0]["step"].item() == 4
    _states_equal(optimizer, "state.root")
    train(model, optimizer, rank, 3)
    assert_replicas_equal(model, "state.root.after")


@ranks(2)
def test_plain_optimizers_and_refusals_as_in_horovod(rank: int, size: int) -> None:
    model = net()
    plain = torch.optim.Adam(model.parameters(), lr=0.1 * (rank + 1))
    hvd.broadcast_optimizer_state(plain, root_rank=0)
    assert plain.param_groups[0]["lr"] == 0.1
    lbfgs = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters()), model.named_parameters())
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(lbfgs, root_rank=0)


@ranks(2)
def test_loading_state_forgets_gradients_on_their_way(rank: int, size: int) -> None:
    model = net()
    optimizer = _wrapped(model)
    train(model, optimizer, rank, 1)
    saved = optimizer.state_dict()
    loss_of(model, rank, 1).backward()
    hvd.barrier()
    optimizer.load_state_dict(saved)
    optimizer.zero_grad()
    hvd.allreduce(torch.zeros(1), name="state.load.gate")
    train(model, optimizer, rank, 2)
    assert_replicas_equal(model, "state.load")


@ranks(2)
def test_elastic_state_saves_restores_and_synchronizes(rank: int, size: int) -> None:
    model = net(seed=rank)
    optimizer = _wrapped(model)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=rank)
    state.sync()
    assert state.batch == 0
    assert_replicas_equal(model, "elastic.synced")
    _states_equal(optimizer, "elastic.synced.optimizer")
    train(model, optimizer, rank, 2)
    state.save()
    kept, kept_step = parameters(model), optimizer.state_dict()["state"][0]["step"].clone()
    train(model, optimizer, rank, 2)
    assert not torch.equal(parameters(model), kept)
    state.restore()
    assert torch.equal(parameters(model), kept)
    assert torch.equal(optimizer.state_dict()["state"][0]["step"], kept_step)
    train(model, optimizer, rank, 2)
    assert_replicas_equal(model, "elastic.restored")


@ranks(1, env={"HOROVOD_ELASTIC": "1"})
def test_one_rank_of_an_elastic_job_is_ready_for_more(rank: int, size: int) -> None:
    """In an elastic job gradients are watched even while there is one rank."""
    model = net()
    optimizer = _wrapped(model)
    assert all(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    train(model, optimizer, rank, 2)
    assert_replicas_equal(model, "elastic.ready")
    assert hvd.size() == size


@ranks(2, fresh=True)
def test_a_new_start_of_horovod_between_backward_and_step(rank: int, size: int) -> None:
    """Gradients in flight and agreements belong to the old ranks; training continues with the new ones."""
    model = torch.nn.ModuleDict({"table": torch.nn.Embedding(5, 2, sparse=True), "out": torch.nn.Linear(2, 1)})
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    def backward() -> None:
        optimizer.zero_grad()
        model["out"](model["table"](torch.tensor([rank, 3]))).sum().backward()

    weight = torch.nn.Parameter(torch.zeros(3))
    late = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), [("late", weight)], exchange="pipelined")
    backward()
    optimizer.step()
    backward()
    weight.sum().backward()
    late.step()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert late.in_flight() is None
    hvd.broadcast_optimizer_state(late, root_rank=0)
    assert late.drain() == 0
    model.zero_grad()
    model["out"](model["table"](torch.tensor([rank, 4]))).sum().backward()
    optimizer.step()
    assert_replicas_equal(model, "state.new_start")
