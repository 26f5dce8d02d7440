"""Gradients that are dropped on all ranks leave no trace: as if their batch had not been seen."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, loss_of, net, parameters, update
from paceline.errors import UserError


def _wrapped(model: Any, label: str, exchange: Any, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(f"discard.{label}"), exchange=exchange, **options)


def _train(model: Any, optimizer: Any, rank: int, batches: str, size: int) -> None:
    """One batch for each letter, with the letter's place in the alphabet as data; a capital one is dropped."""
    for letter in batches:
        step = ord(letter.lower()) - ord("a")
        optimizer.zero_grad()
        if letter.islower():
            for _ in range(optimizer.backward_passes_per_step):
                loss_of(model, rank, step).backward()
            optimizer.step()
            continue
        if step % 3 != 0 or rank == size - 1:  # else only the last rank has anything to drop
            (loss_of(model, rank, step) * float("nan")).backward()
        optimizer.discard()
        assert all(parameter.grad is None for parameter in model.parameters())
    optimizer.drain()


@ranks(3, more=(2,))
def test_discarded_batches_were_not_seen(rank: int, size: int) -> None:
    half = hvd.Compression.fp16
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "sync": ("sync", {}),
        "passes": ("sync", {"backward_passes_per_step": 2}),
        "pipelined": ("pipelined", {}),
        "three": (hvd.Pipelined(k=3), {"groups": 2}),
        "half": ("pipelined", {"compression": half, "backward_passes_per_step": 2}),
        "warm": (hvd.Pipelined(k=2, warmup_steps=2), {}),
        "partial": (hvd.Partial(quorum=size), {}),
    }
    for label, (exchange, options) in cases.items():
        model, plain = net(), net()
        _train(model, _wrapped(model, label, exchange, **options), rank, "AabCDcdEfHg", size)
        _train(plain, _wrapped(plain, f"{label}.plain", exchange, **options), rank, "abcdfg", size)
        # Sums of more than two depend on the other tensors of the message, and means are rounded.
        tolerance = 0.0 if size == 2 and label != "partial" else 1e-3 if label == "half" else 1e-6
        torch.testing.assert_close(
            parameters(model),
            parameters(plain),
            rtol=0,
            atol=tolerance,
            msg=partial("{}: {}".format, label),
        )
        assert_replicas_equal(model, f"discard.{label}")


@ranks(2)
def test_sparse_gradients_are_dropped(rank: int, size: int) -> None:
    for label, exchange in (("sync", "sync"), ("pipelined", "pipelined")):
        models = [torch.nn.Embedding(7, 3, sparse=True) for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        for model, batches in zip(models, ("abCcDde", "abcde"), strict=True):
            named = [(f"discard.sparse.{label}.{batches}", model.weight)]
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([model.weight], lr=0.1), named, exchange=exchange)
            for letter in batches:
                optimizer.zero_grad()
                (model(torch.tensor([rank, 2 + ord(letter) % 5])) * ord(letter)).sum().backward()
                optimizer.step() if letter.islower() else optimizer.discard()
            optimizer.drain()
        torch.testing.assert_close(models[0].weight, models[1].weight)


@ranks(2)
def test_discarding_after_a_look_at_the_combined_gradients(rank: int, size: int) -> None:
    """After synchronize() its stored results are dropped."""
    p = torch.nn.Parameter(torch.zeros(3))
    for label, exchange in (("sync", "sync"), ("pipelined", "pipelined")):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [(f"looked.{label}", p)], exchange=exchange)
        with torch.no_grad():
            p.zero_()
        dropped = []
        for step in range(5):
            (p * 10.0**step * (1 + rank)).sum().backward()
            optimizer.synchronize()
            if p.grad[0].item() == 150.0:
                dropped.append(step)
                optimizer.discard()
            else:
                optimizer.step()
                optimizer.zero_grad()
        optimizer.drain()
        assert dropped == [2 if label == "sync" else 3]
        assert p.tolist() == [-1.5 * 11011] * 3


@ranks(2)
def test_ranks_that_discard_other_gradients_are_notified(rank: int, size: int) -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("reported", p)], exchange="pipelined")
    p.sum().backward()
    if rank == 0:
        optimizer.synchronize()
    with pytest.raises(
        UserError, match=rf"synchronize\(\) came before(.|\n)*rank {rank} has \[{1 - rank}\](.|\n)*discard"
    ):
        optimizer.discard()
    optimizer.forget()


@ranks(2)
def test_late_gradients_of_a_partial_exchange_are_dropped_and_replicas_brought_together(rank: int, size: int) -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("late", p)], exchange="solo")
    for step in range(4):
        update(optimizer, (p * (1.0 + rank)).sum())
        if rank == 0 and step == 1:
            hvd.allreduce(torch.zeros(1), name="late.gate")  # rank 1 is delayed by three steps
    if rank == 1:
        hvd.allreduce(torch.zeros(1), name="late.gate")
    optimizer.discard()
    assert_replicas_equal(torch.nn.ParameterList([p]), "discard.late")
    was = p.detach().clone()
    optimizer.drain()
    assert torch.equal(p, was), "something was still on its way"


@ranks(2)
def test_drained_gradients_do_not_stay(rank: int, size: int) -> None:
    """A loop that drops gradients after its update adds the next ones to nothing."""
    for label, exchange in (("pipelined", "pipelined"), ("partial", hvd.Partial(quorum=size))):
        for none in (True, False):
            p, unused = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2))
            held = torch.optim.SGD([p, unused], lr=1.0)
            named = [(f"drained.{label}.{none}", p), (f"drained.{label}.{none}.unused", unused)]
            optimizer = hvd.DistributedOptimizer(held, named, exchange=exchange)
            moves: list[float] = []
            held.register_step_pre_hook(partial(_note, p, moves))
            for _ in range(3):
                with optimizer.pipelining():
                    for _ in range(2):
                        (p * (1.0 + rank)).sum().backward()
                        optimizer.step()
                        optimizer.zero_grad(set_to_none=none)
                        given = p.grad
                if none:
                    assert p.grad is None and unused.grad is None
                else:
                    assert p.grad is given and not p.grad.any() and not unused.grad.any()
            assert moves == [1.5] * 6, label


def _note(parameter: Any, seen: list[float], *_: Any) -> None:
    seen.append(parameter.grad[0].item())
