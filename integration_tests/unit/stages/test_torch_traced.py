"""Models that torch.distributed.pipelining has traced or cut: equal to the model itself in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline

from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, accumulate, momentum, mse
from integration_tests.unit.stages.pipelines import assert_close, made, piped
from paceline.torch.errors import UsageError

WIDTH, ROWS = 5, 2


class Net(nn.Module):
    """Stages 1 and 2 use the output of stage 0, and the last one the input; `scale` is in no submodule."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH, dtype=torch.float64))
        self.first = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.middle = nn.Sequential(nn.Linear(WIDTH, WIDTH, dtype=torch.float64), nn.Tanh())
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        random = torch.Generator().manual_seed(11)  # stages are threads here
        with torch.no_grad():
            for one in self.parameters():
                one.copy_(torch.randn(one.shape, generator=random, dtype=torch.float64) / 2)

    def forward(self, value: Tensor, weight: Tensor | None = None) -> Tensor:
        one = self.first(value).tanh()
        two = self.middle(one) * self.scale
        three = self.last(self.drop(two) + one) + value
        return three if weight is None else three * weight


def data(step: int, rows: int = N * ROWS) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    return tuple(torch.randn(rows, WIDTH, generator=random, dtype=torch.float64) for _ in range(2))


SAMPLE = torch.ones(ROWS, WIDTH, dtype=torch.float64)
CUTS = ["middle", "last"]


@contextlib.contextmanager
def torch_distributed() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def pipe() -> Any:
    return pipeline(Net(), (SAMPLE,), split_spec=dict.fromkeys(CUTS, SplitPoint.BEGINNING))


def trained(size: int, model: Callable[[], Any], **arguments: Any) -> list[tuple[dict[str, Tensor], list[float], Any]]:
    def use(pipeline: Any) -> tuple[dict[str, Tensor], list[float], Any]:
        losses = [pipeline.step(*data(step)).item() for step in range(6)]
        losses += [loss.item() for loss in pipeline.drain()]
        return pipeline.state_dict()["model"], losses, pipeline.consolidate()

    return piped(size, use, model, optimizer=momentum, **arguments)


@pytest.mark.parametrize(
    ("size", "model", "arguments"),
    [(3, Net, {"stages": CUTS, "sample": SAMPLE}), (3, pipe, {}), (2, pipe, {})],
    ids=["named", "Pipe", "Pipe on two ranks"],
)
def test_a_traced_model_equals_the_model_itself(size: int, model: Callable[[], Any], arguments: dict[str, Any]) -> None:
    plain = Net()
    losses = accumulate(plain, momentum, [data(step) for step in range(6)], N)
    found = trained(size, model, **arguments)
    weights = {name: one for own, _, _ in found for name, one in own.items()}
    assert_close(weights, plain.state_dict())
    assert found[0][1] == pytest.approx(losses, rel=0, abs=1e-12)
    # The whole is a state of the traced model.
    again = Net()
    again.load_state_dict(found[0][2]["model"])
    assert set(found[0][2]["optimizer"]["param_groups"][0]["param_names"]) == {
        name for name, _ in plain.named_parameters()
    }


class Part(nn.Module):
    """A stage of Net, written by hand: passes on a pair. `apart`: takes its values as separate arguments."""

    def __init__(self, net: Net, number: int, apart: bool = False) -> None:
        super().__init__()
        self.number, self.apart = number, apart
        for name in (("first",), ("scale", "middle"), ("last",))[number]:
            setattr(self, name, getattr(net, name))

    def forward(self, *values: Any) -> Any:
        one, two = values if self.apart and self.number else (values[0], None) if not self.number else values[0]
        if self.number == 0:
            return self.first(one).tanh(), one
        return (self.middle(one) * self.scale + one, two) if self.number == 1 else self.last(one) + two


def by_hand(apart: bool = False) -> list[nn.Module]:
    net = Net()
    return [Part(net, number, apart) for number in range(3)]


@pytest.mark.parametrize("arguments", [{"correction": 0.4}, {"recompute": True}], ids=lambda one: "-".join(one))
def test_a_traced_model_under_pipemare_equals_stages_written_by_hand(arguments: dict[str, Any]) -> None:
    chosen = {"schedule": "pipemare", **arguments}
    traced, written = trained(3, Net, stages=CUTS, sample=SAMPLE, **chosen), trained(3, by_hand, **chosen)
    assert traced[0][1] == pytest.approx(written[0][1], rel=0, abs=1e-12)
    for (ours, _, _), (theirs, _, _) in zip(traced, written, strict=True):
        assert_close(ours, {name.partition(".")[2]: one for name, one in theirs.items()})


def test_a_model_of_several_inputs() -> None:
    weight = torch.full(data(0)[0].shape, 2.0, dtype=torch.float64)

    def use(pipeline: Any) -> float:
        return float(pipeline.step((data(0)[0], weight), data(0)[1]))

    expected = mse(Net()(data(0)[0], weight), data(0)[1]).item()
    assert piped(3, use, Net, stages=CUTS, sample=(SAMPLE, SAMPLE)) == [pytest.approx(expected, rel=0, abs=1e-12)] * 3


def test_a_model_traced_in_train_mode_is_not_evaluated_as_if_it_knew_better() -> None:
    def refused(pipeline: Any) -> None:
        with pytest.raises(UsageError, match=r"traced in train mode, and does aten.dropout"):
            pipeline.evaluate(*data(0))
        pipeline.step(*data(0))

    def without_dropout() -> nn.Module:
        net = Net()
        net.drop = nn.Identity()
        return net

    piped(3, refused, lambda: Net(dropout=0.5), stages=CUTS, sample=SAMPLE)
    found = piped(3, lambda one: one.evaluate(*data(0)).item(), without_dropout, stages=CUTS, sample=SAMPLE)
    assert found == [pytest.approx(mse(Net()(data(0)[0]), data(0)[1]).item(), abs=1e-12)] * 3


@pytest.mark.parametrize("traced", [True, False])
def test_stages_of_torch_are_taken(traced: bool) -> None:
    plain = Net()
    losses = accumulate(plain, momentum, [data(step) for step in range(6)], N)

    def stage(number: int) -> Any:
        if traced:
            return pipe().build_stage(number, torch.device("cpu"))
        return PipelineStage(by_hand(apart=True)[number], number, 3, torch.device("cpu"))

    with torch_distributed():
        stages = [stage(number) for number in range(3)]
    found = trained(3, iter(stages).__next__)
    assert found[0][1] == pytest.approx(losses, rel=0, abs=1e-12)
    again = Net()
    again.load_state_dict(found[0][2]["model"])
    assert_close(again.state_dict(), plain.state_dict())

    def wrong(communicator: Any) -> str:
        with pytest.raises(UsageError) as caught:
            made(communicator, stages[0])
        return str(caught.value)

    assert "Stage 1 of 3 was given a PipelineStage 0 of 3" in in_threads(3, wrong)[1]
