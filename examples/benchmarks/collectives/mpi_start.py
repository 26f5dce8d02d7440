"""How mpirun is called on the benchmark's hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.examples.benchmarks.cluster.network import INTERFACE

# All systems use TCP; Open MPI would take shared memory within a host. Several ranks may share a core, where one that
# spins would take it from one that has work. Root, because network namespaces need it.
_ALWAYS = {"pml": "ob1", "btl": "self,tcp", "mpi_yield_when_idle": "1"}


def command(words: Sequence[str], size: int, host_names: Sequence[str], log: Path) -> list[str]:
    """The command for the program `words` on `size` ranks, equally many on each host, with its output in `log`."""
    interface = INTERFACE if len(host_names) > 1 else "lo"
    settings = {**_ALWAYS, "btl_tcp_if_include": interface}
    if len(host_names) > 1:
        settings["oob_tcp_if_include"] = interface
    hosts = ",".join(f"{name}:{size // len(host_names)}" for name in host_names)
    parameters = [word for name, value in settings.items() for word in ("--mca", name, value)]
    logged = ["sh", "-c", 'exec "$@" >> "$0" 2>&1', str(log)]
    return [*logged, "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *parameters,
            "-x", "OMP_NUM_THREADS", "-np", str(size), "-H", hosts, *words]  # fmt: skip
