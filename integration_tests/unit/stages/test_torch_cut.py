"""Where models are cut, and what of them a stage keeps."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import nn

from integration_tests.support.stage_training import net
from paceline.stages.execution.cut import balanced, first_layers
from paceline.stages.execution.sharing import refuse_shared
from paceline.torch.errors import UsageError
from paceline.torch.stages.layers import Stage, free, layers_of


def names(model: object) -> list[str]:
    return [layer.name for layer in layers_of(model)]


def nested() -> nn.Sequential:
    features = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    model = nn.Sequential()
    model.add_module("features", features)
    model.add_module("head", nn.Linear(3, 1))
    return model


def test_nested_sequentials_without_hooks_are_taken_apart_and_keep_their_names() -> None:
    model = nested()
    assert names(model) == ["features.0", "features.1", "features.2.0", "features.2.1", "head"]
    assert names([nn.Linear(1, 1), nn.Sequential(nn.ReLU(), nn.Tanh())]) == ["0", "1.0", "1.1"]
    model[0][2].register_forward_hook(lambda *_: None)
    assert names(model) == ["features.0", "features.1", "features.2", "head"]


def most(costs: list[int], firsts: tuple[int, ...] | list[int]) -> int:
    return max(sum(costs[begin:end]) for begin, end in itertools.pairwise([*firsts, len(costs)]))


def test_the_most_costly_stage_costs_as_little_as_it_can() -> None:
    numbers = random.Random(3)
    for _ in range(60):
        costs = [numbers.randrange(9) for _ in range(numbers.randrange(1, 8))]
        for stages in range(1, len(costs) + 1):
            found = balanced(costs, stages)
            assert found[0] == 0
            assert len(found) == stages
            assert found == sorted(set(found))
            cuts = itertools.combinations(range(1, len(costs)), stages - 1)
            assert most(costs, found) == min(most(costs, (0, *one)) for one in cuts), (costs, stages, found)


def test_cuts_are_by_parameters_by_costs_or_at_numbers_or_names() -> None:
    layers = layers_of([nn.Linear(9, 9), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)])
    assert first_layers(layers, 2, "auto") == [0, 1]
    assert first_layers(layers, 2, "auto", [1, 1, 1, 1]) == [0, 2]
    assert first_layers(layers, 2, "auto", [1, 1, 1, 9]) == [0, 3]
    layers = layers_of(nested())
    assert first_layers(layers, 3, [1, 4]) == [0, 1, 4]
    assert first_layers(layers, 3, ["features.2", "head"]) == [0, 2, 4]


@pytest.mark.parametrize(
    ("stages", "asked", "costs", "said"),
    [
        (6, "auto", None, "5 layers, and there are 6 stages"),
        (2, "Auto", None, "stages='Auto' is not known"),
        (2, ["haed"], None, "Did you mean head?"),
        (2, [0], None, "expected a number from 1 to 4"),
        (2, [5], None, "expected a number from 1 to 4"),
        (2, [True], None, "expected a number from 1 to 4"),
        (2, [1, 2], None, "makes 3 stages, expected 2"),
        (3, [2, 2], None, "expected them to rise"),
        (3, ["head", 1], None, "expected them to rise"),
        (2, "auto", [1, 2], "costs= has 2 values: expected 5"),
        (2, "auto", [1, 2, 3, 4, -1], "costs= has 5 values"),
    ],
)
def test_what_cannot_be_cut_so(stages: int, asked: object, costs: list[float] | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        first_layers(layers_of(nested()), stages, asked, costs)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no layers"):
        layers_of([])


def test_a_tensor_of_two_stages_is_refused() -> None:
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)
    last.weight = first.weight
    layers = layers_of([first, nn.ReLU(), last])
    refuse_shared("tensor", (layer.tensors() for layer in layers), [0])
    with pytest.raises(UsageError, match=r"2\.weight of stage 1 is the same tensor as 0\.weight of stage 0"):
        refuse_shared("tensor", (layer.tensors() for layer in layers), [0, 1])


def test_a_stage_has_its_layers_alone_under_the_names_of_the_whole() -> None:
    model, plain = net(), net()
    layers = layers_of(model)
    stage = Stage([one.built() for one in layers[2:5]])
    free([*layers[:2], *layers[5:]])
    assert stage.names == ["2.weight", "2.bias", "4.weight", "4.bias"]
    assert [one.device.type for one in model.parameters()] == ["meta"] * 2 + ["cpu"] * 4 + ["meta"] * 4
    for name, one in stage.state_dict().items():
        assert torch.equal(one, plain.state_dict()[name])
    changed = {name: one + 1 for name, one in plain.state_dict().items()}
    stage.load_state_dict(changed)
    assert torch.equal(stage.parameters[2], changed["4.weight"])
    with pytest.raises(UsageError, match=r"lacks 1 tensors of this stage, 4\.bias"):
        stage.load_state_dict({name: one for name, one in changed.items() if name != "4.bias"})
