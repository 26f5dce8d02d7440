"""Models that torch.distributed.pipelining has traced or cut: equal to the model itself in one process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline

from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, accumulate, momentum, sgd
from paceline.torch.errors import UsageError

mse = nn.functional.mse_loss
WIDTH, ROWS = 5, 2


class Net(nn.Module):
    """What stage 0 makes is used by stages 1 and 2, and the input by the last one; `scale` is of no submodule."""

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


_ONE_AT_A_TIME = threading.Lock()


def piped(model: nn.Module) -> Any:
    with _ONE_AT_A_TIME:
        return pipeline(model, (SAMPLE,), split_spec=dict.fromkeys(CUTS, SplitPoint.BEGINNING))


def trained(mail: Any, model: Any, **arguments: Any) -> tuple[dict[str, Tensor], list[float], Any]:
    import paceline.torch as hvd

    made = hvd.Pipeline(model, momentum, mse, N, mail=mail, **arguments)
    losses = [made.step(*data(step)).item() for step in range(6)]
    losses += [loss.item() for loss in made.drain()]
    whole = made.consolidate()
    made.close()
    return made.state_dict()["model"], losses, whole


@pytest.mark.parametrize("how", ["named", "Pipe", "Pipe on two ranks"])
def test_a_traced_model_equals_the_model_itself(how: str) -> None:
    plain = Net()
    losses = accumulate(plain, momentum, [data(step) for step in range(6)], N)

    def body(mail: Any) -> Any:
        if how == "named":
            return trained(mail, Net(), stages=CUTS, sample=SAMPLE)
        return trained(mail, piped(Net()))

    found = in_threads(2 if how == "Pipe on two ranks" else 3, body)
    weights = {name: one for own, _, _ in found for name, one in own.items()}
    assert set(weights) == set(plain.state_dict())
    for name, one in plain.state_dict().items():
        assert torch.allclose(weights[name], one, rtol=0, atol=1e-12), name
    assert found[0][1] == pytest.approx(losses, rel=0, abs=1e-12)
    # The whole is a state of the model that was traced.
    again = Net()
    again.load_state_dict(found[0][2]["model"])
    assert set(found[0][2]["optimizer"]["param_groups"][0]["param_names"]) == {
        name for name, _ in plain.named_parameters()
    }


class First(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.first = net.first

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(value).tanh(), value


class Middle(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.scale, self.middle = net.scale, net.middle

    def forward(self, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self.middle(given[0]) * self.scale + given[0], given[1]


class Last(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.last = net.last

    def forward(self, given: tuple[Tensor, Tensor]) -> Tensor:
        return self.last(given[0]) + given[1]


@pytest.mark.parametrize("arguments", [{"correction": 0.4}, {"recompute": True}], ids=lambda one: "-".join(one))
def test_a_traced_model_under_pipemare_equals_stages_written_by_hand(arguments: dict[str, Any]) -> None:
    chosen = {"schedule": "pipemare", **arguments}
    traced = in_threads(3, lambda mail: trained(mail, Net(), stages=CUTS, sample=SAMPLE, **chosen))

    def by_hand(mail: Any) -> Any:
        net = Net()
        return trained(mail, [First(net), Middle(net), Last(net)], **chosen)

    written = in_threads(3, by_hand)
    assert traced[0][1] == pytest.approx(written[0][1], rel=0, abs=1e-12)
    for (ours, _, _), (theirs, _, _) in zip(traced, written, strict=True):
        plain = {name.partition(".")[2]: one for name, one in theirs.items()}
        assert set(ours) == set(plain)
        assert all(torch.allclose(one, plain[name], rtol=0, atol=1e-12) for name, one in ours.items())


def test_a_model_of_several_inputs() -> None:
    weight = torch.full((N * ROWS, WIDTH), 2.0, dtype=torch.float64)

    def body(mail: Any) -> float:
        import paceline.torch as hvd

        made = hvd.Pipeline(Net(), sgd, mse, N, mail=mail, stages=CUTS, sample=(SAMPLE, SAMPLE))
        return made.step((data(0)[0], weight), data(0)[1]).item()

    expected = mse(Net()(data(0)[0], weight), data(0)[1]).item()
    assert in_threads(3, body) == [pytest.approx(expected, rel=0, abs=1e-12)] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"stages": ["middle", "lsat"]}, "stages= names 'lsat': expected a submodule of the Net"),
        ({"stages": ["middle"]}, "makes 2 stages, expected 3"),
        ({"stages": [1, 2]}, "by which it is traced"),
        ({"stages": "auto"}, "stages='auto' was given with a Net and sample="),
        ({"sample": torch.ones(2, 3)}, "torch.distributed.pipelining could not trace the Net"),
        ({"sample": None}, "cannot cut a Net"),
    ],
)
def test_what_cannot_be_traced_is_refused(arguments: dict[str, Any], said: str) -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        with pytest.raises(UsageError) as caught:
            hvd.Pipeline(Net(), sgd, mse, N, mail=mail, **{"stages": CUTS, "sample": SAMPLE, **arguments})
        return str(caught.value)

    for text in in_threads(3, body):
        assert said in text


def test_other_shapes_than_traced_end_all_stages() -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        made = hvd.Pipeline(Net(), sgd, mse, N, mail=mail, stages=CUTS, sample=SAMPLE)
        with pytest.raises(Exception) as caught:  # of whom ends first, others may hear before their first step is over
            made.step(*data(0))
            made.step(*data(1, N * ROWS + 1))
        return str(caught.value)

    for text in in_threads(3, body):
        assert "A micro-batch has the shapes [(3, 5)]: the model was traced with [(2, 5)]" in text


def test_a_model_traced_in_train_mode_is_not_evaluated_as_if_it_knew_better() -> None:
    def body(mail: Any) -> None:
        import paceline.torch as hvd

        made = hvd.Pipeline(Net(dropout=0.5), sgd, mse, N, mail=mail, stages=CUTS, sample=SAMPLE)
        with pytest.raises(UsageError, match=r"traced in train mode, and does aten.dropout"):
            made.evaluate(*data(0))
        made.step(*data(0))
        made.close()
        net = Net()
        net.drop = nn.Identity()
        plain = hvd.Pipeline(net, sgd, mse, N, mail=mail, stages=CUTS, sample=SAMPLE)
        assert plain.evaluate(*data(0)).item() == pytest.approx(mse(Net()(data(0)[0]), data(0)[1]).item(), abs=1e-12)

    in_threads(3, body)


@contextlib.contextmanager
def torch_distributed() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("traced", [True, False])
def test_stages_of_torch_are_taken(traced: bool) -> None:
    plain = Net()
    losses = accumulate(plain, momentum, [data(step) for step in range(6)], N)

    def stage(number: int) -> Any:
        if traced:
            return piped(Net()).build_stage(number, torch.device("cpu"))
        net = Net()
        return PipelineStage(
            [_Pair(First(net)), _Pair(Middle(net)), _Pair(Last(net))][number], number, 3, torch.device("cpu")
        )

    with torch_distributed():
        stages = [stage(number) for number in range(3)]
    found = in_threads(3, lambda mail: trained(mail, stages[mail.rank]))
    assert found[0][1] == pytest.approx(losses, rel=0, abs=1e-12)
    again = Net()
    again.load_state_dict({name.removeprefix("of."): one for name, one in found[0][2]["model"].items()})
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)

    def wrong(mail: Any) -> str:
        with pytest.raises(UsageError) as caught:
            trained(mail, stages[0])
        return str(caught.value)

    assert "Stage 1 of 3 was given a PipelineStage 0 of 3" in in_threads(3, wrong)[1]


class _Pair(nn.Module):
    """Takes tensors as arguments of their own, as stages of torch.distributed.pipelining do."""

    def __init__(self, of: nn.Module) -> None:
        super().__init__()
        self.of = of

    def forward(self, *values: Tensor) -> Any:
        return self.of(values[0] if len(values) == 1 else values)


def test_names_that_two_stages_share_are_refused() -> None:
    with torch_distributed():
        stages = [PipelineStage(nn.Linear(WIDTH, WIDTH), number, 2, torch.device("cpu")) for number in range(2)]

    def body(mail: Any) -> str:
        with pytest.raises(UsageError) as caught:
            trained(mail, stages[mail.rank])
        return str(caught.value)

    for text in in_threads(2, body):
        assert "A parameter of stage 1 has the name of one of stage 0, weight" in text
