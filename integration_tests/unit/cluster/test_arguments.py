"""A cluster that cannot be made is refused before anything is touched, with the thing and the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster, tools


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"hosts": 0}, "A cluster of 0 hosts"),
        ({"hosts": 251}, "A cluster of 251 hosts"),
        ({"hosts": 2, "slots": 0}, "0 slots"),
        ({"hosts": 2, "rate": "3furlong"}, "unknown unit 'furlong'"),
        ({"hosts": 2, "rates": ["1gbit", "1gbti"]}, "unknown unit 'gbti'"),
        ({"hosts": 2, "rates": ["1gbit"]}, "1 rates are given for 2 hosts"),
        ({"hosts": 2, "latency": "2"}, "has no unit"),
        ({"hosts": 2, "latency": "1ns"}, "unknown unit 'ns'"),
        ({"hosts": 1, "rate": "1gbit", "rates": [None]}, "Both rate='1gbit' and"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Cluster(**arguments)


def test_host_list_is_as_horovodrun_takes_it() -> None:
    assert Cluster(hosts=3, slots=2).host_list == "host0:2,host1:2,host2:2"


def test_a_cluster_outside_its_block_is_refused() -> None:
    with pytest.raises(UserError, match="does not exist now"):
        Cluster(hosts=1).run(["true"])


def test_without_root_the_user_is_told(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from paceline.errors import UserError\n"
        "from paceline.examples.benchmarks.cluster import Cluster\n"
        "if os.geteuid() == 0: os.setgid(65534), os.setuid(65534)\n"
        "try: Cluster(hosts=1).__enter__()\n"
        "except UserError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "needs root" in done.stdout, done.stderr
    assert "sudo" in done.stdout


def test_missing_programs_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UserError) as caught:
        tools.check()
    assert all(program in caught.value.problem for program in ("ip", "tc", "sshd", "ssh"))
    assert "apt-get install" in caught.value.remedy
    assert "iproute2" in caught.value.remedy
    assert "openssh-server" in caught.value.remedy


def test_root_without_the_right_to_make_namespaces_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root of an ordinary container."""
    for program in tools.PACKAGES:
        (tmp_path / program).write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UserError, match="Operation not permitted") as caught:
        tools.check()
    assert "privileges" in caught.value.remedy
