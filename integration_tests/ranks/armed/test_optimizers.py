"""Training with armed steps: models are what one process, or plain negotiation, makes of the same data."""

from __future__ import annotations

import importlib
from typing import Any

import keras
import numpy as np
import pytest
import torch

from integration_tests.support.arming import ARMED, step_armed
from integration_tests.support.debug import debug
from integration_tests.support.merging import ask_for, step_until
from integration_tests.support.ranks import ranks, run_ranks
from paceline.fusion.report import report

STEPS = 12


def _train(rank: int, size: int, wrapper: str, exchanged: int = 8, **options: Any) -> None:
    """The gradient of the sum of outputs is the input, and 1 for the bias: what one process would have is known.

    `exchanged`: what the plan merges of 4 weights and 4 biases.
    """
    hvd = importlib.import_module(wrapper)
    hvd.init()
    torch.manual_seed(3)
    model = torch.nn.ModuleList([torch.nn.Linear(5 + n, 3) for n in range(4)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.125),
        named_parameters=model.named_parameters(f"train.{wrapper}.{len(options)}"),
        **options,
    )
    alone = {name: value.clone() for name, value in model.state_dict().items()}

    def step_of(step: int) -> None:
        optimizer.zero_grad()
        value = float(rank + step % 7)
        torch.stack([layer(torch.full((1, 5 + n), value)).sum() for n, layer in enumerate(model)]).sum().backward()
        optimizer.step()
        for n in range(len(model)):
            alone[f"{n}.weight"] -= 0.125 * ((size - 1) / 2 + step % 7)
            alone[f"{n}.bias"] -= 0.125

    ask_for("torch", "none")
    step_until("torch", step_of)
    assert len(report("torch").groups) == exchanged
    step_armed(step_of, STEPS)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, alone[name], rtol=1e-4, atol=1e-4)
    ask_for("torch", "threshold")


@pytest.mark.parametrize("wrapper", ["horovod.torch", "paceline.torch"])
def test_torch(wrapper: str) -> None:
    run_ranks(_train, 2, wrapper, env=ARMED)


@ranks(2, env=ARMED)
def test_buckets_of_small_gradients(rank: int, size: int) -> None:
    _train(rank, size, "paceline.torch", 3, bucket_bytes=80)  # biases and the two smaller weights are one gradient


@pytest.mark.parametrize("exchange", ["pipelined", "majority", "local"])
@ranks(3, env=ARMED, hvd="paceline.torch")
def test_other_exchanges(rank: int, size: int, hvd: Any, exchange: str) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(*[torch.nn.Linear(7, 7) for _ in range(4)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        named_parameters=model.named_parameters(f"armed.{exchange}"),
        exchange=exchange,
    )

    def step_of(step: int) -> None:
        optimizer.zero_grad()
        model(torch.full((2, 7), float(rank + step % 5))).square().mean().backward()
        optimizer.step()

    ask_for("torch", "none")
    step_until("torch", step_of)
    for step in range(5 * STEPS):
        step_of(step)
    optimizer.drain()
    for name, value in model.state_dict().items():
        everyone = hvd.allgather(value.reshape(1, -1), name=f"armed.{exchange}.{name}")
        # A rank that missed a round adds its result to the next one's: the same sum, rounded in another order.
        margin = 1e-6 if exchange == "majority" else 0.0
        for theirs in everyone:
            torch.testing.assert_close(theirs, everyone[0], rtol=margin, atol=margin)
    ask_for("torch", "threshold")


def _keras(rank: int, size: int) -> Any:
    import paceline.keras as hvd

    hvd.init()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(9, input_shape=(5,)), keras.layers.Dense(7), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    ask_for("tensorflow", "none")
    inputs = np.full((4, 5), float(rank + 1), np.float32)
    targets = np.ones((4, 1), np.float32)
    step_armed(lambda _: model.train_on_batch(inputs, targets), STEPS, "tensorflow")
    ask_for("tensorflow", "threshold")
    return [weights.tolist() for weights in model.get_weights()]


def test_keras() -> None:
    one, other = run_ranks(_keras, 2, env=debug(armed=True, fusion_warmup_steps=3))
    assert one == other
