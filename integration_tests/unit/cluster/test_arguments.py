"""Rates, latencies and clusters that cannot be are refused before anything is touched, with the thing and a remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster, tools
from paceline.examples.benchmarks.cluster.latencies import parse_latency
from paceline.examples.benchmarks.cluster.rates import FRAME_BYTES, TokenBucket, parse_rate


@pytest.mark.parametrize(
    ("text", "found"),
    [("1gbit", 10**9), ("2.5Mbit", 2_500_000), (" 64 kbit ", 64_000), ("2ms", 2_000_000), ("100us", 10**5), ("0ms", 0)],
)
def test_quantities_are_decimal(text: str, found: int) -> None:
    assert (parse_rate if "bit" in text else parse_latency)(text) == found


@pytest.mark.parametrize(
    ("arguments", "complaint", "remedy"),
    [
        ({"hosts": 0}, "A cluster of 0 hosts", ""),
        ({"hosts": 251}, "A cluster of 251 hosts", ""),
        ({"slots": 0}, "0 slots", ""),
        ({"rates": ["1gbit", "1gbti"]}, "unknown unit 'gbti'", "Did you mean gbit?"),
        ({"rates": ["1gbit"]}, "1 rates are given for 2 hosts", ""),
        ({"rate": "1gbit", "rates": [None, None]}, "Both rate='1gbit' and", ""),
        ({"rate": "-1gbit"}, "'-1gbit' cannot be used: it is not a number", "gbit"),
        ({"rate": "10MB/s"}, "unknown unit 'mb/s'", ""),
        ({"rate": "9kbit"}, "between 10kbit and 100gbit", ""),
        ({"rate": "101gbit"}, "between 10kbit and 100gbit", ""),
        ({"latency": "2"}, "latency '2' cannot be used: it has no unit", "us, ms, s"),
        ({"latency": "99us"}, "0 or lie between 100us and 1s", ""),
        ({"latency": "1.1s"}, "0 or lie between 100us and 1s", ""),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], complaint: str, remedy: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        Cluster(**{"hosts": 2, **arguments})
    assert remedy in caught.value.remedy


def test_the_bucket_holds_two_milliseconds_but_never_less_than_two_frames() -> None:
    assert TokenBucket.for_rate(10**9) == TokenBucket(10**9, 250_000, 6_250_000 + 250_000)
    assert TokenBucket.for_rate(10**6) == TokenBucket(10**6, 2 * FRAME_BYTES, 128 * 1024 + 2 * FRAME_BYTES)


def test_a_cluster_outside_its_block_is_refused() -> None:
    cluster = Cluster(hosts=3, slots=2)
    assert cluster.host_list == "host0:2,host1:2,host2:2"
    with pytest.raises(UserError, match="does not exist now"):
        cluster.run(["true"])


def test_without_root_the_user_is_told() -> None:
    script = (
        "import os\n"
        "from paceline.errors import UserError\n"
        "from paceline.examples.benchmarks.cluster import Cluster\n"
        "if os.geteuid() == 0: os.setgid(65534), os.setuid(65534)\n"
        "try: Cluster(hosts=1).__enter__()\n"
        "except UserError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "needs root" in done.stdout and "sudo" in done.stdout, done.stderr


def test_root_without_programs_or_the_right_to_make_namespaces_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UserError) as caught:
        tools.check()
    assert all(program in caught.value.problem for program in ("ip", "tc", "sshd", "ssh"))
    assert all(word in caught.value.remedy for word in ("apt-get install", "iproute2", "openssh-server"))
    for program in tools.PACKAGES:  # as in an ordinary container
        (tmp_path / program).write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
        (tmp_path / program).chmod(0o755)
    with pytest.raises(UserError, match="Operation not permitted") as caught:
        tools.check()
    assert "privileges" in caught.value.remedy
