"""Replicas of stages: pipelines side by side, equal to one process that trains with the batches of all."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import paceline.torch as hvd
from integration_tests.support.debug import debug
from integration_tests.support.ranks import ranks
from integration_tests.support.stage_reference import train_with_old_weights
from integration_tests.support.stage_training import N, accumulate, adamw, data, momentum, net, sgd, train

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", **debug(codec_least_bytes=0)}
CUTS = {1: [0], 2: [0, 4], 3: [0, 3, 6]}
mse = torch.nn.functional.mse_loss


def batches(steps: int, replicas: int) -> list[tuple[Tensor, Tensor]]:
    """Of all pipelines together: micro-batch n of each is a part of micro-batch n of the whole."""
    return [data(step, 2 * N * replicas) for step in range(steps)]


def share(whole: list[tuple[Tensor, Tensor]], replica: int, replicas: int) -> list[tuple[Tensor, Tensor]]:
    """The batches of one pipeline."""

    def rows(tensor: Tensor) -> Tensor:
        return torch.cat([part.tensor_split(replicas)[replica] for part in tensor.tensor_split(N)])

    return [(rows(batch), rows(target)) for batch, target in whole]


def assert_equal(result: dict[str, Any], weights: dict[str, Tensor], losses: list[float]) -> None:
    assert result["weights"]
    for name, one in result["weights"].items():
        assert torch.allclose(one, weights[name], rtol=0, atol=1e-12), name
    assert result["losses"] == pytest.approx(losses, rel=0, abs=1e-12)


@ranks(4, more=(6,), env=DYNAMIC)
def test_replicas_equal_one_process_with_all_their_batches(rank: int, size: int) -> None:
    for stages in (2, 3) if size == 6 else (2,):
        assert_equals_one_process(rank, stages, size // stages)


def assert_equals_one_process(rank: int, stages: int, replicas: int) -> None:
    whole = batches(7, replicas)
    own = share(whole, rank % replicas, replicas)
    chosen: dict[str, Any] = {"stages": CUTS[stages][1:], "replicas": replicas}
    for schedule, max_norm in (("gpipe", 0.5), ("1f1b", None)):
        model = net()
        losses = accumulate(model, adamw, whole, N, max_norm=max_norm)
        result = train(None, adamw, own, schedule=schedule, max_norm=max_norm, **chosen)
        assert_equal(result, model.state_dict(), losses)
    corrections: dict[str, Any] = {"annealing_steps": 9, "correction": 0.4, "warmup_steps": 2, "max_norm": 0.5}
    for schedule in ("pipedream", "pipemare", "pipemare_eager"):
        weights, losses = train_with_old_weights(schedule, stages, N, CUTS[stages], momentum, whole, **corrections)
        result = train(None, momentum, own, schedule=schedule, **chosen, **corrections)
        assert_equal(result, weights, losses)


@ranks(4, env=DYNAMIC)
def test_replicas_count_as_many_rows_as_they_have(rank: int, size: int) -> None:
    """Batches of 24 and 8 rows, cut into micro-batches, equal one process with 32; so do the losses."""
    rows = [[24, 8], [4, 0], [5, 11], [0, 0]]
    for exchange in ("sync", "pipelined"):
        model = net()
        optimizer = momentum(model.parameters())
        pipeline = hvd.Pipeline(
            net(), momentum, mse, stages=CUTS[2][1:], replicas=2, n_microbatches=2, exchange=exchange
        )
        parameters = list(model.parameters())
        flying: list[Any] = [[torch.zeros_like(one) for one in parameters]] if exchange == "pipelined" else []
        for step, counts in enumerate(rows):
            shares = [data(10 * step + replica, count or 4) for replica, count in enumerate(counts)]
            if not counts[pipeline.replica]:  # the replica takes part without data, with arbitrary gradients
                shares[pipeline.replica] = (shares[pipeline.replica][0] * torch.nan, shares[pipeline.replica][1])
            pipeline.weight = counts[pipeline.replica]
            found = pipeline.step(*shares[pipeline.replica])
            losses = [count * mse(model(one), goal) for count, (one, goal) in zip(counts, shares, strict=True) if count]
            mean = sum(losses, torch.zeros((), dtype=torch.float64)) / max(1, sum(counts))
            expected = mean.item() if losses else math.nan  # as hvd.mean of no samples
            assert found.item() == pytest.approx(expected, rel=0, abs=1e-12, nan_ok=True)
            submitted = [torch.zeros_like(one) for one in parameters]
            if losses:
                submitted = list(torch.autograd.grad(mean, parameters))
            flying.append(submitted)
            if exchange == "sync" or step:
                for one, gradient in zip(parameters, flying.pop(0 if exchange == "sync" else 1), strict=True):
                    one.grad = gradient
                optimizer.step()
        pipeline.drain()
        for gradients in flying[1:]:
            for one, gradient in zip(parameters, gradients, strict=True):
                one.grad = gradient
            if any(bool(one.any()) for one in gradients):
                optimizer.step()
        for name, value in pipeline.state_dict()["model"].items():
            assert torch.allclose(value, model.state_dict()[name], rtol=0, atol=1e-12), (exchange, name)
        pipeline.close()
    refused: list[dict[str, Any]] = [{"schedule": "pipemare"}, {"loss_reduction": "sum"}]
    for arguments in refused:
        pipeline = hvd.Pipeline(net(), momentum, mse, stages=CUTS[2][1:], replicas=2, n_microbatches=2, **arguments)
        with pytest.raises(hvd.UsageError, match=r"weight=3 was given to a pipeline(.|\n)*synchronous schedule"):
            pipeline.weight = 3
        pipeline.close()


def late(whole: list[tuple[Tensor, Tensor]], k: int) -> dict[str, Tensor]:
    """The weights of one process that applies gradients k - 1 steps later, the last of them at the end."""
    model = net()
    optimizer = momentum(model.parameters())
    flying: list[list[Tensor]] = []
    for step in range(len(whole) + k - 1):
        if step < len(whole):
            loss = mse(model(whole[step][0]), whole[step][1])
            flying.append(list(torch.autograd.grad(loss, list(model.parameters()))))
        if step >= k - 1:
            for parameter, gradient in zip(model.parameters(), flying.pop(0), strict=True):
                parameter.grad = gradient
            optimizer.step()
    return dict(model.named_parameters())


def apart(shares: list[list[tuple[Tensor, Tensor]]], every: int) -> dict[str, Tensor]:
    """Weights of processes that train separately and average after a number of updates, and at the end."""
    models = [net() for _ in shares]
    optimizers = [momentum(model.parameters()) for model in models]
    steps = len(shares[0])
    for step in range(steps):
        for model, optimizer, share_of in zip(models, optimizers, shares, strict=True):
            accumulate(model, lambda _, made=optimizer: made, [share_of[step]], N)  # type: ignore[misc]
        if (step + 1) % every == 0 or step == steps - 1:
            with torch.no_grad():
                for same in zip(*(model.parameters() for model in models), strict=True):
                    mean = sum(one.clone() for one in same) / len(same)
                    for one in same:
                        one.copy_(mean)
    return dict(models[0].named_parameters())


@ranks(4, env=DYNAMIC)
def test_exchanges_mean_what_they_mean_to_an_optimizer(rank: int, size: int) -> None:
    whole = batches(7, 2)
    shares = [share(whole, replica, 2) for replica in range(2)]
    plain, without = net(), net()
    losses = accumulate(plain, momentum, whole, N)
    accumulate(without, sgd, whole, N)
    same = dict(plain.named_parameters())
    for optimizer, options, weights in (
        (momentum, {"collective": "ring", "fusion": "none"}, same),
        # A drain of a partial exchange is an update, which plain SGD alone does not notice where nothing is late.
        (sgd, {"exchange": hvd.Partial(quorum=2)}, dict(without.named_parameters())),
        (momentum, {"exchange": "pipelined", "groups": 1}, late(whole, 2)),
        (momentum, {"exchange": hvd.Pipelined(k=3)}, late(whole, 3)),
        (momentum, {"exchange": hvd.Local(sync_every=3)}, apart(shares, 3)),
    ):
        result = train(None, optimizer, shares[rank % 2], stages=CUTS[2][1:], replicas=2, **options)
        for name, one in result["weights"].items():
            assert torch.allclose(one, weights[name], rtol=0, atol=1e-12), (options, name)
        if weights is same and "collective" in options:
            assert result["losses"] == pytest.approx(losses, rel=0, abs=1e-12)


class Times(torch.nn.Module):
    """Its gradient is the sum of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(5))

    def forward(self, value: Tensor) -> Tensor:
        return value * self.weight


@ranks(4, env=DYNAMIC)
def test_codecs_and_collectives_are_those_asked_for(rank: int, size: int) -> None:
    value = 1 + 2.0**-12  # has more digits than bfloat16
    for codec, arrives in (("none", value), ("bf16", 1.0)):
        pipeline = hvd.Pipeline(
            [Times(), Times()], lambda parameters: torch.optim.SGD(parameters, lr=1.0), lambda found, _: found.sum(),
            2, loss_reduction="sum", replicas=2, codec=codec, collective="linear", error_feedback=False,
        )  # fmt: skip
        choice = pipeline.optimizer._exchange.wire.encoding.choice
        assert (choice.codec, choice.collective) == (codec, "linear")
        loss = pipeline.step(torch.full((2, 5), value), torch.zeros(2))
        assert loss == 2 * 2 * 5 * value  # of two replicas with two rows
        # Rows are accumulated here, so that sums of two replicas are sent.
        assert torch.equal(pipeline.module[0].weight, 1 - torch.full((5,), 2 * 2 * arrives))
        pipeline.close()


@ranks(4, env=DYNAMIC)
def test_what_exchanges_keep_is_saved(rank: int, size: int) -> None:
    options: dict[str, Any] = {"stages": CUTS[2][1:], "replicas": 2}
    given = [(a.float(), b.float()) for a, b in share(batches(8, 2), rank % 2, 2)]

    def made(**further: Any) -> Any:
        return hvd.Pipeline(net(torch.float32), momentum, mse, N, **{**options, **further})

    def weights(pipeline: Any) -> dict[str, Tensor]:
        return {name: one.clone() for name, one in pipeline.state_dict()["model"].items()}

    # In one group: the rounding error of an encoding may depend on the tensors of one message.
    for exchange in ({"codec": "bf16", "error_feedback": True, "groups": 1}, {"exchange": hvd.Pipelined(k=3)}):
        straight = made(**exchange)
        for batch in given[:5]:
            straight.step(*batch)
        own = copy.deepcopy(straight.state_dict())
        if "codec" in exchange:
            whole = hvd.broadcast_object(straight.consolidate(), 0, name="test_what_exchanges_keep")
            assert whole["exchange"]["replicas"] == 2
            assert len(whole["exchange"]["ranks"]) == 4
            assert set(whole["model"]) == set(net().state_dict())
        else:
            with pytest.raises(hvd.UsageError, match="gradients of its replicas in flight"):
                straight.consolidate()
            whole = own
        for batch in given[5:]:
            straight.step(*batch)
        straight.drain()
        expected = weights(straight)
        straight.close()
        without = {**own, "optimizer": {**own["optimizer"], "paceline_in_flight": None}}
        for state in (own, whole, without):
            again = made(**exchange)
            again.load_state_dict(state)
            for batch in given[5:]:
                again.step(*batch)
            again.drain()
            found = weights(again)
            same = all(torch.equal(one, expected[name]) for name, one in found.items())
            assert same == (state is not without), found
            again.close()
        if "codec" in exchange:
            other = made(replicas=1, stages="auto")
            other.load_state_dict(whole)
            assert all(torch.equal(one, whole["model"][name]) for name, one in weights(other).items())
            other.close()


@ranks(4, env=DYNAMIC)
def test_replicas_begin_alike_and_are_evaluated_together(rank: int, size: int) -> None:
    model = net()
    with torch.no_grad():
        for one in model.parameters():
            one.add_(rank % 2)  # replica 1 is somewhere else
    pipeline = hvd.Pipeline(model, sgd, mse, N, stages=CUTS[2][1:], replicas=2, exchange=hvd.Local(sync_every=9))
    assert (pipeline.stage, pipeline.replica, pipeline.stages, pipeline.replicas) == (rank // 2, rank % 2, 2, 2)
    plain = net()
    for name, one in pipeline.state_dict()["model"].items():
        assert torch.equal(one, plain.state_dict()[name])
    (own,) = share(batches(1, 2), rank % 2, 2)
    # Replicas of a local exchange do not wait for each other's losses, but where they are evaluated.
    expected = [accumulate(net(), sgd, [one], N)[0] for one in (own, batches(1, 2)[0])]
    assert pipeline.evaluate(*own).item() == pytest.approx(expected[1], rel=0, abs=1e-12)
    assert pipeline.step(*own).item() == pytest.approx(expected[0], rel=0, abs=1e-12)
    pipeline.drain()
    pipeline.close()


@ranks(4, env=DYNAMIC)
def test_replicas_that_cannot_be_are_refused_on_all_ranks(rank: int, size: int) -> None:
    for arguments, said in (
        ({"replicas": 2 if rank < 3 else 4}, "different pipelines: replicas is 2 on rank 0 and 4 on rank 3"),
        (
            {"replicas": 3},
            "replicas=3 was given with 4 ranks: expected as many replicas of every stage.\nUse one of 1, 2, 4",
        ),
        ({"replicas": 2, "codec": "bf16" if rank == 1 else None}, "different pipelines: how gradients travel is"),
        ({"replicas": 2, "exchange": "local" if rank == 2 else "sync"}, "different pipelines: exchange is"),
        ({"replicas": 2, "colective": "ring"}, "no argument colective. Did you mean collective?"),
        ({"replicas": 2, "op": 1}, "no argument op"),
    ):
        with pytest.raises(hvd.UsageError, match=said):
            hvd.Pipeline(net(), sgd, mse, N, **arguments)
    pipeline = hvd.Pipeline(net(), sgd, mse, N, replicas=4)
    assert pipeline.stages == 1
    pipeline.step(*data(0, 6))
    pipeline.close()


@ranks(4)
def test_process_sets_of_init_are_used(rank: int, size: int) -> None:
    with pytest.raises(hvd.UsageError, match=r"hvd.init\(process_sets=\[hvd.ProcessSet\(\[0, 1\]\), hvd.ProcessSet"):
        hvd.Pipeline(net(), sgd, mse, N, replicas=2)
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets=[hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])])
    pipeline = hvd.Pipeline(net(), sgd, mse, N, replicas=2)
    pipeline.step(*data(0, 6))
    pipeline.close()
    hvd.barrier()
    hvd.shutdown()
