"""Detection of launchers whose variables Horovod does not read.

Horovod reads horovodrun's variables and, built with MPI, MPI itself. A process started by another launcher forms a
world of one rank and trains its own model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class _Launcher:
    """A launcher.

    `sizes`: variables with the number of processes, of which the first that is set counts; `rank`: the variable with
    this process's number.
    """

    name: str
    sizes: tuple[str, ...]
    rank: str


_LAUNCHERS = (
    _Launcher("torchrun", ("WORLD_SIZE",), "RANK"),
    _Launcher("mpirun", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_RANK"),
    _Launcher("mpiexec", ("PMI_SIZE",), "PMI_RANK"),
    # A step of a job may have fewer tasks than the job.
    _Launcher("srun", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_PROCID"),
)
_HOROVODRUNS = "HOROVOD_SIZE"


def alone_by_mistake(environ: Mapping[str, str]) -> str:
    """Return a warning for a world of one rank if another launcher started several processes; "" if none did.

    Only the first of these processes gets the warning.
    """
    if _HOROVODRUNS in environ:
        return ""
    for launcher in _LAUNCHERS:
        variable = next((name for name in launcher.sizes if name in environ), "")
        count = environ.get(variable, "")
        if not count.isdecimal() or int(count) < 2:
            continue
        if environ.get(launcher.rank, "0") != "0":
            return ""
        return (
            f"{variable}={count}, so {launcher.name} started {count} processes, but Horovod knows of none but itself: "
            f"each of them trains a model of its own. Start them with `paceline run -np {count} python train.py` or "
            f"horovodrun, or let {launcher.name} start `paceline rank -- python train.py` (docs/guides/launching.md). "
            "mpirun and srun alone do where Horovod was installed by `paceline horovod install --mpi`."
        )
    return ""
