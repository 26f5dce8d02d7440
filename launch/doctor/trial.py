"""What two ranks try for `paceline doctor`: a few steps of a tiny model with each exchange, in one framework.

    python -m paceline.launch.doctor.trial torch

Rank 0 prints a line of JSON for each exchange as soon as it is through.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from paceline.config import EXCHANGES

STEPS = 4


def _torch() -> tuple[Any, Callable[[str], None]]:
    import torch

    import paceline.torch as hvd

    def train(exchange: str) -> None:
        model = torch.nn.Linear(3, 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01),
            named_parameters=[(f"{exchange}.{name}", parameter) for name, parameter in model.named_parameters()],
            exchange=exchange,
        )
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        optimizer.drain()

    return hvd, train


def _tensorflow() -> tuple[Any, Callable[[str], None]]:
    import keras
    import numpy as np

    import paceline.keras as hvd

    def train(exchange: str) -> None:
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), exchange=exchange)
        model.compile(optimizer=optimizer, loss="mse")
        model.fit(np.ones((2 * STEPS, 3)), np.ones(2 * STEPS), batch_size=2, verbose=0)

    return hvd, train


FRAMEWORKS = {"torch": _torch, "tensorflow": _tensorflow}


def main() -> None:
    """One rank."""
    hvd, train = FRAMEWORKS[sys.argv[1]]()
    hvd.init()
    for exchange in EXCHANGES:
        train(exchange)
        if hvd.rank() == 0:
            print("TRIED " + json.dumps(exchange), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
