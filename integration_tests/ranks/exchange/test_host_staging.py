"""Tensors of a device through CPU memory, for a Horovod without CUDA, in every exchange; copies take time.

The device is made of CPU memory: a copy to the host is done a while later, and reads what is there then.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from integration_tests.support.exact_training import EXCHANGES, SIZES, STEPS, WITH_CODEC, part, train
from integration_tests.support.ranks import ranks, run_ranks


class SlowDevice:
    """Copies to the host take up to `most_s`, one after another as on a stream."""

    def __init__(self, most_s: float, seed: int) -> None:
        self._most_s, self._dice = most_s, random.Random(seed)
        self._stream = threading.Lock()
        self.down_bytes = self.up_bytes = 0

    def has(self, value: Any) -> bool:
        """See Device.has."""
        return hasattr(value, "is_cuda") and bool(value.is_floating_point())

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Callable[[], None]]:
        """See Device.down."""
        host = [one.new_full(one.shape, 77) for one in tensors]
        duration_s = self._dice.random() * self._most_s
        self.down_bytes += sum(one.nbytes for one in tensors)

        def copied() -> None:
            with self._stream:
                time.sleep(duration_s)
                for one, copy in zip(tensors, host, strict=True):
                    copy.copy_(one.detach())

        return host, copied

    def up(self, host: Any, tensor: Any) -> None:
        """See Device.up."""
        self.up_bytes += host.nbytes
        tensor.detach().copy_(host)


def staged(rank: int, most_s: float = 0.003) -> SlowDevice:
    """Let horovod.torch take all tensors for those of a slow device, until the process ends."""
    import horovod.torch.mpi_ops as operations

    from paceline.horovod.shims import host_staging

    device = SlowDevice(most_s, rank)
    found = host_staging.install(operations, device)
    assert found is not None
    found.device = device
    for name in dir(operations):
        if name.endswith("_function_factory"):
            made = getattr(operations, name)
            if not hasattr(made, "of_cpu"):

                def on_device(tensor: Any, made: Any = made) -> str:
                    before, after = str(made(tensor)).rsplit("_", 1)
                    return f"{before}_cuda_{after}" if device.has(tensor) else f"{before}_{after}"

                on_device.of_cpu = made  # type: ignore[attr-defined]
                setattr(operations, name, on_device)
    return device


def _training(rank: int, size: int, exchange: str, codec: str | None) -> int:
    import paceline.torch as hvd

    hvd.init()
    device = staged(rank)
    train(rank, size, exchange, codec, "cpu")
    return device.down_bytes


@pytest.mark.parametrize(
    ("exchange", "codec"), [(one, None) for one in EXCHANGES] + [(one, "q8") for one in WITH_CODEC]
)
def test_training_equals_one_process(exchange: str, codec: str | None) -> None:
    moved = run_ranks(_training, 2, exchange, codec, fresh=True)
    assert min(moved) >= 4 * sum(SIZES) * (1 if exchange == "local" else STEPS)


@ranks(3)
def test_every_operation(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    hvd.init()
    staged(rank)
    own = part(rank, 0, 12)
    everyone = [part(other, 0, 12) for other in range(size)]
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum, name="staged.sum"), sum(everyone))
    grouped = hvd.grouped_allreduce([own, own[:5].clone()], op=hvd.Sum, name="staged.grouped")
    assert torch.equal(grouped[1], sum(everyone)[:5])
    assert torch.equal(hvd.allgather(own[: rank + 1].clone(), name="staged.gathered"), torch.cat([
        one[: n + 1] for n, one in enumerate(everyone)
    ]))  # fmt: skip
    assert torch.equal(hvd.broadcast(own, 1, name="staged.broadcast"), everyone[1])
    found, splits = hvd.alltoall(own, torch.full((size,), 4, dtype=torch.int32), name="staged.alltoall")
    assert torch.equal(found, torch.cat([one[4 * rank : 4 * rank + 4] for one in everyone]))
    assert splits.tolist() == [4] * size
    scattered = hvd.reducescatter(own, op=hvd.Sum, name="staged.scattered")
    assert torch.equal(scattered, sum(everyone)[4 * rank : 4 * rank + 4])
    total, fresh = hvd.partial_allreduce(own, name="staged.partial", quorum=size)
    assert torch.equal(total * size, sum(everyone)) and fresh == size
    handle = hvd.allreduce_async(own, op=hvd.Sum, name="staged.polled")
    while not hvd.poll(handle):
        time.sleep(0.001)
    assert torch.equal(hvd.synchronize(handle), sum(everyone))


@ranks(2)
def test_what_horovod_refuses_is_told_where_it_is_waited_for(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    hvd.init()
    staged(rank, 0.05)
    more = hvd.alltoall_async(torch.ones(size), torch.full((size,), 2, dtype=torch.int32), name="staged.more")
    with pytest.raises(ValueError, match="splits"):  # as Horovod raises it where it is started
        hvd.synchronize(more)
    assert hvd.allreduce(torch.ones(3), name="staged.after").tolist() == [1.0] * 3


@ranks(2)
def test_a_device_that_fails_is_told(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd
    from paceline.horovod.shims import host_staging

    hvd.init()
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
        hvd.HorovodInternalError, match=r"staged\.stuck: its copy to CPU memory was not done within 0.1 s"
    ):
        hvd.synchronize(handle)
    host_staging.LIMIT_S = limit_s
    never.set()
    hvd.barrier()
