"""PBS Professional and OpenPBS: a batch script for qsub."""

from __future__ import annotations

from pathlib import Path

from paceline.launch.templates.job import Job
from paceline.launch.templates.quantities import clock
from paceline.launch.templates.quoting import exports, shell
from paceline.launch.templates.rank_call import numbered
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, container, word_option

PBSDSH = Kind("pbsdsh", "pbsdsh.sh", "pbsdsh, part of every PBS, starts each rank with `paceline rank`")
MPIRUN = Kind(
    "mpirun",
    "mpirun.sh",
    "mpirun of Open MPI starts the ranks; Horovod must be built with `paceline horovod install --mpi`",
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    if kind is MPIRUN:
        command = shell([*container(job), *job.command])
    else:
        command = numbered(shell(job.command), '"$1"', job.ranks, '"$2"', container(job))
    # pbsdsh numbers what PBS counts as processes: one for each machine lets it number machines.
    processes = job.ranks_per_node if kind is MPIRUN else 1
    chunk = [f"ncpus={job.cores_per_node}", f"mpiprocs={processes}"]
    chunk += [f"ngpus={job.gpus}"] if job.gpus else []
    chunk += [f"mem={job.memory_mib}mb"] if job.memory_mib else []
    return {
        "name": job.name,
        "nodes": job.nodes,
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "cores": job.cores,
        "gpus": job.gpus,
        "select": ":".join([str(job.nodes), *chunk]),
        "walltime": clock(job.time_s) if job.time_s else None,
        "queue": given["queue"],
        "account": given["account"],
        "setup": job.setup,
        "exports": exports(job.variables),
        "handed_on": [f"-x {name} \\" for name in job.variables],
        "command": command,
    }


SCHEDULER = Scheduler(
    name="pbs",
    summary="a batch script for PBS Professional and OpenPBS",
    folder=Path(__file__).parent,
    file="job.sh",
    chooser="start",
    kinds=(PBSDSH, MPIRUN),
    options=(
        word_option("queue", "Queue to wait in."),
        word_option("account", "Account that the time is charged to."),
    ),
    values=_values,
)
