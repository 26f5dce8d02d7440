"""Trial of two ranks for `paceline doctor`: a few steps of a tiny model with each exchange, collective and codec.

    python -m paceline.launch.doctor.trial torch

The argument is the framework. After each of `choices`, rank 0 prints it as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from paceline.codecs.choice import EXACT
from paceline.registry.codecs import CODECS
from paceline.registry.collectives import COLLECTIVES, HOROVODS, OF_CODECS
from paceline.registry.exchanges import DECLARATIONS

STEPS = 4
TORCH = "torch"


def choices(framework: str) -> tuple[tuple[str, str], ...]:
    """Return the settings to try with `framework`: arguments of its wrappers and their values."""
    return (
        *(("exchange", name) for one in DECLARATIONS for name in one.names),
        *(("collective", name) for name in COLLECTIVES if name != HOROVODS),
        *(("codec", name) for name in CODECS if name != EXACT),
    )


def _arguments(kind: str, name: str) -> dict[str, Any]:
    return {kind: name, "collective": OF_CODECS} if kind == "codec" else {kind: name}


def _torch() -> tuple[Any, Callable[[str, str], None]]:
    import torch

    import paceline.torch as hvd

    def train(kind: str, name: str) -> None:
        model = torch.nn.Linear(3, 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01),
            named_parameters=[(f"{kind}.{name}.{key}", parameter) for key, parameter in model.named_parameters()],
            **_arguments(kind, name),
        )
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        optimizer.drain()

    return hvd, train


def _tensorflow() -> tuple[Any, Callable[[str, str], None]]:
    import keras
    import numpy as np

    import paceline.keras as hvd

    def train(kind: str, name: str) -> None:
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), **_arguments(kind, name))
        model.compile(optimizer=optimizer, loss="mse")
        model.fit(np.ones((2 * STEPS, 3)), np.ones(2 * STEPS), batch_size=2, verbose=0)

    return hvd, train


FRAMEWORKS = {TORCH: _torch, "tensorflow": _tensorflow}


def main() -> None:
    """Run one rank."""
    framework = sys.argv[1]
    hvd, train = FRAMEWORKS[framework]()
    hvd.init()
    for choice in choices(framework):
        train(*choice)
        if hvd.rank() == 0:
            print("TRIED " + json.dumps(choice), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
