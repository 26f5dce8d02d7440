"""Random messages over our own collectives under a sanitizer, for a given time.

    python -m integration_tests.fuzz --sanitizer thread --minutes 10        (`make fuzz SANITIZE=thread`, or address)

Builds Horovod with Paceline's sources and that sanitizer (cached afterwards); it overrides the installed Horovod. World
after world, with varying numbers of ranks, collectives, blocks and codecs, ranks submit allreduces, reduces and
broadcasts of random sizes, types, operations and roots. Many are in flight at once, in process sets, with Horovod's own
operations in between, including reducescatters. A turn may end with an event:

- a rank joins before others submit for the first time,
- a process set ends with an operation open,
- plans change while collectives of ours are in flight,
- a new world contains ranks that come from another,
- trainings with random events (training_events.py, keras_events.py).

Every value is compared with one process. sanitizers.py defines which reports count.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from integration_tests import races, sanitizers
from integration_tests.support.debug import debug
from integration_tests.support.encoded import encoded
from integration_tests.support.fuzz_events import EVENTS, OF_TENSORFLOW, VARIABLES
from integration_tests.support.ranks import World

TURNS = 6  # in each world
CALLS = 40  # in each turn
TURN_TIMEOUT_S = 300.0
SIZES = (0, 1, 2, 3, 7, 64, 255, 256, 257, 1000, 4099, 70_001)
TYPES = ("int32", "int64", "float16", "float32", "float64")
FOLDS = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}
CODECS = ("none", "none", "bf16", "q8")


def given(rank: int, seed: int, length: int, dtype: str) -> np.ndarray:
    """Whole numbers, small enough for sums and products of all ranks in every type and in bfloat16."""
    return np.random.default_rng((rank, seed)).integers(0, 3, length).astype(dtype)


def wanted(ranks: list[int], seed: int, length: int, dtype: str, op: str) -> np.ndarray:
    result = given(ranks[0], seed, length, dtype)
    for rank in ranks[1:]:
        result = FOLDS[op](result, given(rank, seed, length, dtype))
    return result


def turn(rank: int, size: int, seed: int, codec: str, events: Sequence[str | None]) -> int:
    """Random messages, then one of `events` or None; how many."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    same = random.Random(seed)
    waiting = []
    for n in range(CALLS):
        length, dtype = same.choice(SIZES), same.choice(TYPES)
        number, kind, op = seed * CALLS + n, same.randrange(9), same.choice(list(FOLDS))
        root, name = same.randrange(size), encoded(f"fuzz.{n}")
        tensor = torch.from_numpy(given(rank, number, length, dtype))
        everybody = list(range(size))
        if kind == 0:
            waiting.append((hvd.broadcast_async(tensor, root, name=name), given(root, number, length, dtype), 0.0))
        elif kind == 1:
            hvd.allgather(torch.full((rank + 1,), rank), name=name)  # Horovod's own; operations in flight continue
        elif kind == 2:
            pair = [tensor, torch.from_numpy(given(rank, number + 1, length, dtype))]
            expected = [wanted(everybody, number + more, length, dtype, "Max") for more in (0, 1)]
            for one, right in zip(hvd.grouped_allreduce(pair, op=hvd.Max, name=name), expected):
                np.testing.assert_array_equal(one.numpy(), right, err_msg=f"rank {rank}, seed {seed}")
        elif kind == 3:  # rows that no number of ranks divides, and fewer than ranks
            rows = same.choice([1, size + 1, 3 * size - 1])
            shares = [rows // size + (one < rows % size) for one in range(size)]
            mine = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
            whole = torch.from_numpy(given(rank, number, rows * max(length, 1), dtype)).reshape(rows, -1)
            right = wanted(everybody, number, whole.numel(), dtype, "Sum").reshape(rows, -1)[mine]
            found = hvd.reducescatter(whole, op=hvd.Sum, name=name)
            np.testing.assert_array_equal(found.numpy(), right, err_msg=f"rank {rank}, seed {seed}: a reducescatter")
        else:
            handle = hvd.allreduce_async(tensor, op=getattr(hvd, op), name=name)
            lost = 0.0
            if codec == "q8" and op == "Sum" and dtype.startswith("float"):
                lost = 2.0 * size * (size + 1) / 127  # half a step of every partial sum, and of its sum
            waiting.append((handle, wanted(everybody, number, length, dtype, op), lost))
        if same.random() < 0.1:
            _check(hvd, waiting, rank, seed)
    _check(hvd, waiting, rank, seed)
    event = same.choice(events)
    return CALLS + (0 if event is None else EVENTS[event](rank, size, seed))


def _check(hvd: Any, waiting: list[tuple[Any, np.ndarray, float]], rank: int, seed: int) -> None:
    for handle, expected, lost in waiting:
        found = hvd.synchronize(handle).numpy()
        np.testing.assert_allclose(
            found.astype("float64"), expected.astype("float64"), rtol=0, atol=lost, err_msg=f"rank {rank}, seed {seed}"
        )
    waiting.clear()


def chosen_world(chosen: random.Random) -> tuple[int, dict[str, str]]:
    variables = {
        "PACELINE_COLLECTIVE": chosen.choice(races.COLLECTIVES),
        "PACELINE_CODEC": chosen.choice(CODECS),
        **debug(
            collective_block_bytes=chosen.choice([512, 4096, 1 << 18]),
            codec_least_bytes=chosen.choice([1, 1024]),
            armed=chosen.choice([False, True]),
        ),
        "HOROVOD_FUSION_THRESHOLD": str(chosen.choice([0, 4096, 1 << 26])),
        **VARIABLES,
    }
    return chosen.choice([2, 2, 3, 4]), variables


def main() -> int:
    parser = argparse.ArgumentParser(description="Random messages over our own collectives under a sanitizer.")
    sanitizers.add_argument(parser, "thread")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--event", choices=EVENTS, help="this one in every turn, in place of any or none")
    arguments = parser.parse_args()
    possible = [one for one in EVENTS if arguments.sanitizer == sanitizers.NONE or one not in OF_TENSORFLOW]
    if arguments.event and arguments.event not in possible:
        parser.error(f"--event {arguments.event} needs TensorFlow: give --sanitizer {sanitizers.NONE}")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder = Path(temporary)
        env = sanitizers.chosen_env(arguments.sanitizer, folder, console)
        chosen = random.Random(arguments.seed)
        events = [arguments.event] if arguments.event else [None, *possible]
        worlds, calls, started, seed = 0, 0, time.monotonic(), arguments.seed * 100_000
        while time.monotonic() - started < arguments.minutes * 60:
            size, own = chosen_world(chosen)
            codec = own["PACELINE_CODEC"]
            world = World(size, {**env, **own})
            try:
                for _ in range(TURNS):
                    seed += 1
                    calls += sum(world.run("integration_tests.fuzz", "turn", (seed, codec, events), TURN_TIMEOUT_S))
            except BaseException:
                console.print(f"seed {seed}, {size} ranks, {own}")
                raise
            finally:
                world.end()
            worlds += 1
        minutes = (time.monotonic() - started) / 60
        console.print(
            f"{arguments.sanitizer} sanitizer, {minutes:.1f} minutes, {worlds} worlds, {calls} messages, "
            "all values right"
        )
        return 0 if sanitizers.verdict(sanitizers.logs(folder), console) else 1


if __name__ == "__main__":
    sys.exit(main())
