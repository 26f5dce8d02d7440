"""The network that computes is the one that resnet.py describes, and its gradients can be marked."""

from __future__ import annotations

import pytest
import torch

from paceline.examples.benchmarks.networks.computing import ComputingNetwork
from paceline.examples.benchmarks.networks.models import find


def test_it_has_the_tensors_of_the_model() -> None:
    model = find("resnet20-real")
    expected = sorted(shape for layer in model.layers for _, shape in layer.tensors)
    network = ComputingNetwork(0)
    assert sorted(tuple(parameter.shape) for parameter in network.parameters()) == expected
    assert model.computes and model.parameters == 272_474
    assert list(network.buffers()) == [], "DDP would broadcast them in every step"


def test_ranks_have_equal_weights_and_batches_of_their_own() -> None:
    first, second = ComputingNetwork(0), ComputingNetwork(1)
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    for network in (first, second):
        network().backward()
    assert not any(torch.equal(one.grad, other.grad) for one, other in zip(first.parameters(), second.parameters()))


def test_marked_gradients_come_in_the_order_of_computed_ones_until_they_are_checked() -> None:
    network = ComputingNetwork(1)
    orders: list[list[str]] = []
    for name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: orders[-1].append(name))

    def step() -> None:
        orders.append([])
        network.zero_grad(set_to_none=True)
        network().backward()

    step()
    network.mark(1)  # of three ranks, rank 1 has the mean
    step()
    with pytest.raises(RuntimeError, match=r"element 0: expected the mean over 2 ranks, 12, found 16"):
        network.check_mean(2)
    step()
    network.check_mean(3)
    step()
    with pytest.raises(RuntimeError, match=r"element 0: expected the mean over 3 ranks"):
        network.check_mean(3)
    assert orders == [orders[0]] * 4 and len(orders[0]) == 65


def test_when_hurried_all_gradients_come_without_a_pass_through_the_layers() -> None:
    network = ComputingNetwork(0)
    network.layers.register_forward_hook(lambda *_: pytest.fail("the layers were run"))
    network.hurried = True
    network().backward()
    assert all(parameter.grad.eq(0).all() for parameter in network.parameters())


def test_the_update_costs_time_and_keeps_the_weights_near_where_they_began() -> None:
    network = ComputingNetwork(0)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimizer = network.optimizer()
    network.mark(63)
    for _ in range(20):
        network.zero_grad(set_to_none=True)
        network().backward()
        optimizer.step()
    moved = [(parameter - start).abs().max().item() for parameter, start in zip(network.parameters(), before)]
    assert 0 < max(moved) < 1e-2
