"""Exchanged gradients, their names and results: unused, frozen, sparse, strided, compiled."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.branches import Branches, wrapped
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, loss_of, net, parameters, train, update


@ranks(2)
def test_parameters_added_later(rank: int, size: int) -> None:
    model = Branches("a", "b", "c")
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([model.a], lr=1.0), model.named_parameters())
    model(a=2.0 * rank).backward()
    optimizer.step()
    optimizer.add_param_group({"params": [model.b], "lr": 2.0})
    optimizer.held.add_param_group({"params": [model.c], "lr": 4.0})  # without the wrapper's knowledge
    for _ in range(2):
        update(optimizer, model(a=2.0 * rank, b=2.0 * rank, c=2.0 * rank))
    assert [p[0].item() for p in model.parameters()] == [-3.0, -4.0, -8.0]
    assert len(optimizer.param_groups) == 3


@ranks(2)
def test_a_sparse_gradient_that_some_ranks_lack(rank: int, size: int) -> None:
    """Rank 1 cannot know that the gradient is sparse elsewhere: dense zeros would never match the gathered rows."""
    model = torch.nn.ModuleDict(
        {"table": torch.nn.Embedding(5, 2, sparse=True), "late": torch.nn.Embedding(4, 2, sparse=True)}
    )
    for table in model.values():
        torch.nn.init.zeros_(table.weight)
    optimizer = wrapped(model)
    for users in ((0,), (), (1,), (0, 1)):
        optimizer.zero_grad()
        if rank in users:
            model["table"](torch.tensor([rank, rank, 4])).sum().backward()
        optimizer.step()
        assert model["table"].weight.grad.is_sparse
    assert model["table"].weight[:, 0].tolist() == [-2.0, -2.0, 0.0, 0.0, -2.0]
    # No rank had a gradient for this one so far: its zeros were dense, and so are its gradients from now on.
    optimizer.zero_grad()
    if rank == 0:
        model["late"](torch.tensor([3])).sum().backward()
    optimizer.step()
    assert model["late"].weight[:, 0].tolist() == [0.0, 0.0, 0.0, -0.5]


@ranks(2)
def test_a_gradient_that_is_sparse_on_one_rank_and_dense_on_the_other(rank: int, size: int) -> None:
    model = torch.nn.Embedding(3, 2)
    torch.nn.init.zeros_(model.weight)
    optimizer = wrapped(model)
    for _ in range(2):
        optimizer.zero_grad()
        model.sparse = rank == 0
        model(torch.tensor([2, 2 * rank])).sum().backward()
        assert model.weight.grad.is_sparse == (rank == 0)
        optimizer.step()
    # Rows 2 and 0 on rank 0, row 2 twice on rank 1.
    assert model.weight[:, 1].tolist() == [-1.0, 0.0, -3.0]


@ranks(2)
def test_an_optimizer_that_takes_sparse_gradients_only(rank: int, size: int) -> None:
    for as_dense in (False, True):
        table = torch.nn.Embedding(5, 2, sparse=True)
        hvd.broadcast_parameters(dict(table.named_parameters()), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SparseAdam(table.parameters(), lr=0.1),
            table.named_parameters(),
            sparse_as_dense=as_dense,
            compression=hvd.Compression.fp16,
        )
        for step in range(3):
            optimizer.zero_grad()
            if rank == 0 or step == 1:
                table(torch.tensor([step, rank])).pow(2).sum().backward()
            optimizer.step()
        assert_replicas_equal(table, f"gradients.sparse_adam.{as_dense}")


@ranks(2)
def test_two_element_types_in_one_group(rank: int, size: int) -> None:
    model = Branches("a", "b", "c", "d")
    model.b.data, model.d.data = model.b.data.double(), model.d.data.half()
    optimizer = wrapped(model, groups=1)
    model(a=2.0 * rank, b=4.0 * rank, c=6.0 * rank, d=8.0 * rank).backward()
    optimizer.step()
    assert [p[0].item() for p in model.parameters()] == [-1.0, -2.0, -3.0, -4.0]


@ranks(2)
def test_no_operation_has_an_automatic_name_and_all_ranks_draw_alike(rank: int, size: int) -> None:
    """After steps in which the ranks had gradients of different parameters, an unnamed operation still works."""
    model = Branches("a", "b", "c")
    optimizer = wrapped(model, backward_passes_per_step=2)
    for step in range(6):
        optimizer.zero_grad()
        if rank == 0 or step % 3:
            model(**({"a": 2.0} if rank else {"b": 2.0, "c": 2.0})).backward()
        optimizer.step()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [float(size)] * 3


@ranks(3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_only_the_ranks_of_a_process_set_combine(rank: int, size: int) -> None:
    pair = hvd.add_process_set([0, 2])
    model = Branches("a", "b")
    optimizer = wrapped(model, process_set=pair, backward_passes_per_step=2)
    for step in range(4):
        update(optimizer, model(**({"a": 2.0 * rank, "b": 4.0 * rank} if rank or step % 2 else {"a": 2.0})))
    # Rank 0 contributed a=2 twice, rank 2 contributed a=4, b=8 four times; rank 1 is alone with a=2, b=4.
    expected = [-8.0, -16.0] if rank == 1 else [-(4 + 16) / 2, -(0 + 32) / 2]
    assert [p[0].item() for p in model.parameters()] == expected
    hvd.remove_process_set(pair)


@ranks(2)
def test_shapes_that_differ_are_an_error_that_names_the_gradient(rank: int, size: int) -> None:
    model = torch.nn.ParameterDict({"good": torch.zeros(2), "bad": torch.zeros(3 + rank)})
    optimizer = wrapped(model)
    sum(parameter.sum() for parameter in model.values()).backward()
    with pytest.raises(hvd.HorovodInternalError, match=r"Gradient of 'bad': .*(\[3\](.|\n)*\[4\]|\[4\](.|\n)*\[3\])"):
        optimizer.step()
    hvd.barrier()


@ranks(2)
def test_a_name_in_use_by_another_optimizer_is_an_error_that_says_so(rank: int, size: int) -> None:
    models = [Branches("same_name"), Branches("same_name")]
    first, second = (wrapped(model) for model in models)
    if rank == 0:  # rank 1 has not started, so the first gradient is still in flight
        models[0](same_name=1.0).backward()
        with pytest.raises(hvd.UsageError, match=r"named 'same_name' is already in flight(.|\n)*prefixes"):
            models[1](same_name=1.0).backward()
    hvd.allreduce(torch.zeros(1), name="gradients.gate")
    if rank == 1:
        models[0](same_name=1.0).backward()
    first.step()
    assert models[0].same_name.tolist() == [-1.0] * 3
    del second


@ranks(2)
def test_types_that_cannot_be_sent_are_an_error_that_names_the_gradient(rank: int, size: int) -> None:
    model = torch.nn.ParameterDict({"real": torch.zeros(2), "phase": torch.zeros(2, dtype=torch.complex64)})
    optimizer = wrapped(model)
    (model["real"].sum() + model["phase"].abs().sum()).backward()
    with pytest.raises(hvd.UsageError, match=r"gradient of 'phase' cannot be exchanged(.|\n)*float32"):
        optimizer.step()
    hvd.barrier()


@ranks(2)
def test_gradients_with_a_graph_of_their_own_are_refused(rank: int, size: int) -> None:
    model = Branches("a")
    optimizer = wrapped(model)
    with pytest.raises(hvd.UsageError, match=r"'a' carries a graph of its own(.|\n)*torch\.autograd\.grad"):
        model.a.pow(2).sum().backward(create_graph=True)
    optimizer.forget()
    optimizer.zero_grad()


def _edit(gradient: Any, how: str) -> Any:
    """Edit a gradient as a script might."""
    if how == "in place":
        return gradient.mul_(2.0)
    return None if how == "dropped" else gradient * 2.0


@ranks(2)
def test_gradients_changed_in_flight_are_refused(rank: int, size: int) -> None:
    """On all ranks or on one; in a bucket, alone, and in a group. The remedy in the message gives the right result."""
    kinds: dict[str, Any] = {"bucket": {"bucket_bytes": 1 << 16}, "single": {"bucket_bytes": 0}, "group": {"groups": 1}}
    for exchange in ("sync", "pipelined", hvd.Partial(quorum=size), "local"):
        for kind, options in kinds.items():
            for how in ("in place", "another", "dropped"):
                model = Branches("a", "b")
                named = [(f"edited.{exchange}.{kind}.{how}.{name}", one) for name, one in model.named_parameters()]
                held = torch.optim.SGD(model.parameters(), lr=1.0)
                optimizer = hvd.DistributedOptimizer(held, named, exchange=exchange, **options)
                for _ in range(2):  # in the first update nothing is in flight before step()
                    update(optimizer, model(a=2.0 * rank, b=4.0 * rank))
                optimizer.drain()
                optimizer.zero_grad()
                model(a=2.0 * rank, b=4.0 * rank).backward()
                model.b.grad = _edit(model.b.grad, how)
                if exchange == "local":
                    optimizer.step()
                    continue
                expected = f"(?s)Rank {rank}: .*{re.escape(named[0][0][:-1])}.* changed .*optimizer.synchronize"
                with pytest.raises(hvd.UsageError, match=expected):
                    optimizer.step()
    model = Branches("a", "b")
    optimizer = wrapped(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(a=2.0 * rank, b=4.0 * rank).backward()
        optimizer.synchronize()
        for parameter in model.parameters():
            parameter.grad = _edit(parameter.grad, "in place")
        optimizer.step()
    assert [p[0].item() for p in model.parameters()] == [-4.0, -8.0]


@ranks(3)
def test_a_rank_without_a_gradient_clips_as_the_others(rank: int, size: int) -> None:
    model = Branches("a", "b")
    optimizer = wrapped(model)
    for step in range(6):
        optimizer.zero_grad()
        if rank != step % 3:
            model(a=3.0 * rank, b=6.0).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        norm = torch.stack([p.grad for p in model.parameters()]).norm().item()
        assert abs(norm - 0.5) < 1e-5, (step, norm)
    assert_replicas_equal(model, "clips_as_the_others")


@ranks(2)
def test_join_with_uneven_data(rank: int, size: int) -> None:
    model = Branches("a", "b")
    optimizer = wrapped(model)
    for _ in range(2 + 2 * rank):
        update(optimizer, model(a=2.0, b=4.0))
    assert hvd.join() == size - 1
    # Two steps of both and, on rank 1, two more to which rank 0 contributed zeros.
    if rank == 1:
        assert [p[0].item() for p in model.parameters()] == [-6.0, -12.0]
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name="gradients.after_join").tolist() == [2.0, 2.0]


@ranks(2)
def test_a_dropped_optimizer_no_longer_watches(rank: int, size: int) -> None:
    model = net()
    optimizer = wrapped(model)
    train(model, optimizer, rank, 1)
    del optimizer
    gc.collect()
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    again = wrapped(model)
    train(model, again, rank, 2)
    assert_replicas_equal(model, "gradients.again")


@ranks(2)
def test_a_compiled_step_of_the_held_optimizer(rank: int, size: int) -> None:
    model, plain = net(), net()
    optimizer = wrapped(model, lr=0.1)
    optimizer.held.step = torch.compile(optimizer.held.step, backend="eager")
    train(model, optimizer, rank, 3)
    train(plain, wrapped(plain, lr=0.1), rank, 3)
    torch.testing.assert_close(parameters(model), parameters(plain))
    assert_replicas_equal(model, "gradients.compiled_step")


@pytest.mark.more
@ranks(2)
def test_a_compiled_training_step(rank: int, size: int) -> None:
    """The user compiles a function with the whole step; parts that cannot be compiled run uncompiled."""
    model, plain = net(), net()
    optimizer = wrapped(model, lr=0.1)

    @torch.compile(backend="eager")
    def training_step(step: int) -> None:
        update(optimizer, loss_of(model, rank, step))

    for step in range(3):
        training_step(step)
    train(plain, wrapped(plain, lr=0.1), rank, 3)
    torch.testing.assert_close(parameters(model), parameters(plain))
