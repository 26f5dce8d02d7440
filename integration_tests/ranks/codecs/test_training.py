"""Training with 8 bits and error feedback ends where it does without a codec."""

from __future__ import annotations

from typing import Any

import torch

import paceline.torch as hvd
from integration_tests.support.exact_training import WITH_CODEC, train
from integration_tests.support.ranks import ranks, run_ranks
from integration_tests.support.torch_training import assert_replicas_equal, update

EPOCHS, BATCH = 4, 32


def _losses(rank: int, size: int) -> dict[str, float]:
    from paceline.examples import digits

    train_x, train_y, test_x, test_y = (torch.from_numpy(one) for one in digits.data(rank, size))
    losses = {}
    for codec in ("none", "q8"):
        torch.manual_seed(3)
        model: Any = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(f"{codec}"), codec=codec)
        for _ in range(EPOCHS):
            order = torch.randperm(len(train_x))
            for chosen in order.split(BATCH):
                update(optimizer, torch.nn.functional.cross_entropy(model(train_x[chosen]), train_y[chosen].long()))
        assert_replicas_equal(model, f"replicas_{codec}")
        with torch.no_grad():
            losses[codec] = float(torch.nn.functional.cross_entropy(model(test_x), test_y.long()))
    return losses


def test_digits_with_error_feedback() -> None:
    losses = run_ranks(_losses, 2)[0]
    assert losses["none"] < 0.5, "the network has not learned"
    assert losses["q8"] < 1.2 * losses["none"] + 0.05, losses


@ranks(2, more=(3,))
def test_gradients_that_come_again_before_others_have_ended(rank: int, size: int) -> None:
    """Error feedback loses nothing when gradients arrive at uneven times, on each rank and for each tensor."""
    for exchange in WITH_CODEC:
        for repeat in range(12):
            train(rank, size, exchange, "q8", "cpu", f"uneven.{repeat}", uneven_s=0.004)
