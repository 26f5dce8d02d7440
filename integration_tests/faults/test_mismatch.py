"""The error about tensors that differ between ranks names the tensor, and what each rank submitted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from integration_tests.support.ranks import ranks


@pytest.mark.patch("mismatch-ranks")
@ranks(4, hvd="paceline.torch", fresh=True, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_ranks_are_those_of_the_world_also_in_a_process_set(rank: int, size: int, hvd: Any) -> None:
    members = hvd.add_process_set([1, 2, 3])
    given = torch.ones(4 if rank == 2 else 3)
    text = r"Tensor allreduce\.{}: ALLREDUCE of float32 \[3\] on ranks {}; ALLREDUCE of float32 \[4\] on rank 2\."
    with pytest.raises(hvd.HorovodInternalError, match=text.format("all", "0, 1, 3")):
        hvd.allreduce(given, name="all")
    if rank > 0:
        with pytest.raises(hvd.HorovodInternalError, match=text.format("members", "1, 3")):
            hvd.allreduce(given, name="members", process_set=members)
    given = torch.ones(3, dtype=torch.float64 if rank == 1 else torch.float32)
    with pytest.raises(hvd.HorovodInternalError, match=r"of float32 \[3\] on ranks 0, 2, 3; .*float64 \[3\] on rank 1"):
        hvd.allreduce(given, name="types")
    # What differs otherwise is in Horovod's own words; nothing is in flight any more.
    with pytest.raises(hvd.HorovodInternalError, match=r"scale factors.*Tensor allreduce\.factors: .*ranks 0, 1, 2, 3"):
        hvd.allreduce(torch.ones(3), name="factors", op=hvd.Sum, prescale_factor=1.0 + rank)
    assert hvd.allreduce(torch.ones(3), name="after", op=hvd.Sum).tolist() == [size] * 3
