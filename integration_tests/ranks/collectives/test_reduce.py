"""hvd.reduce for PyTorch gives the root what one process computes, and leaves the other ranks what they had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from integration_tests.support.debug import debug
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks

# Horovod's own collectives, where a reduce is an allreduce, and ours, in blocks of a few elements.
ENVIRONMENTS = {
    "horovod": {"PACELINE_COLLECTIVE": "horovod"},
    "ring": {"PACELINE_COLLECTIVE": "ring", **debug(collective_block_bytes=64)},
}
SIZES = (0, 1, 17, 1001)
TYPES = ("int32", "int64", "float16", "float32", "float64")
FOLDS = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}
in_both = pytest.mark.parametrize(
    "env", [more(ENVIRONMENTS["horovod"], id="horovod"), pytest.param(ENVIRONMENTS["ring"], id="ring")]
)
with_ranks = pytest.mark.parametrize("size", [more(2), 3])


def _given(rank: int, length: int, dtype: str) -> np.ndarray:
    """Whole numbers that tell whose they are, small enough for sums and products of all ranks in every type."""
    return ((np.arange(length) + 3 * rank) % 2 + (rank % 2)).astype(dtype)


def _hvd() -> Any:
    import paceline.torch as hvd

    hvd.init()
    return hvd


def _values(rank: int, size: int) -> None:
    hvd = _hvd()
    for length in SIZES:
        for dtype in TYPES:
            for op, fold in FOLDS.items():
                root = (length + len(dtype)) % size
                wanted = _given(0, length, dtype)
                for other in range(1, size):
                    wanted = fold(wanted, _given(other, length, dtype))
                mine = _given(rank, length, dtype)
                tensor = torch.from_numpy(mine.copy())
                name = f"{op}.{dtype}.{length}"
                found = hvd.reduce(tensor, root, name, getattr(hvd, op))
                np.testing.assert_array_equal(tensor.numpy(), mine, err_msg=f"{name}: what was given has changed")
                np.testing.assert_array_equal(found.numpy(), wanted if rank == root else mine, err_msg=name)
                assert found.data_ptr() != tensor.data_ptr() or not length


@in_both
@with_ranks
def test_values(env: dict[str, str], size: int) -> None:
    run_ranks(_values, size, env=env)


def _other_forms(rank: int, size: int) -> None:
    hvd = _hvd()
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


@in_both
@with_ranks
def test_other_forms(env: dict[str, str], size: int) -> None:
    run_ranks(_other_forms, size, env=env)


def _gradients(rank: int, size: int) -> None:
    hvd = _hvd()
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


@in_both
@with_ranks
def test_gradients(env: dict[str, str], size: int) -> None:
    run_ranks(_gradients, size, env=env)


def _refused(rank: int, size: int) -> None:
    hvd = _hvd()
    tensor = torch.ones(2)
    for wrong in (size, -1, True, "0"):
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
        with pytest.raises(hvd.UsageError, match=f"rank {rank} is no member"):
            hvd.reduce(tensor, size - 1, "member", process_set=last)
    else:
        found = hvd.reduce(tensor + rank, size - 1, "part", hvd.Sum, process_set=last)
        assert found[0].item() == (2 * size - 1 if rank == size - 1 else rank + 1)
    hvd.remove_process_set(last)


@in_both
def test_refused_and_a_process_set(env: dict[str, str]) -> None:
    run_ranks(_refused, 3, env={**env, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
