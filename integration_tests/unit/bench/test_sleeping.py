"""The sleeping network behaves as a network to whoever looks at its gradients."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from paceline.examples.benchmarks.networks.layers import dense
from paceline.examples.benchmarks.networks.models import MODELS, Model, find
from paceline.examples.benchmarks.networks.sleeping import NoUpdate, SleepingNetwork


@pytest.mark.parametrize("name", ["mini", "resnet20"])
def test_every_parameter_gets_a_gradient_of_its_own_shape(name: str) -> None:
    model = find(name)
    network = SleepingNetwork(model)
    network().backward()
    expected = [shape for layer in model.layers for _, shape in layer.tensors]
    assert [tuple(parameter.shape) for parameter in network.parameters()] == expected
    assert [tuple(parameter.grad.shape) for parameter in network.parameters()] == expected
    assert all(parameter.grad.dtype == torch.float32 for parameter in network.parameters())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_there_is_a_network_of_every_model(name: str) -> None:
    model = find(f"{name}-x0.001")
    network = SleepingNetwork(model)
    network.hurried = True
    network().backward()
    expected = [shape for layer in model.layers for _, shape in layer.tensors]
    assert [tuple(parameter.grad.shape) for parameter in network.parameters()] == expected


def test_passes_take_at_least_their_time() -> None:
    model = find("resnet20")
    network = SleepingNetwork(model)
    for _ in range(3):
        begin_s = time.monotonic()
        loss = network()
        middle_s = time.monotonic()
        loss.backward()
        end_s = time.monotonic()
        assert middle_s - begin_s >= model.forward_ms / 1e3
        assert end_s - middle_s >= model.backward_ms / 1e3


def test_a_hurried_network_gives_its_gradients_at_once() -> None:
    network = SleepingNetwork(find("vgg16-x0.001"))
    network.hurried = True
    begin_s = time.monotonic()
    network().backward()
    assert time.monotonic() - begin_s < 0.5  # of 1.65
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_gradients_appear_from_the_last_layer_to_the_first_and_none_before_its_time() -> None:
    model = find("resnet20")
    network = SleepingNetwork(model)
    names = [name for name, _ in network.named_parameters()]
    seen: list[tuple[str, float]] = []

    def note(name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: seen.append((name, time.monotonic()))

    for name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(note(name))
    loss = network()
    begin_s = time.monotonic()
    loss.backward()
    # The tensors of one layer come together, in an order of autograd's own.
    assert [name.rpartition(".")[0] for name, _ in seen] == [name.rpartition(".")[0] for name in reversed(names)]
    assert sorted(name for name, _ in seen) == sorted(names)
    at_s = dict(seen)
    elapsed_s = 0.0
    for layer, share in zip(reversed(model.layers), reversed(model.shares), strict=True):
        elapsed_s += share * model.backward_ms / 1e3
        for name, _ in layer.tensors:
            assert at_s[f"{layer.name.replace('.', '_')}.{name}"] - begin_s >= elapsed_s - 1e-6


def test_gradients_are_taken_over_without_a_copy_in_every_step() -> None:
    network = SleepingNetwork(find("mini"))
    places = [gradient.data_ptr() for layer in network.layers for gradient in layer.gradients]
    for _ in range(3):
        network.zero_grad(set_to_none=True)
        network().backward()
        assert [parameter.grad.data_ptr() for parameter in network.parameters()] == places
    storages = {parameter.grad.untyped_storage().data_ptr() for parameter in network.parameters()}
    assert len(storages) == len(places), "every gradient has memory of its own"


def test_what_a_system_writes_into_a_gradient_stays_and_touches_no_other() -> None:
    network = SleepingNetwork(find("mini"))
    network().backward()
    first, *others = list(network.parameters())
    first.grad.fill_(7)
    network.zero_grad(set_to_none=True)
    network().backward()
    assert first.grad.eq(7).all() and all(other.grad.eq(0).all() for other in others)


def test_marked_gradients_pass_the_check_only_when_they_are_the_mean() -> None:
    network = SleepingNetwork(find("mini"))
    network.mark(1)  # of three ranks, rank 1 has the mean
    network().backward()
    network.check_mean(3)
    with pytest.raises(RuntimeError, match=r"gradient of conv.weight, element 0: expected .* 2 ranks, 12, found 16"):
        network.check_mean(2)
    list(network.parameters())[3].grad.view(-1)[29] += 1
    with pytest.raises(RuntimeError, match=r"gradient of hidden.weight, element 29: expected .* 22, found 23"):
        network.check_mean(3)
    network.zero_grad(set_to_none=True)
    with pytest.raises(RuntimeError, match=r"conv.weight has no gradient"):
        network.check_mean(3)


def test_each_mark_differs_from_the_one_before() -> None:
    network = SleepingNetwork(find("mini"))
    for _ in range(3):
        network.mark(0)
        network.zero_grad(set_to_none=True)
        network().backward()
        network.check_mean(1)
        with pytest.raises(RuntimeError, match="gradients of this very step were used"):
            network.check_not_yet(1)
        before = [parameter.grad.clone() for parameter in network.parameters()]
        network.mark(0)
        assert not any(
            torch.equal(parameter.grad, old) for parameter, old in zip(network.parameters(), before, strict=True)
        )
        for parameter, old in zip(network.parameters(), before, strict=True):
            parameter.grad.copy_(old)
        network.check_not_yet(1)


def test_marks_and_check_go_through_the_parts_of_a_large_gradient() -> None:
    network = SleepingNetwork(Model("one", (dense("large", 1000, 1003),), 1.0))
    network.mark(0)
    network().backward()
    network.check_mean(1)
    place = 13 * 2**16 + 5  # the sixth element of the second part
    assert network.layers[0].gradients[0].view(-1)[place] == 8 + 5
    network.layers[0].gradients[0].view(-1)[place] = 9
    with pytest.raises(RuntimeError, match=f"gradient of large.weight, element {place}: expected .* 13, found 9"):
        network.check_mean(1)


def test_no_update_leaves_parameters_alone() -> None:
    network = SleepingNetwork(find("mini"))
    network.mark(0)
    network().backward()
    NoUpdate(network.parameters()).step()
    assert all(parameter.eq(0).all() for parameter in network.parameters())
