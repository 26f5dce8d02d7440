"""PBS Professional and OpenPBS: a batch script for qsub."""

from __future__ import annotations

from paceline.launch.quantities import clock
from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import shell
from paceline.launch.templates.rank_call import by_arguments, container
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, word_option

PBSDSH = Kind("pbsdsh", "pbsdsh.sh", "pbsdsh, part of every PBS, starts each rank with `paceline rank`")
MPIRUN = Kind(
    "mpirun",
    "mpirun.sh",
    "mpirun of Open MPI starts the ranks; Horovod must be built with `paceline horovod install --mpi`",
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    # pbsdsh numbers PBS processes: with one for each machine it numbers machines.
    processes = job.ranks_per_node if kind is MPIRUN else 1
    chunk = [f"ncpus={job.cores_per_node}", f"mpiprocs={processes}"]
    chunk += [f"ngpus={job.gpus}"] if job.gpus else []
    chunk += [f"mem={job.memory_mib}mb"] if job.memory_mib else []
    return {
        "select": ":".join([str(job.nodes), *chunk]),
        "walltime": clock(job.time_s) if job.time_s else None,
        "queue": given["queue"],
        "account": given["account"],
        "forwarded": [f"-x {name} \\" for name in job.variables],
        "command": shell([*container(job), *job.command]) if kind is MPIRUN else by_arguments(job),
    }


_OPTIONS = (word_option("queue", "Queue to wait in."), word_option("account", "Account that the time is charged to."))
SCHEDULER = Scheduler("pbs", "a batch script for PBS Professional and OpenPBS", (PBSDSH, MPIRUN), _OPTIONS, _values)
