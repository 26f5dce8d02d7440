r"""Handwritten digits with PyTorch: `horovodrun -np 2 python examples/digits_torch.py --epochs 8`.

A small convolutional net learns scikit-learn's 1797 images of 8x8 pixels. Each rank trains on its share of the images
and Horovod averages the gradients; what makes the script distributed is marked with (1) to (5). How the gradients are
merged into messages is chosen from outside: PACELINE_FUSION=optimal in front of the command. `--exchange pipelined`
lets gradients travel while the next step is computed (docs/pipelined.md). `--exchange majority` or `solo` does not wait
for ranks that are late (docs/partial.md); what a script does for that is marked with (*). To see what that is good for:

    horovodrun -np 8 python examples/digits_torch.py --exchange majority --epochs 40 --evaluate-every 10 \
        --compute-ms 80 --delays random --delay-ms 80

One random rank is late in each step. Steps sleep in the place of a device's computing, so that eight ranks can share
two processors.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import paceline.torch as hvd
from paceline.config import EXCHANGES
from paceline.examples import pace, replicas_torch

BATCH = 32


def data(rank: int, size: int) -> tuple[torch.Tensor, ...]:
    """This rank's share of the training images, and all test images: images (n, 1, 8, 8) in 0..1, labels (n,)."""
    digits = load_digits()
    images = digits.images[:, None].astype("float32") / 16
    train_x, test_x, train_y, test_y = train_test_split(images, digits.target, test_size=0.2, random_state=1)
    equal = len(train_x) // size * size  # every rank makes the same number of steps
    share = [torch.from_numpy(part[:equal][rank::size]) for part in (train_x, train_y)]  # (2)
    return *share, torch.from_numpy(test_x), torch.from_numpy(test_y)


def net() -> nn.Sequential:
    """Two convolutions and two dense layers, about 70,000 parameters."""
    convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(
        *convolutions, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def main() -> None:
    """Train, test, and write the result as JSON where --result asks for it."""
    parser = argparse.ArgumentParser(description="Handwritten digits with PyTorch on all ranks.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")
    parser.add_argument("--evaluate-every", type=int, default=1, help="epochs between tests, where all ranks meet")
    pace.add_arguments(parser)
    parser.add_argument(
        "--result",
        type=Path,
        help="write accuracy, equality of the replicas and how gradients were merged to this JSON file",
    )
    arguments = parser.parse_args()

    hvd.init()  # (1)
    torch.manual_seed(1000 * arguments.seed + 1 + hvd.rank())
    train_x, train_y, test_x, test_y = data(hvd.rank(), hvd.size())
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * hvd.size())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (3)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # (4)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), exchange=arguments.exchange
    )  # (5)
    loss_of = nn.CrossEntropyLoss()

    def test() -> tuple[float, float]:
        with torch.no_grad():
            found = model(test_x)
            return loss_of(found, test_y).item(), (found.argmax(1) == test_y).float().mean().item()

    def show(epoch: int, step: int) -> None:
        if hvd.rank() == 0:
            place = f"epoch {epoch}/{arguments.epochs} step {step}/{steps}"
            print(f"{place} loss {loss.item():.4f} accuracy {accuracy:.4f}", flush=True)
            if step == steps and hvd.exchange_stats().rounds:
                print(hvd.exchange_stats(), flush=True)

    steps, accuracy, apart = -(-len(train_x) // BATCH), 0.0, 0.0
    training = pace.of(arguments, hvd.rank(), hvd.size())
    for epoch in range(1, arguments.epochs + 1):
        for step, batch in enumerate(torch.randperm(len(train_x)).split(BATCH), 1):
            training.compute(arguments.compute_ms)
            optimizer.zero_grad()
            loss = loss_of(model(train_x[batch]), train_y[batch])
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                show(epoch, step)
        if epoch < arguments.epochs and epoch % arguments.evaluate_every == 0:
            optimizer.drain()  # (*) updates whose gradients are still on their way; none if the exchange is synchronous
            accuracy = test()[1]
            show(epoch, steps)
    optimizer.drain()  # (*)
    steps_per_s = torch.tensor([training.steps_per_s()])
    if hvd.exchange_stats().rounds:
        apart = replicas_torch.average(model)  # (*)
    test_loss, accuracy = test()
    show(arguments.epochs, steps)

    merging = hvd.fusion_report()
    result = {
        "framework": f"PyTorch {torch.__version__}",
        "loss": test_loss,
        "accuracy": accuracy,
        "equal": replicas_torch.equal(model),
        "apart": apart,  # before they were averaged
        "steps_per_s": hvd.allreduce(steps_per_s, op=hvd.Min, name="steps_per_s").item(),  # the slowest rank's
        "stats": asdict(hvd.exchange_stats()),  # rank 0's
        "fusion": {"policy": merging.policy, "state": merging.state, "reason": merging.reason},
    }
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)  # for compare_exchanges.py
        if arguments.result:
            arguments.result.write_text(json.dumps(result))
    hvd.shutdown()


if __name__ == "__main__":
    main()
