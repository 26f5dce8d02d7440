"""LSF: a batch script for bsub."""

from __future__ import annotations

from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import shell
from paceline.launch.templates.rank_call import by_arguments, container, identified_by_scheduler
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, word_option

BLAUNCH = Kind("blaunch", "blaunch.sh", "blaunch, part of every LSF, starts each rank with `paceline rank`")
JSRUN = Kind(
    "jsrun",
    "jsrun.sh",
    "jsrun, of IBM's systems such as Summit, starts each rank with `paceline rank`, bound to its cores",
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    return {
        "slots": job.nodes * job.cores_per_node,
        "minutes": -(-job.time_s // 60) if job.time_s else None,  # rounded up: a job is not ended early
        "queue": given["queue"],
        "project": given["project"],
        "command": shell([*container(job), *identified_by_scheduler(job.command)])
        if kind is JSRUN
        else by_arguments(job),
    }


_OPTIONS = (word_option("queue", "Queue to wait in."), word_option("project", "Project that the time is charged to."))
SCHEDULER = Scheduler("lsf", "a batch script for LSF", (BLAUNCH, JSRUN), _OPTIONS, _values)
