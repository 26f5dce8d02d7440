"""Tensors of a group that are late or missing: training continues, and after a few times no rank waits any more."""

from __future__ import annotations

import importlib
from typing import Any

import horovod.torch as horovod
import pytest
import tensorflow as tf
import torch

from integration_tests.support.arming import TorchSteps
from integration_tests.support.debug import debug
from integration_tests.support.merging import ByHand, ask_for, step_until
from integration_tests.support.ranks import ranks
from paceline.fusion.report import report

MOST_STRIKES = 3  # core/fusion/gate.h
TIMEOUT_S = 1.0


@ranks(3, more=(5, 7), hvd="horovod.torch")
def test_rank_that_waits_before_it_hands_in_the_last_tensor_of_a_group(rank: int, size: int, hvd: Any) -> None:
    hand = ByHand("torch").start()
    steps = TorchSteps(rank, size, {f"late.{n}": n + 5 for n in range(3)})
    names = list(steps.sizes)
    for step in range(8):
        if step == 2:  # tensors are numbered from the round in which all ranks have requested plans
            hand.follow([hand.names("late.")], TIMEOUT_S)
        steps.step(step, names[: 2 if rank == 0 else 3])
        if rank == 0:
            steps.step(step, names[2:])
    assert hand.expired() == (MOST_STRIKES if rank == 0 else 0), (hand.expired(), hand.state())
    hand.end()


@ranks(3, more=(5, 7), env=debug(gate_timeout_ms=1000), hvd="horovod.torch")
def test_tensor_that_is_missing_in_some_steps_on_all_ranks(rank: int, size: int, hvd: Any) -> None:
    names = [f"missing.{n}" for n in range(4)]
    steps = TorchSteps(rank, size, dict.fromkeys(names, 7))
    ask_for("torch", "single")
    found = step_until("torch", steps.step)
    assert found.groups[0][: len(names)] == [f"allreduce.{name}" for name in names]
    for step in range(10):
        steps.step(step, names[:3] if step % 2 else names)
    assert report("torch").timeouts == MOST_STRIKES
    ask_for("torch", "threshold")


@pytest.mark.parametrize("wrapper", ["horovod.torch", "paceline.torch"])
@ranks(3, env=debug(gate_timeout_ms=20000), fresh=True)
def test_parameters_unused_in_some_steps(rank: int, size: int, wrapper: str) -> None:
    hvd = importlib.import_module(wrapper)
    hvd.init()
    torch.manual_seed(3)
    model = torch.nn.ModuleDict({name: torch.nn.Linear(5, 3) for name in ("always", "even", "odd")})
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(f"unused.{wrapper}")
    )
    alone = {name: value.clone() for name, value in model.state_dict().items()}

    def step_of(step: int) -> None:
        parts = ["always", "odd" if step % 2 else "even"]
        optimizer.zero_grad()
        inputs = torch.full((1, 5), float(rank + step % 7))
        torch.stack([model[part](inputs).sum() for part in parts]).sum().backward()
        optimizer.step()
        # The gradient of the sum of outputs is the input, and 1 for the bias.
        for part in parts:
            alone[f"{part}.weight"] -= 0.1 * ((size - 1) / 2 + step % 7)
            alone[f"{part}.bias"] -= 0.1

    # All parameters are one group, and backward() submits only the gradients of the parts in use. step() submits zeros
    # for the others, which completes the group. An incomplete group would be held for gate_timeout_ms, 20 s, and be
    # counted in `timeouts`.
    ask_for("torch", "single")
    step_until("torch", step_of)
    for step in range(12):
        step_of(step)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, alone[name], rtol=1e-4, atol=1e-4)
        everyone = horovod.allgather(value.reshape(1, -1), name=f"unused.{wrapper}.{name}")
        assert all(torch.equal(theirs, value.reshape(-1)) for theirs in everyone)
    found = report("torch")
    assert (found.state, found.timeouts) == ("active", 0), found
    grouped = {name for group in found.groups for name in group}
    assert {f"allreduce.unused.{wrapper}.{name}" for name, _ in model.named_parameters()} <= grouped
    ask_for("torch", "threshold")


@ranks(3, hvd="horovod.torch")
def test_synchronous_torch_allreduces_of_one_group(rank: int, size: int, hvd: Any) -> None:
    hand = ByHand("torch").start()
    steps = TorchSteps(rank, size, {f"waiting.{n}": n + 2 for n in range(3)})
    for step in range(6):
        if step == 1:
            hand.follow([hand.names("waiting.")], TIMEOUT_S)
        for name in steps.sizes:
            steps.step(step, [name])
    assert hand.expired() == MOST_STRIKES, hand.state()
    hand.end()


@ranks(3, hvd="horovod.tensorflow")
def test_tensorflow_allreduces_that_are_waited_for_one_by_one(rank: int, size: int, hvd: Any) -> None:
    """Two functions of one operation each, and an eager one: Horovod calls all of that kind by one name."""
    hand = ByHand("tensorflow").start()

    @tf.function
    def first(tensor: Any) -> Any:
        return hvd.allreduce(tensor, name="alone.first", op=hvd.Sum)

    @tf.function
    def second(tensor: Any) -> Any:
        return hvd.allreduce(tensor, name="alone.second", op=hvd.Sum)

    def eager(tensor: Any) -> Any:
        return hvd.allreduce(tensor, op=hvd.Sum)

    for step in range(6):
        if step == 1:
            names = hand.names("Horovod") + hand.names("alone.")
            assert len(names) == 3, hand.state()
            hand.follow([names], TIMEOUT_S)
        for n, exchange in enumerate((first, second, eager, first if step % 2 else eager)):
            result = exchange(tf.fill([5], float(rank * 10 + step + n)))
            assert result.numpy().tolist() == [5.0 * size * (size - 1) + size * (step + n)] * 5
    assert hand.expired() == MOST_STRIKES, hand.state()
    hand.end()
