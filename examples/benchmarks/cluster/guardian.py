"""The process that removes a cluster when its owner requests it or ends, however it ends.

    python -m paceline.examples.benchmarks.cluster.guardian TAG OWNER_PID

The owner starts it before anything of the cluster exists, in a separate session. It waits for a byte or the end of its
standard input, or for the owner's death (a child that the owner forked may keep the other end of the pipe open).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from paceline.examples.benchmarks.cluster.errors import ClusterError
from paceline.examples.benchmarks.cluster.lifetime import remove

SETTLE_S = 0.5


def main(tag: str, owner_pid: int) -> int:
    """Wait for the owner's end, then remove the cluster. Return 1 if something remains."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        owner = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        return 0  # nothing was made yet: the owner waits for our line first
    os.write(sys.stdout.fileno(), b"watching\n")
    select.select([sys.stdin.fileno(), owner], [], [])
    if select.select([owner], [], [], 0)[0]:
        # Programs that the owner had just started to build the cluster may briefly outlive it and add to the cluster.
        time.sleep(SETTLE_S)
    try:
        remove(tag)
    except ClusterError as error:
        os.write(sys.stderr.fileno(), f"{error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
