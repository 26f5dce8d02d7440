"""Benchmark partial on three ranks: it ends, and every round is counted. Times prove nothing in a test."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from integration_tests.support.more import more
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.launched import run_ranks

pytestmark = [pytest.mark.timeout(200), pytest.mark.more]

RANKS, ITERATIONS, SIZES_BYTES = 3, 3, [64, 32768]


@pytest.mark.parametrize("flush", [more([], id="carried"), pytest.param(["--flush-each"], id="flushed")])
def test_latencies_of_every_system_and_size(flush: list[str]) -> None:
    words = ["partial", "--part", "micro", "--ranks", str(RANKS), "--iterations", str(ITERATIONS), *flush]
    for size_bytes in SIZES_BYTES:
        words += ["--size", str(size_bytes)]
    done = subprocess.run(
        [sys.executable, "-m", "paceline.examples.benchmarks", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["size_bytes"] for result in results] == SIZES_BYTES
    for result in results:
        assert (result["ranks"], result["iterations"], result["flush_each"]) == (RANKS, ITERATIONS, bool(flush))
        assert list(result["systems"]) == ["sync", "random", "majority", "solo"]
        for name, system in result["systems"].items():
            assert 1 <= system["fresh"]["mean"] <= RANKS, name
            assert all(situation["mean"] > 0 for situation in system["latency_ms"].values()), name
        assert result["systems"]["sync"]["fresh"]["mean"] == RANKS
        assert result["systems"]["majority"]["fresh"]["mean"] >= (RANKS + 1) // 2
        assert result["systems"]["sync"]["wait_over_skew"]["model"] == 1
        assert result["majority_over_sync"] > 0 and result["solo_over_sync"] > 0
        assert "--part micro" in result["command"] and result["machine"]["cores"] > 0


def test_a_program_that_fails_ends_with_what_its_ranks_said() -> None:
    told: list[str] = []
    program = (
        "from paceline.examples.benchmarks.harness.launched import say; say('half way'); raise SystemExit('no way')"
    )
    with pytest.raises(UserError, match="ended with exit code") as failed:
        run_ranks(["-c", program], 2, {}, 30.0, told.append)
    assert "no way" in failed.value.remedy and "half way" in told
