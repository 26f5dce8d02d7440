"""Device tensors staged through CPU memory, for a Horovod without CUDA, in every exchange; copies take time.

The device is simulated in CPU memory, with streams, events and pinned memory (support/stream_device.py).
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.gpu.values import features
from integration_tests.support.arming import ARMED, state, step_armed
from integration_tests.support.exact_training import EXCHANGES, SIZES, STEPS, WITH_CODEC, operations, part, train
from integration_tests.support.merging import ask_for, step_until
from integration_tests.support.ranks import ranks
from integration_tests.support.stream_device import LIMIT_S, StreamDevice, staged
from paceline.exchange.wire import Bucket
from paceline.horovod.shims import host_staging
from paceline.native.library import loaded
from paceline.record.snapshot import take
from paceline.split.exchange import EVERYONE
from paceline.torch.optimizer import wire


@pytest.mark.parametrize(
    ("exchange", "codec"), [(one, None) for one in EXCHANGES] + [(one, "q8") for one in WITH_CODEC]
)
@ranks(2, fresh=True)
def test_training_equals_one_process(rank: int, size: int, exchange: str, codec: str | None) -> None:
    staged(device := StreamDevice(rank))
    train(rank, size, exchange, codec, "cpu")
    assert device.down_bytes >= 4 * sum(SIZES) * (1 if exchange == "local" else STEPS)


@ranks(3, fresh=True)
def test_every_operation(rank: int, size: int) -> None:
    staged(StreamDevice(rank))
    operations(rank, size, "cpu")


@ranks(2, fresh=True)
def test_features_of_optimizers(rank: int, size: int) -> None:
    """An overflow under GradScaler, clipping, fused updates, torch.compile, fp16 compression."""
    staged(device := StreamDevice(rank))
    for name, case in features(rank, size, "cpu").items():
        before = device.down_bytes
        case()
        assert device.down_bytes > before, f"{name} exchanged nothing on the device"


@ranks(2, fresh=True, env=ARMED)
def test_armed_steps(rank: int, size: int) -> None:
    """Tensors are submitted by the staging thread; steps are armed as those in CPU memory."""
    staged(device := StreamDevice(rank))
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in SIZES]
    named = [(f"staged.armed.{n}", one) for n, one in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named_parameters=named)
    total = [torch.zeros(n) for n in SIZES]

    def step_of(step: int) -> None:
        optimizer.zero_grad()
        sum((one * part(rank, step % 8, one.numel())).sum() for one in parameters).backward()
        optimizer.step()
        for wanted in total:
            wanted -= sum(part(other, step % 8, len(wanted)) for other in range(size)) / size

    ask_for("torch", "none")
    step_until("torch", step_of)
    before = device.down_bytes
    step_armed(step_of, STEPS)
    assert state().state == "armed" and device.down_bytes - before >= 4 * sum(SIZES) * STEPS
    for one, wanted in zip(parameters, total, strict=True):
        assert torch.equal(one.detach(), wanted)
    ask_for("torch", "threshold")


# --- order, memory, waits --------------------------------------------------------------------------------------------


@ranks(2, fresh=True)
def test_copies_keep_the_order_of_kernels_and_memory_is_used_again(rank: int, size: int) -> None:
    """Kernels write gradients and read results; the CPU waits for the messages, never for a kernel."""
    device = StreamDevice(rank, at_once=False)
    staged(device)
    gc.disable()  # as some training loops do: memory must not wait for a search for cycles
    weights, gradients = ([torch.zeros(n) for n in SIZES] for _ in range(2))

    def write(gradient: Any, step: int) -> None:
        gradient.copy_(part(rank, step, len(gradient)))

    steps = 4 * STEPS
    for step in range(steps):
        handles = []
        for n, gradient in enumerate(gradients):
            device.kernels.queue(lambda one=gradient, step=step: write(one, step))  # type: ignore[misc]
            handles.append(hvd.allreduce_async_(gradient, op=hvd.Sum, name=f"order.{n}"))
        for weight, gradient, handle in zip(weights, gradients, handles, strict=True):
            hvd.synchronize(handle)
            device.kernels.queue(lambda weight=weight, one=gradient: weight.add_(one))  # type: ignore[misc]
    device.kernels.synchronize()
    for weight in weights:
        wanted = sum(part(other, step, len(weight)) for other in range(size) for step in range(steps))
        assert torch.equal(weight, wanted), (weight, wanted)
    # Memory of a step is free when its results are copied, at the latest when the next step's gradients are ready.
    assert device.pinned.taken == steps * len(SIZES)
    assert len(device.pinned.blocks) <= 2 * len(SIZES), len(device.pinned.blocks)


@ranks(2, fresh=True)
def test_copy_of_one_tensor_runs_beside_the_message_of_another(rank: int, size: int) -> None:
    """To plans the second one is ready after its copy, though it was submitted before the first message began."""
    staged(device := StreamDevice(rank))
    library, opened = loaded("torch"), threading.Event()
    library.horovod_paceline_record_start(10)
    first = hvd.allreduce_async(torch.full((5,), float(rank)), op=hvd.Sum, name="beside.first")
    device.copies.queue(lambda: opened.wait(LIMIT_S))
    second = hvd.allreduce_async(torch.full((7,), float(rank)), op=hvd.Sum, name="beside.second")
    assert hvd.synchronize(first).tolist() == [size * (size - 1) / 2] * 5
    assert not hvd.poll(second) and not opened.is_set()
    opened.set()
    assert hvd.synchronize(second).tolist() == [size * (size - 1) / 2] * 7
    hvd.allreduce(torch.zeros(5), name="beside.first")  # a repeated name begins a step
    library.horovod_paceline_record_stop()
    trace = take(library)
    names = [one.name for one in trace.tensors]
    ready_s = {names[one.tensor]: one.time_s for one in trace.steps[0].arrivals}
    ended_s = {names[tensor]: one.end_s for one in trace.steps[0].collectives for tensor in one.tensors}
    assert ready_s["allreduce.beside.second"] > ended_s["allreduce.beside.first"], (ready_s, ended_s)


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "majority"])
@ranks(2, fresh=True)
def test_backward_waits_for_no_copy(rank: int, size: int, exchange: str) -> None:
    staged(device := StreamDevice(rank))
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in SIZES]
    named = [(f"unwaited.{n}", one) for n, one in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named_parameters=named, exchange=exchange)
    for step in range(4):
        opened = threading.Event()
        device.copies.queue(lambda opened=opened: opened.wait(LIMIT_S))  # type: ignore[misc]
        optimizer.zero_grad()
        before = device.copies.record()
        sum((one * part(rank, step, one.numel())).sum() for one in parameters).backward()
        assert not before.reached, "backward() waited for a copy"
        opened.set()
        optimizer.step()
    optimizer.drain()
    for one in parameters:
        wanted = -sum(part(other, step, one.numel()) for other in range(size) for step in range(4)) / size
        assert torch.equal(one.detach(), wanted)


# --- errors ----------------------------------------------------------------------------------------------------------


@ranks(2, fresh=True)
def test_what_horovod_refuses_is_raised_at_the_wait(rank: int, size: int) -> None:
    staged(StreamDevice(rank, most_s=0.05))
    more = hvd.alltoall_async(torch.ones(size), torch.full((size,), 2, dtype=torch.int32), name="staged.more")
    with pytest.raises(ValueError, match="splits"):  # as Horovod raises it where it is started
        hvd.synchronize(more)
    assert hvd.allreduce(torch.ones(3), name="staged.after").tolist() == [1.0] * 3


def _fails(text: str) -> Any:
    def fail(*_: Any) -> None:
        raise RuntimeError(f"CUDA error: {text}\nCUDA kernel errors might be reported later.")

    return fail


@ranks(2, fresh=True)
def test_failing_copies_are_reported_with_tensor_and_rank(rank: int, size: int) -> None:
    """A copy that cannot begin, one that fails on its stream, and one of a result."""
    staged(device := StreamDevice(rank))
    memory = device.pinned.take
    device.pinned.take = _fails("out of memory")  # type: ignore[method-assign]
    with pytest.raises(
        hvd.HorovodInternalError,
        match=rf"staged\.full: rank {rank} expected a copy to CPU memory to begin, found: CUDA error: out of memory\. "
        "If .*start fewer ranks",
    ):
        hvd.allreduce_async(torch.ones(3), name="staged.full")
    device.pinned.take = memory  # type: ignore[method-assign]
    up, device.up = device.up, _fails("misaligned address")  # type: ignore[method-assign]
    with pytest.raises(
        hvd.HorovodInternalError,
        match=rf"staged\.up: rank {rank} expected a copy of the result .* misaligned address\.",
    ):
        hvd.allreduce(torch.ones(3), name="staged.up")
    device.up = up  # type: ignore[method-assign]
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("staged.weight", weight)]
    )
    device.kernels.queue(_fails("an illegal memory access was encountered"))
    weight.sum().backward()
    with pytest.raises(
        hvd.HorovodInternalError,
        match=rf"Gradient of 'staged.weight': .*rank {rank} expected a copy to CPU memory, found: CUDA error: an "
        r"illegal memory access was encountered\. .*CUDA_LAUNCH_BLOCKING=1",
    ):
        optimizer.step()
    assert not host_staging._staged[id(hvd.mpi_ops.mpi_lib)]._trips
    hvd.barrier()


@ranks(2, fresh=True)
def test_copy_that_never_ends_is_reported(rank: int, size: int) -> None:
    staged(device := StreamDevice(rank))
    opened = threading.Event()
    device.copies.queue(lambda: opened.wait(LIMIT_S))
    limit_s, host_staging.LIMIT_S = host_staging.LIMIT_S, 0.1
    handle = hvd.allreduce_async(torch.ones(3), name="staged.stuck")
    with pytest.raises(
        hvd.HorovodInternalError, match=rf"staged\.stuck: rank {rank} expected its copy to CPU memory within 0.1 s"
    ):
        hvd.synchronize(handle)
    host_staging.LIMIT_S = limit_s
    opened.set()
    assert hvd.allreduce(torch.ones(3), name="staged.after").tolist() == [1.0] * 3


@ranks(2, fresh=True)
def test_cuda_graph_is_refused_by_name(rank: int, size: int) -> None:
    staged(device := StreamDevice(rank))
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), named_parameters=[("graph.weight", weight)])
    device.graph = True
    refusal = rf"graph\.weight: rank {rank} expected a stream that captures no CUDA graph.*\n.*outside of the capture"
    with pytest.raises(hvd.UsageError, match=refusal):
        weight.sum().backward()
    device.graph = False
    optimizer.zero_grad()
    handle = hvd.allreduce_async(torch.ones(3), name="graph.wait")
    device.graph = True
    with pytest.raises(
        hvd.UsageError, match=rf"graph\.wait: rank {rank} expected a stream that captures no CUDA graph"
    ):
        hvd.synchronize(handle)
    device.graph = False
    assert hvd.synchronize(handle).tolist() == [1.0] * 3
    weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == [-1.0] * 3


class OnGpu:
    """The attributes of a tensor on a GPU that an optimizer's wire reads."""

    is_cuda, is_sparse, device, dtype = True, False, "cuda:1", torch.float32


@ranks(2, fresh=True)
def test_gpu_operations_of_horovod_are_refused_by_name(rank: int, size: int) -> None:
    """Of a Horovod with NCCL: a capture, and the split exchange, whose halves NCCL does not know."""
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("refused.weight", weight)]
    )
    bucket, exchange = Bucket("refused.weight", ("refused.weight",)), optimizer._exchange
    wire._reduces_on_gpus = lambda: "NCCL"  # type: ignore[assignment]
    refusal = rf"refused\.weight: .* rank {rank} expected .* in CPU memory, found one on cuda:1, where NCCL.*\n.*sync"
    with pytest.raises(hvd.UsageError, match=refusal):
        exchange.wire.start(bucket, [OnGpu()], owner=EVERYONE)
    torch.cuda.is_current_stream_capturing = lambda: True
    with pytest.raises(hvd.UsageError, match=rf"refused\.weight: rank {rank} expected a stream that captures no CUDA"):
        exchange.wire.start(bucket, [OnGpu()], exact=True)
