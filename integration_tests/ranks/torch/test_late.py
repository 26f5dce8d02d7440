"""Late gradients must not reach a parameter frozen meanwhile, disturb schedulers, or refuse closures."""

from __future__ import annotations

import functools
import io
import warnings
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import closure_of, loss_of, net, parameters, update


class _Numbered:
    """Parameters whose gradient in step t is 2^t (times 2/3 and 4/3 on two ranks); weights show the applied ones."""

    def __init__(self, label: str, names: str, exchange: Any, groups: Any = None) -> None:
        self.parameters = {name: torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)) for name in names}
        named = [(f"numbered.{label}.{name}", one) for name, one in self.parameters.items()]
        held = torch.optim.SGD(self.parameters.values(), lr=1.0)
        self.updates: dict[str, list[int]] = {name: [] for name in names}
        held.register_step_pre_hook(lambda *_: self._note())
        self.optimizer = hvd.DistributedOptimizer(
            held, named, exchange=exchange, groups=groups and [[self.parameters[name] for name in names]]
        )

    def _note(self) -> None:
        for name, one in self.parameters.items():
            if one.grad is not None:
                self.updates.setdefault(name, []).append(round(one.grad[0].item()))

    def step(self, number: int, rank: int, frozen: str = "") -> None:
        for name, one in self.parameters.items():
            one.requires_grad_(name not in frozen)
        self.optimizer.zero_grad()
        scale = 2.0**number * (2 + 2 * rank) / 3
        sum((one * scale).sum() for one in self.parameters.values()).backward()
        self.optimizer.step()


@ranks(2)
def test_an_unfrozen_parameter_gets_no_gradient_from_before(rank: int, size: int) -> None:
    for k in (2, 3):
        model = _Numbered(f"frozen.{k}", "ab", hvd.Pipelined(k=k))
        for step in range(9):
            model.step(step, rank, frozen="b" if step in (3, 4) else "")
        model.optimizer.drain()
        assert model.updates["a"] == [2**step for step in range(9)]
        # Gradients in flight when b was frozen are dropped; no update has zeros in their place.
        assert model.updates["b"] == [2**step for step in range(9) if not 3 - (k - 1) <= step <= 4]

        # All parameters used so far are frozen, all others unfrozen.
        model = _Numbered(f"swapped.{k}", "ab", hvd.Pipelined(k=k))
        for step in range(8):
            model.step(step, rank, frozen="b" if step < 4 else "a")
        model.optimizer.drain()
        assert model.updates["a"] == [2**step for step in range(4 - (k - 1))]
        assert model.updates["b"] == [2**step for step in range(4, 8)]

        # A member of a group: all or none of an update in flight is applied.
        model = _Numbered(f"group.{k}", "abc", hvd.Pipelined(k=k), groups=True)
        for step in range(9):
            if step == 3:
                with pytest.raises(hvd.UsageError, match=r"expected '(.*)c', found '(.*)b', '(.*)c'(.|\n)*drain"):
                    model.step(step, rank, frozen="a")
                model.optimizer.forget()
            if step in (3, 5):
                model.optimizer.drain()
            model.step(step, rank, frozen="a" if step in (3, 4) else "")
        model.optimizer.drain()
        lost = range(3 - (k - 1), 3)  # by forget()
        assert model.updates["a"] == [2**step for step in range(9) if step not in (*lost, 3, 4)]
        assert model.updates["b"] == model.updates["c"] == [2**step for step in range(9) if step not in lost]


@ranks(2)
def test_a_group_that_joins_a_pipeline_is_saved_and_drained_with_it(rank: int, size: int) -> None:
    model = _Numbered("joins", "a", hvd.Pipelined(k=3))
    for step in range(3):
        model.step(step, rank)
    new = model.parameters["b"] = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    model.optimizer.add_param_group({"params": [new]})
    model.step(3, rank)
    saved = io.BytesIO()
    torch.save(model.optimizer.state_dict(), saved)
    saved.seek(0)
    model.optimizer.load_state_dict(torch.load(saved))
    model.step(4, rank)
    model.optimizer.drain()
    assert model.updates["a"] == [1, 2, 4, 8, 16]
    assert model.updates["b"] == [8, 16]


@ranks(2)
def test_a_scheduler_made_before_wrapping_sees_every_step(rank: int, size: int) -> None:
    for label, exchange, passes in (("s", "sync", 1), ("s2", "sync", 2), ("p", "pipelined", 1), ("m", "majority", 1)):
        model = net()
        held = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(held, 1)
        named = [(f"scheduled.{label}.{name}", one) for name, one in model.named_parameters()]
        optimizer = hvd.DistributedOptimizer(held, named, exchange=exchange, backward_passes_per_step=passes)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(4):
                update(optimizer, loss_of(model, rank, step))
                scheduler.step()
        optimizer.drain()


@ranks(2)
def test_closures_that_are_evaluated_once(rank: int, size: int) -> None:
    for label, exchange in (("pipelined", "pipelined"), ("partial", hvd.Partial(quorum=size))):
        model, plain = net(), net()
        optimizers = []
        for one, kind in ((model, "closures"), (plain, "plain")):
            named = [(f"{kind}.{label}.{name}", p) for name, p in one.named_parameters()]
            held = torch.optim.Adam(one.parameters(), lr=0.1)
            optimizers.append(hvd.DistributedOptimizer(held, named, exchange=exchange))
        for step in range(4):
            closure = closure_of(optimizers[0], functools.partial(loss_of, model, rank, step))
            expected = loss_of(plain, rank, step)
            with torch.no_grad():
                assert torch.equal(optimizers[0].step(closure), expected)  # this rank's
            update(optimizers[1], expected)
        assert [optimizer.drain() for optimizer in optimizers] == [int(label == "pipelined")] * 2
        assert torch.equal(parameters(model), parameters(plain))


@ranks(2)
def test_closures_that_are_evaluated_again_are_refused(rank: int, size: int) -> None:
    class Twice(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            closure()
            return super().step(closure)

    for label, exchange in (("pipelined", hvd.Pipelined(k=2)), ("partial", hvd.Partial(quorum=size))):
        for kind in (torch.optim.LBFGS, Twice):
            p = torch.nn.Parameter(torch.ones(3))
            named = [(f"again.{label}.{kind.__name__}", p)]
            optimizer = hvd.DistributedOptimizer(kind([p], lr=0.1), named, exchange=exchange)

            said = rf"rank {rank}(.|\n)*evaluates its closure(.|\n)*exchange=\"sync\""
            with pytest.raises(hvd.UsageError, match=said):
                for _ in range(2):
                    optimizer.step(closure_of(optimizer, p.sum))
            assert p.tolist() == [1.0] * 3
            optimizer.forget()


@ranks(2)
def test_a_second_init_leaves_what_is_in_flight(rank: int, size: int) -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("again.w", weight)], exchange="pipelined")
    for step in range(4):
        (weight * (rank + 1.0) * 10.0**step).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        hvd.init()  # as each part of a program may
    optimizer.drain()
    assert weight.tolist() == [-1.5 * 1111] * 3
    (weight * 1.0).sum().backward()
    hvd.init()
    with pytest.raises(hvd.UsageError, match="between backward"):
        optimizer.step()
