"""Backward passes at other weights than those of the forward pass, with autograd's check of versions."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from paceline.torch.stages import saved
from paceline.torch.stages.weights import Weights


def test_weights_are_replaced_where_they_were_saved() -> None:
    layer, value = nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    weights = list(layer.parameters())
    output = layer(value)
    assert saved.replace([output], weights, lambda number: 2 * weights[number].detach()) == 1
    output.sum().backward()
    assert torch.allclose(value.grad, torch.ones(4, 2) @ (2 * layer.weight))
    assert torch.allclose(layer.weight.grad, torch.ones(2, 4) @ value)


def test_parts_of_a_weight_and_weights_of_one_memory_are_told_apart() -> None:
    memory = torch.randn(12)
    first, second = nn.Parameter(memory[:6].view(2, 3)), nn.Parameter(memory[6:].view(3, 2))
    value = torch.randn(4, 3, requires_grad=True)
    output = value @ second[:, 1:] + (value @ first.T)[:, :1]
    instead = [10 * first.detach(), 100 * second.detach()]
    assert saved.replace([output], [first, second], lambda number: instead[number]) == 2
    output.sum().backward()
    expected = torch.ones(4, 1) @ instead[1][:, 1:].T + torch.tensor([[1.0, 0.0]]).expand(4, 2) @ instead[0]
    assert torch.allclose(value.grad, expected)


def test_convolutions_and_norms() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 1))
    weights = list(model.parameters())
    value = torch.randn(3, 2, 5, requires_grad=True)
    output = model(value)
    assert saved.replace([output], weights, lambda number: torch.zeros_like(weights[number])) >= 4
    output.sum().backward()
    assert not value.grad.any()


@pytest.mark.parametrize("change", ["output", "input"])
def test_autograd_still_refuses_what_was_changed_in_place(change: str) -> None:
    layer = nn.Linear(3, 3)
    weights = list(layer.parameters())
    value = torch.randn(2, 3)
    hidden = layer(value).tanh()
    output = layer(hidden)
    assert saved.replace([output], weights, lambda number: weights[number].detach())
    (hidden if change == "output" else value).detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_what_checkpoints_hide_is_left_alone() -> None:
    layer, value = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    output = checkpoint(layer, value, use_reentrant=False)
    saved.replace([output], list(layer.parameters()), lambda number: torch.zeros(()))
    assert len(calls) == 1, "computed again before the backward pass"
    output.sum().backward()
    assert torch.allclose(value.grad, torch.ones(2, 3) @ layer.weight)


def one_more(weights: Weights) -> None:
    with torch.no_grad():
        for one in weights.parameters:
            one.add_(1)


@pytest.mark.parametrize("keep", [False, True])
def test_an_update_between_the_passes(keep: bool) -> None:
    """It changes the weights of the backward pass, but where older ones are kept: while somebody refers to them."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    parameters = list(module.parameters())
    weights = Weights(module, parameters)
    value = torch.randn(4, 3, requires_grad=True)
    used, before = weights.newest, [one.detach().clone() for one in parameters]
    with weights.lent():
        weights.use(used)
        output = module(value)
    assert all(mine is theirs for mine, theirs in zip(parameters, module.parameters(), strict=True))
    hidden = (value @ parameters[0].T + parameters[1]).tanh().detach()
    weights.update(lambda: one_more(weights), keep=keep, as_previous=False)
    assert torch.equal(parameters[0], before[0] + 1)
    assert weights.copies == 1 + keep
    weights.accumulate(used if keep else weights.newest, output.sum().backward)
    backward = before if keep else parameters
    gradient = (torch.ones(4, 2) @ backward[2]) * (1 - hidden**2)
    assert torch.allclose(value.grad, gradient @ backward[0])
    assert torch.allclose(parameters[0].grad, gradient.T @ value)
    del used, output
    assert weights.copies == 1


def test_recurrent_layers_compute_with_what_is_lent_to_them() -> None:
    module = nn.Sequential(nn.LSTM(3, 2))
    weights = Weights(module, list(module.parameters()))
    value = torch.randn(5, 1, 3)
    output, _ = module(value)
    doubled = weights.corrected(lambda number: 2 * weights.parameters[number])
    with weights.lent():
        weights.use(doubled)
        assert not torch.equal(module(value)[0], output)
    assert torch.equal(module(value)[0], output)
