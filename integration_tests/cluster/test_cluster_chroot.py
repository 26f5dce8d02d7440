"""A cluster can be made in a chroot, where a mount namespace's root is not ours.

Hosts used to be entered at the root of the machine: sshd found no configuration, "sshd did not start on host0".
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from integration_tests.support.packages import ROOT

# The machine again, but with a separate /run, so that the two can be distinguished.
_CHROOT = """
mount --rbind / "$1"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
echo here >"$1/run/mark"
exec chroot "$1" "$2" -c "$3"
"""

_CLUSTER = f"""
import os
os.chdir({str(ROOT)!r})
from paceline.examples.benchmarks.cluster import Cluster
with Cluster(hosts=2) as cluster:
    for command in (["sh", "-c", "cat /run/mark; pwd"], ["ssh", "host1", "cat /run/mark; hostname"]):
        done = cluster.run(command, timeout_s=30)
        print(done.stdout, done.stderr)
"""


def test_hosts_stand_in_the_chroot_of_their_owner(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "sh", "-euc", _CHROOT, "sh", str(tmp_path), sys.executable, _CLUSTER]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["here", str(ROOT), "here", "host1"]
