"""Several backward passes for one update, counted by the wrapper or by the caller; closures; zero_grad."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, loss_of, net, parameters, train


def _optimizer(model: torch.nn.Module, passes: int, **options: Any) -> Any:
    import paceline.torch as hvd

    hvd.init()
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )


@ranks(2)
def test_step_and_zero_grad_after_every_pass(rank: int, size: int) -> None:
    """What the wrapper counts equals what a caller counts who calls zero_grad and step at the right passes only."""
    ours, theirs = net(), net()
    counted, by_caller = _optimizer(ours, 3), _optimizer(theirs, 3)
    for batch in range(12):
        before = parameters(ours)
        counted.zero_grad()
        loss_of(ours, rank, batch).backward()
        counted.step()
        assert torch.equal(before, parameters(ours)) == (batch % 3 != 2)
    for batch in range(12):
        if batch % 3 == 0:
            by_caller.zero_grad()
        loss_of(theirs, rank, batch).backward()
        if batch % 3 == 2:
            by_caller.step()
    assert torch.equal(parameters(ours), parameters(theirs))
    assert_replicas_equal(ours, "accumulation.counted")


@ranks(2, more=(3, 5))
def test_gradients_of_the_passes_are_added_up(rank: int, size: int) -> None:
    import paceline.torch as hvd

    hvd.init()
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("sum.weight", weight)], backward_passes_per_step=2
    )
    for micro in range(2):
        optimizer.zero_grad()
        (weight * (10.0 * rank + micro)).sum().backward()
        optimizer.step()
    # Each rank added up 20 * rank + 1; the mean over ranks is 10 * (size - 1) + 1.
    assert weight.tolist() == [-(10.0 * (size - 1) + 1)] * 3


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
    """It is refused before it touches a gradient that travels: the update is that of the passes before it."""
    import paceline.torch as hvd

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
def test_zero_grad_while_gradients_travel(rank: int, size: int) -> None:
    import paceline.torch as hvd

    model = net()
    optimizer = _optimizer(model, 1)
    loss_of(model, rank, 0).backward()
    with pytest.raises(hvd.UsageError, match=r"zero_grad\(\) was called between backward\(\) and step\(\)"):
        optimizer.zero_grad()
    with optimizer.skip_synchronize(), pytest.raises(hvd.UsageError, match="still travelling"):
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


@ranks(2, more=(3, 5))
def test_a_rank_without_gradients_in_some_passes_stays_in_step(rank: int, size: int) -> None:
    model = net()
    optimizer = _optimizer(model, 2)
    for batch in range(6):
        optimizer.zero_grad()
        if (rank, batch % 2) != (1, 0):
            loss_of(model, rank, batch).backward()
        optimizer.step()
    assert_replicas_equal(model, "accumulation.lacking")


@ranks(2)
def test_disjoint_backward_passes_are_one_pass(rank: int, size: int) -> None:
    """Two losses over different parameters, as in Horovod: each gradient appears once."""
    import paceline.torch as hvd

    hvd.init()
    first, second = torch.nn.Linear(2, 1), torch.nn.Linear(3, 1)
    both = torch.nn.ModuleList([first, second])
    hvd.broadcast_parameters(both.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(both.parameters(), lr=0.1), both.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        first(torch.ones(1, 2) * rank).sum().backward()
        _ = optimizer.param_groups[0]["lr"]
        second(torch.ones(1, 3) * rank).sum().backward()
        optimizer.step()
    assert_replicas_equal(both, "accumulation.disjoint")


@ranks(2)
def test_closures_see_combined_gradients_and_the_same_loss(rank: int, size: int) -> None:
    """LBFGS evaluates the closure as often as the loss tells it to: ranks that saw their own would part ways."""
    import paceline.torch as hvd

    hvd.init()
    for search in (None, "strong_wolfe"):
        model, alone = net(), net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.LBFGS(model.parameters(), max_iter=8, line_search_fn=search), model.named_parameters()
        )
        plain = torch.optim.LBFGS(alone.parameters(), max_iter=8, line_search_fn=search)
        losses = []

        def distributed(model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, rank, 0)
            loss.backward()
            return loss

        def together(alone: Any = alone, plain: Any = plain) -> Any:
            plain.zero_grad()
            loss = sum(loss_of(alone, other, 0) for other in range(size)) / size
            loss.backward()
            return loss

        for _ in range(3):
            losses.append((optimizer.step(distributed).item(), plain.step(together).item()))
        ours, theirs = torch.tensor(losses).T
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(parameters(model), parameters(alone), rtol=1e-2, atol=1e-3)
        assert_replicas_equal(model, f"closure.{search}")


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
    """Two of four passes and one step() make an update, also where drain() came between."""
    import paceline.torch as hvd

    hvd.init()
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
