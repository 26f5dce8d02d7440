"""Patch dead-rank: a message of a wrong length ends the world with an error. Gloo's thread would abort the process."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from integration_tests.support.preload import compiled
from integration_tests.support.ranks import run_ranks

SOURCE = Path(__file__).parents[1] / "support" / "wrong_length.c"


def _reduce(rank: int, size: int) -> str:
    import horovod.torch as hvd
    import torch

    hvd.init()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="before").tolist() == [3.0] * 3
    if rank == 1:
        ctypes.CDLL(None).wrong_length_arm()
    with pytest.raises(hvd.HorovodInternalError) as caught:
        for _ in range(100):
            hvd.allreduce(torch.ones(300_000), name="large")
    return str(caught.value)


@pytest.mark.patch("dead-rank")
def test_a_wrong_length_is_an_error_on_all_ranks(tmp_path: Path) -> None:
    """It names a rank: whose connection broke first, which need not be the one with the wrong length."""
    texts = run_ranks(_reduce, 3, env={"LD_PRELOAD": str(compiled(tmp_path, SOURCE))}, timeout_s=30, fresh=True)
    assert all("pair.cc" in text for text in texts), texts
