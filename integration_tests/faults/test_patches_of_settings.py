"""Regression tests of the patches of Horovod's settings (plugin/horovod/patches/table.py)."""

from __future__ import annotations

import os

import pytest

from integration_tests.support.merging import ByHand, Messages
from integration_tests.support.ranks import ranks, run_ranks

CYCLE_TIME, THRESHOLD = "HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD"
_MIB = 1 << 20

# --- settings-again: Horovod 0.28.1 keeps its settings in an object that outlives shutdown(), in a vector. A setting of
# the user's is removed from the vector. The default that the next init() writes first goes to its former place, which
# now belongs to another setting, or, with both of them removed, to address 0.


def _worlds(rank: int, size: int, worlds: list[dict[str, str]]) -> None:
    import horovod.torch as hvd
    import torch

    for number, settings in enumerate(worlds):
        for name in (CYCLE_TIME, THRESHOLD):
            os.environ.pop(name, None)
        os.environ.update(settings)
        hvd.init()
        record = Messages("torch")
        tensors = [torch.full((3 * _MIB // 16,), float(rank)) for _ in range(2)]  # 1.5 MiB together
        for result in hvd.grouped_allreduce_(tensors, name="worlds", op=hvd.Sum):
            assert torch.all(result == size * (size - 1) / 2)
        (messages,) = record.stop()
        expected = 2 if int(settings.get(THRESHOLD, 128 * _MIB)) < 1.5 * _MIB else 1
        assert len(messages) == expected, f"world {number}: the limit of messages is not what {settings} say"
        hvd.shutdown()


@pytest.mark.patch("settings-again")
@pytest.mark.parametrize(
    "worlds",
    [
        [{CYCLE_TIME: "1"}] * 2,
        [{CYCLE_TIME: "1", THRESHOLD: str(64 * _MIB)}] * 2,
        [{THRESHOLD: str(_MIB)}, {}],
    ],
    ids=["cycle-time", "both", "no-more"],
)
def test_every_init_reads_the_settings_afresh(worlds: list[dict[str, str]]) -> None:
    run_ranks(_worlds, 2, worlds, fresh=True)


# --- large-messages: Horovod merges up to any HOROVOD_FUSION_THRESHOLD and gives Gloo the number of elements as int.


@pytest.mark.patch("large-messages")
@ranks(2, env={THRESHOLD: str(1 << 34)})
def test_messages_stay_below_what_an_int_counts(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    hand = ByHand("torch").start()
    hvd.allreduce(torch.ones(3), name="large_messages")
    status = hand.bridge.status(0)
    assert status is not None
    # No type has less than a byte.
    assert _MIB < status.threshold_bytes < 1 << 31, status
    hand.end()
