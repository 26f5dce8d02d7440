"""What travels between stages: types, shapes that change, batches that cannot be cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import accumulate, data, merged, net, sgd, train
from integration_tests.unit.stages.pipelines import assert_close, made
from paceline.stages.execution import headers
from paceline.stages.execution.posting import Tag


class Fork(nn.Module):
    """Hands on a tuple: what it was given for a layer further on, a mask, what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = self.layer(value)
        return value.expand(3, *value.shape).transpose(0, 2), made > 0, made


class Pass(nn.Module):
    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        value, mask, made = values
        assert value.shape[0] == 4
        assert mask.dtype == torch.bool
        return value, mask, made.relu_()


class Join(nn.Module):
    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        value, mask, made = values
        return value.transpose(0, 2).sum(0) * mask + made


def forked() -> list[nn.Module]:
    torch.manual_seed(3)
    return [Fork(), Pass(), Join(), nn.Linear(4, 2, dtype=torch.float64)]


def batch(step: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    count = [8, 8, 8, 5, 9, 8, 8, 8, 3, 4][step % 10]
    return (
        torch.randn(count, 4, generator=random, dtype=torch.float64),
        torch.randn(count, 2, generator=random, dtype=torch.float64),
    )


# Tensors of up to so many bytes travel with their header: all, those of fewer rows, and none of these.
@pytest.mark.parametrize("small_bytes", [1 << 16, 256, 0])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("recompute", [False, True])
def test_tuples_masks_layouts_changes_in_place_and_changing_shapes(
    schedule: str, recompute: bool, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "_SMALL_BYTES", small_bytes)
    models = [forked() for _ in range(4)]

    arguments: dict[str, Any] = {"schedule": schedule, "stages": [1, 2, 3], "recompute": recompute}
    given = [batch(step) for step in range(20)]
    results = in_threads(4, lambda mail: train(mail, sgd, given, models[mail.rank], **arguments))
    model = nn.Sequential(*forked())
    accumulate(model, sgd, given, 3)
    assert_close(merged(results), model.state_dict(), 0.0)


def test_small_tensors_of_a_foreseen_signature_are_one_message_with_their_header() -> None:
    sent: list[list[tuple[int, int]]] = [[], []]

    def body(mail: Any) -> None:
        begin = mail.send

        def send(peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
            sent[mail.rank].append((tag, memoryview(data).nbytes if size_bytes is None else size_bytes))
            return int(begin(peer, tag, data, size_bytes))

        model = [nn.Linear(4, 4), nn.Linear(4, 2)]
        pipeline = made(mail, model, n_microbatches=2, schedule="gpipe", stages=[1])
        for _ in range(2):
            pipeline.step(torch.zeros(6, 4), torch.zeros(6, 2))
        mail.send = send
        pipeline.step(torch.zeros(6, 4), torch.zeros(6, 2))
        del mail.send
        pipeline.close()

    in_threads(2, body)
    tensor_bytes = 3 * 4 * 4  # of a micro-batch: rows, features, float32
    assert sent[0] == [(Tag.HEADER, 16 + tensor_bytes)] * 2
    assert sorted(sent[1]) == [(Tag.GRADIENT, tensor_bytes)] * 2 + [(Tag.LOSS, 8)]


def test_sums_are_not_weighted() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return ((output - target) ** 2).sum()

    value, target = batch(1)

    def body(mail: Any) -> None:
        pipeline = made(mail, [nn.Linear(4, 2, dtype=torch.float64)], loss=loss, loss_reduction="sum")
        before = loss(pipeline.module(value), target).item()
        assert pipeline.step(value, target).item() == pytest.approx(before)

    in_threads(1, body)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "2bw", "pipemare"])
def test_types_of_few_digits(dtype: torch.dtype, schedule: str) -> None:
    late: dict[str, Any] = {"correction": 0.3, "annealing_steps": 4} if schedule == "pipemare" else {}

    def body(mail: Any) -> list[float]:
        pipeline = made(mail, net(dtype), schedule=schedule, max_norm=1.0, **late)
        losses = [pipeline.step(*data(0, 9, dtype)).item() for _ in range(30)]
        pipeline.drain()
        pipeline.close()
        assert {one.dtype for one in pipeline.module.parameters()} == {dtype}
        return losses

    losses = in_threads(3, body)
    assert losses[0] == losses[1] == losses[2]
    assert losses[0][-1] < 0.8 * losses[0][0]
