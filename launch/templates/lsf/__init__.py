"""LSF: a batch script for bsub."""

from __future__ import annotations

from pathlib import Path

from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import exports, shell
from paceline.launch.templates.rank_call import numbered, told_by_scheduler
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, container, word_option

BLAUNCH = Kind("blaunch", "blaunch.sh", "blaunch, part of every LSF, starts each rank with `paceline rank`")
JSRUN = Kind(
    "jsrun",
    "jsrun.sh",
    "jsrun, of IBM's systems such as Summit, starts each rank with `paceline rank`, bound to its cores",
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    if kind is JSRUN:
        command = shell([*container(job), *told_by_scheduler(job.command)])
    else:
        command = numbered(shell(job.command), '"$1"', job.ranks, '"$2"', container(job))
    return {
        "name": job.name,
        "nodes": job.nodes,
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "cores": job.cores,
        "cores_per_node": job.cores_per_node,
        "slots": job.nodes * job.cores_per_node,
        "gpus": job.gpus,
        "minutes": -(-job.time_s // 60) if job.time_s else None,  # rounded up: a job is not ended early
        "memory_mib": job.memory_mib,
        "queue": given["queue"],
        "project": given["project"],
        "setup": job.setup,
        "exports": exports(job.variables),
        "command": command,
    }


SCHEDULER = Scheduler(
    name="lsf",
    summary="a batch script for LSF",
    folder=Path(__file__).parent,
    file="job.sh",
    chooser="start",
    kinds=(BLAUNCH, JSRUN),
    options=(
        word_option("queue", "Queue to wait in."),
        word_option("project", "Project that the time is charged to."),
    ),
    values=_values,
)
