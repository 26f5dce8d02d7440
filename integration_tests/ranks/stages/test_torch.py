"""hvd.Pipeline over Horovod's connections: equal to one process, and to training with the schedule's weights."""

from __future__ import annotations

import time
from typing import Any

import horovod.torch as stock
import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.stage_reference import train_with_old_weights
from integration_tests.support.stage_training import N, accumulate, adamw, data, momentum, net, rmsprop, sgd, train
from paceline.stages import schedules
from paceline.stages.delays import delays

CUTS = {1: [0], 2: [0, 4], 3: [0, 3, 6]}


def batches(steps: int, rows: int = 10) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [data(step, rows) for step in range(steps)]


def assert_own(result: dict[str, Any], weights: dict[str, torch.Tensor], losses: list[float], atol: float = 0) -> None:
    assert result["weights"]
    for name, one in result["weights"].items():
        assert torch.allclose(one, weights[name], rtol=0, atol=atol), name
    assert result["losses"] == pytest.approx(losses, rel=0, abs=atol)


@ranks(1, 2, 3)
def test_synchronous_schedules_equal_one_process(rank: int, size: int) -> None:
    for schedule in ("gpipe", "1f1b"):
        model = net()
        losses = accumulate(model, adamw, batches(50), N, max_norm=0.5)
        result = train(None, adamw, batches(50), schedule=schedule, stages=CUTS[size][1:], max_norm=0.5)
        assert_own(result, model.state_dict(), losses)


@ranks(1, 2, 3)
def test_asynchronous_schedules_have_the_weights_and_delays_that_they_say(rank: int, size: int) -> None:
    corrections: dict[str, Any] = {"annealing_steps": 9, "correction": 0.4, "warmup_steps": 4, "max_norm": 0.5}
    for schedule in ("pipedream", "2bw", "pipemare", "pipemare_eager"):
        for microbatches in (1, 3):
            given = batches(20, 7)
            weights, losses = train_with_old_weights(
                schedule, size, microbatches, CUTS[size], momentum, given, **corrections
            )
            chosen = {"schedule": schedule, "stages": CUTS[size][1:], "n_microbatches": microbatches}
            result = train(None, momentum, given, **chosen, **corrections)
            assert_own(result, weights, losses, 1e-12)
            assert result["delays"] == delays(schedules.make(schedule, size, microbatches))[rank]


@ranks(3, more=(2,))
def test_momentum_and_updates_every_few_minibatches(rank: int, size: int) -> None:
    chosen: dict[str, Any] = {"nesterov": 0.6, "update_every": 3, "correction": 0.4, "warmup_steps": 4}
    weights, losses = train_with_old_weights("pipemare", size, 1, CUTS[size], rmsprop, batches(20, 7), **chosen)
    result = train(
        None, rmsprop, batches(20, 7), schedule="pipemare", stages=CUTS[size][1:], n_microbatches=1, **chosen
    )
    assert_own(result, weights, losses, 1e-12)


@ranks(3, more=(2,))
def test_batch_norm_dropout_and_recomputation(rank: int, size: int) -> None:
    def model() -> list[torch.nn.Module]:
        torch.manual_seed(5)
        layers: list[torch.nn.Module] = []
        for _ in range(4):
            layers += [
                torch.nn.Linear(6, 6),
                torch.nn.BatchNorm1d(6),
                torch.nn.ReLU(inplace=True),
                torch.nn.Dropout(0.3),
            ]
        return layers

    for schedule in ("1f1b", "pipedream"):
        kept = []
        for recompute in (False, True):
            made = model()
            torch.manual_seed(100 + rank)
            loss = torch.nn.functional.mse_loss
            pipeline = hvd.Pipeline(made, sgd, loss, N, schedule, recompute=recompute)
            random = torch.Generator().manual_seed(1)
            for _ in range(6):
                pipeline.step(torch.randn(9, 6, generator=random), torch.zeros(9, 6))
            pipeline.drain()
            kept.append(pipeline.state_dict()["model"])
            pipeline.close()
        for name, one in kept[0].items():
            assert torch.equal(one, kept[1][name]), name
            if name.endswith("num_batches_tracked"):
                assert one == 6 * N


@ranks(3)
def test_large_activations_that_change_their_shape(rank: int, size: int) -> None:
    def model() -> torch.nn.Sequential:
        torch.manual_seed(2)
        return torch.nn.Sequential(*(torch.nn.Linear(301, 301, dtype=torch.float64) for _ in range(3)))

    plain = model()
    rows = [400, 400, 400, 7, 350, 400, 3, 400]
    given = []
    for step, count in enumerate(rows):
        random = torch.Generator().manual_seed(step)
        given.append((torch.randn(count, 301, generator=random, dtype=torch.float64), torch.zeros(count, 301)))
    losses = accumulate(plain, sgd, given, N)
    pipeline = hvd.Pipeline(model(), sgd, torch.nn.functional.mse_loss, N, "1f1b")
    assert [pipeline.step(*one).item() for one in given] == losses
    state = pipeline.state_dict()["model"]
    assert all(torch.equal(one, plain.state_dict()[name]) for name, one in state.items())
    pipeline.close()


@ranks(3)
def test_saved_and_loaded(rank: int, size: int) -> None:
    loss = torch.nn.functional.mse_loss
    first = hvd.Pipeline(net(), momentum, loss, N, "pipemare", correction=0.3)
    for step in range(5):
        first.step(*data(step, 10))
    first.drain()
    whole = hvd.broadcast_object(first.consolidate(), 0, name="test_saved_and_loaded")
    first.close()
    second = hvd.Pipeline(net(), momentum, loss, N, "1f1b", [1, 2])
    second.load_state_dict(whole)
    found = second.step(*data(5, 10)).item()
    second.close()
    model = net()
    model.load_state_dict(whole["model"])
    optimizer = momentum(model.parameters())
    optimizer.load_state_dict(whole["optimizer"])
    expected = accumulate(model, lambda _: optimizer, [data(5, 10)], N)
    assert [found] == pytest.approx(expected, rel=0, abs=1e-9)


@ranks(3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_a_process_set_is_a_pipeline_of_its_own(rank: int, size: int) -> None:
    chosen = hvd.add_process_set([0, 2])
    if chosen.included():
        pipeline = hvd.Pipeline(net(), sgd, torch.nn.functional.mse_loss, N, "pipemare", process_set=chosen)
        assert (pipeline.stage, pipeline.stages) == (rank // 2, 2)
        for step in range(4):
            pipeline.step(*data(step, 6))
        pipeline.drain()
        pipeline.close()
    hvd.barrier()
    hvd.remove_process_set(chosen)


@ranks(3)
def test_ranks_that_ask_for_different_pipelines_are_refused_and_can_try_again(rank: int, size: int) -> None:
    loss = torch.nn.functional.mse_loss
    different: list[tuple[dict[str, Any], str]] = [
        ({"schedule": "gpipe" if rank == 1 else "1f1b"}, "schedule is '1f1b' on rank 0 and 'gpipe' on rank 1"),
        ({"n_microbatches": 4 if rank == 2 else 3}, "n_microbatches is 3 on rank 0 and 4 on rank 2"),
        ({"stages": [1, 3 if rank == 2 else 2]}, r"stages is \[1, 2\] on rank 0 and \[1, 3\] on rank 2"),
        ({"model": net(torch.float32 if rank == 1 else torch.float64)}, "digest of tensors' names, shapes and types"),
        ({"max_norm": 1.0 if rank == 1 else None}, "max_norm is None on rank 0 and 1.0 on rank 1"),
        ({"update_every": 1 if rank == 2 else 2}, "update_every is 2 on rank 0 and 1 on rank 2"),
        (
            {"schedule": "pipemare", "nesterov": 0.9 if rank == 1 else 0.5},
            "nesterov is 0.5 on rank 0 and 0.9 on rank 1",
        ),
    ]
    for arguments, said in different:
        with pytest.raises(hvd.UsageError, match=f"different pipelines: .*{said}"):
            hvd.Pipeline(
                arguments.pop("model", None) or net(),
                sgd,
                loss,
                **{"n_microbatches": 3, "schedule": "1f1b", **arguments},
            )
    with pytest.raises(hvd.UsageError, match="There is no schedule 'x'" if rank == 1 else "Rank 1 could not build"):
        hvd.Pipeline(net(), sgd, loss, 3, "x" if rank == 1 else "1f1b")
    with pytest.raises(hvd.UsageError, match="2 layers, and there are 3 stages"):
        hvd.Pipeline([torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)], sgd, loss, 3)
    pipeline = hvd.Pipeline(net(), sgd, loss, 3)
    pipeline.step(*data(0, 6))
    pipeline.close()


class Bad(torch.nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if not self.training:
            raise ZeroDivisionError("a layer that fails")
        return value


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("schedule", ["1f1b", "pipemare"])
@ranks(3, fresh=True)
def test_a_stage_that_raises_ends_all_stages_with_its_traceback(
    rank: int, size: int, failing: int, schedule: str
) -> None:
    layers = [layer for _ in range(size) for layer in (torch.nn.Linear(4, 4), Bad())]
    cuts = [2 * stage for stage in range(1, size)]
    pipeline = hvd.Pipeline(layers, sgd, torch.nn.functional.mse_loss, 2, schedule, cuts)
    with pytest.raises(Exception) as raised:
        for step in range(6):
            if rank == failing and step == 3:
                pipeline.module.eval()
            pipeline.step(torch.zeros(4, 4), torch.zeros(4, 4))
        pipeline.drain()
    with pytest.raises(hvd.UsageError, match="has ended"):
        pipeline.step(torch.zeros(4, 4), torch.zeros(4, 4))
    text = f"{type(raised.value).__name__}: {raised.value}"
    if rank == failing:
        assert text == "ZeroDivisionError: a layer that fails"
    else:
        assert text.startswith("StageFailed: ")
        for part in (f"Stage {failing} failed, at FORWARD", "Traceback", "ZeroDivisionError: a layer that fails"):
            assert part in text


@ranks(2, fresh=True)
def test_an_optimizer_that_averages_over_all_ranks_is_refused(rank: int, size: int) -> None:
    wrap = (hvd if rank == 0 else stock).DistributedOptimizer
    with pytest.raises(Exception, match="averages gradients of all ranks"):
        hvd.Pipeline(net(), lambda parameters: wrap(sgd(parameters)), torch.nn.functional.mse_loss, N)


@ranks(2, 3, fresh=True)
def test_who_closes_first_does_not_end_the_others(rank: int, size: int) -> None:
    """The last stage is busy with its last update when the others shut Horovod down."""

    def slow(parameters: Any) -> torch.optim.Optimizer:
        optimizer = sgd(parameters)
        if rank == size - 1:
            optimizer.register_step_pre_hook(lambda *_: time.sleep(1.0))
        return optimizer

    pipeline = hvd.Pipeline(net(), slow, torch.nn.functional.mse_loss, N, stages=CUTS[size][1:])
    pipeline.step(*data(0, 10))
    pipeline.close()
    hvd.shutdown()


@ranks(3, fresh=True)
def test_pipelines_close_in_world_after_world(rank: int, size: int) -> None:
    for turn in range(8):
        hvd.init()
        pipeline = hvd.Pipeline(net(), sgd, torch.nn.functional.mse_loss, N, "pipemare", stages=CUTS[size][1:])
        pipeline.step(*data(turn, 10))
        pipeline.drain()
        pipeline.close()
        hvd.shutdown()
