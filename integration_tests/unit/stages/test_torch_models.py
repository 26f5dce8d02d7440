"""Models that stages build or cut by time, and their outputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integration_tests.support.more import first_of, more
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, accumulate, data, merged, momentum, mse, net, sgd, train
from integration_tests.unit.stages.pipelines import assert_close, made, piped, trained
from paceline.stages.schedules import SCHEDULES
from paceline.torch.errors import UsageError
from paceline.torch.stages.timing import seconds_per_layer


class Slow(nn.Module):
    """A layer that takes some time, and counts its calls."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.calls = 0

    def forward(self, value: Tensor) -> Tensor:
        self.calls += 1
        time.sleep(self.seconds)
        return value


def test_a_cut_by_time_balances_what_layers_take_on_rank_0() -> None:
    def body(communicator: Any) -> tuple[list[str], int]:
        slow = Slow(0.5)
        # By parameters the last layer would be a stage alone.
        layers = [slow, nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 200)]
        pipeline = made(communicator, layers, stages="time", sample=torch.ones(3, 5))
        return pipeline.cut, slow.calls

    found = in_threads(2, body)
    assert [cut for cut, _ in found] == [["0", "1"]] * 2
    assert found[0][1] > 1
    assert found[1][1] == 0


def test_timing_leaves_no_trace() -> None:
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Embedding(3, 2)]
    before = [one.clone() for layer in layers for one in layer.state_dict().values()]
    torch.manual_seed(3)
    expected = torch.get_rng_state()
    found = seconds_per_layer(layers[:4], torch.ones(6, 4), None)
    found += seconds_per_layer(layers[4:], torch.tensor([0, 2, 1]), None)
    assert len(found) == 5
    assert all(seconds > 0 for seconds in found)
    assert torch.equal(torch.get_rng_state(), expected)
    assert all(
        torch.equal(a, b) for a, b in zip(before, (b for m in layers for b in m.state_dict().values()), strict=True)
    )
    assert all(one.grad is None for layer in layers for one in layer.parameters())


def parts(built: list[int]) -> list[Any]:
    """Functions that build the layers of `net`, three at a time; `built` is notified of each."""

    def part(number: int) -> nn.Module:
        built.append(number)
        return net()[3 * number : 3 * number + 3]

    return [lambda number=number: part(number) for number in range(3)]


@pytest.mark.parametrize("schedule", ["1f1b", "pipemare"])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_rank_builds_its_own_stage_alone(schedule: str, stages: int) -> None:
    given = [data(step, 10) for step in range(8)]

    def body(communicator: Any) -> tuple[list[int], dict[str, Any]]:
        built: list[int] = []
        result = train(communicator, momentum, given, parts(built), schedule=schedule, max_norm=0.5)
        return built, result

    found = in_threads(stages, body)
    assert [built for built, _ in found] == {1: [[0, 1, 2]], 2: [[0], [1, 2]], 3: [[0], [1], [2]]}[stages]
    plain = nn.Sequential(*(part() for part in parts([])))
    cuts = {1: [], 2: [3], 3: [3, 6]}[stages]
    whole = in_threads(
        stages, lambda communicator: train(communicator, momentum, given, schedule=schedule, max_norm=0.5, stages=cuts)
    )
    weights, ours = merged(whole), merged([result for _, result in found])
    assert set(ours) == set(plain.state_dict())
    # "1.4.weight" is layer 4, which is in part 1: slices of nn.Sequential keep their names.
    assert_close({name.partition(".")[2]: one for name, one in ours.items()}, weights, 0.0)
    assert all(result["losses"] == whole[0]["losses"] for _, result in found)


def test_saved_stages_load_into_what_the_functions_build() -> None:
    given = [data(step, 10) for step in range(3)]

    _, whole = trained(3, given, lambda: parts([]), optimizer=momentum)[0]
    plain = nn.Sequential(*(part() for part in parts([])))
    accumulate(plain, momentum, given, N)
    loaded = nn.Sequential(*(part() for part in parts([])))
    loaded.load_state_dict(whole["model"])
    assert_close(loaded.state_dict(), plain.state_dict(), 0.0)
    momentum(loaded.parameters()).load_state_dict(whole["optimizer"])


class Locked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, value: Tensor) -> Tensor:
        with self.lock:
            return value.tanh()


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_modules_that_cannot_be_pickled_train_and_are_saved(schedule: str) -> None:
    def model() -> list[nn.Module]:
        return [layer for linear in net() if isinstance(linear, nn.Linear) for layer in (linear, Locked())][:-1]

    plain = nn.Sequential(*model())
    losses = accumulate(plain, momentum, [data(0, 10)], N)
    results = trained(3, [data(0, 10)], model, optimizer=momentum, schedule=schedule)
    assert [found[0] for found, _ in results] == losses * 3
    assert set(results[0][1]["model"]) == set(plain.state_dict())


@pytest.mark.parametrize("schedule", [*SCHEDULES])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("learning", [0, 1, 2, None])
def test_stages_without_parameters(schedule: str, recompute: bool, learning: int | None) -> None:
    late: dict[str, Any] = {"correction": 0.3, "annealing_steps": 4} if schedule == "pipemare" else {}

    def model() -> list[nn.Module]:
        torch.manual_seed(4)
        return [nn.Linear(5, 5) if number == learning else nn.Tanh() for number in range(3)]

    def use(pipeline: Any) -> tuple[list[float], Any]:
        assert (pipeline.optimizer is None) == (pipeline.stage != learning)
        losses = [pipeline.step(torch.ones(6, 5), torch.zeros(6, 5)).item() for _ in range(8)]
        losses += [loss.item() for loss in pipeline.drain()]
        pipeline.load_state_dict(pipeline.state_dict())
        return losses, pipeline.consolidate()

    results = piped(3, use, model, schedule=schedule, recompute=recompute, max_norm=0.5, **late)
    losses, whole = results[0]
    assert all(other == losses for other, _ in results)
    assert len(whole["model"]) == (0 if learning is None else 2)
    assert losses[-1] == losses[0] if learning is None else losses[-1] < losses[0]


def near(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target).abs() < 0.8).double().mean()


@pytest.mark.parametrize("schedule", [more("gpipe"), "1f1b", "pipemare"])
@pytest.mark.parametrize("stages", [more(1), 3])
def test_any_number_of_rows_equals_one_process_and_training_goes_on(schedule: str, stages: int) -> None:
    sizes = [1, N - 1, N, 4 * N + 1, 0]

    def use(pipeline: Any) -> tuple[list[Any], list[Any], float]:
        first, last = pipeline.stage == 0, pipeline.stage == stages - 1
        scores, outputs = [], []
        for step, rows in enumerate(sizes):
            batch, target = data(10 + step, rows)
            scores.append(pipeline.evaluate(batch if first else None, target if last else None))
            outputs.append(pipeline.predict(batch if first else None))
        loss = pipeline.step(*data(0, 10)).item()
        pipeline.drain()
        return scores, outputs, loss

    plain = net()
    for scores, outputs, loss in piped(stages, use, schedule=schedule, metrics={"near": near}):
        for step, rows in enumerate(sizes):
            batch, target = data(10 + step, rows)
            with torch.no_grad():
                expected = plain(batch)
            torch.testing.assert_close(outputs[step], expected, rtol=0, atol=1e-15)
            assert not outputs[step].requires_grad
            for name, metric in (("loss", mse), ("near", near)):
                found = scores[step][name]
                torch.testing.assert_close(found, metric(expected, target), rtol=0, atol=1e-14, equal_nan=True)
        assert loss == accumulate(net(), sgd, [data(0, 10)], N)[0]


class Parts(nn.Module):
    def __init__(self, made: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.made = made

    def forward(self, value: Tensor) -> Any:
        return self.made(value)


def test_outputs_keep_their_structure() -> None:
    def model() -> list[nn.Module]:
        return [nn.Tanh(), Parts(lambda value: {"logits": value, "pair": (value.argmax(1), None), "width": 5})]

    batch, _ = data(0, 7)
    expected = batch.tanh()
    for found in piped(
        2, lambda pipeline: pipeline.predict(batch), model, loss=lambda output, _: output["logits"].sum()
    ):
        torch.testing.assert_close(found["logits"], expected)
        assert torch.equal(found["pair"][0], expected.argmax(1))
        assert found["pair"][1] is None
        assert found["width"] == 5


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (lambda value: value.t(), "The output has 5 rows for a micro-batch of 2: expected as many."),
        (lambda value: (value, value.sum()), "The output has a number that differs between micro-batches"),
    ],
)
def test_outputs_that_are_not_of_rows_are_refused_and_end_nothing(output: Callable[[Tensor], Any], said: str) -> None:
    def use(pipeline: Any) -> None:
        with pytest.raises(UsageError) as caught:
            pipeline.predict(data(0, 4)[0])
        assert said in str(caught.value)
        assert pipeline.evaluate(*data(0, 4)).numel() == 1

    chosen: dict[str, Any] = {"loss": lambda output, _: output[0].mean(), "n_microbatches": 2}
    piped(2, use, lambda: [nn.Tanh(), Parts(output)], **chosen)


@pytest.mark.parametrize("schedule", first_of(SCHEDULES, "1f1b", "pipemare"))
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((torch.zeros(2, 5).double(), torch.zeros(2, 3).double()), "has 2 rows: expected one number, of 3"),
        (((torch.zeros(4, 5), torch.zeros(3, 5)), torch.zeros(4, 3)), "has 3 and 4 rows"),
        ((None, torch.zeros(4, 3).double()), "The batch of stage 0 is a NoneType"),
        ((torch.zeros(4, 5).double(), None), "The target of stage 2 is a NoneType"),
        ((torch.zeros(4, 5).double(), "0"), "The target of stage 2 is a str"),
    ],
)
def test_a_batch_that_is_refused_before_a_step_ends_nothing(given: tuple[Any, Any], said: str, schedule: str) -> None:
    def use(pipeline: Any) -> list[float]:
        losses = []
        for step in range(3):
            with pytest.raises(UsageError) as caught:
                pipeline.step(*given)
            assert said in str(caught.value)
            assert len(str(caught.value).splitlines()) == 2
            if step == 1:
                with pytest.raises(UsageError) as caught:
                    pipeline.evaluate("0", data(0, 4)[1])
                assert "The batch of stage 0 is a str" in str(caught.value)
            losses.append(pipeline.step(*data(step, 10)).item())
            losses += [loss.item() for loss in pipeline.drain()]
        return losses

    expected = accumulate(net(), sgd, [data(step, 10) for step in range(3)], N)
    assert piped(3, use, schedule=schedule) == [expected] * 3
