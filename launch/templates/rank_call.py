"""How files start a rank: `paceline rank`, whose flags are named here alone."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import shell

# Where nothing else can hold it: on a network of the job's own.
RENDEZVOUS_PORT = 29400


def container(job: Job) -> list[str]:
    """What stands before a command that runs in the job's image, on clusters without containers of their own."""
    if job.image is None:
        return []
    is_file = job.image.endswith(".sif") or "://" in job.image
    image = job.image if is_file else f"docker://{job.image}"
    return ["apptainer", "exec", *(["--nv"] if job.gpus else []), image]


def told_by_scheduler(command: Sequence[str]) -> list[str]:
    """The user's command as a rank that learns its number from the scheduler's own variables."""
    return ["paceline", "rank", "--", *command]


def by_arguments(job: Job) -> str:
    """The job's command as a rank that the script's two arguments tell its number and rank 0's HOST:PORT."""
    return numbered(shell(job.command), '"$1"', job.ranks, '"$2"', container(job))


def numbered(command: str, rank: str, size: int, rendezvous: str, before: Sequence[str] = ()) -> str:
    """The user's command as a rank that is told its number, where the scheduler numbers no tasks; for a shell.

    `command`, `rank` and `rendezvous` (HOST:PORT of rank 0) are quoted already, so that the last two may be variables.
    `before` are words in front of all, such as those that start a container.
    """
    return f"{shell([*before, 'paceline', 'rank'])} --rank {rank} --size {size} --rendezvous {rendezvous} -- {command}"
