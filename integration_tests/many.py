"""What a step of very many small tensors costs, under each exchange.

    python -m integration_tests.many [--ranks 4] [--tensors 1000] [--fusion single] [--site FOLDER]     (minutes)

Prints CPU milliseconds per step and rank, all threads, and the time of a step; with --fusion after a plan of that
policy was made. FOLDER holds another build of Horovod
(`pip install --no-deps --target FOLDER WHEEL`); both builds then run in turn, in short turns, because the machine's
speed drifts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from rich.console import Console
from rich.table import Table

from integration_tests.support.ranks import ROOT, World
from integration_tests.support.turns import in_turn

STEPS = 5
TURNS = 6
LENGTHS = (3, 17, 1, 64)  # of the tensors, in turn
EXCHANGES = ("sync", "majority", "all")


def body(rank: int, size: int, exchange: str, tensors: int) -> tuple[float, float]:
    """CPU milliseconds and milliseconds per step of this process."""
    import horovod.torch as hvd
    import torch

    from paceline.native.exchanges import register
    from paceline.native.library import loaded
    from paceline.partial.settings import Partial

    hvd.init()
    quorum: str | int = size if exchange == "all" else exchange
    gradients = [torch.full((LENGTHS[n % len(LENGTHS)],), float(rank)) for n in range(tensors)]
    names = [f"many.{exchange}.{n}" for n in range(tensors)]
    for name in names if exchange != "sync" else ():
        register(loaded("torch"), 0, f"allreduce.{name}", *Partial(quorum=quorum).registration(size))

    def steps(count: int) -> None:
        for _ in range(count):
            handles = [hvd.allreduce_async_(tensor, name=name) for tensor, name in zip(gradients, names, strict=True)]
            for handle in handles:
                hvd.synchronize(handle)

    steps(2)
    hvd.barrier()
    begun_s = time.process_time(), time.perf_counter()
    steps(STEPS)
    cpu_s, passed_s = time.process_time() - begun_s[0], time.perf_counter() - begun_s[1]
    hvd.barrier()
    return 1e3 * cpu_s / STEPS, 1e3 * passed_s / STEPS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--fusion", help="a policy of merging, as PACELINE_FUSION takes it")
    parser.add_argument("--site", help="a folder with another build of Horovod")
    arguments = parser.parse_args()
    fusion = {"PACELINE_FUSION": arguments.fusion} if arguments.fusion else {}
    builds = {"installed": fusion}
    if arguments.site:
        builds[arguments.site] = {**fusion, "PYTHONPATH": f"{arguments.site}{os.pathsep}{ROOT}"}

    def run(world: World) -> dict[str, tuple[float, float]]:
        found = {}
        for exchange in EXCHANGES:
            results = world.run(__name__, "body", (exchange, arguments.tensors), 120.0)
            cpu_ms, step_ms = map(statistics.mean, zip(*results, strict=True))
            found[exchange] = cpu_ms, step_ms
        return found

    turns = in_turn(builds, arguments.ranks, run, TURNS)
    table = Table("exchange", "build", "CPU ms per step and rank", "ms per step")
    for exchange in EXCHANGES:
        for name, found in turns.items():
            columns = zip(*(turn[exchange] for turn in found), strict=True)
            table.add_row(exchange, name, *(f"{statistics.median(column):.1f}" for column in columns))
    Console().print(table)
    return 0


if __name__ == "__main__":
    from integration_tests import many  # ranks import the body by its module's name, which __main__ is not

    raise SystemExit(many.main())
