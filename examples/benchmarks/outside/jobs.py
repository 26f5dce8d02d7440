"""Runs of programs under horovodrun, on this machine or on emulated hosts."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster
from paceline.examples.benchmarks.cluster.network import INTERFACE
from paceline.launch import horovodrun, runs
from paceline.launch.ranks import run_python

_LAST_LINES = 25  # of the output of a run that failed
_LOOPBACK = "lo"


class Jobs:
    """Starts `ranks` ranks on the hosts of `cluster`, or on this machine without one."""

    def __init__(self, ranks: int, cluster: Cluster | None) -> None:
        self._ranks = ranks
        self._cluster = cluster

    def run(self, words: Sequence[str], env: Mapping[str, str], limit_s: float) -> str:
        """Run Python with `words` on all ranks, to the end; return the output.

        `env` is added to this process's environment. Raises UserError with the last lines of the output if a rank
        fails, and after `limit_s`.
        """
        environ = {**runs.environment(), "CUDA_VISIBLE_DEVICES": "", **self._meeting_point(), **env}
        if self._cluster is None:
            lines: list[str] = []
            run_python(words, self._ranks, environ, limit_s, lines.append)
            return "\n".join(lines)
        arguments = ["-np", str(self._ranks), "-H", self._cluster.host_list, "--network-interfaces", INTERFACE]
        command = [*horovodrun.words(), *arguments, sys.executable, *words]
        done = self._cluster.run(command, environ, timeout_s=limit_s)
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).splitlines()
            # Its own traceback, which follows that of the rank, says only that a rank failed.
            of_ranks = [line for line in lines if horovodrun.MARKED.match(line)]
            last = "\n".join((of_ranks or lines)[-_LAST_LINES:])
            raise UserError(f"`{' '.join(words[:3])} ...` ended with status {done.returncode}.", f"Its output:\n{last}")
        return "\n".join(horovodrun.MARKED.sub("", line) for line in done.stdout.splitlines())

    def _meeting_point(self) -> dict[str, str]:
        """Variables for torch.distributed, and the interface of Gloo."""
        # All hosts share the machine's kernel but not its ports: a port that is free here is free on host 0, too.
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        address = "127.0.0.1" if self._cluster is None else self._cluster.addresses[0]
        interface = _LOOPBACK if self._cluster is None else INTERFACE
        return {"MASTER_ADDR": address, "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": interface}


@contextmanager
def open_jobs(hosts: int, ranks: int, rate: str | None, latency: str | None) -> Iterator[Jobs]:
    """Context for jobs on `hosts` emulated hosts, which need root, or on this machine if `hosts` is 1."""
    if hosts == 1:
        yield Jobs(ranks, None)
        return
    with Cluster(hosts=hosts, rate=rate, slots=ranks // hosts, latency=latency) as cluster:
        yield Jobs(ranks, cluster)


def torch_variables() -> None:
    """Set the variables of torch.distributed on a rank that horovodrun has started."""
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"):
        os.environ["WORLD_SIZE" if name == "SIZE" else name] = os.environ[f"HOROVOD_{name}"]
