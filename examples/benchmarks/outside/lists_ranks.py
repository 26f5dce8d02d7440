"""A rank that averages tensors together, again and again.

    python -m paceline.examples.benchmarks.outside.lists_ranks LIBRARY WARM_UP STEPS SIZES

LIBRARY is horovod or torch (torch.distributed over Gloo); SIZES are numbers of float32 elements, with commas between.
Rank 0 prints the time of each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence

import torch

from paceline.examples.benchmarks.outside.jobs import torch_variables
from paceline.examples.benchmarks.steps.training import POLL_S

TOLERANCE = 0.02  # of a codec


def horovod(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Return a step by Horovod."""
    import paceline.torch as hvd
    from paceline.arguments import choice_asked

    hvd.init()
    # A codec applies to gradients, not to a script's own allreduces, unless their names have its mark.
    mark = choice_asked().mark
    names = [f"{mark}list.{index}" for index in range(len(tensors))]

    def step() -> list[torch.Tensor]:
        handles = [hvd.allreduce_async(tensor, name=name) for tensor, name in zip(tensors, names, strict=True)]
        results = []
        for handle in handles:
            # synchronize() alone would spin and take the processor from the threads that communicate.
            while not hvd.poll(handle):
                time.sleep(POLL_S)
            results.append(hvd.synchronize(handle))
        return results

    return step


def torch_distributed(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Return a step by torch.distributed: sums in place, divided afterwards."""
    import torch.distributed as dist

    torch_variables()
    dist.init_process_group("gloo")
    size = dist.get_world_size()

    def step() -> list[torch.Tensor]:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        return [tensor.div_(size) for tensor in tensors]

    return step


def main(library: str, warm_up: int, steps: int, sizes: list[int]) -> None:
    """Make steps, check the first one's results, and print the times."""
    torch.set_num_threads(1)
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    tensors = [torch.full((count,), float(rank + 1)) for count in sizes]
    step = (torch_distributed if library == "torch" else horovod)(tensors)
    mean = (size + 1) / 2
    for index, result in enumerate(step()):
        wrong = ((result - mean).abs() > TOLERANCE * mean).nonzero()
        if len(wrong):
            at = int(wrong[0])
            raise RuntimeError(f"rank {rank}, tensor {index}, element {at}: expected {mean}, found {result[at]}")
    times_ms = []
    for number in range(warm_up + steps):
        begin_s = time.monotonic()
        step()
        if number >= warm_up:
            times_ms.append((time.monotonic() - begin_s) * 1e3)
    if rank == 0:
        print("RESULT " + json.dumps({"times_ms": times_ms, "messages": len(sizes)}), flush=True)
    if library == "torch":
        # Otherwise a rank may find its peers' connections closed at its own exit, and abort.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(text) for text in sys.argv[4].split(",")])
