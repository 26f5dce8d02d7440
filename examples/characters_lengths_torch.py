"""Batches of uneven length: `horovodrun -np 4 python examples/characters_lengths_torch.py --exchange majority`.

The transformer of characters_torch.py on pieces of text of 16 to 256 characters (characters_lengths.py). The time of a
step depends on the length of its batch, so in every step some ranks finish long before others. `--exchange majority`
and `solo` do not wait for all of them (docs/methods/partial.md). (*) marks the lines that these exchanges need.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import characters, characters_lengths, replicas_torch
from paceline.examples.characters_torch import SHOW_EVERY, Net


def test(model: Net, batch_size: int) -> tuple[float, float]:
    """Return the mean loss and accuracy over all characters of the text that no rank trains on."""
    count, loss, right = 0, 0.0, 0
    with torch.no_grad():
        for inputs, targets in characters_lengths.held_out(batch_size):
            known = torch.from_numpy(targets)
            logits = model(torch.from_numpy(inputs))
            count += int((known >= 0).sum())
            loss += nn.functional.cross_entropy(logits, known, reduction="sum").item()
            right += int((logits.argmax(1) == known).sum())
    return loss / count, right / count


def main() -> None:
    """Train, and test on text that no rank has seen."""
    parser = argparse.ArgumentParser(description="A character-level transformer on pieces of uneven length.")
    characters.add_arguments(parser)
    characters.add_exchange(parser)
    chosen = parser.parse_args()

    hvd.init()
    torch.manual_seed(chosen.seed)
    batches = characters_lengths.training(hvd.rank(), hvd.size(), chosen.batch_size, chosen.seed)
    model = Net(characters_lengths.LONGEST)
    optimizer = torch.optim.Adam(model.parameters(), lr=chosen.learning_rate)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), exchange=chosen.exchange
    )  # (*)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: characters.rate_factor(step, chosen.steps))
    loss_of = nn.CrossEntropyLoss(ignore_index=characters_lengths.NOTHING)

    for step in range(chosen.steps):
        inputs, targets = map(torch.from_numpy, next(batches))
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        if hvd.rank() == 0 and (step + 1) % SHOW_EVERY == 0:
            characters.show(step + 1, chosen.steps, loss.item())
            if hvd.exchange_stats().rounds:
                print(hvd.exchange_stats(), flush=True)
    optimizer.drain()  # (*) gradients still in flight
    if hvd.exchange_stats().rounds:
        replicas_torch.average(model)  # (*) replicas have drifted apart

    model.eval()
    test_loss, accuracy = test(model, chosen.batch_size)
    equal = replicas_torch.equal(model)
    if hvd.rank() == 0:
        characters.conclude(f"PyTorch {torch.__version__}", test_loss, accuracy, equal)
    hvd.shutdown()


if __name__ == "__main__":
    main()
