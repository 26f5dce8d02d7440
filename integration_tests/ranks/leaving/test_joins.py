"""hvd.join() under exchanges in which a rank that has joined cannot count as zeros: equal updates, or an error.

Without the comparison models were averaged with zeros in place of the model of the rank that had joined, without an
error; under the split exchange the weights that it owned became zeros.
"""

from __future__ import annotations

from typing import Any

import keras
import pytest
import torch

from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from paceline.native import agreement

EXCHANGES = ("local", "split")
SYNC_EVERY = 4


def _torch(exchange: str) -> Any:
    import paceline.torch as hvd

    hvd.init()
    weight = torch.nn.Parameter(torch.zeros(300, dtype=torch.float64))
    chosen = hvd.Local(sync_every=SYNC_EVERY) if exchange == "local" else exchange
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)], exchange=chosen)

    def step(gradient: float) -> None:
        optimizer.zero_grad()
        (weight * gradient).sum().backward()
        optimizer.step()

    return hvd, step, optimizer.drain, lambda: weight.detach().numpy()


def _keras(exchange: str) -> Any:
    import paceline.keras as hvd

    hvd.init()
    variable = keras.Variable([0.0] * 300)
    chosen = hvd.Local(sync_every=SYNC_EVERY) if exchange == "local" else exchange
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), exchange=chosen)
    optimizer.build([variable])

    def step(gradient: float) -> None:
        optimizer.apply([keras.ops.full((300,), gradient)], [variable])

    return hvd, step, optimizer.drain, lambda: keras.ops.convert_to_numpy(variable.value)


TRAININGS = {"torch": _torch, "keras": _keras}


def _equal(rank: int, size: int, framework: str, exchange: str) -> None:
    hvd, step, drain, weights = TRAININGS[framework](exchange)
    for turn in range(2):
        for _ in range(SYNC_EVERY - 1):
            step(float(rank + 1))
        assert int(hvd.join()) in range(size)
        drain()
        mean = (size + 1) / 2
        assert (weights() == -(turn + 1) * (SYNC_EVERY - 1) * mean).all(), weights()[:3]
    hvd.shutdown()


def _unequal(rank: int, size: int, framework: str, exchange: str) -> str:
    hvd, step, _, weights = TRAININGS[framework](exchange)
    agreement.MEET_LIMIT_S = 2.0
    try:
        for _ in range(1 + SYNC_EVERY * rank):
            step(1.0)
        hvd.join()
    except Exception as error:
        hvd.shutdown()  # as a script that ends by this error
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"rank {rank}: no error, weights {weights()[:3]}")


CASES = [(framework, exchange) for framework in TRAININGS for exchange in EXCHANGES]
ENV = {"KERAS_BACKEND": "tensorflow"}


@pytest.mark.parametrize(("framework", "exchange"), CASES)
def test_equal_numbers_of_updates(framework: str, exchange: str) -> None:
    run_ranks(_equal, 2, framework, exchange, env=ENV, fresh=True)


@pytest.mark.parametrize(("framework", "exchange"), [case if case[0] == "torch" else more(*case) for case in CASES])
def test_unequal_numbers_are_an_error_on_all_ranks(framework: str, exchange: str) -> None:
    first, second = run_ranks(_unequal, 2, framework, exchange, env=ENV, fresh=True)
    assert "waited for all ranks at paceline.join" in first and "hvd.uneven" in first, first
    assert "rank 0" in second.lower(), second
