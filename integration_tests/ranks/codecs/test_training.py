"""Digits learn as well with 8 bits and error feedback as without a codec."""

from __future__ import annotations

from typing import Any

import torch

from integration_tests.support.ranks import run_ranks
from integration_tests.support.torch_training import assert_replicas_equal

EPOCHS, BATCH = 4, 32


def _losses(rank: int, size: int) -> dict[str, float]:
    import paceline.torch as hvd
    from paceline.examples import digits

    hvd.init()
    train_x, train_y, test_x, test_y = (torch.from_numpy(one) for one in digits.data(rank, size))
    losses = {}
    for codec in ("none", "q8"):
        torch.manual_seed(3)
        model: Any = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        named = [(f"{codec}.{name}", one) for name, one in model.named_parameters()]
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(sgd, named, codec=codec)
        for _ in range(EPOCHS):
            order = torch.randperm(len(train_x))
            for chosen in order.split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(train_x[chosen]), train_y[chosen].long()).backward()
                optimizer.step()
        assert_replicas_equal(model, f"replicas_{codec}")
        with torch.no_grad():
            losses[codec] = float(torch.nn.functional.cross_entropy(model(test_x), test_y.long()))
    return losses


def test_digits_with_error_feedback() -> None:
    losses = run_ranks(_losses, 2, timeout_s=120)[0]
    assert losses["none"] < 0.5, "the network has not learned"
    assert losses["q8"] < 1.2 * losses["none"] + 0.05, losses
