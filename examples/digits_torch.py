"""Handwritten digits with PyTorch: `horovodrun -np 2 python examples/digits_torch.py --epochs 8`.

A small convolutional net learns scikit-learn's 1797 images of 8x8 pixels. Each rank trains on its share of the images
and Horovod averages the gradients; (1) to (5) mark the lines that make the script distributed. An environment variable
selects how gradients are merged into messages, for example PACELINE_FUSION=optimal. With `--exchange pipelined`,
gradients are in flight while the next step computes (docs/methods/pipelined.md). `--exchange majority` or `solo` does
not wait for late ranks (docs/methods/partial.md). (*) marks the lines that these exchanges need.
"""

from __future__ import annotations

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import digits, replicas_torch


def data(rank: int, size: int) -> tuple[torch.Tensor, ...]:
    """Return this rank's share of the training images, and all test images: images (n, 1, 8, 8), labels (n,)."""
    train_x, train_y, test_x, test_y = map(torch.from_numpy, digits.data(rank, size))  # (2)
    return train_x[:, None], train_y, test_x[:, None], test_y


def net() -> nn.Sequential:
    """Return a network of two convolutions and two dense layers, about 70,000 parameters."""
    convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(
        *convolutions, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def main() -> None:
    """Train, test, and write the result as JSON if --result is given."""
    arguments = digits.arguments("Handwritten digits with PyTorch on all ranks.")

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
            print(digits.line(epoch, arguments.epochs, step, steps, loss.item(), accuracy), flush=True)
            if step == steps and hvd.exchange_stats().rounds:
                print(hvd.exchange_stats(), flush=True)

    steps = -(-len(train_x) // digits.BATCH)
    accuracy: float | None = None
    for epoch in range(1, arguments.epochs + 1):
        for step, batch in enumerate(torch.randperm(len(train_x)).split(digits.BATCH), 1):
            optimizer.zero_grad()
            loss = loss_of(model(train_x[batch]), train_y[batch])
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                show(epoch, step)
        optimizer.drain()  # (*) applies gradients still in flight; none if the exchange is synchronous
        if epoch == arguments.epochs and hvd.exchange_stats().rounds:
            replicas_torch.average(model)  # (*) replicas have drifted apart
        test_loss, accuracy = test()
        show(epoch, steps)

    equal = replicas_torch.equal(model)
    if hvd.rank() == 0:
        framework = f"PyTorch {torch.__version__}"
        digits.conclude(hvd, arguments.result, framework=framework, loss=test_loss, accuracy=accuracy, equal=equal)
    hvd.shutdown()


if __name__ == "__main__":
    main()
