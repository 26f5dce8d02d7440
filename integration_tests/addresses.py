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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from integration_tests import sanitizers
from integration_tests.ranks.fusion import test_limits as test_merging_limits
from integration_tests.support.ranks import RankFailed, run_ranks

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

# Case: a body of a test, and the environment of its ranks.
RUNS: list[tuple[Callable[..., Any], dict[str, str]]] = [
    (test_merging_limits.test_a_plan_of_smaller_messages_among_large_messages, test_merging_limits.LONG_CYCLES),
    (test_merging_limits.init_again_after_a_large_plan, {}),
    (test_merging_limits.init_again_after_a_large_plan, {"HOROVOD_CYCLE_TIME": "2"}),
]


def provoke(rank: int, size: int, library: str) -> int:
    return int(ctypes.CDLL(library).overflow(1001))


def _run(body: Callable[..., Any], env: dict[str, str], *args: Any) -> str:
    """The account of the ranks, empty if all went well."""
    try:
        run_ranks(body, RANKS, *args, env=env, timeout_s=LIMIT_S, fresh=True)
    except RankFailed as failed:
        return str(failed)
    return ""


def main() -> int:
    console, ok = Console(), True
    with tempfile.TemporaryDirectory(prefix="addresses-") as temporary:
        folder = Path(temporary)
        env = sanitizers.ranks_env(sanitizers.ADDRESS, folder, console)
        library = sanitizers.faulty_library(sanitizers.ADDRESS, folder, "overflow", _OVERFLOW)
        _run(provoke, env, str(library))
        provoked = [log for log in sanitizers.logs(folder) if "heap-buffer-overflow" in log and "overflow.cc" in log]
        assert len(provoked) == RANKS, "an overflow that was made on purpose was not reported by every rank"
        console.print(f"Overflows made on purpose, to see that they are reported: {len(provoked)}")
        for body, more in RUNS:
            begin = time.monotonic()
            account = _run(body, {**env, **more})
            reports = [log for log in sanitizers.logs(folder) if log not in provoked]
            clean = not account and not reports
            ok = ok and clean
            verdict = "clean" if clean else f"{len(reports)} reports"
            console.print(f"{body.__name__} {more or ''}: {verdict}, {time.monotonic() - begin:.0f} s", markup=False)
            if not clean:
                console.print("\n".join([account[-3000:], *(report[:5000] for report in reports[:1])]), markup=False)
    return 0 if ok else 1


if __name__ == "__main__":
    from integration_tests import addresses  # the ranks find `provoke` by the name of its module

    sys.exit(addresses.main())
