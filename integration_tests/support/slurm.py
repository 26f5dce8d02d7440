"""A real Slurm on emulated hosts: slurmctld on the first, a slurmd on each, one munged, until the block ends."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.examples.benchmarks.cluster import Cluster

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "sinfo", "munged")
START_LIMIT_S = 90.0

# No accounts and no control groups: everything runs as root in this machine's own group. A requeued job may not start
# before its credential has expired.
_CONFIGURATION = """
ClusterName=paceline
SlurmctldHost={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
{nodes}
PartitionName=all Nodes={names} Default=YES State=UP
"""


# Marks of a module of such tests: the daemons take minutes.
MARKS = [pytest.mark.soak, pytest.mark.needs(*PROGRAMS)]


class Slurm:
    """`with Slurm(cluster, folder) as slurm: slurm.srun("-n4", ...)`."""

    def __init__(self, cluster: Cluster, folder: Path, slots: int = 2) -> None:
        self._cluster, self._folder = cluster, folder
        self._daemons: list[subprocess.Popen[Any]] = []
        (folder / "state").mkdir()
        (folder / "munge").mkdir(mode=0o755)
        nodes = [
            f"NodeName={name} NodeAddr={address} CPUs={slots} Boards=1 SocketsPerBoard=1 CoresPerSocket={slots} "
            "ThreadsPerCore=1 State=UNKNOWN"
            for name, address in zip(cluster.names, cluster.addresses, strict=True)
        ]
        text = _CONFIGURATION.format(
            first=cluster.names[0], folder=folder, nodes="\n".join(nodes), names=",".join(cluster.names)
        )
        (folder / "slurm.conf").write_text(text)
        self.environ = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": os.pathsep.join((os.environ["PATH"], "/usr/sbin")),
        }

    def __enter__(self) -> Slurm:
        self._start(self._munged(), 0)
        self._start(["slurmctld", "-D", "-i"], 0)
        for host, name in enumerate(self._cluster.names):
            (self._folder / f"spool-{name}").mkdir()
            self._start(["slurmd", "-D"], host)
        end_s = time.monotonic() + START_LIMIT_S
        while True:
            said = self._cluster.run(["sinfo", "-h", "-o", "%T %D"], env=self.environ, timeout_s=30)
            if said.stdout.split() == ["idle", str(len(self._cluster.names))]:
                return self
            if time.monotonic() > end_s:
                logs = "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("*.log")))
                self._end()
                raise AssertionError(f"Slurm did not start: {said.stdout} {said.stderr}\n{logs}")
            time.sleep(0.2)

    def _munged(self) -> list[str]:
        """Command of the munge daemon; all hosts share its socket, because they share the file system."""
        folder = self._folder / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        files = {"socket": "socket", "key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        # Forced: its folders are below one that anybody may write.
        return ["munged", "--foreground", "--force", *(f"--{flag}={folder / name}" for flag, name in files.items())]

    def _start(self, words: Sequence[str], host: int) -> None:
        self._daemons.append(
            self._cluster.popen(words, host=host, env=self.environ, stdout=-3, stderr=-3, start_new_session=True)
        )

    def srun(
        self, *words: str | Path, timeout_s: float = 120.0, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `srun WORDS` on the first host to its end."""
        return self._cluster.run(["srun", *words], env={**self.environ, **(environ or {})}, timeout_s=timeout_s)

    def batch(self, *words: str | Path, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run `sbatch WORDS`, whose environment the job gets."""
        return self._cluster.run(["sbatch", *words], env=self.environ, timeout_s=timeout_s)

    def ask(self, *words: str) -> str:
        """Output of a command such as squeue, scontrol or scancel."""
        done = self._cluster.run(words, env=self.environ, timeout_s=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self, job: str) -> str:
        """The job's state as `scontrol show job` names it: PENDING, RUNNING, COMPLETED, FAILED, ..."""
        (state,) = re.findall(r"JobState=(\S+)", self.ask("scontrol", "show", "job", job))
        return str(state)

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)
