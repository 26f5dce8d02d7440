"""The owner's side of the switch that delays frames (see switch.py)."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.examples.benchmarks.cluster.errors import ClusterError

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


class Switched:
    """A running switch between the interfaces `names`, started with the command prefix `enter`; errors go to `log`.

    It runs in a network namespace of the cluster, so removing the cluster ends it; it also ends with its owner.
    """

    def __init__(self, enter: Sequence[str], names: Sequence[str], latency_ns: int, log: Path) -> None:
        self._log = log
        arguments = [str(latency_ns), str(os.getpid()), *names]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*enter, sys.executable, "-m", "paceline.examples.benchmarks.cluster.switch", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        if self._line(START_TIMEOUT_S) != b"ready\n":
            self._end()
            raise ClusterError(
                "The switch of the emulated cluster did not start.",
                "In a container, the cluster needs all privileges (docker run --privileged).",
                self._said(),
            )

    def check(self) -> None:
        """Raise ClusterError if the switch has ended: then no host can reach another."""
        if self._process.poll() is not None:
            raise ClusterError(
                f"The switch of the emulated cluster ended with status {self._process.returncode}: no host reaches "
                "another any more.",
                "Make a new cluster.",
                self._said(),
            )

    def stop(self) -> int | None:
        """Stop the switch. Return the number of frames that it dropped under load; None if it ended before."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        line = self._line(STOP_TIMEOUT_S)
        self._end()
        return int(line) if line else None

    def _line(self, timeout_s: float) -> bytes:
        """Return the next line of the switch's output; empty if it ended or printed none in time."""
        assert self._process.stdout is not None
        return self._process.stdout.readline() if select.select([self._process.stdout], [], [], timeout_s)[0] else b""

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _said(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")
        return ""
