"""Plans on trial: one slower than Horovod's own merging is dropped, a faster one is kept; sums are exact."""

from __future__ import annotations

import time
from collections.abc import Sequence

import horovod.torch as hvd
import pytest
import torch

from integration_tests.support.arming import TorchSteps
from integration_tests.support.debug import debug
from integration_tests.support.merging import ask_for
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from paceline.fusion import CostModel, Gradient, driver
from paceline.fusion.report import FusionReport, report

TENSORS = 60
ELEMENTS = [3 + 17 * number for number in range(TENSORS)]
# Before a plan: 3 steps, a sweep, 10 measured steps, and what ranks need to agree.
MOST_STEPS = 200 + 60


def alone(gradients: Sequence[Gradient], costs: CostModel) -> list[list[str]]:
    """Worse on purpose: each gradient pays for a message."""
    return [[gradient.name] for gradient in gradients]


def _train(rank: int, size: int, policy: str) -> FusionReport:
    vars(driver)["WORTH_TRYING"] = -100.0  # it promises to be slow
    ask_for("torch", alone if policy == "alone" else policy)
    steps = TorchSteps(rank, size, {f"trial.{number}": count for number, count in enumerate(ELEMENTS)})
    for step in range(1500):
        steps.step(step)
        found = report("torch")
        if hvd.broadcast_object(found.trial, 0, name="trial.over"):
            assert step < MOST_STEPS, found
            break
    else:
        raise AssertionError(f"no verdict: {found}")
    for _ in range(100):  # until the losing plan is dropped on all ranks; the first one polls every 20 ms
        time.sleep(0.01)
        hvd.allreduce(torch.ones(3), name="trial.0")
        if hvd.broadcast_object(report("torch").state in ("active", "stock"), 0, name="trial.settled"):
            break
    return report("torch")


@pytest.mark.parametrize("size", [2, more(3)])
@pytest.mark.parametrize(("policy", "armed"), [("alone", False), ("alone", True), more("optimal", False)])
def test_what_is_slower_goes(policy: str, armed: bool, size: int) -> None:
    # Without a plan every gradient is sent alone in the second case, and all of them together in the first.
    threshold = str(64 << 20) if policy == "alone" else "0"
    steps = {"armed": True, "wake": "events"} if armed else {"armed": False}
    env = {**debug(fusion_trial_steps=100, **steps), "HOROVOD_FUSION_THRESHOLD": threshold}
    first, *others = run_ranks(_train, size, policy, env=env, fresh=True)
    stays = policy == "optimal"
    assert first.state == ("active" if stays else "stock"), first
    assert ("the plan stays" in first.trial) is stays and ("was not ahead" in first.reason) is not stays
    assert bool(first.groups) is stays
    assert (first.armed.steps > 0) is armed
    for other in others:
        assert other.state == ("active" if stays else "waiting") and other.groups == first.groups
