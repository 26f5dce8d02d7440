"""Memory of a pipelined exchange: one copy of the gradients for each unit of K - 1, constant over time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.large import resident_bytes
from integration_tests.support.ranks import run_ranks

GRADIENTS_BYTES = 4 * 20_000_000  # in two tensors
# Other memory that changes: buffers of the allocator, of Gloo and of the interpreter.
NOISE_BYTES = GRADIENTS_BYTES // 4


def _train(rank: int, size: int, exchange: Any, elements: int, marks: tuple[int, ...]) -> list[int]:
    """Resident memory after each number of steps in `marks`."""
    weights = [torch.nn.Parameter(torch.zeros(elements)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(weights, lr=0.1), [(f"memory.{n}", one) for n, one in enumerate(weights)], exchange=exchange
    )
    seen = []
    for step in range(1, marks[-1] + 1):
        # Gradients keep their memory, so that only the exchange's memory is new.
        optimizer.zero_grad(set_to_none=False)
        for weight in weights:
            weight.sum().backward()
        optimizer.step()
        if step in marks:
            seen.append(resident_bytes())
    optimizer.drain()
    return seen


def _two_sizes(rank: int, size: int, k: int) -> int:
    (after,) = _train(rank, size, hvd.Pipelined(k), GRADIENTS_BYTES // 8, (4 + k,))
    return after


@pytest.mark.more
def test_each_unit_of_k_costs_one_copy_of_the_gradients() -> None:
    # Each tensor is sent as a separate message, so that no run has Horovod's fusion buffer.
    env = {"HOROVOD_FUSION_THRESHOLD": "0"}
    resident = {k: run_ranks(_two_sizes, 2, k, env=env, fresh=True) for k in (1, 2, 3, 5)}
    print(
        "copies of the gradients above K = 1:",
        {
            k: [round((one - base) / GRADIENTS_BYTES, 2) for one, base in zip(found, resident[1])]
            for k, found in resident.items()
        },
    )
    for k in (2, 3, 5):
        for rank in range(2):
            more = resident[k][rank] - resident[1][rank]
            assert abs(more - (k - 1) * GRADIENTS_BYTES) < NOISE_BYTES, (k, rank, more / GRADIENTS_BYTES)


def _long(rank: int, size: int) -> list[int]:
    return _train(rank, size, hvd.Pipelined(k=3), 1000, (1000, 4000, 10_000))


@pytest.mark.soak
def test_ten_thousand_steps_need_no_more_than_one_thousand() -> None:
    for seen in run_ranks(_long, 2, fresh=True, timeout_s=900):
        print("MB after 1,000, 4,000 and 10,000 steps:", [round(one / 1e6, 2) for one in seen])
        assert seen[-1] - seen[0] < 1_000_000
