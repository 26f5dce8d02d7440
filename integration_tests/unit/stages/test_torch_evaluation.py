"""Losses, metrics and outputs without training: any number of rows, the same on all stages as in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integration_tests.support.more import first_of, more
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, accumulate, data, mse, net, sgd
from integration_tests.unit.stages.pipelines import made
from paceline.stages.schedules import SCHEDULES
from paceline.torch.errors import UsageError


def near(output: Tensor, target: Tensor) -> Tensor:
    """The fraction of elements that are near their target."""
    return ((output - target).abs() < 0.8).double().mean()


@pytest.mark.parametrize("schedule", [more("gpipe"), "1f1b", "pipemare"])
@pytest.mark.parametrize("stages", [more(1), 3])
def test_any_number_of_rows_equals_one_process_and_training_goes_on(schedule: str, stages: int) -> None:
    sizes = [1, N - 1, N, 4 * N + 1, 0]

    def body(mail: Any) -> tuple[list[Any], list[Any], float]:
        pipeline = made(mail, schedule=schedule, metrics={"near": near})
        first, last = mail.rank == 0, mail.rank == stages - 1
        scores, outputs = [], []
        for step, rows in enumerate(sizes):
            batch, target = data(10 + step, rows)
            scores.append(pipeline.evaluate(batch if first else None, target if last else None))
            outputs.append(pipeline.predict(batch if first else None))
        loss = pipeline.step(*data(0, 10)).item()
        pipeline.drain()
        pipeline.close()
        return scores, outputs, loss

    plain = net()
    for scores, outputs, loss in in_threads(stages, body):
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
    """Returns outputs of several kinds."""

    def __init__(self, made: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.made = made

    def forward(self, value: Tensor) -> Any:
        return self.made(value)


def test_outputs_keep_their_structure() -> None:
    def body(mail: Any) -> Any:
        model = [nn.Tanh(), Parts(lambda value: {"logits": value, "pair": (value.argmax(1), None), "width": 5})]
        pipeline = made(mail, model, loss=lambda output, _: output["logits"].sum())
        found = pipeline.predict(data(0, 7)[0])
        pipeline.close()
        return found

    expected = data(0, 7)[0].tanh()
    for found in in_threads(2, body):
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
def test_outputs_that_are_not_of_rows_are_refused_and_the_pipeline_goes_on(
    output: Callable[[Tensor], Any], said: str
) -> None:
    def body(mail: Any) -> str:
        model = [nn.Tanh(), Parts(output)]
        pipeline = made(mail, model, loss=lambda output, _: output[0].mean(), n_microbatches=2)
        with pytest.raises(UsageError) as caught:
            pipeline.predict(data(0, 4)[0])
        assert pipeline.evaluate(*data(0, 4)).numel() == 1
        pipeline.close()
        return str(caught.value)

    for text in in_threads(2, body):
        assert said in text, text


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
def test_a_batch_that_is_refused_before_a_step_did_anything_ends_nothing(
    given: tuple[Any, Any], said: str, schedule: str
) -> None:
    def body(mail: Any) -> list[float]:
        pipeline = made(mail, schedule=schedule)
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
        pipeline.close()
        return losses

    expected = accumulate(net(), sgd, [data(step, 10) for step in range(3)], N)
    assert in_threads(3, body) == [expected] * 3
