"""Time at which gradients are taken: only in backward passes, after the user's hooks, and never from memory in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, loss_of, net, parameters
from paceline.torch.optimizer.hooks import lent


class _Late(torch.autograd.Function):
    """Passes its gradient on after exchanges that began meanwhile have ended."""

    @staticmethod
    def forward(ctx: Any, inputs: Any) -> Any:
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        time.sleep(0.1)
        return gradient * 2


class _Embedded(torch.nn.Module):
    """Tokens with learnt positions and kinds, whose gradients are views of the activation's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)
        self.positions, self.kinds = (torch.nn.Parameter(torch.randn(11, 3)) for _ in range(2))

    def forward(self, tokens: Any) -> Any:
        values = _Late.apply(self.second(self.first(tokens)))
        return values + self.kinds.unsqueeze(0) + self.positions.unsqueeze(0)


def _tokens(rank: int, step: int) -> Any:
    return torch.randn(1, 11, 5, generator=torch.Generator().manual_seed(100 * step + rank))


def _exchanges(size: int) -> dict[str, Any]:
    return {"sync": "sync", "pipelined": "pipelined", "partial": hvd.Partial(quorum=size)}


def _wrapped(model: Any, label: str, exchange: Any = "sync", lr: float = 0.1, **options: Any) -> Any:
    named = [(f"hooks.{label}.{name}", parameter) for name, parameter in model.named_parameters()]
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), named, exchange=exchange, **options)


@ranks(2)
def test_gradients_that_are_views_of_an_activations_gradient(rank: int, size: int) -> None:
    for label, exchange in _exchanges(size).items():
        model, alone = _Embedded(), _Embedded()
        optimizer, plain = _wrapped(model, f"views.{label}", exchange), torch.optim.SGD(alone.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            model(_tokens(rank, step)).pow(2).sum().backward()
            optimizer.step()
            optimizer.drain()
            plain.zero_grad()
            (sum(alone(_tokens(one, step)).pow(2).sum() for one in range(size)) / size).backward()
            plain.step()
            torch.testing.assert_close(parameters(model), parameters(alone), msg=partial("{}: {}".format, label))
        assert_replicas_equal(model, f"hooks.views.{label}")


@ranks(2)
def test_a_gradient_given_by_hand_to_two_parameters(rank: int, size: int) -> None:
    model = torch.nn.ParameterDict({"a": torch.zeros(3), "b": torch.zeros(3)})
    optimizer = _wrapped(model, "by_hand", lr=1.0)
    model["a"].grad = model["b"].grad = torch.full((3,), 2.0 + rank)
    optimizer.step()
    assert [model[name].tolist() for name in "ab"] == [[-2.5] * 3] * 2
    # A user's buffer for all gradients stays in use.
    buffer = torch.zeros(6)
    model["a"].grad, model["b"].grad = buffer[:3], buffer[3:]
    (model["a"] * (1.0 + rank) + model["b"] * (3.0 + rank)).sum().backward()
    optimizer.synchronize()
    assert buffer.tolist() == [1.5] * 3 + [3.5] * 3
    assert model["b"].grad.data_ptr() == buffer[3:].data_ptr()


@ranks(1)
def test_gradients_of_usual_layers_are_not_copied(rank: int, size: int) -> None:
    """Gradients without other users stay where the backward pass stored them, whatever views lie between."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(45, 7),
        torch.nn.Unflatten(1, (1, 7)), torch.nn.TransformerEncoderLayer(7, 1, 9, batch_first=True), torch.nn.LSTM(7, 3),
    )  # fmt: skip
    compiled = torch.compile(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)), backend="aot_eager")
    for module, inputs in ((model, torch.randn(2, 3, 5, 5)), (compiled, torch.randn(1, 5))):
        passed: list[tuple[str, bool, bool]] = []
        nodes = []
        for name, parameter in module.named_parameters():
            nodes.append(torch.autograd.graph.get_gradient_edge(parameter).node)
            nodes[-1].register_hook(partial(_note, name, parameter, passed))
        output = module(inputs)
        (output[0] if isinstance(output, tuple) else output).pow(2).sum().backward()
        assert passed == [(name, True, False) for name, _, _ in passed]
        assert len(passed) == len(nodes)


def _note(name: str, parameter: Any, passed: list[tuple[str, bool, bool]], _: Any, gradients: Any) -> None:
    same = parameter.grad.data_ptr() == gradients[0].data_ptr()
    passed.append((name, same, lent(parameter.grad, gradients[0])))


@ranks(2)
def test_autograd_grad_takes_no_part_in_the_exchange(rank: int, size: int) -> None:
    for label, exchange in _exchanges(size).items():
        model, alone = net(), net()
        optimizer, plain = _wrapped(model, f"grad.{label}", exchange), torch.optim.SGD(alone.parameters(), lr=0.1)

        def penalty(step: int, model: Any = model) -> Any:
            return torch.autograd.grad(loss_of(model, rank, step), list(model.parameters()))

        for step in range(3):
            optimizer.zero_grad()
            if rank == 0:
                penalty(50 + step)
            loss_of(model, rank, step).backward()
            penalty(60 + step)  # while gradients are in flight
            if step == 1:
                optimizer.synchronize()
                combined = [parameter.grad.clone() for parameter in model.parameters()]
                penalty(70 + step)
                assert all(torch.equal(p.grad, was) for p, was in zip(model.parameters(), combined, strict=True))
            optimizer.step()
            optimizer.drain()
            plain.zero_grad()
            (sum(loss_of(alone, one, step) for one in range(size)) / size).backward()
            plain.step()
        torch.testing.assert_close(parameters(model), parameters(alone), msg=partial("{}: {}".format, label))
        assert_replicas_equal(model, f"hooks.grad.{label}")


@ranks(2)
def test_users_hooks_come_first_whenever_they_were_registered(rank: int, size: int) -> None:
    for label, exchange in _exchanges(size).items():
        model, alone = net(), net()

        def late_addition(parameter: Any) -> None:
            time.sleep(0.02)
            parameter.grad.add_(4.0 * rank)

        def register(hook: Callable[[Any], None], model: Any = model) -> None:
            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(hook)

        register(late_addition)
        optimizer, plain = _wrapped(model, f"users.{label}", exchange), torch.optim.SGD(alone.parameters(), lr=0.1)
        register(late_addition)
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient * 3)
        loss_of(model, rank, 0).backward()
        optimizer.step()
        optimizer.drain()
        (sum(3 * loss_of(alone, one, 0) for one in range(size)) / size).backward()
        for parameter in alone.parameters():
            parameter.grad.add_(8.0 * sum(range(size)) / size)
        plain.step()
        torch.testing.assert_close(parameters(model), parameters(alone), msg=partial("{}: {}".format, label))


@ranks(2)
def test_parameters_that_change_under_the_hooks(rank: int, size: int) -> None:
    """Converted, frozen and unfrozen, tied, accumulated from a retained graph: no gradient is missed."""
    model = torch.nn.ParameterDict({name: torch.zeros(3) for name in ("plain", "frozen", "tied")})
    model["frozen"].requires_grad_(False)
    optimizer = _wrapped(model, "changing", lr=1.0, backward_passes_per_step=2)
    optimizer.set_backward_passes_per_step(2)

    def update(*names: str) -> None:
        before = {name: one.detach().clone() for name, one in model.items()}
        optimizer.zero_grad()
        loss = sum((model[name] * (1.0 + rank) * (1 + number)).sum() for number, name in enumerate(names))
        loss.backward(retain_graph=True)
        loss.backward()
        assert len(optimizer._reduction._started) == len(set(names)), "a gradient was not seen"
        with pytest.raises(hvd.UsageError, match=r"computed 3 times"):
            sum(model[name].sum() for name in names[-1:]).backward()
        optimizer.step()
        for name, one in model.items():
            factor = sum(number + 1 for number, other in enumerate(names) if other == name)
            assert torch.equal(before[name] - one, torch.full_like(one, 2 * factor * (size + 1) / 2)), name

    update("plain", "tied", "tied")
    model["frozen"].requires_grad_(True)
    update("plain", "frozen", "tied")
    model["frozen"].requires_grad_(False)
    model.double()
    update("plain", "tied", "tied")
    model["frozen"].requires_grad_(True)
    update("frozen", "tied", "plain")
    model.float().double()  # the type that hooks have seen, by way of another one
    update("tied", "frozen")
