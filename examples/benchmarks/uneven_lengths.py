"""The uneven pieces of text of characters_lengths_torch.py, at a chosen time per character.

    horovodrun -np 8 python examples/benchmarks/uneven_lengths.py --exchange majority --steps 60 --ms-per-character 2

A step sleeps for each character of its longest piece, to emulate a device's compute time, so that several ranks can
share a processor.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import characters, characters_lengths, characters_lengths_torch
from paceline.examples.benchmarks import uneven
from paceline.examples.benchmarks.pace import Pace
from paceline.examples.characters_torch import Net


def main() -> None:
    """Train, test on text that no rank has seen, and print the result."""
    parser = argparse.ArgumentParser(description="A character-level transformer whose steps take as long as its texts.")
    characters.add_arguments(parser)
    characters.add_exchange(parser)
    parser.add_argument("--ms-per-character", type=float, default=1.0, help="emulated time of a step (default: 1)")
    chosen = parser.parse_args()

    hvd.init()
    torch.manual_seed(chosen.seed)
    batches = characters_lengths.training(hvd.rank(), hvd.size(), chosen.batch_size, chosen.seed)
    model = Net(characters_lengths.LONGEST)
    adam = torch.optim.Adam(model.parameters(), lr=chosen.learning_rate)
    optimizer = uneven.distributed(model, adam, chosen.exchange)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: characters.rate_factor(step, chosen.steps))

    def steps() -> Iterator[uneven.Step]:
        for batch in itertools.islice(batches, chosen.steps):
            inputs, targets = map(torch.from_numpy, batch)
            yield inputs.shape[1] * chosen.ms_per_character, inputs, targets

    loss_of = nn.CrossEntropyLoss(ignore_index=characters_lengths.NOTHING)
    result = uneven.train(model, optimizer, steps(), loss_of, Pace(), schedule.step)
    model.eval()
    loss, accuracy = characters_lengths_torch.test(model, chosen.batch_size)
    uneven.conclude({"loss": loss, "accuracy": accuracy, **result})
    hvd.shutdown()


if __name__ == "__main__":
    main()
