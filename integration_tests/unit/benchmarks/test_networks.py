"""Networks of the benchmarks: published sizes, passes that take their time, and gradients that tell whose they are."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import UserError
from paceline.examples.benchmarks.networks.computing import ComputingNetwork
from paceline.examples.benchmarks.networks.models import MODELS, find
from paceline.examples.benchmarks.networks.sleeping import SleepingNetwork


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [
        ("resnet20", 65, 272_474),
        ("resnet50", 161, 25_557_032),
        ("bert-base", 199, 109_482_240),
        ("vgg16", 32, 138_357_544),
        ("lstm", 10, 51_034_000),
    ],
)
def test_tensors_and_parameters_are_the_published_ones(name: str, tensors: int, parameters: int) -> None:
    model = find(name)
    assert (model.tensors, model.parameters) == (tensors, parameters)


@pytest.mark.parametrize("model_name", MODELS)
def test_every_parameter_of_every_model_gets_a_gradient_from_the_last_layer_on(model_name: str) -> None:
    model = find(f"{model_name}-x0.001")
    network, seen = SleepingNetwork(model), []
    network.hurried = True
    for name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name.rpartition(".")[0]))
    network().backward()
    assert seen == [name.rpartition(".")[0] for name, _ in network.named_parameters()][::-1], "from the last layer on"
    shapes = [shape for layer in model.layers for _, shape in layer.tensors]
    assert [tuple(parameter.grad.shape) for parameter in network.parameters()] == shapes
    assert sum(model.shares) == pytest.approx(1)


def test_factors_scale_sizes_and_times() -> None:
    whole, both = find("bert-base"), find("bert-base-x0.02-t0.5")
    assert both.tensors == whole.tensors and both.compute_ms == whole.compute_ms / 2
    assert both.parameters == pytest.approx(whole.parameters / 50, abs=whole.tensors / 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [("resnet5O", "Did you mean resnet50?"), ("mini-x0", "The factor '0'"), ("mini-t0.5-x1", "no model")],
)
def test_a_name_that_cannot_be_used_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        find(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", ["sleeping", "computing"])
def test_marked_gradients_pass_the_check_only_when_they_are_the_mean(kind: str) -> None:
    network = SleepingNetwork(find("mini")) if kind == "sleeping" else ComputingNetwork(1)
    network.mark(1)  # of three ranks, rank 1 has the mean
    network().backward()
    with pytest.raises(RuntimeError, match=r"element 0: expected the mean over 2 ranks, 12, found 16"):
        network.check_mean(2)
    with pytest.raises(RuntimeError, match="gradients of this very step were used"):
        network.check_not_yet(3)
    list(network.parameters())[3].grad.view(-1)[2] += 1
    with pytest.raises(RuntimeError, match=r"element 2: expected"):
        network.check_mean(3)
    network.zero_grad(set_to_none=True)
    with pytest.raises(RuntimeError, match=r"has no gradient"):
        network.check_mean(3)
    network.mark(0)
    network().backward()
    network.check_mean(1)


def test_the_network_that_computes_has_the_tensors_of_its_model() -> None:
    shapes = sorted(shape for layer in find("resnet20-real").layers for _, shape in layer.tensors)
    network = ComputingNetwork(0)
    assert sorted(tuple(parameter.shape) for parameter in network.parameters()) == shapes
    assert list(network.buffers()) == [], "DDP would broadcast them in every step"
    assert all(map(torch.equal, network.parameters(), ComputingNetwork(1).parameters()))
