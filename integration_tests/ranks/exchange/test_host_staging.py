"""Device tensors staged through CPU memory, for a Horovod without CUDA, in every exchange; copies take time.

The device is simulated in CPU memory: a copy to the host is done some time later and reads the memory then.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch.mpi_ops as mpi_ops
import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.exact_training import EXCHANGES, SIZES, STEPS, WITH_CODEC, operations, train
from integration_tests.support.ranks import ranks
from paceline.horovod.shims import host_staging


class SlowDevice:
    """Simulated device: copies to the host take up to `most_s`, one after another as on a stream."""

    def __init__(self, most_s: float, seed: int) -> None:
        self._most_s, self._dice = most_s, random.Random(seed)
        self._stream = threading.Lock()
        self.down_bytes = 0

    def has(self, value: Any) -> bool:
        """Return True for tensors of the simulated device."""
        return hasattr(value, "is_cuda") and bool(value.is_floating_point())

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Callable[[], None]]:
        """Return host copies and a function that waits until they are done."""
        host = [one.new_full(one.shape, 77) for one in tensors]
        duration_s = self._dice.random() * self._most_s
        self.down_bytes += sum(one.nbytes for one in tensors)

        def copied() -> None:
            with self._stream:
                time.sleep(duration_s)
                for one, copy in zip(tensors, host, strict=True):
                    copy.copy_(one.detach())  # in a thread where torch makes graphs

        return host, copied

    def up(self, host: Any, tensor: Any) -> None:
        """Copy a host tensor to the device."""
        tensor.copy_(host)


def _on_device(made: Callable[[Any], str], device: SlowDevice) -> Callable[[Any], str]:
    def name_of(tensor: Any) -> str:
        before, after = made(tensor).rsplit("_", 1)
        return f"{before}_cuda_{after}" if device.has(tensor) else f"{before}_{after}"

    return name_of


def staged(rank: int, most_s: float = 0.003) -> SlowDevice:
    """Make horovod.torch treat all tensors as tensors of a slow device until the process ends: in fresh ranks only."""
    device = SlowDevice(most_s, rank)
    found = host_staging.install(mpi_ops, device)
    assert found is not None
    for name in dir(mpi_ops):
        if name.endswith("_function_factory"):
            setattr(mpi_ops, name, _on_device(getattr(mpi_ops, name), device))
    return device


@pytest.mark.parametrize(
    ("exchange", "codec"), [(one, None) for one in EXCHANGES] + [(one, "q8") for one in WITH_CODEC]
)
@ranks(2, fresh=True)
def test_training_equals_one_process(rank: int, size: int, exchange: str, codec: str | None) -> None:
    device = staged(rank)
    train(rank, size, exchange, codec, "cpu")
    assert device.down_bytes >= 4 * sum(SIZES) * (1 if exchange == "local" else STEPS)


@ranks(3, fresh=True)
def test_every_operation(rank: int, size: int) -> None:
    staged(rank)
    operations(rank, size, "cpu")


@ranks(2, fresh=True)
def test_what_horovod_refuses_is_raised_at_the_wait(rank: int, size: int) -> None:
    staged(rank, 0.05)
    more = hvd.alltoall_async(torch.ones(size), torch.full((size,), 2, dtype=torch.int32), name="staged.more")
    with pytest.raises(ValueError, match="splits"):  # as Horovod raises it where it is started
        hvd.synchronize(more)
    assert hvd.allreduce(torch.ones(3), name="staged.after").tolist() == [1.0] * 3


@ranks(2, fresh=True)
def test_a_failing_device_is_reported(rank: int, size: int) -> None:
    device = staged(rank)

    def fails() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    device.down = lambda tensors: (list(tensors), fails)  # type: ignore[method-assign]
    handle = hvd.allreduce_async(torch.ones(3), name="staged.failed")
    with pytest.raises(hvd.HorovodInternalError, match="illegal memory access"):
        hvd.synchronize(handle)
    never = threading.Event()

    def waits() -> None:
        never.wait(5)

    device.down = lambda tensors: (list(tensors), waits)  # type: ignore[method-assign]
    limit_s, host_staging.LIMIT_S = host_staging.LIMIT_S, 0.1
    handle = hvd.allreduce_async(torch.ones(3), name="staged.stuck")
    with pytest.raises(
        hvd.HorovodInternalError, match=rf"staged\.stuck: rank {rank} expected its copy to CPU memory within 0.1 s"
    ):
        hvd.synchronize(handle)
    host_staging.LIMIT_S = limit_s
    never.set()
    hvd.barrier()
