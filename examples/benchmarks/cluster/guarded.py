"""The owner's side of the guardian, the process that removes a cluster (see guardian.py)."""

from __future__ import annotations

import os
import select
import subprocess
import sys

from paceline.examples.benchmarks.cluster.errors import ClusterError
from paceline.examples.benchmarks.cluster.lifetime import remove

START_TIMEOUT_S = 30.0
REMOVE_TIMEOUT_S = 60.0


class Guarded:
    """Guarantees that the cluster `tag` is removed when this process requests it or ends."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline.examples.benchmarks.cluster.guardian", tag, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        # The guardian must watch before anything exists that it has to remove.
        if not select.select([self._process.stdout], [], [], START_TIMEOUT_S)[0] or not self._process.stdout.readline():
            self._process.kill()
            self._process.wait(REMOVE_TIMEOUT_S)
            raise ClusterError(
                "The guardian of the emulated cluster did not start.",
                f"See whether `{sys.executable} -m paceline.examples.benchmarks.cluster.guardian` finds Paceline.",
            )
        self._process.stdout.close()

    def remove_cluster(self) -> None:
        """Remove everything and wait for it. Raises ClusterError with the names of what remains."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self._process.wait(REMOVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait(REMOVE_TIMEOUT_S)
        if status != 0:
            remove(self._tag)  # the guardian was killed or failed: finish its work, or report what prevents it
