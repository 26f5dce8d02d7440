"""Small gradients that are sent as one tensor: results as if each were sent alone, in fewer operations."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import horovod.torch as horovod
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from integration_tests.support.debug import debug
from integration_tests.support.merging import ByHand, Messages
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import closure_of, update
from paceline.native.library import counters

LENGTHS = (3, 17, 1, 64, 5, 33, 2)
_runs = collections.Counter[str]()


class _Many(torch.nn.Module):
    """A sum of weighted parameters, so that each gradient is known and any of them can be missing."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.weights = torch.nn.ParameterList(torch.randn(length, dtype=dtype) for length in LENGTHS)

    def forward(self, rank: int, step: int, without: tuple[int, ...] = ()) -> Any:
        data = torch.Generator().manual_seed(100 * step + rank)
        terms = [(one * torch.randn(one.shape, generator=data).to(one.dtype)).sum() for one in self.weights]
        return sum(term for index, term in enumerate(terms) if index not in without) ** 2


def _exchanges(size: int) -> dict[str, Any]:
    import paceline.torch as hvd

    return {
        "sync": "sync",
        "pipelined": hvd.Pipelined(k=3),
        "warm": hvd.Pipelined(warmup_steps=2),
        "partial": hvd.Partial(quorum=size),
    }


def _wrapped(model: Any, label: str, optimizer: Any = None, **options: Any) -> Any:
    """Wrapped with momentum, which a gradient of zeros moves, under a separate name."""
    import paceline.torch as hvd

    _runs[label] += 1
    named = [(f"buckets.{label}.{_runs[label]}.{name}", one) for name, one in model.named_parameters()]
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, named, **{"bucket_bytes": 1 << 16, **options})


def _plainly(model: Any, optimizer: Any, rank: int) -> None:
    for step in range(5):
        update(optimizer, model(rank, step))


def _in_place(model: Any, optimizer: Any, rank: int) -> None:
    for step in range(5):
        optimizer.zero_grad(set_to_none=False)
        model(rank, step).backward()
        optimizer.step()


def _missing(model: Any, optimizer: Any, rank: int) -> None:
    """On one rank, on both, and in part of the steps."""
    for step in range(6):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        model(rank, step, without=(step % 7, 3) if rank == 0 or step == 2 else ()).backward()
        optimizer.step()


def _frozen(model: Any, optimizer: Any, rank: int) -> None:
    for step in range(12):
        for index in (1, 4):
            model.weights[index].requires_grad_(not index <= step < index + 4)
        update(optimizer, model(rank, step))


def _replaced(model: Any, optimizer: Any, rank: int) -> None:
    """Scripts that replace the tensor of a gradient, before and between."""
    for step in range(5):
        optimizer.zero_grad()
        model.weights[2].grad = torch.full((LENGTHS[2],), float(step + rank))
        model(rank, step).backward()
        optimizer.synchronize()
        if step and model.weights[5].grad is not None:
            model.weights[4].grad = None
            model.weights[5].grad = model.weights[5].grad * 2
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        model.weights[0].grad = model.weights[0].grad * 2 if model.weights[0].grad is not None else None
        optimizer.step()


def _drained(model: Any, optimizer: Any, rank: int) -> None:
    for step in range(7):
        optimizer.zero_grad()
        model(rank, step).backward()
        if step == 3:
            optimizer.discard()
            continue
        optimizer.step()
        if step % 3 == 2:
            optimizer.drain()


def _saved(model: Any, optimizer: Any, rank: int) -> None:
    _plainly(model, optimizer, rank)
    optimizer.load_state_dict(optimizer.state_dict())
    _plainly(model, optimizer, rank)
    optimizer.drain()
    _plainly(model, optimizer, rank)


def _accumulated(model: Any, optimizer: Any, rank: int) -> None:
    """Two passes for an update, and a closure."""
    optimizer.set_backward_passes_per_step(2)
    for step in range(4):
        optimizer.zero_grad()
        model(rank, step).backward()
        model(rank, step + 10, without=(1,)).backward()
        optimizer.step()
    optimizer.drain()

    optimizer.set_backward_passes_per_step(1)
    optimizer.step(closure_of(optimizer, lambda: model(rank, 20)))


def _assert_as_single(loop: Callable[..., None], rank: int, size: int) -> None:
    for label, exchange in _exchanges(size).items():
        models = []
        for bucket_bytes in (1 << 16, 0):
            model = _Many()
            optimizer = _wrapped(model, f"{loop.__name__}.{label}", exchange=exchange, bucket_bytes=bucket_bytes)
            loop(model, optimizer, rank)
            optimizer.drain()
            models.append(model)
        for index, (one, other) in enumerate(zip(*(model.weights for model in models), strict=True)):
            assert torch.equal(one, other), f"{loop.__name__}, {label}: parameter {index}: {one} and {other}"


@ranks(2, hvd="paceline.torch")
def test_updates_are_those_of_single_gradients(rank: int, size: int, hvd: Any) -> None:
    for loop in (_plainly, _in_place, _missing, _frozen, _replaced, _drained, _saved, _accumulated):
        _assert_as_single(loop, rank, size)


@ranks(2, hvd="paceline.torch")
def test_bits_are_those_of_horovods_own_wrapper(rank: int, size: int, hvd: Any) -> None:
    for name, options in {"plain": {}, "half": {"compression": hvd.Compression.fp16}, "sum": {"op": hvd.Sum}}.items():
        ours, theirs = _Many(), _Many()
        _plainly(ours, _wrapped(ours, name, **options), rank)
        stock = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9)
        named = [(f"buckets.stock.{name}.{key}", one) for key, one in theirs.named_parameters()]
        _plainly(theirs, horovod.DistributedOptimizer(stock, named, **options), rank)
        for one, other in zip(ours.weights, theirs.weights, strict=True):
            assert torch.equal(one, other), name


class _Copies(TorchDispatchMode):
    """Counts what copies gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = collections.Counter[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.removeprefix("aten::")
        if name in ("copy_", "clone", "_foreach_copy_", "_to_copy"):
            self.counts[name] += len(args[0]) if name == "_foreach_copy_" else 1
        return function(*args, **(kwargs or {}))


@ranks(2, hvd="paceline.torch")
def test_one_operation_a_bucket_and_one_copy_a_gradient(rank: int, size: int, hvd: Any) -> None:
    """Operations of Horovod and copies, counted: in a step that allocates gradients, and in one that adds to them."""
    for label, exchange in _exchanges(size).items():
        model = _Many()
        optimizer = _wrapped(model, f"counted.{label}", exchange=exchange)
        for step in range(4):
            update(optimizer, model(rank, step))
        optimizer.drain()
        record = Messages()
        for in_place in (False, True):
            optimizer.zero_grad(set_to_none=not in_place)
            with _Copies() as copies:
                model(rank, 9).backward()
                assert [one.names for one in optimizer._reduction._started] == [_names(optimizer)[::-1]]
                optimizer.synchronize()
            assert copies.counts == ({} if in_place else {"_foreach_copy_": len(LENGTHS)}), label
            optimizer.step()
        # A pipelined bucket may still be in flight when its answer is there.
        ByHand.wait(functools.partial(_has_sent, record, 2))
        hvd.barrier()
        assert len(_sent(record)) == 2, (label, _sent(record))
        record.stop()
        optimizer.drain()


def _sent(record: Messages) -> list[str]:
    """The tensors of this file that were reduced."""
    return [name for step in record.steps() for message in step for name in message if "buckets." in name]


def _has_sent(record: Messages, count: int) -> bool:
    return len(_sent(record)) >= count


def _names(optimizer: Any) -> tuple[str, ...]:
    return tuple(gradient.name for gradient in optimizer._reduction.buckets.all)


@ranks(2, env=debug(bucket_bytes=65536), hvd="horovod.torch")
def test_horovods_own_wrapper_has_them_where_the_variable_asks(rank: int, size: int, hvd: Any) -> None:
    models = [_Many(), _Many()]
    hvd.broadcast_parameters(models[0].state_dict(), root_rank=0)
    named = [(f"buckets.unmodified.{name}", one) for name, one in models[0].named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(models[0].parameters(), lr=0.01), named_parameters=named)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    alone = torch.optim.SGD(models[1].parameters(), lr=0.01)
    tensors = 0
    for step in range(4):
        optimizer.zero_grad()
        models[0](rank, step).backward()
        tensors = counters("torch")["tensors"]
        optimizer.step()
        update(alone, (sum(models[1](one, step) for one in range(size)) / size))
    assert counters("torch")["tensors"] - tensors <= 1
    for one, other in zip(models[0].weights, models[1].weights, strict=True):
        torch.testing.assert_close(one, other)


@ranks(2, hvd="paceline.torch")
def test_gradients_that_a_script_keeps_or_owns(rank: int, size: int, hvd: Any) -> None:
    model = _Many()
    optimizer = _wrapped(model, "kept")
    kept = []
    for step in range(3):
        update(optimizer, model(rank, step))
        gradients = [one.grad for one in model.weights]
        kept.append([(gradient, gradient.clone()) for gradient in gradients])
    for gradient, as_it_was in (pair for pairs in kept for pair in pairs):
        assert torch.equal(gradient, as_it_was), "a later step has changed it"

    buffer = torch.zeros(sum(LENGTHS))
    for one, part in zip(model.weights, buffer.split(LENGTHS), strict=True):
        one.grad = part
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        model(rank, step).backward()
        optimizer.step()
        whole = torch.cat([one.grad for one in model.weights])
        assert torch.equal(buffer, whole), "the script's own memory has other gradients"
        assert all(torch.equal(one, whole) for one in hvd.allgather(whole[None], name=f"kept.{step}"))
        assert buffer.abs().sum() > 0


@ranks(2, hvd="paceline.torch")
def test_which_gradients_are_sent_together(rank: int, size: int, hvd: Any) -> None:
    """Large gradients, other types, sparse ones and groups are sent separately, on all ranks alike."""
    model = torch.nn.ParameterDict({
        "a": torch.ones(3), "large": torch.ones(99), "b": torch.ones(4), "wide": torch.ones(2).double(),
        "c": torch.ones(1), "wider": torch.ones(5).double(), "brain": torch.ones(2).bfloat16(),
        "one": torch.ones(2), "two": torch.ones(2), "sparse": torch.ones(4, 2),
    })  # fmt: skip

    def loss() -> Any:
        dense = sum((one * (1 + rank)).sum() for key, one in model.items() if key not in ("sparse", "brain"))
        rows = torch.nn.functional.embedding(torch.tensor([rank]), model["sparse"], sparse=True).sum()
        return dense + rows + model["brain"].float().sum()

    optimizer = _wrapped(model, "which", groups=[[model["one"], model["two"]]], bucket_bytes=60)
    together = []
    for _ in range(2):
        optimizer.zero_grad()
        loss().backward()
        started = optimizer._reduction._started
        together = [sorted(name.rpartition(".")[-1] for name in one.names) for one in started]
        optimizer.step()
        assert model["sparse"].grad.is_sparse
        assert torch.equal(model["a"].grad, torch.full((3,), 1.5))
    assert sorted(together) == [
        ["a", "b", "c"], ["brain"], ["large"], ["one", "two"], ["sparse"], ["wide", "wider"]
    ]  # fmt: skip


@ranks(2, hvd="paceline.torch")
def test_ranks_that_want_other_buckets_form_none(rank: int, size: int, hvd: Any) -> None:
    model = _Many()
    optimizer = _wrapped(model, "unlike", bucket_bytes=(1 << 16, 0)[rank])
    for step in range(2):
        optimizer.zero_grad()
        model(rank, step).backward()
        assert len(optimizer._reduction._started) == (0 if rank == 0 and step == 0 else len(LENGTHS))
        optimizer.step()
    with pytest.raises(hvd.UsageError, match="bucket_bytes=-1"):
        _wrapped(_Many(), "unlike", bucket_bytes=-1)
