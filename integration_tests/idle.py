"""Hooks that are present and idle change nothing: compare the hooked Horovod with one built without hooks.

    python -m integration_tests.idle        (`make idle`; minutes, needs the tools of a host build)

Counts are taken outside of Horovod, equally for both builds: the data that each rank writes to its TCP sockets in a
step, which covers coordination rounds and messages. A cycle time far longer than a step makes every step one round, so
counts repeat exactly. CPU time is the ranks' own, per step at Horovod's default cycle time; the builds run in turn and
the ratio is formed within each turn.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from integration_tests.patches import overlay
from integration_tests.support.preload import compiled
from integration_tests.support.ranks import ROOT, World, run_ranks
from integration_tests.support.turns import in_turn
from paceline import config
from paceline.horovod import build
from paceline.launch.intervals import median_interval

COUNT_STEPS = 100
CPU_STEPS = 250
TURNS = 80
SIZES = [64, 3, 1000, 17, 4096, 1, 257, 12288]


def _step(hvd: Any, tensors: list[Any]) -> None:
    hvd.grouped_allreduce(tensors, name="step")


def count_body(rank: int, size: int) -> list[tuple[int, int]]:
    """Calls and bytes handed to TCP sockets, per step."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    tensors = [torch.full((length,), float(rank)) for length in SIZES]
    seen = []
    for _ in range(COUNT_STEPS):
        _step(hvd, tensors)
        now = (ctypes.c_int64 * 2)()
        library.count_sends_read(now)
        seen.append((now[0], now[1]))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(seen)]


def cpu_body(rank: int, size: int) -> float:
    """CPU milliseconds per step of this process, all threads."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    tensors = [torch.full((length,), float(rank)) for length in SIZES]
    for _ in range(10):
        _step(hvd, tensors)
    before_s = time.process_time()
    for _ in range(CPU_STEPS):
        _step(hvd, tensors)
    return 1e3 * (time.process_time() - before_s) / CPU_STEPS


def _cpu_ms(world: World) -> float:
    return statistics.mean(world.run(__name__, "cpu_body", (), 60.0))


def main() -> int:
    """Build, compare, print; exit 1 if counts differ."""
    console = Console()
    wheel = build.build(config.read(), leave_out=["hooks"], report=lambda line, _done: console.print(line))
    source = Path(__file__).with_name("support") / "count_sends.c"
    with tempfile.TemporaryDirectory(prefix="idle-") as folder:
        shim = compiled(Path(folder), source)
        site = Path(folder) / "site"
        overlay(wheel, site)
        worlds = {"hooked": {}, "without hooks": {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}}
        usual: dict[str, list[tuple[tuple[int, ...], int]]] = {}  # of each rank: calls and bytes, in how many steps
        for name, env in worlds.items():
            one_round = {"HOROVOD_CYCLE_TIME": "30", "LD_PRELOAD": str(shim)}
            results = run_ranks(count_body, 2, env={**env, **one_round}, fresh=True)
            usual[name] = [Counter(map(tuple, result)).most_common(1)[0] for result in results]
        cpu_ms = in_turn(worlds, 2, _cpu_ms, TURNS)
    table = Table("build", "rank", "sends per step", "bytes per step", "steps alike")
    for name, ranks in usual.items():
        for number, (sent, alike) in enumerate(ranks):
            table.add_row(name, str(number), *map(str, sent), f"{alike}/{COUNT_STEPS - 1}")
    console.print(table)
    ratio = median_interval([one / other for one, other in zip(cpu_ms["hooked"], cpu_ms["without hooks"])])
    console.print(
        f"CPU per step, hooked over without hooks: {ratio.median:.4f} "
        f"(95 % interval {ratio.low:.4f} to {ratio.high:.4f}, {TURNS} turns)"
    )
    hooked, bare = ([sent for sent, _ in usual[name]] for name in worlds)
    same = hooked == bare
    console.print("counts identical" if same else "COUNTS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    from integration_tests import idle  # ranks import the bodies by their module's name, which __main__ is not

    sys.exit(idle.main())
