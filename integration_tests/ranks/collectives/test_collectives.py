"""Our own collectives equal the computation in one process, for every type, operation, size and root."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest
import torch

from integration_tests.support.debug import debug
from integration_tests.support.more import more
from integration_tests.support.ranks import ranks, run_ranks
from paceline.registry import collectives

# The last one is "auto", which chooses again in every run.
COLLECTIVES = tuple(name for name in collectives.COLLECTIVES if name != collectives.HOROVODS)
BLOCK_BYTES = 64
# Sizes in float32: 0, 1, odd, below and above a block, many blocks.
SIZES = (0, 1, 3, 15, 16, 17, 97, 1001)
TYPES = ("int32", "int64", "float16", "float32", "float64")
FOLDS = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}

# Settings for a reduce: horovod's own collectives, where a reduce is an allreduce, and ours, in small blocks.
ENVIRONMENTS = {
    "horovod": {"PACELINE_COLLECTIVE": "horovod"},
    "ring": {"PACELINE_COLLECTIVE": "ring", **debug(collective_block_bytes=64)},
}
in_both = functools.partial(
    ranks, worlds=[more(ENVIRONMENTS["horovod"], id="horovod"), pytest.param(ENVIRONMENTS["ring"], id="ring")]
)


def given(rank: int, length: int, dtype: str) -> np.ndarray:
    """Whole numbers that encode the rank, small enough for sums and products of all ranks in every type."""
    return ((np.arange(length) + 3 * rank) % 2 + (rank % 2)).astype(dtype)


def _body(rank: int, size: int) -> list[bytes]:
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    hvd.init()
    seen = []
    for length in SIZES:
        for dtype in TYPES:
            for op, fold in FOLDS.items():
                name = f"{op}.{dtype}.{length}"
                tensor = torch.from_numpy(given(rank, length, dtype))
                found = hvd.allreduce(tensor, op=getattr(hvd, op), name=name).numpy()
                wanted = given(0, length, dtype)
                for other in range(1, size):
                    wanted = fold(wanted, given(other, length, dtype))
                np.testing.assert_array_equal(found, wanted, err_msg=f"{name} on rank {rank}")
        # Numbers with a fraction: the same bits on all ranks, close to the sum.
        many = [np.random.default_rng(one).standard_normal(length).astype("float32") for one in range(size)]
        found = hvd.allreduce(torch.from_numpy(many[rank]), name=f"mean.{length}").numpy()
        np.testing.assert_allclose(found, np.mean(many, 0), rtol=1e-5, atol=1e-6)
        seen.append(found.tobytes())
        for root in range(size):
            tensor = torch.from_numpy(many[rank].copy())
            hvd.broadcast_(tensor, root, name=f"broadcast.{length}.{root}")
            np.testing.assert_array_equal(tensor.numpy(), many[root])
    # Merged messages, factors, and tensors of two process sets.
    tensors = [torch.full((length,), float(rank + 1)) for length in SIZES if length]
    for found in hvd.grouped_allreduce(tensors, op=hvd.Sum, prescale_factor=0.5, name="group"):
        assert (found == size * (size + 1) / 4).all()
    hvd.shutdown()
    return seen


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.more), 3])
def test_values(collective: str, size: int) -> None:
    env = {"PACELINE_COLLECTIVE": collective, **debug(collective_block_bytes=BLOCK_BYTES)}
    first, *others = run_ranks(_body, size, env=env, fresh=True)
    assert all(other == first for other in others), "the bits differ between ranks"


OTHER_SIZES = (
    1,
    pytest.param(4, marks=pytest.mark.more),
    *(pytest.param(size, marks=pytest.mark.soak) for size in (5, 6, 7, 8)),
)


def _all_in_turn(rank: int, size: int) -> list[list[bytes]]:
    """Results of each of the collectives, twice."""
    seen = []
    for collective in COLLECTIVES * 2:
        os.environ["PACELINE_COLLECTIVE"] = collective
        seen.append(_body(rank, size))
    return seen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", OTHER_SIZES)
def test_values_among_other_numbers_of_ranks(size: int) -> None:
    env = debug(collective_block_bytes=BLOCK_BYTES)
    first, *others = run_ranks(_all_in_turn, size, env=env, timeout_s=500, fresh=True)
    assert all(other == first for other in others), "the bits differ between ranks"
    assert size == 1 or first[: len(COLLECTIVES) - 1] == first[len(COLLECTIVES) : -1], "the bits differ between runs"


def _many(rank: int, size: int) -> list[bytes]:
    """Many messages of a round in flight together; those of two process sets follow each other.

    Their number exceeds `Transport::window`.
    """
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    hvd.init()
    odd = hvd.add_process_set(list(range(1, size)))
    rng = np.random.default_rng(7)
    seen = []
    for turn in range(3):
        handles, wanted = [], []
        for n in range(150):
            length = int(rng.integers(0, 3000))
            many = [rng.integers(-9, 9, length).astype("float32") for _ in range(size)]
            if n % 5 == 4:
                root = n % size
                handles.append(hvd.broadcast_async(torch.from_numpy(many[rank]), root, name=f"b{n}"))
                wanted.append(many[root])
            elif n % 5 == 3 and size > 1:
                if rank > 0:
                    tensor = torch.from_numpy(many[rank])
                    handles.append(hvd.allreduce_async(tensor, op=hvd.Sum, name=f"s{n}", process_set=odd))
                    wanted.append(np.sum(many[1:], 0))
            elif n % 5 == 2:
                handles.append(hvd.allreduce_async(torch.from_numpy(many[rank]), op=hvd.Max, name=f"m{n}"))
                wanted.append(np.max(many, 0))
            else:
                handles.append(hvd.allreduce_async(torch.from_numpy(many[rank]), op=hvd.Sum, name=f"a{n}"))
                wanted.append(np.sum(many, 0))
        for handle, one in zip(handles, wanted, strict=True):
            np.testing.assert_array_equal(hvd.synchronize(handle).numpy(), one, err_msg=f"turn {turn}, rank {rank}")
        gathered = hvd.allgather(torch.full((rank + 1,), float(rank)), name="gather")  # Horovod's own, in between
        seen.append(gathered.numpy().tobytes())
    hvd.shutdown()
    return seen


@pytest.mark.parametrize("collective", ["linear", "direct", "auto"])
@pytest.mark.parametrize("threshold", ["0", "4096"])
def test_many_messages_in_flight(collective: str, threshold: str) -> None:
    env = {
        "PACELINE_COLLECTIVE": collective,
        **debug(collective_block_bytes=1024),
        "HOROVOD_FUSION_THRESHOLD": threshold,
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    }
    first, *others = run_ranks(_many, 3, env=env, fresh=True)
    assert all(other == first for other in others)


def _refused(rank: int, size: int) -> None:
    """A message with too many blocks is refused; later ones need its packing space."""
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    hvd.init()
    large = torch.ones(8_500_000)  # two of them: 2^20 blocks of 64 bytes, and some
    for turn in range(2):
        with pytest.raises(hvd.HorovodInternalError, match="take larger blocks"):
            hvd.grouped_allreduce([large, large.clone()], op=hvd.Sum, name=f"refused.{turn}")
        for found in hvd.grouped_allreduce([torch.ones(20_000), torch.ones(20_001)], op=hvd.Sum, name=f"next.{turn}"):
            assert (found == size).all()


def test_messages_after_a_refused_one() -> None:
    env = {
        "PACELINE_COLLECTIVE": "linear",
        **debug(collective_block_bytes=BLOCK_BYTES),
        "HOROVOD_FUSION_THRESHOLD": "68100000",
    }
    run_ranks(_refused, 2, env=env, fresh=True)
