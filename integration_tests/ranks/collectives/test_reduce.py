"""hvd.reduce for PyTorch gives the root one process's result, and does not change the other ranks' tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import paceline.torch as hvd
from integration_tests.ranks.collectives.test_collectives import FOLDS, TYPES, given, in_both

SIZES = (0, 1, 17, 1001)


@in_both(3, more=(2,))
def test_values(rank: int, size: int) -> None:
    for length in SIZES:
        for dtype in TYPES:
            for op, fold in FOLDS.items():
                root = (length + len(dtype)) % size
                wanted = given(0, length, dtype)
                for other in range(1, size):
                    wanted = fold(wanted, given(other, length, dtype))
                mine = given(rank, length, dtype)
                tensor = torch.from_numpy(mine.copy())
                name = f"{op}.{dtype}.{length}"
                found = hvd.reduce(tensor, root, name, getattr(hvd, op))
                np.testing.assert_array_equal(tensor.numpy(), mine, err_msg=f"{name}: what was given has changed")
                np.testing.assert_array_equal(found.numpy(), wanted if rank == root else mine, err_msg=name)
                assert found.data_ptr() != tensor.data_ptr() or not length


@in_both(3, more=(2,))
def test_other_forms(rank: int, size: int) -> None:
    mine = torch.arange(5.0) + 10 * rank
    mean = torch.arange(5.0) + 5 * (size - 1)
    for root in range(size):
        wanted = mean if rank == root else mine
        tensor = mine.clone()
        assert hvd.reduce_(tensor, root, name=f"in_place.{root}") is tensor
        assert torch.equal(tensor, wanted)
        handles = [hvd.reduce_async(mine, root), hvd.reduce_async(2 * mine, root)]  # unnamed ones, in one order
        for factor, handle in enumerate(handles, 1):
            assert torch.equal(hvd.synchronize(handle), factor * wanted)
        tensor = mine.clone()
        handle = hvd.reduce_async_(tensor, root, name=f"async_in_place.{root}", op=hvd.Sum, postscale_factor=1 / size)
        assert hvd.synchronize(handle) is tensor
        torch.testing.assert_close(tensor, wanted)
    # Sum of halves, times three.
    found = hvd.reduce(mine, 0, "factors", hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    torch.testing.assert_close(found, 1.5 * size * mean if rank == 0 else mine)
    # bfloat16 is added up in float32; memory may be laid out in any way.
    half = torch.full((3, 2), 1 + 2**-7, dtype=torch.bfloat16)
    assert torch.equal(hvd.reduce(half, 0, "bfloat16").float(), half.float())
    turned = (torch.arange(6.0) + rank).reshape(2, 3).t()
    found = hvd.reduce_(turned.clone(memory_format=torch.preserve_format), size - 1, "turned", hvd.Max)
    assert torch.equal(found, turned + (size - 1 - rank) if rank == size - 1 else turned)


@in_both(3, more=(2,))
def test_gradients(rank: int, size: int) -> None:
    for root in range(size):
        for op, divisor in (("Average", size), ("Sum", 1)):
            tensor = torch.arange(3.0, requires_grad=True)
            found = hvd.reduce(tensor, root, f"{op}.{root}", getattr(hvd, op), prescale_factor=0.5)
            (found * torch.tensor([1.0, 2.0, 3.0]) * (rank + 1)).sum().backward()
            assert tensor.grad is not None
            torch.testing.assert_close(tensor.grad, torch.tensor([1.0, 2.0, 3.0]) * (root + 1) * 0.5 / divisor)
    most = hvd.reduce(torch.ones(2, requires_grad=True), 0, "most", hvd.Max)
    with pytest.raises(hvd.UsageError, match=r"'most' has no gradient(.|\n)*hvd.Average or op=hvd.Sum"):
        most.sum().backward()


@in_both(3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_refused_and_a_process_set(rank: int, size: int) -> None:
    tensor = torch.ones(2)
    impossible: tuple[Any, ...] = (size, -1, True, "0")
    for wrong in impossible:
        with pytest.raises(
            ValueError, match=rf"rank {rank}: expected root_rank among the ranks \[0(.|\n)*hvd.rank\(\)"
        ):
            hvd.reduce(tensor, wrong, "root")
    with pytest.raises(hvd.UsageError, match=r"hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product"):
        hvd.reduce(tensor, 0, "op", hvd.Adasum)
    last = hvd.add_process_set([size - 1, size - 2])
    with pytest.raises(hvd.UsageError, match=rf"root_rank among the ranks \[{size - 2}, {size - 1}\]"):
        hvd.reduce(tensor, size, "root", process_set=last)
    if not last.included():
        with pytest.raises(hvd.UsageError, match=f"rank {rank} is not a member"):
            hvd.reduce(tensor, size - 1, "member", process_set=last)
    else:
        found = hvd.reduce(tensor + rank, size - 1, "part", hvd.Sum, process_set=last)
        assert found[0].item() == (2 * size - 1 if rank == size - 1 else rank + 1)
    hvd.remove_process_set(last)
