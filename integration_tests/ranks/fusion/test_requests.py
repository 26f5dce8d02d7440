"""Requests of ranks: policies of users, different ones, failing ones, and again in every new world."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from typing import Any

import horovod.torch as hvd
import pytest
import torch

from integration_tests.support.arming import TorchSteps
from integration_tests.support.debug import debug
from integration_tests.support.merging import ByHand, ask_for, repeat, step_until
from integration_tests.support.ranks import RankFailed, ranks, run_ranks
from paceline.fusion.report import report

SIZES = (700, 3, 5000, 40, 1)


def _steps(label: str, rank: int, size: int) -> Any:
    return TorchSteps(rank, size, {f"{label}.{n}": count for n, count in enumerate(SIZES)}).step


def ends(gradients: Any, costs: Any) -> list[list[str]]:
    """A user's policy: the outer gradients in one group, the inner ones in another."""
    names = sorted(gradient.name for gradient in gradients)
    return [[names[0], names[-1]], names[1:-1]]


def raises(gradients: Any, costs: Any) -> list[list[str]]:
    """A user's policy that raises."""
    raise RuntimeError("nothing comes to my mind")


def repeats(gradients: Any, costs: Any) -> list[list[str]]:
    """A user's policy that names a tensor twice."""
    names = [gradient.name for gradient in gradients]
    return [names, names[:1]]


def omits(gradients: Any, costs: Any) -> list[list[str]]:
    """A user's policy that omits a tensor."""
    return [[gradient.name for gradient in gradients][1:]]


_over = threading.Event()


def dawdles(gradients: Any, costs: Any) -> list[list[str]]:
    """A user's policy that exceeds its time limit."""
    _over.wait()
    return [[gradient.name for gradient in gradients]]


@ranks(3)
def test_policy_of_the_users_own(rank: int, size: int) -> None:
    step_of = _steps("own", rank, size)
    ask_for("torch", ends)
    found = step_until("torch", step_of)
    groups = {frozenset(int(name[-1]) for name in group) for group in found.groups}
    assert groups == {frozenset((0, 4)), frozenset((1, 2, 3))}
    for step in range(10):
        step_of(step)
    ask_for("torch", "threshold")


FAULTS = {
    raises: "RuntimeError: nothing comes to my mind",
    repeats: "repeats the tensor allreduce.faulty.0, in groups 0 and 1",
    omits: "omits the tensor",
}


@ranks(2)
def test_policies_that_fail_leave_merging_to_horovod(rank: int, size: int) -> None:
    step_of = _steps("faulty", rank, size)
    for policy, words in FAULTS.items():
        _refuse(rank, step_of, policy, words)


@ranks(2, env=debug(fusion_time_limit_s=1))
def test_policy_that_is_too_slow_leaves_merging_to_horovod(rank: int, size: int) -> None:
    _refuse(rank, _steps("slow", rank, size), dawdles, "longer than 1 s")
    _over.set()


def _refuse(rank: int, step_of: Any, policy: Any, words: str) -> None:
    """Check that a policy is refused with these words and has no further effect."""
    ask_for("torch", policy)
    found = step_until("torch", step_of, "refused")
    for step in range(5):
        step_of(step)
    if rank == 0:
        assert policy.__name__ in found.policy
        assert words in found.reason, found.reason
    ask_for("torch", "single")
    assert len(step_until("torch", step_of).groups) == 1
    ask_for("torch", "threshold")


@ranks(3)
def test_ranks_that_ask_for_different_policies_go_on_without_a_plan(rank: int, size: int) -> None:
    step_of = _steps("different", rank, size)
    ask_for("torch", "mgwfbp" if rank == 1 else "single")
    repeat("torch", step_of, lambda: bool(report("torch").reason))
    if rank == 0:
        assert report("torch").reason == "The ranks ask for different policies: single on rank 0, 2; mgwfbp on rank 1"
    assert not report("torch").groups
    ask_for("torch", "single")  # and now they agree
    assert len(step_until("torch", step_of).groups) == 1
    ask_for("torch", "threshold")


@ranks(2, env={"PACELINE_FUSION": "single", **debug(fusion_warmup_steps=2)}, fresh=True)
def test_every_new_world_plans_again(rank: int, size: int) -> None:
    step_of = _steps("worlds", rank, size)
    for _ in range(10):
        hvd.init()
        found = step_until("torch", step_of)
        assert len(found.groups) == 1 and found.version == 1
        hvd.shutdown()


@ranks(2, fresh=True)
def test_a_script_that_asks_for_the_plan_optimal_gets_armed_steps_and_buckets(rank: int, size: int) -> None:
    wrapped = importlib.import_module("paceline.torch")
    hvd.init()
    model = torch.nn.Sequential(*(torch.nn.Linear(20, 20) for _ in range(3)))
    optimizer = wrapped.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), fusion="optimal"
    )
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(2, 20)).sum().backward()
        optimizer.step()
    hand = ByHand("torch")
    hand.wait(lambda: (status := hand.bridge.status(0)) is not None and status.plans and status.armed)
    names = [one.name for one in hand.state().tensors]
    assert any(name.endswith("+5") for name in names), names


def _leave(rank: int, size: int) -> None:
    hand = ByHand("torch").start()
    names = [f"left.{n}" for n in range(3)]
    for step in range(5):
        if step == 1:
            hand.follow([hand.names("left.")], timeout_s=30)
        if step == 3:
            # All ranks hold two of three tensors when one rank dies.
            for name in names[:2]:
                hvd.allreduce_async(torch.ones(5), name=name)
            time.sleep(0.3)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            with pytest.raises(hvd.HorovodInternalError):
                hvd.allreduce(torch.ones(5), name=names[2])
            return
        for handle in [hvd.allreduce_async(torch.ones(5), name=name) for name in names]:
            hvd.synchronize(handle)


def test_rank_that_dies_while_groups_are_held_is_an_error_on_the_others() -> None:
    with pytest.raises(RankFailed) as caught:
        # A rank inside Gloo's exchange notices at once or, as in unmodified Horovod, after its timeout.
        run_ranks(_leave, 3, env={"HOROVOD_GLOO_TIMEOUT_SECONDS": "10"}, fresh=True, grace_s=20)
    report = str(caught.value)
    assert "--- rank 1: died\n-9" in report
    assert "--- rank 0: ok" in report and "--- rank 2: ok" in report
