r"""The digits of digits_torch.py on late ranks: the gain of exchanges that do not wait for them.

    horovodrun -np 8 python examples/benchmarks/uneven_digits.py --exchange majority --epochs 40 \
        --compute-ms 80 --delays random --delay-ms 80

One random rank is late in each step. Steps sleep to emulate a device's compute time, so that eight ranks can share two
processors. Tests run only at the end, because ranks wait for each other there.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import torch
from torch import nn

import paceline.torch as hvd
from paceline.config import EXCHANGES
from paceline.examples import digits, digits_torch
from paceline.examples.benchmarks import pace, uneven


def main() -> None:
    """Train, test, and print the result."""
    parser = argparse.ArgumentParser(description="Handwritten digits on ranks of uneven speed.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps", type=int, help="train for so many steps instead of --epochs")
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights, batches and delays")
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")
    pace.add_arguments(parser)
    chosen = parser.parse_args()

    hvd.init()
    torch.manual_seed(1000 * chosen.seed + 1 + hvd.rank())
    train_x, train_y, test_x, test_y = digits_torch.data(hvd.rank(), hvd.size())
    model = digits_torch.net()
    optimizer = uneven.distributed(model, torch.optim.Adam(model.parameters(), lr=1e-3 * hvd.size()), chosen.exchange)

    def steps() -> Iterator[uneven.Step]:
        for _ in itertools.count() if chosen.steps else range(chosen.epochs):
            for batch in torch.randperm(len(train_x)).split(digits.BATCH):
                yield chosen.compute_ms, train_x[batch], train_y[batch]

    loss_of = nn.CrossEntropyLoss()
    these = itertools.islice(steps(), chosen.steps)
    result = uneven.train(model, optimizer, these, loss_of, pace.of(chosen, hvd.rank(), hvd.size()))
    with torch.no_grad():
        found = model(test_x)
    accuracy = (found.argmax(1) == test_y).float().mean().item()
    uneven.conclude({"loss": loss_of(found, test_y).item(), "accuracy": accuracy, **result})
    hvd.shutdown()


if __name__ == "__main__":
    main()
