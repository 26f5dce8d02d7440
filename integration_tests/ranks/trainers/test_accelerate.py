"""Accelerate prepares a wrapped optimizer as any other, in the loop of docs/guides/lightning.md."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, parameters

PASSES, BATCH = 2, 32


def _data() -> tuple[Any, Any, Any]:
    from paceline.examples import digits_torch

    images, labels, test_images, test_labels = digits_torch.data(0, 1)
    # Equally many batches for each of 2, 3 and 4 ranks, and of these an odd number for 4.
    whole = TensorDataset(images[: 36 * BATCH].double(), labels[: 36 * BATCH])
    return whole, test_images.double(), test_labels


def _trained(model: Any, optimizer: Any, loader: Any, epochs: int) -> Any:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PASSES)
    model, prepared, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for images, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
                if accelerator.sync_gradients:
                    if hasattr(optimizer, "synchronize"):
                        optimizer.synchronize()
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                prepared.step()
                prepared.zero_grad()
    return model


@ranks(2, more=(3, 4))
def test_digits_are_learnt_as_in_one_process(rank: int, size: int) -> None:
    from paceline.examples import digits_torch

    whole, test_images, test_labels = _data()
    epochs = 3 * size // 2  # more ranks make fewer updates of an epoch
    for exchange in ("sync", "pipelined"):
        torch.manual_seed(rank)
        model = digits_torch.net().double()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=2e-3),
            [(f"accelerate.{exchange}.{name}", one) for name, one in model.named_parameters()],
            backward_passes_per_step=PASSES,
            exchange=exchange,
        )
        sampler = DistributedSampler(whole, num_replicas=size, rank=rank, shuffle=False)
        _trained(model, optimizer, DataLoader(whole, BATCH, sampler=sampler), epochs)
        optimizer.drain()
        assert_replicas_equal(model, f"accelerate.{exchange}")
        assert (model(test_images).argmax(1) == test_labels).double().mean() > 0.6
        if exchange == "sync":
            torch.manual_seed(0)
            alone = digits_torch.net().double()
            _trained(alone, torch.optim.Adam(alone.parameters(), lr=2e-3), DataLoader(whole, BATCH * size), epochs)
            assert (parameters(model) - parameters(alone)).abs().max() < 1e-9 * parameters(alone).abs().max()
