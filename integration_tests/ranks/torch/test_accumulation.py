"""Several backward passes for one update, counted by the wrapper or by the caller; closures; zero_grad."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, closure_of, loss_of, net, parameters, train


def _optimizer(model: torch.nn.Module, passes: int, **options: Any) -> Any:
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )


@ranks(2)
def test_set_to_none_is_passed_on(rank: int, size: int) -> None:
    model = net()
    optimizer = _optimizer(model, 1)
    loss_of(model, rank, 0).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(parameter.grad.abs().sum() == 0 for parameter in model.parameters())
    loss_of(model, rank, 1).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    assert all(parameter.grad is None for parameter in model.parameters())
    loss_of(model, rank, 2).backward()
    optimizer.step()
    assert_replicas_equal(model, "accumulation.none")


@ranks(2)
def test_a_pass_too_many_is_an_error_that_names_the_gradient(rank: int, size: int) -> None:
    """It is refused before it touches a gradient in flight: the update is that of the passes before it."""
    expected = net()
    train(expected, _optimizer(expected, 1), rank, steps=1)
    model = net()
    optimizer = _optimizer(model, 1)
    loss_of(model, rank, 0).backward()
    with pytest.raises(hvd.UsageError, match=r"'2\.(weight|bias)' was computed 2 times(.|\n)*backward_passes_per_step"):
        loss_of(model, rank, 1).backward()
    optimizer.step()
    assert torch.equal(parameters(model), parameters(expected))
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    for batch in range(2):
        loss_of(model, rank, batch).backward()
    optimizer.step()
    assert optimizer.backward_passes_per_step == 2
    assert_replicas_equal(model, "accumulation.too_many")


@ranks(2)
def test_zero_grad_while_gradients_are_in_flight(rank: int, size: int) -> None:
    model = net()
    optimizer = _optimizer(model, 1)
    loss_of(model, rank, 0).backward()
    with pytest.raises(hvd.UsageError, match=r"zero_grad\(\) was called between backward\(\) and step\(\)"):
        optimizer.zero_grad()
    with optimizer.skip_synchronize(), pytest.raises(hvd.UsageError, match="still in flight"):
        optimizer.step()
    # The remedy that the message gives:
    optimizer.synchronize()
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


@ranks(2)
def test_an_accumulation_can_be_ended_early_and_dropped(rank: int, size: int) -> None:
    model = net()
    start = parameters(model)
    optimizer = _optimizer(model, 4)
    loss_of(model, rank, 0).backward()
    optimizer.step()
    assert torch.equal(parameters(model), start)
    optimizer.synchronize()
    optimizer.zero_grad()
    loss_of(model, rank, 1).backward()
    optimizer.synchronize()
    optimizer.step()
    assert not torch.equal(parameters(model), start)
    assert_replicas_equal(model, "accumulation.early")


@ranks(2)
def test_closures_see_combined_gradients_and_the_same_loss(rank: int, size: int) -> None:
    """LBFGS evaluates the closure depending on the loss: ranks with different losses would diverge."""
    model, alone = net(), net()
    held, plain = (
        torch.optim.LBFGS(one.parameters(), max_iter=8, line_search_fn="strong_wolfe") for one in (model, alone)
    )
    optimizer = hvd.DistributedOptimizer(held, model.named_parameters())
    distributed = closure_of(optimizer, lambda: loss_of(model, rank, 0))
    together = closure_of(plain, lambda: sum(loss_of(alone, other, 0) for other in range(size)) / size)
    losses = [(optimizer.step(distributed).item(), plain.step(together).item()) for _ in range(3)]
    ours, theirs = torch.tensor(losses).T
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(parameters(model), parameters(alone), rtol=1e-2, atol=1e-3)
    assert_replicas_equal(model, "closure.search")


@ranks(2)
def test_a_closure_may_return_a_number_or_nothing(rank: int, size: int) -> None:
    model = net()
    optimizer = _optimizer(model, 1)

    def closure(answer: Any) -> Any:
        optimizer.zero_grad()
        loss_of(model, rank, 0).backward()
        return answer

    assert optimizer.step(lambda: closure(float(rank))) == (size - 1) / 2
    assert optimizer.step(lambda: closure(None)) is None
    # A loss whose backward pass was made outside:
    optimizer.zero_grad()
    loss = loss_of(model, rank, 1)
    loss.backward()
    optimizer.step(lambda: loss)
    assert_replicas_equal(model, "closure.numbers")


@ranks(2)
def test_the_rest_of_an_epoch_after_a_drain(rank: int, size: int) -> None:
    """Two of four passes and one step() make an update, also with a drain() in between."""
    for exchange in ("sync", "pipelined", hvd.Partial(quorum=size), "local"):
        weight = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), [(f"rest.{exchange}", weight)],
            backward_passes_per_step=4, exchange=exchange,
        )  # fmt: skip
        for passes in (4, 2, 4, 2):
            optimizer.zero_grad()
            for _ in range(passes):
                (weight * 2.0).sum().backward()
            optimizer.step()
            optimizer.drain()
        assert weight.tolist() == [-24.0] * 3, exchange
