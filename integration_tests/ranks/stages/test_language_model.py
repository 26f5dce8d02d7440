"""A GPT-2-like model over Horovod's connections: dictionaries, tied weights, evaluation, dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.stage_gpt import accumulate, cross_entropy, gpt, text
from integration_tests.support.stage_training import momentum

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
EMBEDDING, HEAD = "0.tokens.weight", "3.logits.weight"


def accuracy(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
    return (output["logits"].argmax(-1) == target["labels"]).double().mean()


@ranks(1, 3, more=(2, 4))
def test_training_and_evaluation_equal_one_process(rank: int, size: int) -> None:
    plain = gpt()
    # Adam would make much of what rounding leaves of a gradient that is 0, that of the keys' bias.
    optimizer = momentum(plain.parameters())
    pipeline = hvd.Pipeline(gpt(), momentum, cross_entropy, 3, metrics={"accuracy": accuracy}, max_norm=1.0)
    for epoch in range(3):
        steps = range(4 * epoch, 4 * epoch + 4)
        losses = accumulate(plain, optimizer, steps, 7, 3, 1.0)
        assert [pipeline.step(*text(step, 7)).item() for step in steps] == pytest.approx(losses, rel=1e-12)
        for rows in (1, 2, 11):
            inputs, target = text(100 + rows, rows)
            with torch.no_grad():
                expected = plain(inputs)
            found = pipeline.evaluate(inputs if rank == 0 else None, target if rank == size - 1 else None)
            assert found["loss"].item() == pytest.approx(cross_entropy(expected, target).item(), rel=1e-12)
            assert found["accuracy"].item() == pytest.approx(accuracy(expected, target).item(), rel=1e-12)
            output = pipeline.predict(inputs if rank == 0 else None)
            torch.testing.assert_close(output["logits"], expected["logits"], rtol=0, atol=1e-12)
        with pytest.raises(hvd.UsageError, match="has 2 rows: expected one number, of 3"):
            pipeline.step(*text(0, 2))
        unlike = text(0, 7)[0], text(0, 4)[1]
        for call in (pipeline.step, pipeline.evaluate):  # a loss that broadcasts would prove nothing
            with pytest.raises(hvd.UsageError, match=f"stage 0 has 7 rows, the target of stage {size - 1} has 4"):
                call(*unlike)
    for name, one in pipeline.state_dict()["model"].items():
        torch.testing.assert_close(one, plain.state_dict()[name], rtol=0, atol=1e-12)
    pipeline.close()


@ranks(4, env=DYNAMIC)
def test_replicas_of_tied_stages(rank: int, size: int) -> None:
    """Under every exchange copies are their owners, bit for bit; under sync all equal one process."""
    replica = rank % 2
    for options in (
        {"exchange": "sync"},
        {"exchange": hvd.Pipelined(k=3)},
        {"exchange": hvd.Local(sync_every=3)},
        {"exchange": hvd.Partial(quorum=1)},
        {"exchange": "sync", "codec": "q8"},
    ):
        pipeline = hvd.Pipeline(
            gpt(), momentum, cross_entropy, 2, stages=[2], replicas=2, metrics={"accuracy": accuracy}, **options
        )
        for step in range(5):
            pipeline.step(*half(*text(step, 8), replica))
        pipeline.drain()
        mine = pipeline.state_dict()["model"]
        everyones = hvd.allgather_object(mine.get(EMBEDDING, mine.get(HEAD)), name="test_replicas_of_tied_stages")
        assert torch.equal(everyones[replica], everyones[2 + replica]), options
        found = pipeline.evaluate(*half(*text(50, 8), replica))
        again = pipeline.evaluate(*half(*text(50, 8), replica))
        assert found == again, options
        if options == {"exchange": "sync"}:
            plain = gpt()
            accumulate(plain, momentum(plain.parameters()), range(5), 8, 2)
            for name, one in mine.items():
                torch.testing.assert_close(one, plain.state_dict()[name], rtol=0, atol=1e-12)
            inputs, target = text(50, 8)
            with torch.no_grad():
                expected = plain(inputs)
            assert found["loss"].item() == pytest.approx(cross_entropy(expected, target).item(), rel=1e-12)
            assert found["accuracy"].item() == pytest.approx(accuracy(expected, target).item(), rel=1e-12)
            output = pipeline.predict(half(inputs, target, replica)[0])
            rows = torch.arange(8).view(2, 2, 2)[:, replica].flatten()
            torch.testing.assert_close(output["logits"], expected["logits"][rows], rtol=0, atol=1e-12)
        pipeline.close()


def half(inputs: dict[str, Tensor], target: dict[str, Tensor], replica: int) -> tuple[Any, Any]:
    """Return the share of one of two pipelines: 2 rows of each micro-batch of 4."""

    def rows(one: Tensor) -> Tensor:
        return one.view(2, 2, 2, *one.shape[1:])[:, replica].flatten(0, 1)

    return {name: rows(one) for name, one in inputs.items()}, {name: rows(one) for name, one in target.items()}


class Noted(nn.Module):
    """Dropout that keeps its masks."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[Tensor] = []

    def forward(self, value: Tensor) -> Tensor:
        mask = nn.functional.dropout(torch.ones_like(value), 0.5, self.training)
        self.masks.append(mask.detach().clone())
        return value * mask


@ranks(1, 3)
def test_dropout_masks_differ_between_stages_and_repeat_with_the_seed(rank: int, size: int) -> None:
    def masks(seed: int, recompute: bool = False) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(seed)
        layers: list[nn.Module] = [nn.Sequential(nn.Linear(16, 16), Noted()) for _ in range(size)]
        pipeline = hvd.Pipeline(
            layers, momentum, nn.functional.mse_loss, 2, stages=[2 * one for one in range(1, size)], recompute=recompute
        )
        batches = []
        for _ in range(3):
            batches.append(torch.randn(4, 16))  # by all ranks: the first needs it, and others draw equally many numbers
            pipeline.step(batches[-1], torch.zeros(4, 16))
        found = [mask for layer in pipeline.module if isinstance(layer, Noted) for mask in layer.masks]
        pipeline.close()
        return found, torch.stack(batches)

    own, batches = masks(1)
    again, _ = masks(1)
    assert all(torch.equal(one, other) for one, other in zip(own, again, strict=True))
    other, _ = masks(2)
    assert not any(torch.equal(one, two) for one, two in zip(own, other, strict=True))
    assert len({tuple(one.flatten().tolist()) for one in own}) == len(own) == 6
    # A script's own random numbers are the same on all ranks, whatever its stage has drawn.
    name = "test_dropout_masks_differ"
    everyones = hvd.allgather_object((torch.stack(own), batches), name=name)
    for one in range(size):
        assert torch.equal(everyones[one][1], batches)
        for two in range(one):
            assert not any(torch.equal(*masks) for masks in zip(everyones[one][0], everyones[two][0], strict=True)), (
                one,
                two,
            )
    twice, _ = masks(1, recompute=True)
    assert len(twice) == 12
    for mask in own:
        assert sum(torch.equal(mask, one) for one in twice) == 2


@ranks(1)
def test_one_stage_draws_the_numbers_of_plain_training(rank: int, size: int) -> None:
    plain = gpt(dropout=0.3)
    torch.manual_seed(3)
    losses = accumulate(plain, momentum(plain.parameters()), range(4), 7, 3)
    model = gpt(dropout=0.3)
    torch.manual_seed(3)
    pipeline = hvd.Pipeline(model, momentum, cross_entropy, 3)
    assert [pipeline.step(*text(step, 7)).item() for step in range(4)] == losses
    pipeline.close()
