"""Mixed precision: every rank skips the same steps, decided on combined gradients."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import (
    assert_replicas_equal,
    gradients,
    loss_of,
    net,
    parameters,
    train,
    train_alone,
)


def _setting(**optimizer_options: Any) -> tuple[Any, Any, Any]:
    model = net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.01, **optimizer_options), model.named_parameters()
    )
    return model, optimizer, torch.amp.GradScaler(device="cpu", init_scale=64.0, growth_interval=3)


def _scaled_steps(model: Any, optimizer: Any, scaler: Any, rank: int, *, unscale: str) -> list[bool]:
    """Eight steps in which rank 1 overflows in step 2 and rank 0 in step 5: which steps changed the model."""
    changed = []
    for step in range(8):
        before = parameters(model)
        loss = scaler.scale(loss_of(model, rank, step))
        if (rank, step) in ((1, 2), (0, 5)):
            loss = loss * float("inf")
            time.sleep(0.2)  # a rank that reads the other's gradients too early sees no infinity there
        loss.backward()
        if unscale == "synchronize":
            optimizer.synchronize()
        if unscale in ("synchronize", "unscale"):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()  # after a skipped step too (horovod#3160)
        changed.append(not torch.equal(before, parameters(model)))
    return changed


@pytest.mark.parametrize(
    ("unscale", "fused"), [("step", False), ("unscale", False), ("synchronize", False), ("step", True)]
)
@ranks(2)
def test_overflow_on_one_rank_skips_the_step_on_all(rank: int, size: int, unscale: str, fused: bool) -> None:
    """`fused`: an optimizer that unscales by itself."""
    model, optimizer, scaler = _setting(fused=fused or None)
    changed = _scaled_steps(model, optimizer, scaler, rank, unscale=unscale)
    assert [step for step, did in enumerate(changed) if not did] == [2, 5]
    scales = hvd.allgather(torch.tensor([scaler.get_scale()]), name="amp.scales")
    assert scales.tolist() == [16.0] * size
    assert_replicas_equal(model, "amp.overflow")


@ranks(2)
def test_scaled_training_equals_plain_training(rank: int, size: int) -> None:
    """Powers of two as scales change no bit."""
    model, optimizer, scaler = _setting()
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    plain, plain_optimizer, _ = _setting()
    train(plain, plain_optimizer, rank, 6)
    assert torch.equal(parameters(model), parameters(plain))


@ranks(2)
def test_unscaled_gradients_are_the_combined_ones(rank: int, size: int) -> None:
    model, optimizer, scaler = _setting()
    scaler.scale(loss_of(model, rank, 0)).backward()
    scaler.unscale_(optimizer)
    alone = net()
    train_alone(alone, torch.optim.SGD(alone.parameters(), lr=0.0), size, 1)
    torch.testing.assert_close(gradients(model), gradients(alone))
    scaler.step(optimizer)
    scaler.update()


@ranks(2)
def test_a_rank_without_gradients_after_a_skipped_step(rank: int, size: int) -> None:
    """The script drops the gradients itself, and then rank 1 has none: it must still take part."""
    model, optimizer, scaler = _setting()
    (scaler.scale(loss_of(model, rank, 0)) * float("inf" if rank == 0 else 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad()
    if rank == 0:
        scaler.scale(loss_of(model, rank, 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert_replicas_equal(model, "amp.lacking")


@ranks(2)
def test_a_scaler_within_an_accumulation_is_refused(rank: int, size: int) -> None:
    model, optimizer, scaler = _setting()
    optimizer.set_backward_passes_per_step(2)
    scaler.scale(loss_of(model, rank, 0)).backward()
    with pytest.raises(hvd.UsageError, match=r"after 1 of 2 backward passes(.|\n)*only after the last pass"):
        scaler.step(optimizer)
    scaler.scale(loss_of(model, rank, 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert_replicas_equal(model, "amp.accumulation")


@ranks(2)
def test_other_optimizers_are_left_alone(rank: int, size: int) -> None:
    """Rank 0 alone uses a scaler with a plain optimizer, next to ours."""
    if rank == 0:
        model = net()
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(device="cpu")
        before = parameters(model)
        scaler.scale(loss_of(model, rank, 0)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert not torch.equal(before, parameters(model))


@ranks(2)
def test_bfloat16_autocast(rank: int, size: int) -> None:
    model, optimizer, _ = _setting()
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, rank, step)
        loss.backward()
        optimizer.step()
    assert_replicas_equal(model, "amp.autocast")
