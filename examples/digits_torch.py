"""Handwritten digits with PyTorch: `horovodrun -np 2 python examples/digits_torch.py --epochs 8`.

A small convolutional net learns scikit-learn's 1797 images of 8x8 pixels. Each rank trains on its share of the images
and Horovod averages the gradients; what makes the script distributed is marked with (1) to (5). How the gradients are
merged into messages is chosen from outside: PACELINE_FUSION=optimal in front of the command. `--exchange pipelined`
lets gradients travel while the next step is computed (docs/pipelined.md).
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import paceline.torch as hvd

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


def same_everywhere(model: nn.Module) -> bool:
    """Whether all ranks hold bit for bit the same weights."""
    checksum = zlib.crc32(b"".join(weights.numpy().tobytes() for weights in model.state_dict().values()))
    checksums = hvd.allgather(torch.tensor([checksum], dtype=torch.int64), name="checksum")
    return len(checksums.unique()) == 1


def main() -> None:
    """Train, test, and write the result as JSON where --result asks for it."""
    parser = argparse.ArgumentParser(description="Handwritten digits with PyTorch on all ranks.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")
    parser.add_argument("--exchange", choices=("sync", "pipelined"), help="default: what PACELINE_EXCHANGE says")
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

    def show(epoch: int, step: int) -> None:
        if hvd.rank() == 0:
            place = f"epoch {epoch}/{arguments.epochs} step {step}/{steps}"
            print(f"{place} loss {loss.item():.4f} accuracy {accuracy:.4f}", flush=True)

    steps, test_loss, accuracy = -(-len(train_x) // BATCH), 0.0, 0.0
    for epoch in range(1, arguments.epochs + 1):
        for step, batch in enumerate(torch.randperm(len(train_x)).split(BATCH), 1):
            optimizer.zero_grad()
            loss = loss_of(model(train_x[batch]), train_y[batch])
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                show(epoch, step)
        optimizer.drain()  # the update whose gradients still travel; none if the exchange is synchronous
        with torch.no_grad():
            found = model(test_x)
            test_loss, accuracy = loss_of(found, test_y).item(), (found.argmax(1) == test_y).float().mean().item()
        show(epoch, steps)

    merging = hvd.fusion_report()
    result = {
        "framework": f"PyTorch {torch.__version__}",
        "loss": test_loss,
        "accuracy": accuracy,
        "equal": same_everywhere(model),
        "fusion": {"policy": merging.policy, "state": merging.state, "reason": merging.reason},
    }
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)  # for compare_exchanges.py
        if arguments.result:
            arguments.result.write_text(json.dumps(result))
    hvd.shutdown()


if __name__ == "__main__":
    main()
