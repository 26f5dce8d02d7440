"""One rank of `paceline probe`.

    horovodrun ... python -m paceline.launch.probe.rank ORDER

Rank 0 tells what was measured on standard output, which the launcher sees wherever the ranks are: a line for each part.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

import paceline
from paceline import config
from paceline.collectives.bounds import ALLREDUCE, BROADCAST, LINEAR
from paceline.collectives.network_file import NetworkFile, Pair, Timing
from paceline.launch.benchmarks.collectives.cases import Case
from paceline.launch.benchmarks.collectives.systems import AUTO
from paceline.launch.probe.pairs import Pairs
from paceline.registry.collectives import COLLECTIVES, HOROVODS

SAID, RESULT = "probe: ", "probe result: "
LATENCY_ROUNDS, LATENCY_BYTES = 30, 4
BANDWIDTH_ROUNDS = 3
FEWEST_CALLS, MOST_CALLS = 3, 20
CALLS_S = 0.5  # what calls of one collective and size should take


class Order(Struct, frozen=True):
    """What is measured: collectives on messages of `sizes_bytes`, pairs with messages of `pair_bytes`."""

    sizes_bytes: tuple[int, ...]
    pair_bytes: int


def pair_of(sender: int, receiver: int, short_s: list[float], long_s: list[float], long_bytes: int) -> Pair:
    """A pair from the rounds of a short message and of one of `long_bytes`, each answered by a byte."""
    latency_s = median(short_s) / 2
    # What a round takes beyond the two latencies is the message on the wire.
    wire_s = max(min(long_s) - 2 * latency_s, 1e-9)
    return Pair(sender, receiver, latency_s, long_bytes / wire_s)


def _host() -> str:
    """The name by which other ranks reach this one's host."""
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


def _say(rank: int, text: str) -> None:
    if rank == 0:
        print(text, flush=True)


def _pairs(hvd: Any, order: Order) -> Iterator[Pair]:
    rank, size = hvd.rank(), hvd.size()
    with Pairs(rank, _host(), lambda value: hvd.allgather_object(value, name="probe.gather")) as pairs:
        for sender in range(size):
            for receiver in range(size):
                if sender == receiver:
                    continue
                _say(rank, f"{SAID}from rank {sender} to rank {receiver} of {size}")
                short = pairs.measure_pair(sender, receiver, LATENCY_BYTES, LATENCY_ROUNDS)
                long = pairs.measure_pair(sender, receiver, order.pair_bytes, BANDWIDTH_ROUNDS)
                yield pair_of(sender, receiver, short, long, order.pair_bytes)


def _timings(hvd: Any, order: Order) -> Iterator[Timing]:
    import numpy as np
    import torch

    from paceline.launch.benchmarks.collectives.horovod_calls import HorovodCaller
    from paceline.native.library import loaded

    library, block_bytes = loaded("torch"), config.read().collective_block_bytes
    caller = HorovodCaller(hvd.rank(), hvd.size())

    def slowest(seconds: list[float]) -> float:
        """Median over calls of the slowest rank's."""
        everyone = hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="probe.slowest")
        return float(np.median(everyone.numpy()))

    def called(call: Any) -> float:
        hvd.barrier()
        begin_s = time.monotonic()
        call()
        return time.monotonic() - begin_s

    for operation in (BROADCAST, ALLREDUCE):
        for name, (number, _) in COLLECTIVES.items():
            if name == AUTO or (operation == BROADCAST and name not in (HOROVODS, LINEAR)):
                continue  # auto is one of the others, and these broadcast along the same chain
            library.horovod_paceline_collective(number, block_bytes, 0, 0, 0)  # without codec
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
    """Measure everything; rank 0 tells it."""
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
