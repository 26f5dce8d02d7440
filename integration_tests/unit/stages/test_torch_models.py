"""Models that are cut by the time their layers take, and those of which a rank builds its own stage alone."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, accumulate, data, momentum, net, sgd, train
from paceline.torch.errors import UsageError
from paceline.torch.stages.timing import seconds_per_layer

mse = nn.functional.mse_loss


class Slow(nn.Module):
    """A layer that takes its time, and counts what it is called for."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.calls = 0

    def forward(self, value: Tensor) -> Tensor:
        self.calls += 1
        time.sleep(self.seconds)
        return value


def test_a_cut_by_time_balances_what_layers_take_on_rank_0() -> None:
    def body(mail: Any) -> tuple[list[str], int]:
        import paceline.torch as hvd

        slow = Slow(0.5)
        # By parameters the last layer would be a stage alone.
        layers = [slow, nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 200)]
        pipeline = hvd.Pipeline(layers, sgd, mse, 2, stages="time", sample=torch.ones(3, 5), mail=mail)
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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, 'stages="time" was given with no sample='),
        ({"sample": torch.ones(3, 6).double()}, "Layer 0 (Linear) cannot be timed on sample=: RuntimeError"),
        ({"sample": "x"}, "Layer 0 (Linear) cannot be timed on sample=: UsageError: What it is given is a str"),
        ({"sample": torch.ones(3, 5).double(), "costs": [1] * 9}, 'stages="time" was given with costs='),
        ({"model": [Slow, Slow], "sample": torch.ones(3, 5)}, "layers that are built where their stages are"),
    ],
)
def test_what_cannot_be_timed_is_refused_on_all_ranks(changed: dict[str, Any], said: str) -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        with pytest.raises(UsageError) as caught:
            hvd.Pipeline(
                **{"model": net(), "stages": "time", **changed}, optimizer=sgd, loss=mse, n_microbatches=2, mail=mail
            )
        return str(caught.value)

    assert all(said in text for text in in_threads(2, body))


def parts(built: list[int]) -> list[Any]:
    """Functions that build the layers of `net`, three at a time; `built` hears which."""

    def part(number: int) -> nn.Module:
        built.append(number)
        return net()[3 * number : 3 * number + 3]

    return [lambda number=number: part(number) for number in range(3)]


@pytest.mark.parametrize("schedule", ["1f1b", "pipemare"])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_rank_builds_its_own_stage_alone(schedule: str, stages: int) -> None:
    given = [data(step, 10) for step in range(8)]

    def body(mail: Any) -> tuple[list[int], dict[str, Any]]:
        built: list[int] = []
        result = train(mail, momentum, given, parts(built), schedule=schedule, max_norm=0.5)
        return built, result

    found = in_threads(stages, body)
    assert [built for built, _ in found] == {1: [[0, 1, 2]], 2: [[0], [1, 2]], 3: [[0], [1], [2]]}[stages]
    plain = nn.Sequential(*(part() for part in parts([])))
    cuts = {1: [], 2: [3], 3: [3, 6]}[stages]
    whole = in_threads(stages, lambda mail: train(mail, momentum, given, schedule=schedule, max_norm=0.5, stages=cuts))
    weights = {name: one for result in whole for name, one in result["weights"].items()}
    ours = {name: one for _, result in found for name, one in result["weights"].items()}
    assert set(ours) == set(plain.state_dict())
    # "1.4.weight" is layer 4, which is in part 1: slices of nn.Sequential keep their names.
    assert all(torch.equal(one, weights[name.partition(".")[2]]) for name, one in ours.items())
    assert all(result["losses"] == whole[0]["losses"] for _, result in found)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ([lambda: nn.Tanh(), lambda: 3], "What builds layer 1 returned a int: expected an nn.Module"),
        ([lambda: nn.Tanh(), lambda value: value], "missing 1 required positional argument"),
        ([nn.Tanh()], "1 layers, and there are 2 stages"),
        ([nn.Tanh(), lambda: nn.Tanh()], "Layer 1 of the model is a function"),
    ],
)
def test_functions_that_build_no_stage_are_named_on_all_ranks(model: list[Any], said: str) -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        with pytest.raises((UsageError, TypeError)) as caught:
            hvd.Pipeline(model, sgd, mse, 2, mail=mail)
        return str(caught.value)

    assert all(said in text for text in in_threads(2, body))


def test_saved_stages_load_into_what_the_functions_build() -> None:
    given = [data(step, 10) for step in range(3)]

    def body(mail: Any) -> Any:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(parts([]), momentum, mse, N, mail=mail)
        for batch in given:
            pipeline.step(*batch)
        return pipeline.consolidate()

    whole = in_threads(3, body)[0]
    plain = nn.Sequential(*(part() for part in parts([])))
    accumulate(plain, momentum, given, N)
    loaded = nn.Sequential(*(part() for part in parts([])))
    loaded.load_state_dict(whole["model"])
    assert all(torch.equal(one, other) for one, other in zip(plain.parameters(), loaded.parameters(), strict=True))
    momentum(loaded.parameters()).load_state_dict(whole["optimizer"])
