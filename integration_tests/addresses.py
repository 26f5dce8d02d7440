"""No access beyond memory: merging with messages of changing sizes, and worlds after worlds, under AddressSanitizer.

    python -m integration_tests.addresses        (`make addresses`; needs the tools of a host build and libasan)

Builds Horovod with Paceline's sources and `-fsanitize=address` (cached afterwards) and puts it in front of the
installed one. Ranks then run the bodies of tests that are about sizes of buffers and what outlives a world. A report
ends its rank, and that run.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from integration_tests import sanitizers
from integration_tests.ranks.fusion import test_limits as test_merging_limits
from integration_tests.support.ranks import RankFailed, World

RANKS = 2
LIMIT_S = 300.0

_OVERFLOW = """
#include <cstring>
extern "C" int overflow(int bytes) {
  char* memory = new char[1000];
  std::memset(memory, 1, bytes);
  int first = memory[0];
  delete[] memory;
  return first;
}
"""

_LIMITS = test_merging_limits.__name__
# What is run: a body of a test, its module, the environment of its ranks, and its arguments.
RUNS: list[tuple[str, str, dict[str, str], tuple[Any, ...]]] = [
    ("test_a_plan_of_smaller_messages_among_large_messages", _LIMITS, test_merging_limits.LONG_CYCLES, ()),
    ("init_again_after_a_large_plan", _LIMITS, {}, ()),
    ("init_again_after_a_large_plan", _LIMITS, {"HOROVOD_CYCLE_TIME": "2"}, ()),
]


def provoke(rank: int, size: int, library: str) -> int:
    """An access that has to be reported."""
    return int(ctypes.CDLL(library).overflow(1001))


def _run(body: str, module: str, env: dict[str, str], args: tuple[Any, ...]) -> str:
    """The account of the ranks, empty if all went well."""
    world = World(RANKS, env)
    try:
        world.run(module, body, args, LIMIT_S)
    except RankFailed as failed:
        return str(failed)
    finally:
        world.end()
    return ""


def main() -> int:
    """Build, run, say what was reported."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="addresses-") as temporary:
        folder = Path(temporary)
        env = sanitizers.ranks_env(sanitizers.ADDRESS, folder, console)
        library = sanitizers.faulty_library(sanitizers.ADDRESS, folder, "overflow", _OVERFLOW)
        _run("provoke", "integration_tests.addresses", env, (str(library),))
        provoked = [log for log in sanitizers.logs(folder) if "heap-buffer-overflow" in log and "overflow.cc" in log]
        assert len(provoked) == RANKS, "an overflow that was made on purpose was not reported by every rank"
        console.print(f"Overflows made on purpose, to see that they are reported: {len(provoked)}")
        ok = True
        for body, module, more, args in RUNS:
            begin = time.monotonic()
            account = _run(body, module, {**env, **more}, args)
            reports = [log for log in sanitizers.logs(folder) if log not in provoked]
            ok = ok and not account and not reports
            verdict = "clean" if not account and not reports else f"{len(reports)} reports"
            console.print(f"{body} {more or ''}: {verdict}, {time.monotonic() - begin:.0f} s", markup=False)
            if account or reports:
                console.print("\n".join([account[-3000:], *(report[:5000] for report in reports[:1])]), markup=False)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
