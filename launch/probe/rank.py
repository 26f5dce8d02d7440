"""One rank of `paceline probe`.

    horovodrun ... python -m paceline.launch.probe.rank ORDER

Rank 0 prints the measurements to standard output, a line for each part. The launcher reads it wherever the ranks are.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

import paceline
from paceline import config
from paceline.collectives.bounds import ALLREDUCE, BROADCAST, LINEAR
from paceline.collectives.network_file import NetworkFile, Pair, Timing
from paceline.launch.probe.buffers import Case
from paceline.launch.probe.pairs import LEAST_BYTES, measure_pair
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS

SAID, RESULT = "probe: ", "probe result: "
LATENCY_BYTES = LEAST_BYTES
# A ping returns the mean of its rounds. The median of several pings excludes disturbances by other load.
PINGS, LATENCY_ROUNDS, BANDWIDTH_ROUNDS = 5, 10, 1
FEWEST_CALLS, MOST_CALLS = 3, 20
CALLS_S = 0.5  # target duration of the calls of one collective and size


class Order(Struct, frozen=True):
    """Measurements to make: collectives on messages of `sizes_bytes`, pairs with messages of `pair_bytes`."""

    sizes_bytes: tuple[int, ...]
    pair_bytes: int


def pairs_of(first: int, second: int, short_s: float, long_s: float, long_bytes: int) -> tuple[Pair, Pair]:
    """Return the pair in both directions, which a round trip cannot distinguish.

    `short_s`, `long_s`: times of messages of LATENCY_BYTES and of `long_bytes`.
    """
    wire_s = max(long_s - short_s, 1e-9)  # clocks are coarse
    found = Pair(first, second, short_s, (long_bytes - LATENCY_BYTES) / wire_s)
    return found, msgspec.structs.replace(found, sender=second, receiver=first)


def _host() -> str:
    """Name by which other ranks reach this host."""
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


def _say(rank: int, text: str) -> None:
    if rank == 0:
        print(text, flush=True)


def _pairs(hvd: Any, order: Order) -> Iterator[Pair]:
    import torch

    from paceline.native.library import loaded

    library = loaded("torch")
    _choose(library, LINEAR)  # pings are messages of Paceline's collectives

    def measured(first: int, second: int, size_bytes: int, rounds: int) -> float:
        own = [measure_pair(library, first, second, size_bytes, rounds) for _ in range(PINGS)]
        found = hvd.allreduce(torch.tensor(own, dtype=torch.float64), op=hvd.Max, name="probe.pair")
        return float(found.median().item())

    for first, second in combinations(range(hvd.size()), 2):
        _say(hvd.rank(), f"{SAID}between rank {first} and rank {second} of {hvd.size()}")
        short_s = measured(first, second, LATENCY_BYTES, LATENCY_ROUNDS)
        long_s = measured(first, second, order.pair_bytes, BANDWIDTH_ROUNDS)
        yield from pairs_of(first, second, short_s, long_s, order.pair_bytes)


def _choose(library: Any, collective: str) -> None:
    """Use a collective from the next message on, on all ranks, without a codec."""
    library.horovod_paceline_collective(COLLECTIVES[collective][0], config.read().collective_block_bytes, 0, 0, 0)


def _timings(hvd: Any, order: Order) -> Iterator[Timing]:
    import numpy as np
    import torch

    from paceline.launch.probe.calls import HorovodCaller
    from paceline.native.library import loaded

    library = loaded("torch")
    caller = HorovodCaller(hvd.rank(), hvd.size())

    def slowest(seconds: list[float]) -> float:
        """Median over calls of the slowest rank's time."""
        everyone = hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="probe.slowest")
        return float(np.median(everyone.numpy()))

    def called(call: Any) -> float:
        hvd.barrier()
        begin_s = time.monotonic()
        call()
        return time.monotonic() - begin_s

    for operation in (BROADCAST, ALLREDUCE):
        for name in COLLECTIVES:
            if name == AUTO or (operation == BROADCAST and name not in (HOROVODS, LINEAR)):
                continue  # auto is one of the others, and these broadcast along the same chain
            _choose(library, name)
            for size_bytes in order.sizes_bytes:
                _say(hvd.rank(), f"{SAID}{operation} of {size_bytes} bytes, {name}")
                calls = caller.prepare(Case(operation, size_bytes))
                assert calls.record is not None and calls.recorded is not None
                calls.fill()
                once_s = max(slowest([called(calls.call)]), 1e-6)
                count = max(FEWEST_CALLS, min(MOST_CALLS, int(CALLS_S / once_s)))
                calls.record(count)
                taken_s = [called(calls.call) for _ in range(count)]
                message_s = calls.recorded()
                yield Timing(operation, name, size_bytes, slowest(message_s), slowest(taken_s))


def main(text: str) -> None:
    """Run all measurements; rank 0 prints them."""
    import paceline.torch as hvd

    order = msgspec.json.decode(text, type=Order)
    hvd.init()
    hosts = hvd.allgather_object(_host(), name="probe.hosts")
    pairs = tuple(_pairs(hvd, order))
    timings = tuple(_timings(hvd, order))
    found = NetworkFile(paceline.__version__, tuple(hosts), config.read().collective_block_bytes, pairs, timings)
    _say(hvd.rank(), RESULT + msgspec.json.encode(found).decode())
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
