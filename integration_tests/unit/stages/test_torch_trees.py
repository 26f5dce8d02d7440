"""Batches and activations that are dictionaries, named tuples, dataclasses, numbers and None."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from integration_tests.support.more import more
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import accumulate, sgd
from integration_tests.unit.stages.pipelines import made

WIDTH = 5


class Pair(NamedTuple):
    hidden: Tensor
    mask: Tensor | None


@dataclasses.dataclass
class State:
    """As Hugging Face's outputs: members may be None, and a member may be a tree."""

    pair: Pair
    past: tuple[Tensor, ...] | None = None
    position: int = 0
    scale: float = 1.0
    kind: str = "plain"
    cached: bool = False


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """Registered by its library, as transformers does with its outputs."""


def _output(values: Any, keys: Any) -> Output:
    return Output(zip(keys, values, strict=True))


pytree.register_pytree_node(Output, lambda one: (list(one.values()), list(one)), _output)


class First(nn.Module):
    """Takes a dictionary, returns a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, batch: dict[str, Any]) -> State:
        assert batch["labels"] is None
        made = self.layer(batch["values"]) * batch["factor"]
        return State(Pair(made, batch["mask"]), position=batch["position"] + 1, scale=batch["factor"] / 4)


class Second(nn.Module):
    """Takes a dataclass, returns what a library registered."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, state: State) -> Output:
        assert type(state) is State
        assert (state.past, state.kind, state.cached) == (None, "plain", False)
        assert type(state.position) is int
        assert type(state.scale) is float
        made = self.layer(state.pair.hidden).tanh() * state.scale + state.position / 20
        return Output(pairs=[Pair(made, state.pair.mask), Pair(state.pair.hidden, None)], count=state.position)


class Third(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2, dtype=torch.float64)

    def forward(self, given: Output) -> dict[str, Tensor]:
        assert type(given) is Output
        (made, mask), (before, none) = given["pairs"]
        assert none is None
        return {"logits": self.layer((made + before) * mask[:, None])}


def model() -> list[nn.Module]:
    torch.manual_seed(2)
    return [First(), Second(), Third()]


def batch(step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    random = torch.Generator().manual_seed(step)
    rows = (6, 7)[step % 2]
    values = torch.randn(rows, WIDTH, generator=random, dtype=torch.float64)
    inputs = {"values": values, "mask": values[:, 0] > -1, "labels": None, "position": step, "factor": 2.5}
    return inputs, {"goal": torch.randn(rows, 2, generator=random, dtype=torch.float64), "weight": 3}


def loss(output: dict[str, Tensor], target: dict[str, Any]) -> Tensor:
    return ((output["logits"] - target["goal"]) ** 2).mean() * target["weight"]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [more(1), more(2), 3])
@pytest.mark.parametrize("recompute", [False, True])
def test_trees_equal_one_process(schedule: str, stages: int, recompute: bool) -> None:
    models = [model() for _ in range(stages)]

    def body(mail: Any) -> tuple[dict[str, Tensor], list[float], Any, int]:
        pipeline = made(mail, models[mail.rank], loss=loss, schedule=schedule, recompute=recompute)
        losses = [pipeline.step(*batch(step)).item() for step in range(20)]
        output = pipeline.predict(batch(0)[0])
        signatures = len(pipeline._executor._departures._known)
        weights = dict(pipeline.state_dict()["model"])
        pipeline.close()
        return weights, losses, output, signatures

    plain = nn.Sequential(*model())
    losses = accumulate(plain, sgd, map(batch, range(20)), 3, loss=loss)
    weights = plain.state_dict()
    for found, told, output, signatures in in_threads(stages, body):
        for name, one in found.items():
            assert torch.equal(one, weights[name]), name
        assert told == losses
        torch.testing.assert_close(output["logits"], plain(batch(0)[0])["logits"].detach(), rtol=0, atol=1e-15)
        # Numbers that change, such as positions, are no signatures of their own, which both ends keep.
        assert signatures <= 4


def test_a_dataclass_that_a_user_registers_is_left_alone() -> None:
    @dataclasses.dataclass
    class Mine:
        value: Any

    from paceline.torch.stages import trees

    pytree.register_dataclass(Mine)
    leaves, spec = trees.flattened(Mine(torch.zeros(2)))
    assert len(leaves) == 1
    assert type(spec.unflatten(leaves)) is Mine


def test_layers_that_take_trees_are_timed() -> None:
    def body(mail: Any) -> list[str]:
        pipeline = made(mail, model(), loss=loss, stages="time", sample=batch(0)[0])
        cut = list(pipeline.cut)
        pipeline.close()
        return cut

    first, second = in_threads(2, body)
    assert first == second
    assert first[0] == "0"
