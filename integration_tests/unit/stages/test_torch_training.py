"""Stages as threads: training equals one process with the weights of the schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from integration_tests.support.more import more
from integration_tests.support.stage_reference import train_with_old_weights
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import (
    N,
    Optimizer,
    accumulate,
    adam,
    adamw,
    data,
    merged,
    momentum,
    net,
    rmsprop,
    sgd,
    train,
)
from integration_tests.unit.stages.pipelines import assert_close, piped
from paceline.stages import corrections, schedules
from paceline.stages.delays import delays
from paceline.stages.flow import program
from paceline.stages.versions import activations, copies, versions
from paceline.torch.stages.tensors import ParameterGradients

CUTS = {1: [0], 2: [0, 4], 3: [0, 3, 6], 4: [0, 2, 4, 7]}


def batches(steps: int, rows: int = 10) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [data(step, rows) for step in range(steps)]


def trained(stages: int, optimizer: Optimizer, steps: int, rows: int = 10, **arguments: Any) -> list[dict[str, Any]]:
    given = batches(steps, rows)
    return in_threads(
        stages, lambda communicator: train(communicator, optimizer, given, stages=CUTS[stages][1:], **arguments)
    )


def assert_trained(
    results: list[dict[str, Any]], weights: dict[str, torch.Tensor], losses: list[float], atol: float = 0.0
) -> None:
    assert_close(merged(results), weights, atol)
    for result in results:
        assert result["losses"] == (pytest.approx(losses, rel=0, abs=atol) if atol else losses)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "rows"), [more(1, 10), more(2, 9), more(3, 10), (4, 11)])
@pytest.mark.parametrize("optimizer", [momentum, adamw])
def test_synchronous_schedules_equal_one_process(schedule: str, stages: int, rows: int, optimizer: Optimizer) -> None:
    model = net()
    losses = accumulate(model, optimizer, batches(50, rows), N)
    assert_trained(trained(stages, optimizer, 50, rows, schedule=schedule), model.state_dict(), losses)


def test_stages_of_a_model_in_mixed_types_clip_by_one_factor() -> None:
    values = torch.linspace(-1, 1, 4001)
    stages = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        parameter = torch.nn.Parameter(torch.zeros(4001, dtype=dtype))
        parameter.grad = values.to(dtype)
        stages.append(ParameterGradients([parameter]))
    norms = [norm for stage in stages for norm in stage.norms() if norm is not None]
    assert norms == pytest.approx([float(values.norm())] * 3, rel=1e-5)
    assert len({stage.clip(norms, 0.5) for stage in stages}) == 1


def test_the_warm_up_equals_one_process_and_drains_lose_nothing() -> None:
    model = net()
    losses = accumulate(model, momentum, batches(12), N)
    results = trained(3, momentum, 12, schedule="pipemare", warmup_steps=12)
    assert_trained(results, model.state_dict(), losses)
    switched = trained(3, momentum, 20, schedule="pipemare", warmup_steps=12)
    assert all(result["losses"][:12] == losses and len(result["losses"]) == 20 for result in switched)

    # Drains between steps lose nothing.
    def use(pipeline: Any) -> tuple[int, float]:
        reported = 0
        for step in range(9):
            pipeline.step(*data(step, 8))
            if step in (0, 3, 8):
                reported += len(pipeline.drain())
        pipeline.drain()
        return reported, float(sum(one.detach().sum() for one in pipeline.module.parameters()))

    first, second = (piped(3, use, n_microbatches=2, schedule="pipemare", stages=CUTS[3][1:]) for _ in range(2))
    assert first == second


ASYNCHRONOUS = [name for name, one in schedules.SCHEDULES.items() if not one.synchronous]


T2: dict[str, Any] = {"annealing_steps": 9, "correction": 0.5}
CLIPPED: dict[str, Any] = {"max_norm": 0.2, "warmup_steps": 5}
# 25 mini-batches: where updates are for a few of them, the last one takes fewer.
CHOSEN: list[tuple[Optimizer, dict[str, Any]]] = [
    *[(momentum, one) for one in ({}, {"annealing_steps": 9}, {"correction": 0.3}, T2 | {"warmup_steps": 5})],
    *[(momentum, one) for one in ({"max_norm": 0.2}, CLIPPED)],
    *[(rmsprop, one) for one in ({"update_every": 3}, {"update_every": 2, **CLIPPED, **T2})],
    *[(rmsprop, {"nesterov": 0.6, **one}) for one in ({}, {**T2, **CLIPPED}, {"update_every": 3})],
    *[(optimizer, T2) for optimizer in (adam, adamw, sgd)],
]


@pytest.mark.parametrize("schedule", ASYNCHRONOUS)
@pytest.mark.parametrize(
    ("optimizer", "chosen"), CHOSEN, ids=[f"{one.__name__}-{'-'.join(chosen) or 'plain'}" for one, chosen in CHOSEN]
)
@pytest.mark.parametrize(("stages", "microbatches"), [more(2, 3), (3, 3), (4, 1), more(4, 5)])
def test_asynchronous_schedules_equal_training_with_the_weights_they_say(
    schedule: str, optimizer: Optimizer, chosen: dict[str, Any], stages: int, microbatches: int
) -> None:
    given = batches(25)
    weights, losses = train_with_old_weights(schedule, stages, microbatches, CUTS[stages], optimizer, given, **chosen)
    results = trained(stages, optimizer, 25, schedule=schedule, n_microbatches=microbatches, **chosen)
    assert_trained(results, weights, losses, 1e-12)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "pipemare"])
def test_an_update_every_few_minibatches_equals_one_process_with_larger_ones(schedule: str) -> None:
    model = net()
    pairs = [[torch.cat(two) for two in zip(data(step, 9), data(step + 1, 9))] for step in range(0, 16, 2)]
    expected = accumulate(model, momentum, [(batch, target) for batch, target in pairs], 2 * N)
    stages = 1 if schedule == "pipemare" else 3
    results = trained(stages, momentum, 16, 9, schedule=schedule, update_every=2)
    assert_close(merged(results), model.state_dict())
    losses = results[0]["losses"]
    assert [sum(losses[step : step + 2]) / 2 for step in range(0, 16, 2)] == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("stages", [2, 4])
def test_with_enough_microbatches_per_update_no_weight_is_more_than_a_version_old(stages: int) -> None:
    enough = corrections.least_microbatches(stages)

    def use(pipeline: Any) -> int:
        for step in range(3 * enough + 1):
            pipeline.step(*data(step, 2))
            if step == 2 * enough + stages:
                oldest, mean = max(pipeline._executor.gaps[0]), pipeline.measured_delays()
        pipeline.drain()
        assert mean == ((stages - 1 - pipeline.stage) / enough, 0)
        return oldest

    chosen: dict[str, Any] = {"n_microbatches": 1, "schedule": "pipemare", "update_every": enough}
    assert piped(stages, use, stages=CUTS[stages][1:], **chosen) == [1] * (stages - 1) + [0]


@pytest.mark.parametrize("schedule", list(schedules.SCHEDULES))
@pytest.mark.parametrize(("stages", "microbatches"), [more(2, 3), (4, 1), more(4, 2), (4, 4)])
def test_delays_and_what_is_held_are_those_of_the_schedule(schedule: str, stages: int, microbatches: int) -> None:
    results = trained(stages, sgd, 12, schedule=schedule, n_microbatches=microbatches)
    made = schedules.make(schedule, stages, microbatches)
    assert [result["delays"] for result in results] == delays(made)
    for stage, result in enumerate(results):
        instructions = program(made, stage, 12)
        assert result["activations"] == activations(instructions), stage
        assert result["copies"] == copies(instructions, versions(made, instructions)), stage


@pytest.mark.parametrize("schedule", ["gpipe", "pipedream", "2bw", "pipemare", "pipemare_eager"])
@pytest.mark.parametrize("correction", [None, 0.4])
def test_recomputation_gives_the_same(schedule: str, correction: float | None) -> None:
    # At the same weights in both passes; T2 without it is another approximation of the first pass.
    if schedule == "gpipe" and correction is not None:
        return
    same = not schedule.startswith("pipemare")
    plain = merged(trained(3, momentum, 15, schedule=schedule, correction=correction))
    again = merged(trained(3, momentum, 15, schedule=schedule, correction=correction, recompute=True))
    for name, one in plain.items():
        assert torch.equal(one, again[name]) if same else torch.isfinite(again[name]).all(), name
